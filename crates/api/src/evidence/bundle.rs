//! Routes of evidence bundles.

use super::FlatEvidenceView;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::path::PathId,
    openapi::{ErrorBody, ReadRefusals},
};
use actix_web::{HttpResponse, get, http::header::CONTENT_DISPOSITION, web};
use fairway_domain::id::{ExecutionId, ReleaseId};
use serde_json::Value;
use utoipa::ToSchema;

const MEDIA_TYPE: &str = "application/vnd.dsse.envelope.v1+json";

/// An evidence bundle: a DSSE envelope.
#[derive(ToSchema)]
#[schema(as = EvidenceBundle)]
#[expect(dead_code, reason = "the domain writes the canonical form; this documents it")]
pub(crate) struct BundleView {
    /// The in-toto statement, in base64.
    payload: String,
    /// Media type of the payload: `application/vnd.in-toto+json`.
    #[schema(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<BundleSignatureView>,
}

/// One of the signatures of a bundle.
#[derive(ToSchema)]
#[schema(as = EvidenceBundleSignature)]
#[expect(dead_code, reason = "the domain writes the canonical form; this documents it")]
pub(crate) struct BundleSignatureView {
    /// Name and id of the key, as in `GET /v1/audit/keys`.
    keyid: String,
    /// The Ed25519 signature over the pre-authentication encoding, in base64.
    sig: String,
}

/// Reads the evidence of an ended run as a signed file that `fairway verify` checks offline.
///
/// The file contains the governance chain, the contents of its versions, and the facts of the audit log about the
/// run with their proofs. It contains no texts of people.
#[utoipa::path(
    operation_id = "read_evidence_bundle",
    tag = "executions",
    params(("execution_id" = Uuid, Path, description = "The run")),
    responses(
        (
            status = 200,
            description = "A DSSE envelope with an in-toto statement",
            body = BundleView,
            content_type = "application/vnd.dsse.envelope.v1+json"
        ),
        (
            status = 409,
            description = "The run has not ended",
            body = ErrorBody
        ),
        ReadRefusals,
    )
)]
#[get("/v1/executions/{execution_id}/evidence-bundle")]
pub(crate) async fn read_evidence_bundle(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
) -> Result<HttpResponse, ApiError> {
    let bundles = &api.services.evidence_bundles;
    let bundle = bundles.read_bundle_evidence(&caller, *execution).await?;
    let evidence = match serde_json::to_value(FlatEvidenceView::of(&bundle.record)?) {
        Ok(Value::Object(sections)) => sections,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(ApiError::internal());
        }
        Err(error) => return Err(ApiError::internal().log_cause(&error)),
    };
    let file = bundles.sign_bundle(bundle, evidence).await?;
    Ok(bundle_response(&format!("evidence-{}", *execution), file))
}

/// Reads a verification summary of a release as a signed file.
///
/// It states whether the release was approved with its bindings and whether that approval still holds. Its evidence
/// is the facts of the audit log with their proofs, and the contents of the release's versions.
///
/// The predicate is a SLSA verification summary, so pipelines can gate on `verificationResult`.
#[utoipa::path(
    operation_id = "read_release_bundle",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release")),
    responses(
        (
            status = 200,
            description = "A DSSE envelope with an in-toto statement",
            body = BundleView,
            content_type = "application/vnd.dsse.envelope.v1+json"
        ),
        ReadRefusals,
    )
)]
#[get("/v1/releases/{release_id}/evidence-bundle")]
pub(crate) async fn read_release_bundle(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
) -> Result<HttpResponse, ApiError> {
    let file = api.services.evidence_bundles.sign_release_summary(&caller, *release).await?;
    Ok(bundle_response(&format!("release-{}", *release), file))
}

fn bundle_response(name: &str, file: String) -> HttpResponse {
    let disposition = format!("attachment; filename=\"{name}.json\"");
    HttpResponse::Ok().insert_header((CONTENT_DISPOSITION, disposition)).content_type(MEDIA_TYPE).body(file)
}
