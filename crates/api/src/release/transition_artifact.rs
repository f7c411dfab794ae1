//! Routes of the evidence artifacts of a release's transitions.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{
        paging::{ListRequest, NoFilter},
        path::{Path, PathId},
    },
    openapi::{PageParams, ReadRefusals},
};
use actix_web::{HttpResponse, get, http::header::ContentType, web};
use fairway_domain::{
    id::{ArtifactId, ReleaseId},
    release::rollback::ReleaseEvidenceArtifact,
};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// An evidence artifact of a transition of a release.
#[derive(Serialize, ToSchema)]
#[schema(as = ReleaseArtifact)]
pub(crate) struct ReleaseArtifactView {
    artifact_id: Uuid,
    release_id: Uuid,
    /// Kind of the artifact: `rollback`.
    artifact_kind: String,
    storage_ref: String,
    /// BLAKE3 digest of the artifact's bytes.
    checksum: String,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl ReleaseArtifactView {
    fn of(artifact: &ReleaseEvidenceArtifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id.uuid(),
            release_id: artifact.release_id.uuid(),
            artifact_kind: artifact.kind.clone(),
            storage_ref: artifact.storage_ref_for_display(),
            checksum: artifact.checksum.as_str().to_owned(),
            created_at: artifact.created_at.to_string(),
            created_by: artifact.created_by.to_string(),
        }
    }
}

/// Lists the evidence artifacts of a release's transitions, newest first.
#[utoipa::path(
    operation_id = "list_release_artifacts",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), PageParams),
    responses((status = 200, description = "A page of artifacts", body = Vec<ReleaseArtifactView>), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/evidence-artifacts")]
pub(crate) async fn list_release_artifacts(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let artifacts = api.services.releases.list_release_artifacts(&caller, *release, list.paging()).await?;
    Ok(list.respond(&artifacts.map(|artifact| ReleaseArtifactView::of(&artifact))))
}

/// Reads the content of an evidence artifact of a release's transition.
#[utoipa::path(
    operation_id = "read_release_artifact",
    tag = "releases",
    params(
        ("release_id" = Uuid, Path, description = "The release"),
        ("artifact_id" = Uuid, Path, description = "The artifact"),
    ),
    responses((status = 200, description = "Canonical JSON", body = Object), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/evidence-artifacts/{artifact_id}")]
pub(crate) async fn read_release_artifact(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<ReleaseId>, PathId<ArtifactId>)>,
) -> Result<HttpResponse, ApiError> {
    let (release, artifact) = path.into_inner();
    let artifact = api.services.releases.read_release_artifact(&caller, *release, *artifact).await?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(artifact.content))
}
