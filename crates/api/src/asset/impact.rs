//! Route of the blast radius of an asset.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{path::PathId, query::Query},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{asset::VersionLabel, field_path, id::AssetId};
use fairway_operations::asset::{BlastRadius, ImpactedRelease, ImpactedWorkload, ReferenceHop};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The releases and workloads that a change of an asset affects, as far as the caller may see them.
#[derive(Serialize, ToSchema)]
#[schema(as = BlastRadius)]
pub(crate) struct BlastRadiusView {
    /// Releases that bind a version of the asset, or of an asset that references it, directly or indirectly. A release
    /// is omitted if the paths of all listed releases would exceed 2,000 hops in total.
    releases: Vec<ImpactedReleaseView>,
    /// The workloads of these releases.
    workloads: Vec<ImpactedWorkloadView>,
    /// Versions that reference the asset, directly or indirectly, nearest first, at most 2,000.
    via: Vec<ReferringVersionView>,
    /// Whether the lists are incomplete.
    truncated: bool,
}

/// A release that depends on an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ImpactedRelease)]
pub(crate) struct ImpactedReleaseView {
    release_id: Uuid,
    state: &'static str,
    environment: String,
    workload_id: Uuid,
    /// The version that the release binds.
    asset_version_id: Uuid,
    version_label: String,
    /// The shortest path from the asset to that version. The first hop references the asset, and each further hop
    /// references the previous one. Empty if the release binds the asset itself; null for a version that you may
    /// not see.
    path: Vec<Option<ReferringVersionView>>,
}

/// A workload with releases that depend on an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ImpactedWorkload)]
pub(crate) struct ImpactedWorkloadView {
    workload_id: Uuid,
    slug: String,
    workspace_id: Uuid,
    /// The workload's releases among `releases`.
    release_ids: Vec<Uuid>,
}

/// A version that references another asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ReferringVersion)]
pub(crate) struct ReferringVersionView {
    asset_id: Uuid,
    asset_slug: String,
    asset_kind: &'static str,
    asset_version_id: Uuid,
    version_label: String,
    /// Path of the reference in the content, such as `content.tools[0]`.
    path: String,
    /// JSON pointer of the reference in the content.
    pointer: String,
    /// The reference in the content of that version.
    references: AssetReferenceView,
    /// The referenced version on the path; null if the reference targets the requested asset.
    towards: Option<Uuid>,
}

/// A reference to an asset by its slug.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetReference)]
pub(crate) struct AssetReferenceView {
    slug: String,
    /// Label of the referenced version; null if the reference names no version.
    version: Option<String>,
}

impl ReferringVersionView {
    fn of(hop: &ReferenceHop) -> Self {
        let referrer = &hop.referrer;
        Self {
            asset_id: referrer.asset.asset_id.uuid(),
            asset_slug: referrer.asset.slug.to_string(),
            asset_kind: referrer.asset.kind.as_str(),
            asset_version_id: referrer.asset_version_id.uuid(),
            version_label: referrer.version_label.to_string(),
            path: field_path::from_pointer("content", &referrer.pointer),
            pointer: referrer.pointer.clone(),
            references: AssetReferenceView {
                slug: referrer.target_slug.to_string(),
                version: referrer.target_label.as_ref().map(VersionLabel::to_string),
            },
            towards: hop.towards.map(fairway_domain::id::AssetVersionId::uuid),
        }
    }
}

impl ImpactedReleaseView {
    fn of(impacted: &ImpactedRelease) -> Self {
        let release = &impacted.release;
        Self {
            release_id: release.release_id.uuid(),
            state: release.state.as_str(),
            environment: release.environment.to_string(),
            workload_id: release.workload_id.uuid(),
            asset_version_id: release.asset_version_id.uuid(),
            version_label: release.version_label.to_string(),
            path: impacted.path.iter().map(|hop| hop.as_deref().map(ReferringVersionView::of)).collect(),
        }
    }
}

impl ImpactedWorkloadView {
    fn of(workload: &ImpactedWorkload) -> Self {
        Self {
            workload_id: workload.workload_id.uuid(),
            slug: workload.slug.to_string(),
            workspace_id: workload.workspace_id.uuid(),
            release_ids: workload.releases.iter().map(|id| id.uuid()).collect(),
        }
    }
}

impl BlastRadiusView {
    fn of(radius: &BlastRadius) -> Self {
        Self {
            releases: radius.releases.iter().map(ImpactedReleaseView::of).collect(),
            workloads: radius.workloads.iter().map(ImpactedWorkloadView::of).collect(),
            via: radius.via.iter().map(|hop| ReferringVersionView::of(hop)).collect(),
            truncated: radius.truncated,
        }
    }
}

/// Workspace that determines which asset the caller sees, if the request names one.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OptionalVisibleFromQuery {
    /// Workspace from which the asset must be visible; by default any workspace.
    workspace_id: Option<Uuid>,
}

/// Reads the blast radius of an asset: the dependent releases and workloads, and the reference paths to them.
#[utoipa::path(
    operation_id = "read_blast_radius",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), OptionalVisibleFromQuery),
    responses((status = 200, description = "The dependents of the asset", body = BlastRadiusView), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/blast-radius")]
pub(crate) async fn read_blast_radius(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    visible_from: Query<OptionalVisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let radius = api.services.assets.blast_radius(&caller, *asset, visible_from.workspace_id.map(Into::into)).await?;
    Ok(ResourceResponse::ok(&BlastRadiusView::of(&radius)).into_response())
}
