//! Publication of a use case: creates its assets, workload and release draft.

use super::{UseCase, UseCaseAssets, UseCaseRecord, UseCaseRefusal, UseCaseStatus, bundle::PlanInput};
use crate::{
    access::OwnerRef,
    access_request::AccessRequest,
    asset::{Asset, NewAsset, NewVersion, VersionContent, VersionLabel, canonical::Canonical, kind::AssetKind},
    audit::{FactKind, Stamp},
    connection::ConnectionWithExpiryState,
    generator,
    id::{AccessRequestId, AssetId, AssetVersionId, BindingId, NamespaceId, ReleaseId, WorkloadId},
    notification_category::NotificationCategory,
    release::{BindableVersion, NewRelease, Release, lane::TargetLane},
    slug::Slug,
    store::{Change, Revision},
    workload::{ASSISTANT_SLUG_PREFIX, IntendedUse, NewWorkload, Workload, interface::InterfaceConfig},
};
use serde_json::{Value, json};

/// The environment for which publication creates the release draft.
const ENVIRONMENT: &str = "dev";
/// The maximum length of the part of a slug that comes from the name of the use case.
const MAX_NAME_PART_CHARS: usize = 32;

/// The content of the policy bundle that publication creates. It allows runs in `dev` and denies them elsewhere.
#[must_use]
pub fn dev_only_policy_content() -> Value {
    json!({
        "rules": [{
            "id": "allow_in_dev", "condition": "environment == 'dev'", "outcome": "allow", "reason_code": "allowed_in_dev",
        }],
    })
}

/// The fresh identifiers that a publication needs.
#[derive(Clone, Debug)]
pub struct PublicationIds {
    /// The identifiers of the flow and of its first version.
    pub flow: (AssetId, AssetVersionId),
    /// The identifiers of the prompt template and of its first version.
    pub prompt: (AssetId, AssetVersionId),
    /// The identifiers of the policy bundle and of its first version.
    pub policy: (AssetId, AssetVersionId),
    /// The identifier that the created workload receives.
    pub workload: WorkloadId,
    /// The identifier of the release draft.
    pub release: ReleaseId,
    /// The identifiers of the bindings, one for each asset that the release binds.
    pub bindings: [BindingId; 4],
    /// The identifiers of access requests, one for each connection of the plan.
    pub requests: Vec<AccessRequestId>,
}

/// The data on which a publication depends: the reused assets, the connections, and the permissions of the caller.
#[derive(Clone, Debug)]
pub struct PublicationContext {
    /// The namespace of the workspace.
    pub namespace_id: NamespaceId,
    /// The owner of the created resources.
    pub owner_ref: OwnerRef,
    /// The version of the model policy that the plan names.
    pub model_policy: BindableVersion,
    /// The active policy bundle of the workspace; `None` unless the workspace has exactly one.
    pub policy_bundle: Option<BindableVersion>,
    /// Those connections of the workspace that the plan names.
    pub connections: Vec<ConnectionWithExpiryState>,
    /// Whether the caller may create connections.
    pub may_create_connections: bool,
}

/// The resources that a publication creates.
#[derive(Clone, PartialEq, Debug)]
pub struct CreatedResources {
    /// The created assets with their first versions.
    pub assets: Vec<(Asset, NewVersion)>,
    /// The workload, with a form for the inputs of the flow.
    pub workload: Workload,
    /// The draft of a release that binds the assets.
    pub release: Release,
    /// The assets that the release binds but the publication did not create. They must still be active at the commit.
    pub reused_assets: Vec<AssetId>,
}

/// The result of a publication, with all that its commit stores.
#[derive(Clone, PartialEq, Debug)]
pub struct Publication {
    /// The use case after the publication.
    pub use_case: UseCase,
    /// The access requests for connections that the caller may not create.
    pub requests: Vec<AccessRequest>,
    /// The resources that the publication creates; `None` if an earlier publication created them.
    pub created: Option<Box<CreatedResources>>,
}

