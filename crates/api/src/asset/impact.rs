//! The blast radius of an asset.

use crate::{
    answer::Answer,
    caller::Identified,
    compose::Api,
    document::ReadRefusals,
    error::ApiError,
    http::{path::PathId, query::Query},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{asset::VersionLabel, field_path, id::AssetId};
use fairway_operations::asset::{BlastRadius, Hop, ImpactedRelease, ImpactedWorkload};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// What would change if an asset did, as far as the caller may see it.
#[derive(Serialize, ToSchema)]
#[schema(as = BlastRadius)]
pub(crate) struct BlastRadiusView {
    /// Releases that bind a version of the asset, or of one that refers to it, directly or through others. A release is left
    /// out where the paths have 2,000 hops together without its own.
    releases: Vec<ImpactedReleaseView>,
    /// Their workloads.
    workloads: Vec<ImpactedWorkloadView>,
    /// Versions that refer to the asset, directly or through others, nearest first, at most 2,000.
    via: Vec<HopView>,
    /// Whether there is more than is listed.
    truncated: bool,
}

/// A release that stands on an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ImpactedRelease)]
pub(crate) struct ImpactedReleaseView {
    release_id: Uuid,
    state: &'static str,
    environment: String,
    workload_id: Uuid,
    /// The version that it binds.
    asset_version_id: Uuid,
    version_label: String,
    /// The shortest way from the asset to that version: each refers to the one before, the first to the asset. Empty
    /// where the release binds the asset itself; null stands for a version that you may not see.
    path: Vec<Option<HopView>>,
}

/// A workload with releases that stand on an asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ImpactedWorkload)]
pub(crate) struct ImpactedWorkloadView {
    workload_id: Uuid,
    slug: String,
    workspace_id: Uuid,
    /// Its releases among those that are listed.
    release_ids: Vec<Uuid>,
}

/// A version that refers to another asset.
#[derive(Serialize, ToSchema)]
#[schema(as = ReferringVersion)]
pub(crate) struct HopView {
    asset_id: Uuid,
    asset_slug: String,
    asset_kind: &'static str,
    asset_version_id: Uuid,
    version_label: String,
    /// Where in its content the reference stands: `content.tools[0]`.
    path: String,
    /// The same as a JSON pointer into the content.
    pointer: String,
    /// What the reference says.
    references: ReferenceView,
    /// The version of that asset on the way to the one that was asked for; null where it is that asset itself.
    towards: Option<Uuid>,
}

/// What a reference says.
#[derive(Serialize, ToSchema)]
#[schema(as = AssetReference)]
pub(crate) struct ReferenceView {
    slug: String,
    /// Null where it names no version.
    version: Option<String>,
}

impl HopView {
    fn of(hop: &Hop) -> Self {
        let referrer = &hop.referrer;
        Self {
            asset_id: referrer.asset.asset_id.uuid(),
            asset_slug: referrer.asset.slug.to_string(),
            asset_kind: referrer.asset.kind.as_str(),
            asset_version_id: referrer.asset_version_id.uuid(),
            version_label: referrer.version_label.to_string(),
            path: field_path::of_pointer("content", &referrer.pointer),
            pointer: referrer.pointer.clone(),
            references: ReferenceView {
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
            path: impacted.path.iter().map(|hop| hop.as_deref().map(HopView::of)).collect(),
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
            via: radius.via.iter().map(|hop| HopView::of(hop)).collect(),
            truncated: radius.truncated,
        }
    }
}

/// Where to look from.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PerhapsFromWorkspace {
    /// The asset must be visible from this workspace; without it, from any.
    workspace_id: Option<Uuid>,
}

/// What would change if an asset did: releases and workloads that stand on it, and the ways that lead there.
#[utoipa::path(
    operation_id = "read_blast_radius",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The asset"), PerhapsFromWorkspace),
    responses((status = 200, description = "What stands on the asset", body = BlastRadiusView), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/blast-radius")]
pub(crate) async fn read_blast_radius(
    api: web::Data<Api>,
    caller: Identified,
    asset: PathId<AssetId>,
    from: Query<PerhapsFromWorkspace>,
) -> Result<HttpResponse, ApiError> {
    let radius = api.services.blast_radius(&caller, *asset, from.workspace_id.map(Into::into)).await?;
    Ok(Answer::ok(&BlastRadiusView::of(&radius)).send())
}
