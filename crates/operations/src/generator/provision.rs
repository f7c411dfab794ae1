//! Provisioning of the generator by two system actors: one creates the resources, and the other approves the release.
//!
//! Each step finds its resource or creates it, so interrupted and concurrent provisioning is safe. Steps that create a
//! resource with a unique name look the resource up after a conflict; other steps use idempotency keys.

use crate::{
    Failure, MaybeReplayed, Precondition,
    asset::CreateVersionParams,
    generator::{DraftGenerator, ProvisioningMode},
    release::{ReleaseDraft, Transition},
};
use fairway_domain::{
    access::{ActorRef, BoundLanes, Caller, Grant, GrantScope, OwnerRef, Rights, Role},
    asset::{Asset, NewAsset, OwnershipTier, VersionLabel, kind::AssetKind},
    generator::{self, ENVIRONMENT, FIRST_VERSION_LABEL, SLUG},
    id::{AssetVersionId, ReleaseId, TenantId, WorkloadId},
    idempotency::RequestKey,
    release::{StateName, activate::LaneSelection, lane::TargetLane, ports::ReleaseFilter, review::ReleaseVerdict},
    slug::Slug,
    store::{CommitError, ConstraintConflict, PageRequest, PageStart},
    tenant::{TenantScope, Workspace},
    workload::{BuiltinManagementSource, IntendedUse, NewWorkload, Workload},
};
use serde_json::Value;
use std::sync::Arc;

/// Name of the system actor that creates the generator.
const CREATOR: &str = "provisioner";
/// Name of the system actor that approves the generator's release.
const APPROVER: &str = "platform";
/// Number of tenants or releases that one query returns.
const PAGE: u32 = 200;
/// Maximum number of workspaces that the search for the oldest one skips.
const MAX_OFFSET: u64 = 10_000;

impl DraftGenerator {
    /// Provisions the generator of every tenant, unless provisioning is off. If it fails for a tenant, the tenant's
    /// next draft request retries.
    ///
    /// # Errors
    /// When the tenants cannot be listed.
    pub async fn provision_generators(&self) -> Result<(), Failure> {
        if self.settings.generator == ProvisioningMode::Off {
            return Ok(());
        }
        let mut start = PageStart::Skip(0);
        loop {
            let page = self.tenant_store.list(PageRequest { limit: PAGE, start }).await?;
            for tenant in page.rows {
                let tenant_id = tenant.tenant_id;
                match self.provision_generator(tenant_id).await {
                    Ok(()) => {}
                    // A new tenant may have no workspace yet. Its first draft request then provisions the generator.
                    Err(Failure::NotFound) => {
                        tracing::debug!(%tenant_id, "tenant has no workspace; its generator is provisioned later");
                    }
                    Err(failure) => {
                        let error: &dyn std::error::Error = &failure;
                        tracing::warn!(
                            error,
                            %tenant_id,
                            "failed to create the workload fairway-generator of a tenant; its next draft request retries"
                        );
                    }
                }
            }
            match page.next {
                Some(cursor) => start = PageStart::After(cursor),
                None => return Ok(()),
            }
        }
    }

    /// Provisions the generator of a tenant. A generator with a release that has served remains unchanged.
    ///
    /// # Errors
    /// When the tenant has no workspace, another resource has a name of the generator, or a step is refused.
    pub async fn provision_generator(&self, tenant: TenantId) -> Result<(), Failure> {
        let creator = self.system_caller(tenant, CREATOR).await?;
        let scope = TenantScope::for_caller(&creator);
        let workspace = self.first_workspace(scope).await?;
        let workload_id = self.generator_workload(&creator, &workspace).await?;
        if self.has_been_released(scope, workload_id).await? {
            return Ok(());
        }
        let mut versions = Vec::new();
        for (kind, slug, content) in generator::assets() {
            let slug = Slug::parse(&slug).map_err(|_| Failure::Inconsistent("a slug of the generator is invalid"))?;
            versions.push((self.generator_version(&creator, &workspace, kind, slug, content).await?, kind));
        }
        self.release_generator(&creator, workload_id, &versions).await?;
        tracing::info!(tenant_id = %tenant, "created the built-in workload fairway-generator");
        Ok(())
    }

