//! Releases: drafts, bindings, reviews and transitions.

mod activation_checks;
mod active_release;
mod bound_versions;
mod evaluated_content;
mod gates;
mod lane_history;
mod missing_inputs;
mod plan_size;
mod resolve_references;
mod rollback;
mod rollback_advisor;
mod transition;
mod use_case_origin;
mod vector_checks;

pub(crate) use activation_checks::CheckScope;
pub use active_release::{ActiveRelease, ActiveReleaseQuery, ActiveReleaseRevisions};
pub(crate) use evaluated_content::EvaluatedContent;
pub use lane_history::LaneHistory;
pub use rollback::RollbackResult;
pub use rollback_advisor::run_rollback_advisor;
pub(crate) use transition::MAX_LANE_CONFLICTS;
pub use transition::{Transition, TransitionResult};

use crate::{
    Failure, MaybeReplayed, Precondition, Settings, Stores,
    access::{CallerResolver, Operation, ScopeResolver, authorize},
    asset::{Artifacts, Assets},
    commit_context::CommitContext,
    environment::Environments,
    idempotency::{KeyedRequests, MAX_ATTEMPTS, keyed_outcome},
    knowledge::KnowledgeBases,
    services::{CommonOperations, SharedState},
    workload::{Workloads, position_of},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{
        kind::AssetKind,
        ports::{AssetStore, VersionStore},
    },
    audit::AuditStore,
    execution::provider::Provider,
    id::{ApprovalId, AssetId, AssetVersionId, BindingId, ReleaseId, TenantId, WorkloadId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::ports::IndexRevisionStore,
    note::Note,
    release::{
        BindableVersion, Binding, NewRelease, Release, ReleaseRefusal, StateName,
        deployment::Deployment,
        lane::TargetLane,
        ports::{
            DeploymentStore, RecommendationStore, ReleaseEvidenceStore, ReleaseFilter, ReleaseStore,
            ReleaseWithDeployment, ServingReleaseStore,
        },
        review::{ReleaseVerdict, ReviewerVerdict},
    },
    slug::Slug,
    store::{CommitError, Page, PageRequest},
    tenant::TenantScope,
    use_case::ports::UseCaseStore,
    workload::{BuiltinManagementSource, WorkloadRefusal},
};
use moka::sync::Cache;
use std::sync::Arc;

/// Maximum number of workloads for which a cache stores whether they are built in.
const MAX_CACHED_WORKLOADS: u64 = 10_000;

/// The parameters of a new release.
#[derive(Clone, Debug)]
pub struct ReleaseDraft {
    /// The workload that the release belongs to.
    pub workload_id: WorkloadId,
    /// The environment in which the release will serve.
    pub environment: Slug,
    /// The lanes that the release may take when it is activated.
    pub target_lane: TargetLane,
    /// The asset of the policy bundle that the release must bind, if any.
    pub policy_bundle_id: Option<AssetId>,
}

/// Filter of a release list.
#[derive(Clone, Debug, Default)]
pub struct ReleaseQuery {
    /// Only releases of this workspace's workloads.
    pub workspace_id: Option<WorkspaceId>,
    /// Only releases of this workload.
    pub workload_id: Option<WorkloadId>,
    /// Only releases in this environment.
    pub environment: Option<Slug>,
    /// Only releases in this state.
    pub state: Option<StateName>,
}

/// Drafts, reviews, activates, retires and rolls back releases, and reads their deployments.
#[derive(Clone)]
pub struct Releases {
    context: CommitContext,
    settings: Arc<Settings>,
    provider: Arc<dyn Provider>,
    summaries: Cache<(TenantId, AssetVersionId), Arc<EvaluatedContent>>,
    builtin_workloads: Cache<WorkloadId, bool>,
    asset_store: Arc<dyn AssetStore>,
    version_store: Arc<dyn VersionStore>,
    audit_store: Arc<dyn AuditStore>,
    index_revision_store: Arc<dyn IndexRevisionStore>,
    release_store: Arc<dyn ReleaseStore>,
    deployment_store: Arc<dyn DeploymentStore>,
    evidence_store: Arc<dyn ReleaseEvidenceStore>,
    serving_release_store: Arc<dyn ServingReleaseStore>,
    recommendation_store: Arc<dyn RecommendationStore>,
    use_case_store: Arc<dyn UseCaseStore>,
    scope_resolver: Arc<ScopeResolver>,
    keyed_requests: Arc<KeyedRequests>,
    artifacts: Arc<Artifacts>,
    identities: Arc<CallerResolver>,
    environments: Arc<Environments>,
    workloads: Arc<Workloads>,
    assets: Arc<Assets>,
    knowledge_bases: Arc<KnowledgeBases>,
}

impl Releases {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        environments: &Arc<Environments>,
        workloads: &Arc<Workloads>,
        assets: &Arc<Assets>,
        knowledge_bases: &Arc<KnowledgeBases>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            provider: Arc::clone(&shared.provider),
            summaries: shared.summaries.clone(),
            builtin_workloads: Cache::new(MAX_CACHED_WORKLOADS),
            asset_store: Arc::clone(&stores.assets),
            version_store: Arc::clone(&stores.versions),
            audit_store: Arc::clone(&stores.audit),
            index_revision_store: Arc::clone(&stores.index_revisions),
            release_store: Arc::clone(&stores.releases),
            deployment_store: Arc::clone(&stores.deployments),
            evidence_store: Arc::clone(&stores.release_evidence),
            serving_release_store: Arc::clone(&stores.serving_releases),
            recommendation_store: Arc::clone(&stores.recommendations),
            use_case_store: Arc::clone(&stores.use_cases),
            scope_resolver: Arc::clone(&common.scope_resolver),
            keyed_requests: Arc::clone(&common.keyed_requests),
            artifacts: Arc::clone(&common.artifacts),
            identities: Arc::clone(&common.identities),
            environments: Arc::clone(environments),
            workloads: Arc::clone(workloads),
            assets: Arc::clone(assets),
            knowledge_bases: Arc::clone(knowledge_bases),
        }
    }
}