impl UseCase {
    /// Publishes a draft. If all connections are usable, the use case becomes active. Otherwise it awaits access, and
    /// the missing connections are requested from the platform team. A use case that was published before keeps its
    /// resources.
    ///
    /// # Errors
    /// When the use case is not a draft, or the caller itself may create a missing connection.
    pub fn publish(
        &self,
        ids: PublicationIds,
        context: &PublicationContext,
        stamp: &Stamp,
    ) -> Result<Change<Publication>, UseCaseRefusal> {
        self.require(&[UseCaseStatus::Draft])?;
        let missing = self.unresolved_connections(&context.connections);
        if !missing.is_empty() && context.may_create_connections {
            return Err(UseCaseRefusal::ConnectionsMissing(missing));
        }
        let status = if missing.is_empty() { UseCaseStatus::Active } else { UseCaseStatus::PendingAccess };
        let mut next = self.with_status(status, stamp);
        let requests: Vec<AccessRequest> = ids
            .requests
            .iter()
            .zip(missing)
            .map(|(id, name)| AccessRequest::for_use_case(*id, self, name, stamp))
            .collect();
        let created =
            if self.pieces.is_none() { Some(Box::new(self.create_resources(&ids, context, stamp)?)) } else { None };
        if let Some(created) = &created {
            next.0.workload_id = Some(created.workload.workload_id);
            next.0.release_id = Some(created.release.release_id);
            next.0.pieces = Some(UseCaseAssets {
                flow: ids.flow.0,
                prompt: ids.prompt.0,
                model_policy: context.model_policy.asset_id,
                policy_bundle: context.policy_bundle.as_ref().map_or(ids.policy.0, |bundle| bundle.asset_id),
            });
        }
        let UseCaseRecord { workload_id, release_id, pieces, .. } = &next.0;
        let detail = json!({
            "to": status.as_str(),
            "workload_id": workload_id,
            "release_id": release_id,
            "assets": pieces.map(|pieces| [pieces.flow, pieces.prompt, pieces.model_policy, pieces.policy_bundle]),
            "access_requests": requests.iter().map(|request| request.access_request_id).collect::<Vec<_>>(),
            "made": created.is_some(),
            "environment": created.is_some().then_some(ENVIRONMENT),
        });
        let approval_category = (!requests.is_empty()).then_some(NotificationCategory::Approvals);
        let fact = self.fact(FactKind::UseCasePublished, stamp, detail).with_notification_categories(approval_category);
        Ok(Change::replace(Publication { use_case: next, requests, created }, self.revision, fact))
    }

    fn create_resources(
        &self,
        ids: &PublicationIds,
        context: &PublicationContext,
        stamp: &Stamp,
    ) -> Result<CreatedResources, UseCaseRefusal> {
        // Plans that pass the current checks do not fail here. An older server may have accepted a plan with inputs for
        // which no form can ask.
        let not_publishable = UseCaseRefusal::PlanNotPublishable;
        let create_asset = |kind: AssetKind, part: &str, ids: (AssetId, AssetVersionId), content: &Value| {
            let content = VersionContent::from(Canonical::of(content).ok()?);
            let slug = self.slug(part)?;
            let (workspace_id, namespace_id) = (self.workspace_id, context.namespace_id);
            let owner_ref = context.owner_ref.clone();
            let asset = NewAsset { asset_id: ids.0, slug, kind, owner_ref, workspace_id, namespace_id };
            Some(Asset::create_flow(asset, ids.1, VersionLabel::parse("v1"), content, stamp).into_record().next)
        };
        let flow = create_asset(AssetKind::OrchestrationFlow, "flow", ids.flow, &self.plan.flow_content());
        let prompt = create_asset(AssetKind::PromptTemplate, "prompt", ids.prompt, &self.plan.prompt_content());
        let mut assets =
            vec![flow.ok_or_else(|| not_publishable.clone())?, prompt.ok_or_else(|| not_publishable.clone())?];
        let mut reused_assets = vec![context.model_policy.asset_id];
        let mut bindable_versions: Vec<BindableVersion> = assets.iter().filter_map(bindable).collect();
        bindable_versions.push(context.model_policy.clone());
        match &context.policy_bundle {
            Some(bundle) => {
                reused_assets.push(bundle.asset_id);
                bindable_versions.push(bundle.clone());
            }
            None => {
                let created = create_asset(AssetKind::PolicyBundle, "policy", ids.policy, &dev_only_policy_content());
                let created = created.ok_or_else(|| not_publishable.clone())?;
                bindable_versions.extend(bindable(&created));
                assets.push(created);
            }
        }
        let workload = self.workload(ids.workload, context, stamp).ok_or_else(|| not_publishable.clone())?;
        let policy = bindable_versions.last().map(|bundle| bundle.asset_id);
        let draft = NewRelease {
            release_id: ids.release,
            workload_id: ids.workload,
            workspace_id: self.workspace_id,
            environment: Slug::parse(ENVIRONMENT).map_err(|_| not_publishable.clone())?,
            target_lane: TargetLane::All,
            policy_bundle_id: policy,
        };
        let mut release = Release::draft(draft, stamp).into_record().next;
        for (binding, version) in ids.bindings.iter().zip(&bindable_versions) {
            let change = release.bind(*binding, version.kind, version, stamp);
            let is_model = version.kind == AssetKind::ModelPolicy;
            let refusal = if is_model { UseCaseRefusal::ModelPolicyUnavailable } else { not_publishable.clone() };
            release = change.map_err(|_| refusal)?.into_record().next;
        }
        release.0.revision = Revision::FIRST;
        Ok(CreatedResources { assets, workload, release, reused_assets })
    }

