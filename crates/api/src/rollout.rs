//! Routes of rollouts, in which a release takes its lanes one after another.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{body::Body, etag::IfMatch, idempotency::IdempotencyHeader, path::PathId},
    openapi::{IdempotencyKeyParams, IfMatchParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    id::ReleaseId,
    release::{activate::LaneSelection, lane::Lane},
    rollout::{AdvanceInputs, AdvanceMode, MAX_SOAK_MINUTES, PlanRefusal, Rollout, RolloutPlan},
};
use fairway_operations::rollout::{AdvanceResult, RolloutReport};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The order of lanes and the soak time of a rollout.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[schema(as = RolloutPlan)]
pub(crate) struct NewRolloutPlan {
    /// Lanes in the order in which the release takes them, each at most once. The release takes the first lane
    /// immediately.
    #[schema(min_items = 1, max_items = 3)]
    #[validate(length(min = 1, max = limit(Lane::ALL.len()), code = "invalid"), custom(function = lanes_rule))]
    lane_sequence: Vec<String>,
    /// Soak time of each lane, in minutes.
    #[schema(minimum = 0, maximum = 43200)]
    #[validate(range(min = 0, max = i64::from(MAX_SOAK_MINUTES), code = "invalid"))]
    soak_duration_minutes: i64,
    /// Whether the rollout controller takes the next lane after a successful soak; default false.
    #[serde(default)]
    auto_advance: bool,
}

impl NewRolloutPlan {
    pub(crate) fn parse(&self) -> Result<RolloutPlan, FieldProblem> {
        let lanes = parse_lanes(&self.lane_sequence)?;
        // A value that `u32` cannot hold is refused as too long.
        let minutes = u32::try_from(self.soak_duration_minutes).unwrap_or(MAX_SOAK_MINUTES.saturating_add(1));
        let advance_mode = if self.auto_advance { AdvanceMode::Automatic } else { AdvanceMode::Manual };
        RolloutPlan::new(&lanes, minutes, advance_mode).map_err(|refusal| {
            let field = match refusal {
                PlanRefusal::Lanes => "rollout_plan.lane_sequence",
                PlanRefusal::Soak => "rollout_plan.soak_duration_minutes",
            };
            FieldProblem::new(field, "invalid", refusal.to_string())
        })
    }
}

fn parse_lanes(texts: &[String]) -> Result<Vec<Lane>, FieldProblem> {
    let lanes: Option<Vec<Lane>> = texts.iter().map(|lane| Lane::parse(lane)).collect();
    lanes.ok_or_else(|| FieldProblem::invalid("rollout_plan.lane_sequence"))
}

/// Checks that each lane exists and occurs once.
fn lanes_rule(texts: &[String]) -> RuleResult {
    let plan = parse_lanes(texts).and_then(|lanes| {
        let plan = RolloutPlan::new(&lanes, 0, AdvanceMode::Manual);
        plan.map_err(|refusal| FieldProblem::new("rollout_plan.lane_sequence", "invalid", refusal.to_string()))
    });
    value_rules::accept(plan)
}

/// The progress of a rollout.
#[derive(Serialize, ToSchema)]
#[schema(as = RolloutState)]
pub(crate) struct RolloutView {
    /// `in_progress`, `completed` or `rolled_back`.
    status: &'static str,
    lane_sequence: Vec<&'static str>,
    /// Index of the last taken lane in the sequence, from 0.
    current_lane_index: u8,
    /// Start of the current lane's soak.
    #[schema(format = DateTime)]
    soak_started_at: String,
}

impl RolloutView {
    pub(crate) fn of(rollout: &Rollout) -> Self {
        Self {
            status: rollout.status.as_str(),
            lane_sequence: rollout.plan.lanes().map(Lane::as_str).collect(),
            current_lane_index: rollout.current_index,
            soak_started_at: rollout.soak_started_at.to_string(),
        }
    }
}

/// A rollout with the metrics that decide whether it advances.
#[derive(Serialize, ToSchema)]
#[schema(as = Rollout)]
pub(crate) struct RolloutDetail {
    release_id: Uuid,
    #[serde(flatten)]
    state: RolloutView,
    /// The lane that the rollout took last.
    current_lane: &'static str,
    /// The lane that the next advance takes; null if it completes the rollout, or no rollout is in progress.
    next_lane: Option<&'static str>,
    soak_duration_minutes: u32,
    auto_advance: bool,
    /// End of the current lane's soak.
    #[schema(format = DateTime)]
    soak_ends_at: String,
    /// Why the rollout controller holds after the soak: `rollback_recommended`, `too_few_runs`,
    /// `error_rate_exceeded`, `gate_blocked` or `workload_stopped`. Null if it advances, or if the rollout is not
    /// automatic.
    hold_reason: Option<&'static str>,
    /// The metrics that the rollout controller evaluates; null if no rollout is in progress.
    observed: Option<RolloutMetricsView>,
}