impl Releases {
    /// Creates a release as a draft.
    ///
    /// # Errors
    /// In these cases: the workload or the policy bundle is not found; the caller may not create releases of the
    /// workload; the workload is retired.
    pub async fn create_release(
        &self,
        caller: &Caller,
        draft: ReleaseDraft,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ReleaseWithDeployment>, Failure> {
        let (scope, workload) =
            self.workloads.authorize_workload(caller, Operation::CreateRelease, draft.workload_id).await?;
        let position = position_of(caller, &workload);
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    workload.check_accepts_releases_and_links()?;
                    if let Some(bundle) = draft.policy_bundle_id {
                        let Some(asset) = self.asset_store.find(scope, bundle).await? else {
                            return Err(self.assets.refuse_unknown_asset(caller, bundle).await);
                        };
                        if !self.assets.sees_asset(caller, &asset, Some(&position)).await? {
                            return Err(Failure::NotFound);
                        }
                        if asset.kind != AssetKind::PolicyBundle {
                            return Err(Failure::invalid_field(
                                "policy_bundle_id",
                                "role_kind_mismatch",
                                "this asset is not a policy bundle",
                            ));
                        }
                    }
                    let release_id: ReleaseId = self.context.new_id();
                    let new_release = NewRelease {
                        release_id,
                        workload_id: workload.workload_id,
                        workspace_id: workload.workspace_id,
                        environment: draft.environment,
                        target_lane: draft.target_lane,
                        policy_bundle_id: draft.policy_bundle_id,
                    };
                    let change = Release::draft(new_release, &self.context.stamp(caller));
                    let release = change.next.clone();
                    let outcome = keyed_outcome(key, 201, release_id.uuid());
                    // The deployment is read before the commit, because no step after the commit may fail the request.
                    let (workload_id, environment) = (release.workload_id, release.environment.clone());
                    let lanes = self.deployment_store.deployment(scope, workload_id, &environment).await?;
                    let deployment = lanes.unwrap_or_else(|| Deployment::empty(workload_id, environment));
                    match self.release_store.commit_draft(scope, change, outcome.as_ref()).await {
                        // The statement writes nothing, because the workload was retired after this request read it.
                        Err(CommitError::Stale) => return Err(WorkloadRefusal::Retired.into()),
                        committed => committed?,
                    }
                    Ok(ReleaseWithDeployment { release, deployment })
                },
                async |id| self.read_release(caller, id.into()).await,
            )
            .await
    }

    /// Lists releases without their bindings, newest first.
    ///
    /// # Errors
    /// When the caller may view no releases, or the named workspace is not found.
    pub async fn list_releases(
        &self,
        caller: &Caller,
        query: ReleaseQuery,
        page: PageRequest,
    ) -> Result<Page<Release>, Failure> {
        let (scope, visible_scopes) =
            self.scope_resolver.authorize_list_of(caller, Operation::ListReleases, query.workspace_id).await?;
        let ReleaseQuery { workspace_id: workspace, workload_id: workload, environment, state } = query;
        let excludes_builtin = !caller.rights.allow(Permission::ReleaseView, &ResourcePosition::INSTALLATION);
        let filter = ReleaseFilter { workspace, workload, environment, state, visible_scopes, excludes_builtin };
        Ok(self.release_store.list(scope, &filter, page).await?)
    }

    /// Lists a workload's releases without their bindings, newest first.
    ///
    /// # Errors
    /// When the workload is not found.
    pub async fn list_workload_releases(
        &self,
        caller: &Caller,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<Release>, Failure> {
        let (scope, _) = self.workloads.authorize_workload(caller, Operation::ListWorkloadReleases, workload).await?;
        let filter = ReleaseFilter { workload: Some(workload), ..ReleaseFilter::default() };
        Ok(self.release_store.list(scope, &filter, page).await?)
    }

    /// Returns one release with its bindings, verdicts and lane holders.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn read_release(&self, caller: &Caller, id: ReleaseId) -> Result<ReleaseWithDeployment, Failure> {
        self.authorize_release(caller, Operation::ReadRelease, id).await.map(|(_, _, release)| release)
    }

    /// Binds a version to a draft.
    ///
    /// # Errors
    /// When the release or the version is not found, or the release does not allow the binding.
    pub async fn bind_version(
        &self,
        caller: &Caller,
        id: ReleaseId,
        version: AssetVersionId,
        role: AssetKind,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<(Release, Binding)>, Failure> {
        let (scope, position, _) = self.authorize_release(caller, Operation::BindVersion, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    for _ in 0..MAX_ATTEMPTS {
                        // Each attempt reads the version, because the asset may have been retired or archived since the
                        // last one.
                        let bindable = self.bindable_version(caller, &position, version).await?;
                        let (_, _, current) = self.authorize_release(caller, Operation::BindVersion, id).await?;
                        let binding_id: BindingId = self.context.new_id();
                        let change = current.release.bind(binding_id, role, &bindable, &self.context.stamp(caller))?;
                        let release = change.next.clone();
                        let binding = release.bindings.last().cloned();
                        let outcome = keyed_outcome(key, 201, binding_id.uuid());
                        match self.release_store.commit_binding(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => {}
                            committed => {
                                committed?;
                                return binding.map(|binding| (release, binding)).ok_or(Failure::NotFound);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |binding_id| {
                    let release = self.read_release(caller, id).await?.release;
                    let binding =
                        release.bindings.iter().find(|binding| binding.binding_id.uuid() == binding_id).cloned();
                    binding.map(|binding| (release, binding)).ok_or(Failure::NotFound)
                },
            )
            .await
    }

    /// Removes a binding from a draft.
    ///
    /// # Errors
    /// When the release or the binding is not found, or the release is not a draft.
    pub async fn unbind_version(&self, caller: &Caller, id: ReleaseId, binding: BindingId) -> Result<(), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (scope, _, release_with_deployment) =
                self.authorize_release(caller, Operation::UnbindVersion, id).await?;
            let change = release_with_deployment.release.unbind(binding, &self.context.stamp(caller))?;
            match self.release_store.commit_binding_removal(scope, change, binding).await {
                Err(CommitError::Stale) => {}
                committed => {
                    committed?;
                    self.context.notify_facts();
                    return Ok(());
                }
            }
        }
        Err(Failure::Contended)
    }

    async fn bindable_version(
        &self,
        caller: &Caller,
        position: &ResourcePosition,
        id: AssetVersionId,
    ) -> Result<BindableVersion, Failure> {
        let stored = self.version_store.find_version(TenantScope::for_caller(caller), id).await?;
        let Some((asset, version)) = stored else {
            return Err(self.assets.refuse_unknown_asset(caller, id.uuid().into()).await);
        };
        if !self.assets.is_visible_in(caller, &asset, position).await? {
            return Err(Failure::NotFound);
        }
        Ok(BindableVersion {
            asset_version_id: version.asset_version_id,
            checksum: version.checksum,
            version_label: version.version_label,
            asset_id: asset.asset_id,
            kind: asset.kind,
            lifecycle: asset.lifecycle,
            asset_slug: asset.into_record().slug,
        })
    }

    /// Records a verdict on the current bindings of a release.
    ///
    /// # Errors
    /// When the release is not found, the caller may not review it, or its revision differs from the expected one.
    pub async fn review_release(
        &self,
        caller: &Caller,
        id: ReleaseId,
        verdict: ReleaseVerdict,
        note: Option<Note>,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<(Release, ReviewerVerdict)>, Failure> {
        let (scope, position, release_with_deployment) =
            self.authorize_release(caller, Operation::ReviewRelease, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let reviewed_digest = release_with_deployment.release.bindings_digest();
                    let mut current = release_with_deployment;
                    for _ in 0..MAX_ATTEMPTS {
                        expected.check(current.release.revision)?;
                        // The reviewer's verdict applies only to the bindings that were reviewed, so it is refused if
                        // they changed.
                        if current.release.bindings_digest() != reviewed_digest {
                            return Err(Failure::Contended);
                        }
                        let approval_id: ApprovalId = self.context.new_id();
                        let rule = self.approval_rule(scope, &current.release).await?;
                        rule.check_reviewer_roles(verdict, caller.rights.roles_at(&position))?;
                        let change = match current.release.record_verdict(
                            approval_id,
                            verdict,
                            note.clone(),
                            rule,
                            &self.context.stamp(caller),
                        ) {
                            Err(ReleaseRefusal::SelfApprovalNotAllowed) => {
                                let fact = current.release.self_approval_refused_fact(&self.context.stamp(caller));
                                self.audit_store.commit_fact(scope, fact).await?;
                                self.context.notify_facts();
                                return Err(ReleaseRefusal::SelfApprovalNotAllowed.into());
                            }
                            decided => decided?,
                        };
                        let review = change.next.clone();
                        let outcome = keyed_outcome(key, 201, approval_id.uuid());
                        match self.release_store.commit_review(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    let stored = self.release_store.find(scope, id).await?;
                                    current = stored.ok_or(Failure::NotFound)?;
                                }
                            },
                            committed => {
                                committed?;
                                return Ok((review.release, review.approval));
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |approval_id| {
                    let release = self.read_release(caller, id).await?.release;
                    let approval = self.release_store.approval(scope, id, approval_id.into()).await?;
                    approval.map(|approval| (release, approval)).ok_or(Failure::NotFound)
                },
            )
            .await
    }

    /// Lists the verdicts on a release with their notes, newest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn list_approvals(
        &self,
        caller: &Caller,
        id: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReviewerVerdict>, Failure> {
        let (scope, _, _) = self.authorize_release(caller, Operation::ListApprovals, id).await?;
        Ok(self.release_store.approvals(scope, id, page).await?)
    }

    /// Authorizes an operation on a release; returns the tenant scope, the resource position of its workload, and the
    /// release.
    pub(crate) async fn authorize_release(
        &self,
        caller: &Caller,
        operation: Operation,
        id: ReleaseId,
    ) -> Result<(TenantScope, ResourcePosition, ReleaseWithDeployment), Failure> {
        let tenant_scope = TenantScope::for_caller(caller);
        // The caller is authorized before the full read. A full read takes longer than a failed lookup, so its
        // response time would reveal that the release exists.
        if caller.rights.scope_restriction(Permission::ReleaseView).is_some() {
            let location = self.release_store.location(tenant_scope, id).await?;
            let (workspace, workload) = location.ok_or(Failure::NotFound)?;
            self.authorize_at_workload(caller, operation, workspace, workload).await?;
        }
        let release_with_deployment = self.release_store.find(tenant_scope, id).await?.ok_or(Failure::NotFound)?;
        let (workspace, workload) =
            (release_with_deployment.release.workspace_id, release_with_deployment.release.workload_id);
        let (scope, workload_position) = self.authorize_at_workload(caller, operation, workspace, workload).await?;
        Ok((scope, workload_position, release_with_deployment))
    }

    /// Authorizes an operation on a release of a workload; returns the tenant scope and the resource position of the
    /// workload. Only platform operators see releases of built-in workloads.
    async fn authorize_at_workload(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
        workload: WorkloadId,
    ) -> Result<(TenantScope, ResourcePosition), Failure> {
        let workload_position = self.scope_resolver.position_of_workload(caller, workspace, workload).await?;
        let is_builtin = self.is_builtin(TenantScope::for_caller(caller), workload).await?;
        let position = if is_builtin { &ResourcePosition::INSTALLATION } else { &workload_position };
        Ok((authorize::authorize(caller, operation, position)?, workload_position))
    }

    /// Whether a workload is built in. This property of a workload never changes, so it is cached.
    async fn is_builtin(&self, scope: TenantScope, workload: WorkloadId) -> Result<bool, Failure> {
        if let Some(is_builtin) = self.builtin_workloads.get(&workload) {
            return Ok(is_builtin);
        }
        let stored_workload = self.workloads.workload_of(scope, workload).await?;
        let is_builtin = stored_workload.management_source == Some(BuiltinManagementSource::PlatformBuiltin);
        self.builtin_workloads.insert(workload, is_builtin);
        Ok(is_builtin)
    }
}
