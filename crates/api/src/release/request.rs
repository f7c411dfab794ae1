//! Request bodies of releases and their rules.

use crate::{
    error::FieldProblem,
    rollout::NewRolloutPlan,
    value_rules::{self, RuleResult, limit},
};
use fairway_domain::{
    asset::kind::AssetKind,
    note::MAX_NOTE_CHARS,
    release::{
        StateName,
        lane::{Lane, TargetLane},
        review::ReleaseVerdict,
    },
    slug::MAX_SLUG,
};
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A release to create as a draft.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRelease {
    pub(super) workload_id: Uuid,
    /// Slug of the environment, such as `dev` or `production`.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::environment))]
    pub(super) environment: String,
    /// `all`, `restricted`, `guided` or `standard`; default `all`.
    #[validate(custom(function = target_lane_rule))]
    pub(super) target_lane: Option<String>,
    /// The policy bundle asset that the release must bind.
    pub(super) policy_bundle_id: Option<Uuid>,
}

/// A version to bind to a draft release.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewBinding {
    pub(super) asset_version_id: Uuid,
    /// Role of the binding, which is the kind of the asset.
    #[validate(custom(function = binding_role_rule))]
    pub(super) role: String,
}

/// A transition of a release to another state.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[validate(
    schema(function = lane_rule, skip_on_field_errors = false),
    schema(function = plan_rule, skip_on_field_errors = false)
)]
pub(crate) struct TransitionRequest {
    /// `draft`, `review_ready`, `approved`, `active` or `retired`.
    #[validate(custom(function = state_rule))]
    pub(super) to_state: String,
    /// For `active`: the only lane that the release takes; all lanes by default.
    #[validate(custom(function = value_rules::lane))]
    pub(super) lane: Option<String>,
    /// For `active`: a plan by which the release takes the lanes one after another. It takes the plan's first lane
    /// now.
    #[validate(nested)]
    pub(super) rollout_plan: Option<NewRolloutPlan>,
}

/// A verdict on a release.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApproval {
    /// `approved`, `rejected` or `changes_requested`.
    #[validate(custom(function = verdict_rule))]
    pub(super) outcome: String,
    /// Kind of the reviewed resource; must be `release`.
    #[validate(custom(function = subject_kind_rule))]
    pub(super) subject_kind: String,
    /// Identifier of the reviewed release.
    pub(super) subject_ref: Uuid,
    /// Explanation of the verdict.
    #[schema(max_length = 2000)]
    #[validate(length(max = limit(MAX_NOTE_CHARS)), custom(function = value_rules::note))]
    pub(super) note: Option<String>,
}

pub(super) fn parse_target(text: &str) -> Result<TargetLane, FieldProblem> {
    TargetLane::parse(text).ok_or_else(|| FieldProblem::invalid("target_lane"))
}

pub(super) fn parse_state(text: &str) -> Result<StateName, FieldProblem> {
    StateName::parse(text).ok_or_else(|| FieldProblem::invalid("to_state"))
}

pub(super) fn parse_verdict(text: &str) -> Result<ReleaseVerdict, FieldProblem> {
    ReleaseVerdict::parse(text).ok_or_else(|| FieldProblem::invalid("outcome"))
}

pub(super) fn parse_binding_role(text: &str) -> Result<AssetKind, FieldProblem> {
    AssetKind::parse(text).ok_or_else(|| FieldProblem::invalid("role"))
}

fn target_lane_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_target(text))
}

fn state_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_state(text))
}

fn verdict_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_verdict(text))
}

fn binding_role_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_binding_role(text))
}

fn subject_kind_rule(text: &str) -> RuleResult {
    let problem = || FieldProblem::new("subject_kind", "invalid", "must be `release`");
    value_rules::accept_unless((text != "release").then(problem))
}

/// Checks that only an activation names a lane. With a rollout plan, the lane must be the plan's first.
fn lane_rule(request: &TransitionRequest) -> RuleResult {
    let Some(lane) = request.lane.as_deref() else { return Ok(()) };
    if !request.may_activate() {
        return value_rules::accept_unless(Some(active_only("lane")));
    }
    let plan = request.rollout_plan.as_ref().and_then(|plan| plan.parse().ok());
    let differs = plan.zip(Lane::parse(lane)).is_some_and(|(plan, lane)| lane != plan.first_lane());
    let problem = || FieldProblem::new("lane", "invalid", "a rollout takes the first lane of its plan");
    value_rules::accept_unless(differs.then(problem))
}

/// Checks that only an activation has a rollout plan.
fn plan_rule(request: &TransitionRequest) -> RuleResult {
    let is_refused = request.rollout_plan.is_some() && !request.may_activate();
    value_rules::accept_unless(is_refused.then(|| active_only("rollout_plan")))
}

fn active_only(field: &'static str) -> FieldProblem {
    FieldProblem::new(field, "invalid", "only `active` accepts this field")
}

impl TransitionRequest {
    /// Whether the request may be an activation. An invalid state counts as one, because another rule reports it.
    fn may_activate(&self) -> bool {
        StateName::parse(&self.to_state).is_none_or(|state| state == StateName::Active)
    }
}
