//! Route that reads an evidence artifact.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::path::{Path, PathId},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    evidence::EvidenceArtifactWithContent,
    id::{ArtifactId, ExecutionId},
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

/// An evidence artifact of a run: codes, counts and digests, with an erasable payload.
#[derive(Serialize, ToSchema)]
#[schema(as = EvidenceArtifact)]
pub(crate) struct EvidenceArtifactView {
    artifact_id: Uuid,
    /// `provider_call`, `route_refused`, `contract_decision`, `retrieval_event`, `guardrail`, `hook`, `citations`,
    /// `transcript`, `redaction` or `review`.
    artifact_kind: String,
    storage_ref: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// Names, codes, counts and digests, without texts of people or models.
    #[schema(value_type = Object)]
    content: Map<String, Value>,
    /// Texts of people and models, only for readers with the permission `execution.kill`, until the retention of the
    /// texts ends. The payload is withheld while the run's result awaits a review. A rejection erases it.
    payload: Value,
    /// Whether the payload, if there is one, is withheld from this reader.
    payload_withheld: bool,
}

impl EvidenceArtifactView {
    fn of(document: EvidenceArtifactWithContent) -> Self {
        let EvidenceArtifactWithContent { artifact, body, payload, payload_withheld } = document;
        Self {
            artifact_id: artifact.artifact_id.uuid(),
            artifact_kind: artifact.artifact_kind,
            storage_ref: artifact.storage_ref,
            created_at: artifact.created_at.to_string(),
            content: body,
            payload: payload.unwrap_or_default(),
            payload_withheld,
        }
    }
}

/// Reads an evidence artifact of a run, with its payload if the caller may see it.
#[utoipa::path(
    operation_id = "read_evidence_artifact",
    tag = "executions",
    params(
        ("execution_id" = Uuid, Path, description = "The run"),
        ("artifact_id" = Uuid, Path, description = "The artifact"),
    ),
    responses((status = 200, description = "The artifact", body = EvidenceArtifactView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/evidence-artifacts/{artifact_id}")]
pub(crate) async fn read_evidence_artifact(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<ExecutionId>, PathId<ArtifactId>)>,
) -> Result<HttpResponse, ApiError> {
    let (execution, artifact) = path.into_inner();
    let document = api.services.execution_reader.evidence_artifact(&caller, *execution, *artifact).await?;
    Ok(ResourceResponse::ok(&EvidenceArtifactView::of(document)).into_response())
}