/// Metrics of a release on the current lane of its rollout.
#[derive(Serialize, ToSchema)]
#[schema(as = RolloutObserved)]
pub(crate) struct RolloutMetricsView {
    /// Remaining soak time, in whole seconds.
    soak_left_seconds: u64,
    /// Ended runs among the newest runs that the release accepted on the lane in this tenure.
    runs_ended: u32,
    /// Minimum number of ended runs for an advance.
    runs_needed: u32,
    /// Fraction of failed and timed out runs among the ended runs.
    error_rate: f64,
    /// Error rate above which the rollout controller holds.
    threshold: f64,
}

impl RolloutDetail {
    fn of(report: &RolloutReport) -> Self {
        let RolloutReport { release_id, rollout, observed } = report;
        let reason = observed.as_ref().and_then(|observed| rollout.hold_reason(observed));
        Self {
            release_id: release_id.uuid(),
            state: RolloutView::of(rollout),
            current_lane: rollout.current_lane().as_str(),
            next_lane: rollout.next_lane().map(Lane::as_str),
            soak_duration_minutes: rollout.plan.soak_minutes(),
            auto_advance: rollout.plan.advance_mode() == AdvanceMode::Automatic,
            soak_ends_at: rollout.soak_ends_at().to_string(),
            hold_reason: reason.map(|reason| reason.as_str()),
            observed: observed.as_ref().map(RolloutMetricsView::of),
        }
    }
}

impl RolloutMetricsView {
    fn of(inputs: &AdvanceInputs) -> Self {
        Self {
            soak_left_seconds: inputs.soak_status.soak_seconds_left,
            runs_ended: inputs.soak_status.runs.ended,
            runs_needed: inputs.required_runs,
            error_rate: inputs.soak_status.runs.error_rate(),
            threshold: inputs.recommendation.threshold,
        }
    }
}

/// Empty body of an advance, which takes the next lane of the plan.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdvanceRequest {}

/// A rollout after an advance.
#[derive(Serialize, ToSchema)]
#[schema(as = RolloutAdvance)]
pub(crate) struct AdvanceView {
    rollout_state: RolloutView,
    /// The lane that soaks now; null after the last lane.
    advanced_to_lane: Option<&'static str>,
}

impl AdvanceView {
    fn of(result: &AdvanceResult) -> Self {
        Self { rollout_state: RolloutView::of(&result.rollout), advanced_to_lane: result.to.map(Lane::as_str) }
    }
}

/// Takes the next lane of a rollout, or completes it after the last.
///
/// A person may advance before the end of the soak. A repeated request with the same key returns the current state of
/// the rollout.
#[utoipa::path(
    operation_id = "advance_rollout",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release"), IdempotencyKeyParams, IfMatchParams),
    request_body = AdvanceRequest,
    responses((status = 200, description = "The rollout as it is now", body = AdvanceView), RevisionRefusal, WriteRefusals)
)]
#[post("/v1/releases/{release_id}/rollout/advance")]
pub(crate) async fn advance_rollout(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
    idempotency: IdempotencyHeader,
    expected: IfMatch,
    body: Body<AdvanceRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let outcome = api.services.rollouts.advance_rollout(&caller, *release, &expected, key.as_ref()).await?;
    Ok(ResourceResponse::idempotent(&outcome, &AdvanceView::of(&outcome.value), StatusCode::OK)?
        .with_etag(outcome.value.revision)
        .into_response())
}

/// Reads the rollout of a release: its progress, its next lane and its hold reason.
#[utoipa::path(
    operation_id = "read_rollout",
    tag = "releases",
    params(("release_id" = Uuid, Path, description = "The release")),
    responses((status = 200, description = "The rollout", body = RolloutDetail), ReadRefusals)
)]
#[get("/v1/releases/{release_id}/rollout")]
pub(crate) async fn read_rollout(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    release: PathId<ReleaseId>,
) -> Result<HttpResponse, ApiError> {
    let report = api.services.rollouts.read_rollout(&caller, *release).await?;
    Ok(ResourceResponse::ok(&RolloutDetail::of(&report)).into_response())
}

/// Combines the lane and the plan of an activation. With a plan, the release takes the plan's first lane.
pub(crate) fn lane_selection(
    fields: &mut FieldErrors,
    lane: Option<Lane>,
    plan: Option<&NewRolloutPlan>,
) -> Option<LaneSelection> {
    let Some(plan) = plan else { return Some(lane.map_or(LaneSelection::All, LaneSelection::One)) };
    let plan = fields.check(plan.parse())?;
    Some(LaneSelection::Planned(plan))
}