    /// Creates the workload with a form for the inputs of the flow; `None` if no form can ask for these inputs.
    fn workload(&self, workload_id: WorkloadId, context: &PublicationContext, stamp: &Stamp) -> Option<Workload> {
        let workload = NewWorkload {
            workload_id,
            slug: self.slug("")?,
            name: Some(self.plan.name().to_owned()),
            description: Some(self.plan.summary().to_owned()),
            owner_ref: context.owner_ref.clone(),
            invocation_mode: IntendedUse::Form,
            workspace_id: self.workspace_id,
            namespace_id: context.namespace_id,
        };
        let mut workload = Workload::create(workload, stamp).ok()?.into_record().next;
        let field = |input: &PlanInput| {
            let field_type = input.field_type()?.as_str();
            Some(json!({ "name": input.name, "label": input.name, "type": field_type, "required": true }))
        };
        let fields = self.plan.inputs().iter().map(field).collect::<Option<Vec<Value>>>()?;
        let config = json!({ "presentation_mode": "form", "input_fields": fields, "access_mode": "authenticated" });
        workload.0.interface_config = Some(InterfaceConfig::parse(&config).ok()?);
        Some(workload)
    }

    /// A slug from the words of the use case's name and the end of its identifier, which makes the slug unique.
    fn slug(&self, part: &str) -> Option<Slug> {
        let mut name_part = String::new();
        for character in self.plan.name().chars().map(|character| character.to_ascii_lowercase()) {
            if character.is_ascii_alphanumeric() && name_part.len() < MAX_NAME_PART_CHARS {
                name_part.push(character);
            } else if !name_part.is_empty() && !name_part.ends_with('-') && name_part.len() < MAX_NAME_PART_CHARS {
                name_part.push('-');
            }
        }
        let name_part = name_part.trim_end_matches('-');
        // Slugs of built-in workloads are reserved. A name that leads to such a slug, or an empty name, is replaced.
        let is_reserved = name_part.is_empty()
            || format!("{name_part}-").starts_with(ASSISTANT_SLUG_PREFIX)
            || generator::is_reserved_slug(name_part);
        let name_part = if is_reserved { "use-case" } else { name_part };
        let id = self.use_case_id.uuid().simple().to_string();
        let id = id.get(20..).unwrap_or_default();
        let slug = if part.is_empty() { format!("{name_part}-{id}") } else { format!("{name_part}-{id}-{part}") };
        Slug::parse(&slug).or_else(|_| Slug::parse(&format!("use-case-{id}-{part}"))).ok()
    }
}

/// Converts a new version to a version that can be bound; `None` if the version has no label.
fn bindable((asset, version): &(Asset, NewVersion)) -> Option<BindableVersion> {
    Some(BindableVersion {
        asset_version_id: version.asset_version_id,
        checksum: version.canonical.checksum().clone(),
        version_label: version.version_label.clone()?,
        asset_id: asset.asset_id,
        asset_slug: asset.slug.clone(),
        kind: asset.kind,
        lifecycle: asset.lifecycle,
    })
}