    /// Creates the caller for a system actor with the role of a platform administrator. A request can never claim to be
    /// a system actor.
    async fn system_caller(&self, tenant: TenantId, name: &'static str) -> Result<Caller, Failure> {
        let actor = ActorRef::system(name);
        let grant = Grant::of_role(Role::PlatformAdmin, GrantScope::Platform);
        Ok(Caller {
            tenant,
            groups: Vec::new(),
            rights: Arc::new(Rights::new(vec![grant])),
            lanes: Arc::new(BoundLanes::from_bindings(&actor, Vec::new())),
            access_revision: self.access_store.access_revision(tenant).await?.ok_or(Failure::NotFound)?,
            request_id: self.context.new_id(),
            actor,
        })
    }

    /// Returns the tenant's oldest workspace.
    async fn first_workspace(&self, scope: TenantScope) -> Result<Workspace, Failure> {
        let total = self.workspace_store.list(scope, PageRequest::first(1)).await?.total;
        let skipped = u32::try_from(total.saturating_sub(1).min(MAX_OFFSET)).unwrap_or_default();
        let oldest = PageRequest { limit: 1, start: PageStart::Skip(skipped) };
        self.workspace_store.list(scope, oldest).await?.rows.pop().ok_or(Failure::NotFound)
    }

    async fn generator_workload(&self, creator: &Caller, workspace: &Workspace) -> Result<WorkloadId, Failure> {
        let scope = TenantScope::for_caller(creator);
        let slug = Slug::parse(SLUG).map_err(|_| Failure::Inconsistent("a slug of the generator is invalid"))?;
        let mut stored = self.workload_store.find_by_slug(scope, &slug).await?;
        if stored.is_none() {
            let new_workload = NewWorkload {
                workload_id: self.context.new_id(),
                slug: slug.clone(),
                name: Some("Draft generator".to_owned()),
                description: Some("Drafts prompt templates from descriptions. It comes with Fairway.".to_owned()),
                owner_ref: owner()?,
                invocation_mode: IntendedUse::Api,
                workspace_id: workspace.workspace_id,
                namespace_id: workspace.namespace_id,
            };
            let change = Workload::create_builtin(new_workload, &self.context.stamp(creator));
            match self.workload_store.commit_new(scope, change, None).await {
                // Another process created the workload in the meantime.
                Err(CommitError::Conflict(ConstraintConflict::DuplicateSlug)) => {}
                created => created?,
            }
            self.context.notify_facts();
            stored = self.workload_store.find_by_slug(scope, &slug).await?;
        }
        let workload = stored.ok_or(Failure::Inconsistent("a created workload is missing"))?;
        match workload.management_source {
            Some(BuiltinManagementSource::PlatformBuiltin) => Ok(workload.workload_id),
            Some(BuiltinManagementSource::WorkspaceBuiltin) | None => {
                Err(Failure::Inconsistent("another workload has the name of the generator"))
            }
        }
    }

    /// Whether a release of the workload has ever served. After that, the tenant's operators maintain the workload, and
    /// provisioning leaves it unchanged.
    async fn has_been_released(&self, scope: TenantScope, workload: WorkloadId) -> Result<bool, Failure> {
        let filter = ReleaseFilter { workload: Some(workload), ..ReleaseFilter::default() };
        let releases = self.release_store.list(scope, &filter, PageRequest::first(PAGE)).await?;
        Ok(releases.rows.iter().any(|release| match release.state.name() {
            StateName::Active | StateName::Superseded | StateName::Retired => true,
            StateName::Draft | StateName::ReviewReady | StateName::Approved => false,
        }))
    }

