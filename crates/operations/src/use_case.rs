//! Operations on use cases: drafts, publication, activation.

mod generate;
mod plan_comparison;
mod publish;
mod refine;
mod warnings;

pub use generate::{GeneratedPlan, GenerationResult, PlanOrQuestion};
pub use plan_comparison::PlanComparison;
pub use refine::{RefineRequest, RefinementOutcome};
pub use warnings::PlanWarning;

use crate::{
    Failure, MaybeReplayed, Precondition, Stores,
    access::{Operation, ScopeResolver, authorize},
    asset::{Artifacts, Assets, workspace_and_namespace},
    blocking::{ProcessorWait, run_blocking},
    commit_context::CommitContext,
    generator::DraftGenerator,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{
        Asset, AssetVersion,
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    audit::Stamp,
    connection::{ConnectionStore, ConnectionWithExpiryState},
    execution::provider::Provider,
    id::{UseCaseId, WorkspaceId},
    idempotency::RequestKey,
    slug::Slug,
    store::{Change, CommitError, Page, PageRequest},
    tenant::TenantScope,
    use_case::{
        UseCase, UseCaseRefusal, UseCaseStatus, UseCaseSummary,
        bundle::{BundlePlan, BundleProblem, BundleRefusal},
        gaps::{ConnectionAccess, Gap, connection_gaps},
        ports::{UseCaseFilter, UseCaseStore},
    },
};
use serde_json::Value;
use std::sync::Arc;

/// The kind of a piece of a bundle; a piece is an asset or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceKind {
    /// The flow asset.
    Flow,
    /// The prompt template that the flow reads.
    Prompt,
    /// The model policy to which the plan refers.
    ModelPolicy,
    /// The policy bundle that decides about runs.
    PolicyBundle,
    /// A connection to an external system.
    Connection,
}

impl PieceKind {
    /// The name of the kind in requests and responses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Prompt => "prompt",
            Self::ModelPolicy => "model_policy",
            Self::PolicyBundle => "policy_bundle",
            Self::Connection => "connection",
        }
    }
}

/// A piece of the bundle of a stored use case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundlePiece {
    /// The part that the piece has in the bundle.
    pub piece: PieceKind,
    /// The asset kind, or the kind of the connection; `None` for a connection that does not exist.
    pub kind: Option<&'static str>,
    /// The slug of the asset or the name of the connection; `None` until the publication determines it.
    pub reference: Option<String>,
    /// The identifier of the asset or connection; `None` until it exists.
    pub id: Option<uuid::Uuid>,
}

/// The pieces of a use case's bundle, existing or planned, with the steps of its flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BundlePieces {
    /// All pieces of the bundle, or none if `redacted` is true.
    pub pieces: Vec<BundlePiece>,
    /// The identifier and type of each step of the flow.
    pub flow_steps: Vec<(String, String)>,
    /// The gaps of those connections that are not usable yet.
    pub open_connection_gaps: Vec<Gap>,
    /// Whether the lists are empty because the caller may not see the bundle.
    pub redacted: bool,
}

/// Generates, creates, refines, publishes, activates and archives use cases.
#[derive(Clone)]
pub struct UseCases {
    context: CommitContext,
    use_case_store: Arc<dyn UseCaseStore>,
    connection_store: Arc<dyn ConnectionStore>,
    asset_store: Arc<dyn AssetStore>,
    version_store: Arc<dyn VersionStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    artifacts: Arc<Artifacts>,
    assets: Arc<Assets>,
    draft_generator: Arc<DraftGenerator>,
    provider: Arc<dyn Provider>,
}

impl UseCases {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        assets: &Arc<Assets>,
        draft_generator: &Arc<DraftGenerator>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            use_case_store: Arc::clone(&stores.use_cases),
            connection_store: Arc::clone(&stores.connections),
            asset_store: Arc::clone(&stores.assets),
            version_store: Arc::clone(&stores.versions),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            artifacts: Arc::clone(&common.artifacts),
            assets: Arc::clone(assets),
            draft_generator: Arc::clone(draft_generator),
            provider: Arc::clone(&shared.provider),
        }
    }
}

