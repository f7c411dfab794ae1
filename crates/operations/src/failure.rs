//! Failures of operations: refusals that callers can handle, and faults of stores.

use crate::generator::GenerateRefusal;
use fairway_domain::{
    access::{GrantRefusal, Permission, identity::IdentityRefusal, principal_binding::PrincipalRefusal},
    access_request::AccessRequestRefusal,
    anonymous_rate_limit::RateLimitRefusal,
    asset::{
        AssetRefusal,
        artifact_integrity::IntegrityMismatch,
        artifact_store::ArtifactStoreError,
        canonical::CanonicalRefusal,
        content::{ContentProblem, ContentRefusal},
        ports::BlockingRelease,
    },
    connection::ConnectionRefusal,
    environment::EnvironmentRefusal,
    erasure::ErasureRefusal,
    execution::{resolve_unknown::ResolveRefusal, review::ReviewRefusal},
    flow::FlowProblem,
    id::ExecutionId,
    knowledge::document::KnowledgeRefusal,
    notification::{
        RequiredSettingOff, announcement::AnnouncementRefusal, delivery::DeliveryNotFailed,
        destination::DestinationRefusal, preference::RepeatedPreference,
    },
    prompt::PromptRefusal,
    release::ReleaseRefusal,
    share_link::{ShareTermsRefusal, ShareTokenRefusal},
    slug::Slug,
    store::{CommitError, ConstraintConflict, StoreError},
    tenant::TenantRefusal,
    transparency_log::SigningError,
    use_case::{UseCaseRefusal, bundle::BundleRefusal},
    workload::{WorkloadRefusal, interface::InterfaceProblem},
};

/// An invalid field of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldProblem {
    /// Path of the field in the request body or query.
    pub path: &'static str,
    /// Stable code of the problem.
    pub code: &'static str,
    /// Human-readable description of the problem.
    pub message: &'static str,
}

/// Reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The resource does not exist, or the caller may not see it.
    #[error("not found")]
    NotFound,
    /// The caller may see the resource, but lacks the permission for the operation.
    #[error("the permission {} is missing", .0.as_str())]
    Forbidden(Permission),
    /// The caller is anonymous, and the operation requires an identity.
    #[error("an identity with the permission {} is required", .0.as_str())]
    Anonymous(Permission),
    /// A verified identity cannot be used, for example because it names no tenant.
    #[error(transparent)]
    Identity(#[from] IdentityRefusal),
    /// A field of the request is invalid.
    #[error("a field is invalid")]
    InvalidField(FieldProblem),
    /// The inputs of a run do not match the input form of the workload.
    #[error("the inputs do not match the form of the workload")]
    InvalidInputs(Vec<InterfaceProblem>),
    /// The request names no workspace, and the caller's roles do not determine one.
    #[error("the request names no workspace")]
    WorkspaceRequired,
    /// The resource has a revision other than those in `If-Match`.
    #[error("the resource has changed")]
    PreconditionFailed,
    /// Concurrent changes made the decision stale in every attempt.
    #[error("concurrent changes to the resource prevented the change")]
    Contended,
    /// A change without an idempotency key was committed, but its result cannot be read now.
    #[error("the outcome of a committed change cannot be read")]
    OutcomeLost,
    /// A constraint across several rows, such as a unique slug, refused the change.
    #[error("a constraint across several rows refused the change")]
    Conflict(ConstraintConflict),
    /// An earlier request used the idempotency key with another body.
    #[error("an earlier request used the idempotency key with another body")]
    KeyReused,
    /// The first request with this idempotency key is still in progress.
    #[error("the first request with the idempotency key is still in progress")]
    KeyInProgress,
    /// Refusal of a change to a tenant or workspace.
    #[error(transparent)]
    Tenant(#[from] TenantRefusal),
    /// Refusal to grant a role.
    #[error(transparent)]
    Grant(#[from] GrantRefusal),
    /// Refusal to bind a principal to a workload.
    #[error(transparent)]
    Principal(#[from] PrincipalRefusal),
    /// Refusal of a change to an asset.
    #[error(transparent)]
    Asset(#[from] AssetRefusal),
    /// Releases that are neither superseded nor retired bind versions of the asset, so it cannot be archived.
    #[error("releases that are neither superseded nor retired bind versions of the asset")]
    AssetInUse {
        /// The blocking releases that the caller may see, newest first.
        visible_releases: Vec<BlockingRelease>,
        /// Number of further blocking releases, which the caller may not see or which exceed the limit of the
        /// response.
        hidden_count: usize,
    },
    /// The content of a version is invalid.
    #[error("the content is invalid")]
    Content(ContentRefusal),
    /// The content of a version has no canonical form (RFC 8785).
    #[error(transparent)]
    Canonical(#[from] CanonicalRefusal),
    /// The content of a flow is invalid. Contains all problems that were found, with their positions.
    #[error("the flow is invalid")]
    Flow(Vec<FlowProblem>),
    /// Refusal of a change to documents or access contracts.
    #[error(transparent)]
    Knowledge(#[from] KnowledgeRefusal),
    /// Refusal of a change to a workload.
    #[error(transparent)]
    Workload(#[from] WorkloadRefusal),
    /// Refusal of a change to a release or its rollout.
    #[error(transparent)]
    Release(#[from] ReleaseRefusal),
    /// The settings of an environment are invalid.
    #[error(transparent)]
    Environment(#[from] EnvironmentRefusal),
    /// Refusal of a change to an erasure.
    #[error(transparent)]
    Erasure(#[from] ErasureRefusal),
    /// The lifetime, the number of runs or the label of a share link is invalid.
    #[error(transparent)]
    ShareTerms(#[from] ShareTermsRefusal),
    /// The share link token is missing, or invalid for the workload.
    #[error(transparent)]
    ShareToken(#[from] ShareTokenRefusal),
    /// The client exceeds its rate limit.
    #[error("the client exceeds its rate limit")]
    Throttled(RateLimitRefusal),
    /// Refusal to run a workload.
    #[error(transparent)]
    Run(#[from] RunRefusal),
    /// A field of a connection is invalid.
    #[error(transparent)]
    Connection(#[from] ConnectionRefusal),
    /// Refusal of a decision on an access request.
    #[error(transparent)]
    AccessRequest(#[from] AccessRequestRefusal),
    /// Refusal of a change to a use case.
    #[error(transparent)]
    UseCase(#[from] UseCaseRefusal),
    /// The bundle of a use case is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleRefusal),
    /// Refusal to generate a draft.
    #[error(transparent)]
    Generate(#[from] GenerateRefusal),
    /// The operation requires a notification setting that the tenant has turned off.
    #[error(transparent)]
    RequiredSettingOff(#[from] RequiredSettingOff),
    /// A list of preferences contains the same category and channel twice.
    #[error(transparent)]
    RepeatedPreference(#[from] RepeatedPreference),
    /// A destination of notifications is invalid.
    #[error(transparent)]
    Destination(#[from] DestinationRefusal),
    /// The delivery has not failed, so it cannot be retried.
    #[error(transparent)]
    DeliveryNotFailed(#[from] DeliveryNotFailed),
    /// The title, the body or the audience of an announcement is invalid.
    #[error(transparent)]
    Announcement(#[from] AnnouncementRefusal),
    /// Refusal to review the answer of a run.
    #[error(transparent)]
    Review(#[from] ReviewRefusal),
    /// Refusal to resolve a run with an unknown outcome.
    #[error(transparent)]
    Resolve(#[from] ResolveRefusal),
    /// Refusal of a tool call.
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    /// An operation of the database failed. Its fault states whether a retry can succeed.
    #[error(transparent)]
    Store(StoreError),
    /// The artifact store is unavailable, or contains other bytes under the path of an artifact.
    #[error(transparent)]
    Artifact(#[from] ArtifactStoreError),
    /// The artifact store returned bytes that do not match the checksum in the database.
    #[error(transparent)]
    Integrity(#[from] IntegrityMismatch),
    /// The latest checkpoint of the transparency log does not yet cover the event or the tree size.
    #[error("the latest checkpoint does not cover this yet")]
    NotYetInCheckpoint,
    /// The checkpoint signing key cannot be read.
    #[error(transparent)]
    Signing(#[from] SigningError),
    /// Stored data violates an invariant; the text names it.
    #[error("stored data is inconsistent: {0}")]
    Inconsistent(&'static str),
    /// A concurrent request committed with the same idempotency key. The calling code must then read the outcome of
    /// that request.
    #[error("a concurrent request took the idempotency key")]
    KeyTaken,
}

/// Reason why a run is not accepted, read or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunRefusal {
    /// The workload is suspended, so it accepts no runs until it is resumed.
    #[error("the workload is suspended")]
    Suspended,
    /// The workload is retired, so it accepts no more runs.
    #[error("the workload is retired")]
    Retired,
    /// No release serves the lane of the run.
    #[error("no release is active")]
    NoActiveRelease {
        /// Environments with a release that would serve the caller; `None` if the caller may not view the releases of
        /// the workload.
        active_environments: Option<Vec<Slug>>,
    },
    /// The release binds nothing that can run: it needs a flow, or a prompt with a model policy.
    #[error("the release binds neither a flow nor a prompt with a model policy")]
    NothingToRun,
    /// The principal on whose behalf the run would execute is not bound to the workload.
    #[error("the principal of the run is not bound to the workload")]
    PrincipalNotBound,
    /// This installation accepts no asynchronous runs.
    #[error("this deployment accepts no asynchronous runs")]
    AsyncUnavailable,
    /// The tenant has reached its limit of queued runs.
    #[error("the tenant has {limit} queued runs, which is its limit")]
    QueueFull {
        /// The limit of queued runs per tenant.
        limit: u32,
    },
    /// The bound sandbox profile does not list the language of the script.
    #[error("the sandbox profile of the release does not allow this language")]
    LanguageNotAllowed,
    /// The bound sandbox profile requires a runtime or an image that this installation does not have.
    #[error("the sandbox profile of the release requires a runtime or an image that is not available for scripts")]
    SandboxUnavailable,
    /// The tenant has reached its limit of concurrent scripts.
    #[error("too many scripts run")]
    TooManyScripts,
    /// The run has not ended, so its evidence is incomplete.
    #[error("the run has not ended")]
    NotEnded,
    /// The run has ended, or can no longer be cancelled.
    #[error("the run can no longer be cancelled")]
    NotCancellable,
    /// The server cannot determine whether the run was accepted. If it was, it has this identifier.
    #[error("it is unknown whether the run was accepted")]
    AcceptanceUnknown(ExecutionId),
}

impl RunRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Suspended => "workload_suspended",
            Self::Retired => "workload_retired",
            Self::NoActiveRelease { .. } => "no_active_release",
            Self::NothingToRun => "nothing_to_run",
            Self::PrincipalNotBound => "principal_not_bound",
            Self::AsyncUnavailable => "async_dispatch_unavailable",
            Self::QueueFull { .. } => "queue_full",
            Self::LanguageNotAllowed => "language_not_allowed",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::TooManyScripts => "too_many_scripts",
            Self::NotEnded => "execution_not_ended",
            Self::NotCancellable => "execution_not_cancellable",
            Self::AcceptanceUnknown(_) => "unavailable",
        }
    }
}

/// Reason why a call of one of Fairway's tools returned no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolRefusal {
    /// The arguments do not match the tool's schema.
    #[error("the arguments do not match the schema of the tool")]
    InvalidArguments(Vec<ContentProblem>),
    /// The access contract of the knowledge base does not allow the caller to retrieve.
    #[error("the knowledge base's access contract does not allow this")]
    ContractDenied,
    /// No model can embed the query. Either the chunks have vectors of several models or none, or the account of the
    /// index's model is missing or refused.
    #[error("another embedding model made the index of the knowledge base")]
    EmbeddingMismatch,
    /// The server cannot determine whether the call started a run. If it did, the run has this identifier.
    #[error("the tool's answer was lost; it was not called again")]
    ResponseLost(ExecutionId),
    /// The response of the call was unreadable. If the call started a run, the run has this identifier.
    #[error("the tool's answer cannot be read; it was not called again")]
    ResponseMalformed(ExecutionId),
}

impl ToolRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidArguments(_) => "validation_error",
            Self::ContractDenied => "contract_refused",
            Self::EmbeddingMismatch => "embedding_mismatch",
            Self::ResponseLost(_) => "tool_response_lost",
            Self::ResponseMalformed(_) => "tool_response_malformed",
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Stale => Self::Contended,
            CommitError::DuplicateKey => Self::KeyTaken,
            CommitError::Conflict(conflict) => Self::Conflict(conflict),
            CommitError::Store(error) => Self::Store(error),
        }
    }
}

impl From<ContentRefusal> for Failure {
    fn from(refusal: ContentRefusal) -> Self {
        Self::Content(refusal)
    }
}

impl Failure {
    pub(crate) const fn invalid_field(path: &'static str, code: &'static str, message: &'static str) -> Self {
        Self::InvalidField(FieldProblem { path, code, message })
    }

    /// Converts the refusal of a prompt template into a failure.
    #[must_use]
    pub fn from_prompt_refusal(refusal: PromptRefusal) -> Self {
        Self::Content(ContentRefusal::Prompt(refusal))
    }
}