    async fn generator_version(
        &self,
        creator: &Caller,
        workspace: &Workspace,
        kind: AssetKind,
        slug: Slug,
        content: Value,
    ) -> Result<AssetVersionId, Failure> {
        let scope = TenantScope::for_caller(creator);
        let label = VersionLabel::parse(FIRST_VERSION_LABEL)
            .ok_or(Failure::Inconsistent("a label of the generator is invalid"))?;
        let mut stored = self.asset_store.find_by_slug(scope, &slug, Some(&label)).await?;
        if stored.is_none() {
            let (workspace_id, namespace_id) = (workspace.workspace_id, workspace.namespace_id);
            let new_asset = NewAsset {
                asset_id: self.context.new_id(),
                slug: slug.clone(),
                kind,
                owner_ref: owner()?,
                workspace_id,
                namespace_id,
            };
            match self
                .asset_store
                .commit_new(scope, Asset::create_builtin(new_asset, &self.context.stamp(creator)), None)
                .await
            {
                Err(CommitError::Conflict(ConstraintConflict::DuplicateSlug)) => {}
                created => created?,
            }
            self.context.notify_facts();
            stored = self.asset_store.find_by_slug(scope, &slug, Some(&label)).await?;
        }
        let (asset, version) = stored.ok_or(Failure::Inconsistent("a created asset is missing"))?;
        if asset.ownership_tier != OwnershipTier::PlatformBuiltin || asset.kind != kind {
            return Err(Failure::Inconsistent("another asset has a name of the generator"));
        }
        if let Some(version) = version {
            return Ok(version.asset_version_id);
        }
        let draft = CreateVersionParams { content, label: Some(label.clone()), change_note: None };
        match self.assets.create_asset_version(creator, asset.asset_id, None, draft, None).await {
            Ok((_, MaybeReplayed { value: version, .. })) => Ok(version.asset_version_id),
            Err(Failure::Conflict(ConstraintConflict::DuplicateVersionLabel)) => {
                let stored = self.asset_store.find_by_slug(scope, &slug, Some(&label)).await?;
                let version = stored.and_then(|(_, version)| version);
                Ok(version.ok_or(Failure::Inconsistent("a created version is missing"))?.asset_version_id)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn release_generator(
        &self,
        creator: &Caller,
        workload_id: WorkloadId,
        versions: &[(AssetVersionId, AssetKind)],
    ) -> Result<(), Failure> {
        let approver = self.system_caller(creator.tenant, APPROVER).await?;
        let environment = Slug::parse(ENVIRONMENT);
        let draft = ReleaseDraft {
            workload_id,
            environment: environment
                .map_err(|_| Failure::Inconsistent("the environment of the generator is invalid"))?,
            target_lane: TargetLane::All,
            policy_bundle_id: None,
        };
        let release_with_deployment =
            self.releases.create_release(creator, draft, Some(&step_key(creator, "draft"))).await?.value;
        let id = release_with_deployment.release.release_id;
        for (version, role) in versions {
            self.releases.bind_version(creator, id, *version, *role, Some(&step_key(creator, role.as_str()))).await?;
        }
        self.move_generator(creator, id, StateName::ReviewReady).await?;
        self.releases
            .review_release(
                &approver,
                id,
                ReleaseVerdict::Approved,
                None,
                &Precondition::Any,
                Some(&step_key(&approver, "approval")),
            )
            .await?;
        self.move_generator(&approver, id, StateName::Approved).await?;
        self.move_generator(&approver, id, StateName::Active).await
    }

    async fn move_generator(&self, caller: &Caller, id: ReleaseId, target_state: StateName) -> Result<(), Failure> {
        let transition = Transition { to: target_state, lanes: LaneSelection::All };
        self.releases
            .transition_release(
                caller,
                id,
                transition,
                &Precondition::Any,
                Some(&step_key(caller, target_state.as_str())),
            )
            .await
            .map(|_| ())
    }
}

fn owner() -> Result<OwnerRef, Failure> {
    OwnerRef::parse("team:platform").map_err(|_| Failure::Inconsistent("the owner of the generator is invalid"))
}

/// Returns the idempotency key of a step, so that concurrent processes receive the same result.
fn step_key(caller: &Caller, step: &str) -> RequestKey {
    RequestKey {
        key: step.to_owned(),
        caller: caller.actor.clone(),
        route: "provision generator".to_owned(),
        body_digest: [0; 32],
    }
}