impl UseCases {
    /// Creates a use case as a draft. The bundle is checked completely with the caller's rights, even if the generator
    /// produced it.
    ///
    /// # Errors
    /// When the caller may not author use cases and create assets in the workspace, or the bundle is invalid or
    /// redacted.
    pub async fn create_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        source_description: String,
        bundle: Value,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let (scope, position) = self.authorize_new(caller, Operation::CreateUseCase, workspace).await?;
        let (workspace_id, _) = workspace_and_namespace(&position)?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let plan = self.check_plan(caller, scope, &position, bundle).await?;
                    let id: UseCaseId = self.context.new_id();
                    let stamp = self.context.stamp(caller);
                    let change = UseCase::create(id, workspace_id, source_description, plan, &stamp);
                    let use_case = change.next.clone();
                    let outcome = keyed_outcome(key, 201, id.uuid());
                    self.use_case_store.commit_new(scope, change, outcome.as_ref()).await?;
                    Ok(use_case)
                },
                async |id| self.read_use_case(caller, workspace, id.into()).await,
            )
            .await
    }

    /// Lists the use cases of a workspace, newest first.
    ///
    /// # Errors
    /// When the caller may not view workloads in the workspace, or the workspace is not found.
    pub async fn list_use_cases(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        status: Option<UseCaseStatus>,
        is_activation_ready: bool,
        page: PageRequest,
    ) -> Result<Page<UseCaseSummary>, Failure> {
        let (scope, _) =
            self.scope_resolver.authorize_list_of(caller, Operation::ListUseCases, Some(workspace)).await?;
        let filter = UseCaseFilter { workspace, status, is_activation_ready };
        Ok(self.use_case_store.list(scope, filter, page).await?)
    }

    /// Returns one use case.
    ///
    /// # Errors
    /// Not found when the caller does not see the use case in that workspace.
    pub async fn read_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
    ) -> Result<UseCase, Failure> {
        self.authorize_use_case(caller, Operation::ReadUseCase, workspace, id).await.map(|(_, _, use_case)| use_case)
    }

    /// Returns the pieces of the bundle of a use case. A caller that may not read connections receives none, and
    /// `redacted` is true.
    ///
    /// # Errors
    /// Not found when the caller does not see the assets of that workspace.
    pub async fn read_bundle_pieces(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
    ) -> Result<BundlePieces, Failure> {
        let (scope, position, use_case) =
            self.authorize_use_case(caller, Operation::ReadUseCaseBundle, workspace, id).await?;
        let access = connection_access(caller, &position);
        if access == ConnectionAccess::Hidden {
            return Ok(BundlePieces { redacted: true, ..BundlePieces::default() });
        }
        let mut pieces = self.asset_pieces(caller, scope, &position, &use_case).await?;
        let connections = self.named_connections(scope, &use_case).await?;
        for name in use_case.plan.connections() {
            let existing =
                connections.iter().map(|entry| &entry.connection).find(|connection| connection.name == *name);
            pieces.push(BundlePiece {
                piece: PieceKind::Connection,
                kind: existing.map(|connection| connection.kind.as_str()),
                reference: Some(name.clone()),
                id: existing.map(|connection| connection.connection_id.uuid()),
            });
        }
        let unresolved = use_case.unresolved_connections(&connections);
        let gaps = connection_gaps(&use_case.plan, &connections, access);
        let is_open = |gap: &Gap| gap.reference.as_ref().is_some_and(|name| unresolved.contains(name));
        Ok(BundlePieces {
            pieces,
            flow_steps: use_case.plan.flow_steps().to_vec(),
            open_connection_gaps: gaps.into_iter().filter(is_open).collect(),
            redacted: false,
        })
    }

    /// Returns the pieces that are assets. An asset that does not exist yet has no identifier.
    async fn asset_pieces(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        use_case: &UseCase,
    ) -> Result<Vec<BundlePiece>, Failure> {
        let publication_pieces = use_case.pieces;
        let policy = match publication_pieces {
            Some(pieces) => Some(pieces.policy_bundle),
            None => self.sole_policy_bundle(scope, position).await?.map(|asset| asset.asset_id),
        };
        let model = match publication_pieces {
            Some(pieces) => Some(pieces.model_policy),
            None => self
                .visible_model_policy(caller, scope, position, use_case.plan.model_policy_ref())
                .await?
                .map(|(asset, _)| asset.asset_id),
        };
        let assets = [
            (PieceKind::Flow, AssetKind::OrchestrationFlow, publication_pieces.map(|pieces| pieces.flow)),
            (PieceKind::Prompt, AssetKind::PromptTemplate, publication_pieces.map(|pieces| pieces.prompt)),
            (PieceKind::ModelPolicy, AssetKind::ModelPolicy, model),
            (PieceKind::PolicyBundle, AssetKind::PolicyBundle, policy),
        ];
        let mut pieces = Vec::new();
        for (piece, kind, id) in assets {
            let asset = match id {
                Some(id) => self.asset_store.find(scope, id).await?,
                None => None,
            };
            let plan_reference =
                (piece == PieceKind::ModelPolicy).then(|| use_case.plan.model_policy_ref().to_string());
            let reference = asset.map(|asset| asset.slug.to_string()).or(plan_reference);
            pieces.push(BundlePiece { piece, kind: Some(kind.as_str()), reference, id: id.map(|id| id.uuid()) });
        }
        Ok(pieces)
    }

    /// Archives a use case, and withdraws its pending access requests in the same commit.
    ///
    /// # Errors
    /// When the use case is not found, the caller may not author it, or it is archived.
    pub async fn archive_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let archive = async |_: TenantScope, use_case: &UseCase, stamp: &Stamp| Ok(use_case.archive(stamp)?);
        self.transition(caller, Operation::ArchiveUseCase, (workspace, id), expected, key, archive).await
    }

    /// Returns a use case that awaits access to the state of a draft, and withdraws its pending access requests in the
    /// same commit.
    ///
    /// # Errors
    /// When the use case is not found, the caller may not author it, or it does not await access.
    pub async fn return_use_case_to_draft(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let reopen = async |_: TenantScope, use_case: &UseCase, stamp: &Stamp| Ok(use_case.reopen(stamp)?);
        self.transition(caller, Operation::ReopenUseCase, (workspace, id), expected, key, reopen).await
    }

    /// Activates a use case that awaits access, if all its connections are usable.
    ///
    /// # Errors
    /// In these cases: the use case is not found; the caller may not publish it; it does not await access; a connection
    /// is not usable.
    pub async fn activate_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let activate = async |scope: TenantScope, use_case: &UseCase, stamp: &Stamp| {
            let connections = self.named_connections(scope, use_case).await?;
            Ok(use_case.activate(&connections, stamp)?)
        };
        self.transition(caller, Operation::ActivateUseCase, (workspace, id), expected, key, activate).await
    }

    /// Decides on a change of status and commits it. If the use case changed concurrently, decides again.
    async fn transition(
        &self,
        caller: &Caller,
        operation: Operation,
        (workspace, id): (WorkspaceId, UseCaseId),
        expected: &Precondition,
        key: Option<&RequestKey>,
        decide: impl AsyncFn(TenantScope, &UseCase, &Stamp) -> Result<Change<UseCase>, Failure>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let (scope, _, authorized_use_case) = self.authorize_use_case(caller, operation, workspace, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let mut use_case = authorized_use_case;
                    for _ in 0..MAX_ATTEMPTS {
                        expected.check(use_case.revision)?;
                        let change = decide(scope, &use_case, &self.context.stamp(caller)).await?;
                        let changed_use_case = change.next.clone();
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.use_case_store.commit_transition(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    use_case = self.use_case_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
                                }
                            },
                            committed => {
                                committed?;
                                return Ok(changed_use_case);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.use_case_store.find(scope, id).await?.ok_or(Failure::NotFound),
            )
            .await
    }

    /// Checks a plan completely: its form, and with the caller's rights its reference to a model policy.
    async fn check_plan(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        bundle: Value,
    ) -> Result<BundlePlan, Failure> {
        // The check of a flow or a schema may take long, so it runs on the blocking pool.
        let parsed = run_blocking(scope, ProcessorWait::Request, move || BundlePlan::parse(&bundle)).await?;
        let plan = parsed?;
        let policy = self.visible_model_policy(caller, scope, position, plan.model_policy_ref()).await?;
        let (policy, _) = policy.ok_or_else(unknown_model_policy)?;
        // Every caller may use the built-in policy, because its slug is public.
        if !policy.is_builtin() && !self.assets.sees_asset(caller, &policy, Some(position)).await? {
            return Err(unknown_model_policy());
        }
        Ok(plan)
    }

    /// Returns the model policy with this slug and its newest version, provided that releases of the workspace may bind
    /// it.
    async fn visible_model_policy(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        slug: &Slug,
    ) -> Result<Option<(Asset, Option<AssetVersion>)>, Failure> {
        let stored = self.asset_store.find_by_slug(scope, slug, None).await?;
        let Some((asset, version)) = stored.filter(|(asset, _)| asset.kind == AssetKind::ModelPolicy) else {
            return Ok(None);
        };
        Ok(self.assets.is_visible_in(caller, &asset, position).await?.then_some((asset, version)))
    }

    async fn named_connections(
        &self,
        scope: TenantScope,
        use_case: &UseCase,
    ) -> Result<Vec<ConnectionWithExpiryState>, Failure> {
        let names = use_case.plan.connections();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.connection_store.find_named(scope, use_case.workspace_id, names).await?)
    }

    /// Authorizes the creation of a use case, which requires the operation's permission and the permission to create
    /// assets.
    async fn authorize_new(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
    ) -> Result<(TenantScope, ResourcePosition), Failure> {
        let position = self.scope_resolver.position_for_new_resource(caller, operation, Some(workspace)).await?;
        authorize::authorize(caller, Operation::CreateAsset, &position)?;
        Ok((authorize::authorize(caller, operation, &position)?, position))
    }

    async fn authorize_use_case(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
        id: UseCaseId,
    ) -> Result<(TenantScope, ResourcePosition, UseCase), Failure> {
        let tenant_scope = TenantScope::for_caller(caller);
        let position = self.scope_resolver.workspace_position(caller, workspace).await?;
        let stored = self.use_case_store.find(tenant_scope, id).await?;
        let use_case = stored.filter(|stored| stored.workspace_id == workspace).ok_or(Failure::NotFound)?;
        Ok((authorize::authorize(caller, operation, &position)?, position, use_case))
    }
}

/// Returns the caller's access to the connections of a workspace.
fn connection_access(caller: &Caller, position: &ResourcePosition) -> ConnectionAccess {
    match (
        caller.rights.allow(Permission::ConnectionRead, position),
        caller.rights.allow(Permission::ConnectionManage, position),
    ) {
        (true, true) => ConnectionAccess::Manage,
        (true, false) => ConnectionAccess::Read,
        (false, _) => ConnectionAccess::Hidden,
    }
}

/// Returns the refusal of a plan whose model policy does not exist, or is not visible to the caller.
fn unknown_model_policy() -> Failure {
    Failure::Bundle(BundleRefusal::Invalid(vec![BundleProblem {
        path: "bundle.model_policy_ref".to_owned(),
        code: "unknown_asset",
        message: "no model policy of this workspace has this slug".to_owned(),
    }]))
}

/// Returns the refusal of a publication whose model policy is not approved, or whose approved routes have no account.
fn model_policy_unavailable() -> Failure {
    UseCaseRefusal::ModelPolicyUnavailable.into()
}
