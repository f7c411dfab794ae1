//! Publication of a use case: stores its artifacts first, and then creates all rows in one commit.

use super::{UseCases, connection_access, model_policy_unavailable};
use crate::{
    Failure, MaybeReplayed, Precondition,
    access::Operation,
    asset::workspace_and_namespace,
    idempotency::{MAX_ATTEMPTS, keyed_outcome},
};
use fairway_domain::{
    access::{ActorKind, Caller, OwnerRef, ResourcePosition},
    asset::{
        Asset, Lifecycle,
        content::{self, CheckedContent, Route},
        kind::AssetKind,
    },
    id::{UseCaseId, WorkspaceId},
    idempotency::RequestKey,
    release::BindableVersion,
    slug::Slug,
    store::CommitError,
    tenant::TenantScope,
    use_case::{PublicationContext, PublicationIds, UseCase, gaps::ConnectionAccess},
};
use futures_util::{future::try_join_all, try_join};

impl UseCases {
    /// Publishes a draft. The publication creates or reuses its assets. It creates a workload with a form, and a
    /// release draft that binds the assets. For missing connections that the caller may not create, it creates access
    /// requests.
    ///
    /// # Errors
    /// In these cases: the use case is not found; the caller may not publish it; it is not a draft; its model policy is
    /// not approved or has no account. Also when a connection is missing that the caller itself may create.
    pub async fn publish_use_case(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        id: UseCaseId,
        expected: &Precondition,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<UseCase>, Failure> {
        let (scope, position, authorized_use_case) =
            self.authorize_use_case(caller, Operation::PublishUseCase, workspace, id).await?;
        self.keyed_requests
            .idempotent(
                scope,
                key,
                async || {
                    let mut use_case = authorized_use_case;
                    for _ in 0..MAX_ATTEMPTS {
                        expected.check(use_case.revision)?;
                        use_case.check_publishable()?;
                        let publication_context = self.publication_context(caller, scope, &position, &use_case).await?;
                        let ids = self.publication_ids(&use_case);
                        let change = use_case.publish(ids, &publication_context, &self.context.stamp(caller))?;
                        let published_use_case = change.next.use_case.clone();
                        let new_assets = change.next.created.iter().flat_map(|pieces| &pieces.assets);
                        try_join_all(new_assets.map(|(_, version)| {
                            self.artifacts.put_artifact(caller, scope, use_case.workspace_id, version)
                        }))
                        .await?;
                        let outcome = keyed_outcome(key, 200, id.uuid());
                        match self.use_case_store.commit_publication(scope, change, outcome.as_ref()).await {
                            Err(CommitError::Stale) => match expected.stale_failure() {
                                Some(failure) => return Err(failure),
                                None => {
                                    use_case = self.use_case_store.find(scope, id).await?.ok_or(Failure::NotFound)?;
                                }
                            },
                            committed => {
                                committed?;
                                return Ok(published_use_case);
                            }
                        }
                    }
                    Err(Failure::Contended)
                },
                async |_| self.use_case_store.find(scope, id).await?.ok_or(Failure::NotFound),
            )
            .await
    }

    async fn publication_context(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        use_case: &UseCase,
    ) -> Result<PublicationContext, Failure> {
        let (_, namespace_id) = workspace_and_namespace(position)?;
        let policy_bundle = async {
            match self.sole_policy_bundle(scope, position).await? {
                Some(asset) => self.newest_version(scope, &asset.slug).await,
                None => Ok(None),
            }
        };
        let (policy_bundle, model_policy, connections) = try_join!(
            policy_bundle,
            self.usable_model_policy(caller, scope, position, use_case.plan.model_policy_ref()),
            self.named_connections(scope, use_case),
        )?;
        Ok(PublicationContext {
            namespace_id,
            owner_ref: owner_of(caller)?,
            model_policy,
            policy_bundle,
            connections,
            may_create_connections: connection_access(caller, position) == ConnectionAccess::Manage,
        })
    }

    fn publication_ids(&self, use_case: &UseCase) -> PublicationIds {
        let context = &self.context;
        PublicationIds {
            flow: (context.new_id(), context.new_id()),
            prompt: (context.new_id(), context.new_id()),
            policy: (context.new_id(), context.new_id()),
            workload: context.new_id(),
            release: context.new_id(),
            bindings: std::array::from_fn(|_| context.new_id()),
            requests: use_case.plan.connections().iter().map(|_| context.new_id()).collect(),
        }
    }

    /// Returns the newest version of the model policy if its asset is active and visible; otherwise refuses. The
    /// primary route must be approved, and no later version may withdraw it. At least one approved route must have an
    /// account on this server.
    pub(super) async fn usable_model_policy(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        slug: &Slug,
    ) -> Result<BindableVersion, Failure> {
        let stored = self.visible_model_policy(caller, scope, position, slug).await?;
        let Some((asset, Some(version))) = stored else { return Err(model_policy_unavailable()) };
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let Ok(CheckedContent::ModelPolicy(policy)) = content::parse_existing(AssetKind::ModelPolicy, &content) else {
            return Err(model_policy_unavailable());
        };
        let route = &policy.provider_route;
        let has_account = |route: &Route| route.is_approved() && self.provider.has_account(&route.account_slot);
        let is_effective = route.is_approved()
            && policy.routes().any(has_account)
            && asset.lifecycle == Lifecycle::Active
            && self
                .version_store
                .is_route_effective(scope, asset.asset_id, version.asset_version_id, &route.route_id)
                .await?;
        if !is_effective {
            return Err(model_policy_unavailable());
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

    /// Returns the active policy bundle of the workspace if it has exactly one.
    pub(super) async fn sole_policy_bundle(
        &self,
        scope: TenantScope,
        position: &ResourcePosition,
    ) -> Result<Option<Asset>, Failure> {
        let (workspace, namespace) = workspace_and_namespace(position)?;
        // Two rows suffice to detect that the workspace has several bundles.
        let policy_bundles =
            self.asset_store.list_owned_active(scope, namespace, workspace, AssetKind::PolicyBundle, 2).await?;
        let mut policy_bundles = policy_bundles.into_iter();
        let (first, second) = (policy_bundles.next(), policy_bundles.next());
        Ok(first.filter(|_| second.is_none()))
    }

    async fn newest_version(&self, scope: TenantScope, slug: &Slug) -> Result<Option<BindableVersion>, Failure> {
        let Some((asset, Some(version))) = self.asset_store.find_by_slug(scope, slug, None).await? else {
            return Ok(None);
        };
        Ok(Some(BindableVersion {
            asset_version_id: version.asset_version_id,
            checksum: version.checksum,
            version_label: version.version_label,
            asset_id: asset.asset_id,
            kind: asset.kind,
            lifecycle: asset.lifecycle,
            asset_slug: asset.into_record().slug,
        }))
    }
}

/// Returns the owner of the resources that a publication creates: the person that publishes or, for a service, the
/// platform team.
fn owner_of(caller: &Caller) -> Result<OwnerRef, Failure> {
    let name = match caller.actor.kind() {
        ActorKind::User => caller.actor.to_string(),
        ActorKind::Group | ActorKind::Service | ActorKind::System | ActorKind::ShareLink | ActorKind::Anonymous => {
            "team:platform".to_owned()
        }
    };
    OwnerRef::parse(&name).map_err(|_| Failure::Inconsistent("the name of a caller is no owner"))
}
