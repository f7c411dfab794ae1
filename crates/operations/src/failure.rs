//! Why an operation did not do what was asked.

use crate::generator::GenerateRefusal;
use fairway_domain::{
    access::{GrantRefusal, Permission, principal_binding::PrincipalRefusal},
    asset::{
        AssetRefusal,
        canonical::CanonicalRefusal,
        content::{ContentProblem, ContentRefusal},
        integrity::IntegrityMismatch,
        ports::{ArtifactError, BlockingRelease},
    },
    environment::EnvironmentRefusal,
    execution::{review::ReviewRefusal, settle::SettleRefusal},
    flow::FlowProblem,
    id::ExecutionId,
    knowledge::document::KnowledgeRefusal,
    prompt::PromptRefusal,
    release::ReleaseRefusal,
    share_link::{ShareTermsRefusal, TokenRefusal},
    store::{CommitError, Conflict, StoreError},
    tenant::TenantRefusal,
    throttle::Throttled,
    workload::{WorkloadRefusal, interface::Finding},
};

/// A field of a request that cannot be as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldProblem {
    /// Which field.
    pub path: &'static str,
    /// Why, as a code.
    pub code: &'static str,
    /// Why, for people.
    pub message: &'static str,
}

/// Why an operation did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing of that name, or nothing that the caller may see.
    #[error("nothing of that name")]
    NotFound,
    /// The caller sees it and may not do that to it.
    #[error("the permission {} is missing", .0.as_str())]
    Forbidden(Permission),
    /// The caller said nothing of who it is, and must.
    #[error("an identity with the permission {} is needed", .0.as_str())]
    Anonymous(Permission),
    /// A field cannot be as it is.
    #[error("a field cannot be as it is")]
    Field(FieldProblem),
    /// The inputs of a run are not what the workload's form asks for.
    #[error("the inputs are not what the workload asks for")]
    Inputs(Vec<Finding>),
    /// The caller named no workspace, and its roles do not name one either.
    #[error("no workspace was named")]
    WorkspaceRequired,
    /// The resource is not as the caller expects it to be.
    #[error("the resource has changed")]
    PreconditionFailed,
    /// Others changed the resource over and over while this was decided.
    #[error("the resource keeps changing")]
    Contended,
    /// A change was committed without an idempotency key, and its outcome cannot be read back now.
    #[error("the outcome of a committed change cannot be read")]
    OutcomeLost,
    /// A rule over several rows refused.
    #[error("a rule over several rows refused")]
    Conflict(Conflict),
    /// The idempotency key came with another body before.
    #[error("the idempotency key came with another body")]
    KeyOtherBody,
    /// The first request with that idempotency key still runs.
    #[error("the first request with that key still runs")]
    KeyInProgress,
    /// About tenants and workspaces.
    #[error(transparent)]
    Tenant(#[from] TenantRefusal),
    /// About grants.
    #[error(transparent)]
    Grant(#[from] GrantRefusal),
    /// About principal bindings.
    #[error(transparent)]
    Principal(#[from] PrincipalRefusal),
    /// About assets.
    #[error(transparent)]
    Asset(#[from] AssetRefusal),
    /// Releases that are not over keep the asset from being archived.
    #[error("releases that are not over bind versions of the asset")]
    AssetInUse {
        /// Those that the caller may see, newest first.
        shown: Vec<BlockingRelease>,
        /// How many more there are that it may not see, or that the answer has no room for.
        hidden: usize,
    },
    /// About a version's content.
    #[error("the content is not allowed")]
    Content(ContentRefusal),
    /// About what a version's content can be at all.
    #[error(transparent)]
    Canonical(#[from] CanonicalRefusal),
    /// About a flow.
    #[error("the flow is not allowed")]
    Flow(Vec<FlowProblem>),
    /// About documents and contracts of knowledge bases.
    #[error(transparent)]
    Knowledge(#[from] KnowledgeRefusal),
    /// About workloads.
    #[error(transparent)]
    Workload(#[from] WorkloadRefusal),
    /// About releases.
    #[error(transparent)]
    Release(#[from] ReleaseRefusal),
    /// What an environment asks for is not allowed.
    #[error(transparent)]
    Environment(#[from] EnvironmentRefusal),
    /// What is wanted of a share link is not allowed.
    #[error(transparent)]
    ShareTerms(#[from] ShareTermsRefusal),
    /// A share token is missing, or opens nothing here.
    #[error(transparent)]
    Token(#[from] TokenRefusal),
    /// The client asks too often.
    #[error("the client asks too often")]
    Throttled(Throttled),
    /// About running.
    #[error(transparent)]
    Run(#[from] RunRefusal),
    /// About generating drafts.
    #[error(transparent)]
    Generate(#[from] GenerateRefusal),
    /// About reviewing what a run answered.
    #[error(transparent)]
    Review(#[from] ReviewRefusal),
    /// About settling how a run came out.
    #[error(transparent)]
    Settle(#[from] SettleRefusal),
    /// About tools.
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    /// A store could not answer.
    #[error(transparent)]
    Store(StoreError),
    /// The artifact store could not answer.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The artifact store returned other bytes than the database names.
    #[error(transparent)]
    Integrity(#[from] IntegrityMismatch),
    /// What is stored contradicts itself.
    #[error("what is stored contradicts itself: {0}")]
    Corrupt(&'static str),
    /// The key was taken while this was decided; the first outcome is to be looked up.
    #[error("the idempotency key was taken meanwhile")]
    KeyTaken,
}

/// Why a workload is not run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunRefusal {
    /// The kill switch is on.
    #[error("the workload is suspended")]
    Suspended,
    /// It is over.
    #[error("the workload is retired")]
    Retired,
    /// No lane that serves the caller has a release.
    #[error("no release is active")]
    NoActiveRelease,
    /// The release binds no flow, and not both a prompt and a model policy.
    #[error("the release binds nothing to run")]
    NothingToRun,
    /// Who a run is to be for is not bound to the workload.
    #[error("who the run is for is not bound to the workload")]
    PrincipalNotBound,
    /// This deployment takes no asynchronous runs.
    #[error("asynchronous runs are not taken here")]
    NoAsync,
    /// As many runs of the tenant wait in line as may.
    #[error("too many runs wait")]
    LineFull,
    /// The release binds a sandbox profile that does not list the language of the script.
    #[error("the sandbox profile of the release does not allow this language")]
    LanguageNotAllowed,
    /// The release binds a sandbox profile with a runtime or an image that scripts do not get here.
    #[error("the sandbox profile of the release asks for a runtime or an image that scripts do not get here")]
    SandboxUnavailable,
    /// As many scripts of the tenant run as may.
    #[error("too many scripts run")]
    TooManyScripts,
    /// The run has ended, or nobody can stop it any more.
    #[error("the run cannot be cancelled any more")]
    NotCancellable,
    /// Whether the run was accepted could not be found out; it may be read under this identifier.
    #[error("whether the run was accepted is not known")]
    Unsettled(ExecutionId),
}

impl RunRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Suspended => "workload_suspended",
            Self::Retired => "workload_retired",
            Self::NoActiveRelease => "no_active_release",
            Self::NothingToRun => "nothing_to_run",
            Self::PrincipalNotBound => "principal_not_bound",
            Self::NoAsync => "async_dispatch_unavailable",
            Self::LineFull => "queue_full",
            Self::LanguageNotAllowed => "language_not_allowed",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::TooManyScripts => "too_many_scripts",
            Self::NotCancellable => "execution_not_cancellable",
            Self::Unsettled(_) => "unavailable",
        }
    }
}

/// Why a tool gave nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ToolRefusal {
    /// Its arguments are not what its schema asks for.
    #[error("the arguments are not what the tool asks for")]
    Arguments(Vec<ContentProblem>),
    /// The knowledge base's access contract does not allow its caller to retrieve.
    #[error("the knowledge base's access contract does not allow this")]
    Contract,
    /// The knowledge base's index was made by another model than the one that queries go to.
    #[error("the index of the knowledge base was made by another embedding model")]
    OtherModel,
    /// Whether the tool did what it was called for could not be found out; its run may be read under this identifier.
    #[error("the tool's answer was lost; it was not called again")]
    Lost(ExecutionId),
    /// What the tool answered cannot be read; its run may be read under this identifier.
    #[error("the tool's answer cannot be read; it was not called again")]
    Malformed(ExecutionId),
}

impl ToolRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Arguments(_) => "validation_error",
            Self::Contract => "contract_refused",
            Self::OtherModel => "embedding_mismatch",
            Self::Lost(_) => "tool_response_lost",
            Self::Malformed(_) => "tool_response_malformed",
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
            CommitError::KeyTaken => Self::KeyTaken,
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
    pub(crate) const fn field(path: &'static str, code: &'static str, message: &'static str) -> Self {
        Self::Field(FieldProblem { path, code, message })
    }

    /// The code of a prompt refusal that a run met.
    #[must_use]
    pub fn prompt(refusal: PromptRefusal) -> Self {
        Self::Content(ContentRefusal::Prompt(refusal))
    }
}
