//! Routes of rollbacks.

use super::parse_lane;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, path::PathId},
    openapi::{IdempotencyKeyParams, IfMatchParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    id::ReleaseId,
    note::MAX_NOTE_CHARS,
    release::{
        ReleaseRefusal,
        rollback::{ReturnedLane, check_reason},
    },
};
use fairway_operations::release::RollbackResult;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The reason and the lane of a rollback.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct RollbackRequest {
    /// The reason of the rollback, stored as evidence. It must not be blank.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_NOTE_CHARS)), custom(function = reason_rule))]
    reason: String,
    /// Only this lane; by default all lanes with an earlier holder.
    #[validate(custom(function = value_rules::lane))]
    lane: Option<String>,
}

fn reason_rule(text: &str) -> RuleResult {
    let problem = |refusal: ReleaseRefusal| FieldProblem::new("reason", refusal.code(), refusal.to_string());
    value_rules::accept(check_reason(text).map_err(problem))
}

/// A completed rollback of a release.
#[derive(Serialize, ToSchema)]
#[schema(as = Rollback)]
pub(crate) struct RollbackView {
    release_id: Uuid,
    /// The release that holds `lane` again.
    rolled_back_to: Uuid,
    /// Among the rolled back lanes, the one that the release had taken last.
    lane: &'static str,
    /// All rolled back lanes, each with the release that holds it again.
    lanes: Vec<RolledBackLaneView>,
    /// Warnings about the releases that serve again.
    warnings: Vec<RollbackWarning>,
    /// The artifact with the record of the rollback.
    artifact_id: Uuid,
}

/// A lane that returned to an earlier release.
#[derive(Serialize, ToSchema)]
#[schema(as = LaneReturned)]
pub(crate) struct RolledBackLaneView {
    lane: &'static str,
    rolled_back_to: Uuid,
}

/// A warning about a release that serves again.
#[derive(Serialize, ToSchema)]
pub(crate) struct RollbackWarning {
    /// Code of the warning: `asset_archived`.
    code: &'static str,
    asset_slug: String,
    message: &'static str,
}

impl RollbackView {
    fn of(result: &RollbackResult) -> Result<Self, ApiError> {
        let newest = result.last_taken_lane()?;
        let lane_view = |lane: &ReturnedLane| RolledBackLaneView {
            lane: lane.lane.as_str(),
            rolled_back_to: lane.rolled_back_to.uuid(),
        };
        let warnings = result.archived.iter().map(|slug| RollbackWarning {
            code: "asset_archived",
            asset_slug: slug.to_string(),
            message: "this archived asset is in use again",
        });
        Ok(Self {
            release_id: result.record.release_id.uuid(),
            rolled_back_to: newest.rolled_back_to.uuid(),
            lane: newest.lane.as_str(),
            lanes: result.record.lanes.iter().map(lane_view).collect(),
            warnings: warnings.collect(),
            artifact_id: result.artifact_id.uuid(),
        })
    }
}

/// The recommendation whether to roll back a release.
#[derive(Serialize, ToSchema)]
#[schema(as = RollbackRecommendation)]
pub(crate) struct RecommendationView {
    recommended: bool,
    /// Fraction of failed and timed out runs; 0 without runs.
    error_rate: f64,
    /// Number of runs from which the error rate is computed.
    sample_size: u32,
    /// Error rate above which a rollback is recommended.
    threshold: f64,
}

/// Rolls back a lane, or all lanes, of a release to their earlier holders.
#[utoipa::path(
    operation_id = "roll_back_release",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), IdempotencyKeyParams, IfMatchParams),
    request_body = RollbackRequest,
    responses((status = 200, description = "The new holders of the lanes", body = RollbackView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/releases/{release_id}/rollback")]
pub(crate) async fn roll_back_release(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<RollbackRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let (lane, reason) = (parse_lane(body.lane.as_deref())?, body.reason.as_str());
    let outcome =
        api.services.releases.roll_back_release(&caller, *release, lane, reason, &expected, key.as_ref()).await?;
    Ok(ResourceResponse::idempotent(&outcome, &RollbackView::of(&outcome.value)?, StatusCode::OK)?.into_response())
}

/// Evaluates the newest runs of a release for a rollback. The server never rolls back automatically.
#[utoipa::path(
    operation_id = "read_rollback_recommendation",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release")),
    responses((status = 200, description = "The recommendation", body = RecommendationView), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/rollback-recommendation")]
pub(crate) async fn read_rollback_recommendation(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
) -> Result<HttpResponse, ApiError> {
    let recommendation = api.services.releases.rollback_recommendation(&caller, *release).await?;
    let view = RecommendationView {
        recommended: recommendation.is_recommended,
        error_rate: recommendation.error_rate,
        sample_size: recommendation.sample_size,
        threshold: recommendation.threshold,
    };
    Ok(ResourceResponse::ok(&view).into_response())
}
