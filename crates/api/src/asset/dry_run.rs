//! Routes that evaluate content before it becomes a version. They store nothing.

use super::{CONTENT_LIMIT, WorkspaceQuery};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{DeferredBody, DeferredMember},
        path::PathId,
        query::Query,
    },
    openapi::WriteRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, post, web};
use fairway_domain::{
    id::AssetId,
    policy::{ClauseExplanation, DecisionExplanation, FailedRule, PolicyDecision, RuleExplanation},
};
use fairway_operations::access::Operation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use validator::Validate;

/// A prompt template to render.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the handler moves the members out of the document")]
pub(crate) struct PromptDraft {
    /// The content of a prompt template.
    #[schema(value_type = Object)]
    content: DeferredMember,
    /// The values of the template's variables, by name.
    #[schema(value_type = Object)]
    arguments: DeferredMember,
}

/// The rendered prompt of a dry run.
#[derive(Serialize, ToSchema)]
pub(crate) struct PromptPreview {
    /// The text that a model would receive as the system prompt.
    text: String,
}

/// A policy bundle to try.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "the handler moves the members out of the document")]
pub(crate) struct PolicyDraft {
    /// The content of a policy bundle. Its embedded tests may fail.
    #[schema(value_type = Object)]
    content: DeferredMember,
    /// Policy input, as in the `input` of a bundle's test: `environment`, `lane`, `inputs`, `actor`, `workload`,
    /// `release`, `now`.
    #[schema(value_type = Object)]
    input: DeferredMember,
}

/// The decision of a policy bundle for one input.
#[derive(Serialize, ToSchema)]
pub(crate) struct PolicyTrial {
    decision: TrialDecision,
    /// Every rule, in the order of the bundle.
    rules: Vec<TrialRule>,
}

/// The decision of the tried policy bundle.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrialDecision {
    /// `allow`, `deny` or `allow_with_obligations`.
    outcome: &'static str,
    reason_code: String,
    obligations: Vec<&'static str>,
    /// Ids of the rules that matched, in the order of the bundle.
    matched_rules: Vec<String>,
    /// Rules that could not be evaluated, if their failure determined the decision; at most 20, in the order of the
    /// bundle.
    failed_rules: Vec<TrialFailure>,
}

/// A rule that could not be evaluated.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrialFailure {
    rule: String,
    /// The field that the rule reads and the input lacks; null if the evaluation failed for another reason.
    missing_field: Option<String>,
}

/// A rule of the tried policy bundle, with the result of its condition.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrialRule {
    rule: String,
    /// Whether the condition holds: `yes`, `no`, or `failed` if it cannot be evaluated.
    holds: &'static str,
    /// The outcome that the rule asks for if its condition holds.
    outcome: &'static str,
    reason_code: String,
    /// The operator between the parts, `&&` or `||`; null for a condition of one part.
    operator: Option<&'static str>,
    /// The parts of the condition, in source order.
    clauses: Vec<TrialClause>,
}

/// A part of a rule's condition, with its result.
#[derive(Serialize, ToSchema)]
pub(crate) struct TrialClause {
    /// The source text of the part.
    source: String,
    /// Whether the part holds: `yes`, `no`, or `failed` if it cannot be evaluated.
    holds: &'static str,
    /// The field that the part reads and the input lacks; null if the evaluation succeeded, or failed for another
    /// reason.
    missing_field: Option<String>,
}

impl PolicyTrial {
    fn of(explanation: DecisionExplanation) -> Self {
        let DecisionExplanation { decision, rules } = explanation;
        Self { decision: TrialDecision::of(decision), rules: rules.into_iter().map(TrialRule::of).collect() }
    }
}

impl TrialDecision {
    fn of(decision: PolicyDecision) -> Self {
        let PolicyDecision { outcome, reason_code, obligations, matched_rules, failed_rules } = decision;
        let failure = |FailedRule { rule, missing_field }| TrialFailure { rule, missing_field };
        Self {
            outcome: outcome.as_str(),
            reason_code,
            obligations: obligations.iter().map(|obligation| obligation.as_str()).collect(),
            matched_rules,
            failed_rules: failed_rules.into_iter().map(failure).collect(),
        }
    }
}

impl TrialRule {
    fn of(explanation: RuleExplanation) -> Self {
        let RuleExplanation { rule, holds, outcome, reason_code, operator, clauses } = explanation;
        let clause = |ClauseExplanation { source, holds, missing_field }| TrialClause {
            source,
            holds: holds.as_str(),
            missing_field,
        };
        Self {
            rule,
            holds: holds.as_str(),
            outcome: outcome.as_str(),
            reason_code,
            operator,
            clauses: clauses.into_iter().map(clause).collect(),
        }
    }
}

fn parse_object(name: &'static str, value: Value) -> Result<Map<String, Value>, FieldProblem> {
    match value {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(FieldProblem::new(name, "invalid", format!("{name} must be an object")))
        }
    }
}

/// Parses two members of a body as objects, and reports the problems of both members.
fn parse_objects([left, right]: [(&'static str, Value); 2]) -> Result<[Map<String, Value>; 2], ApiError> {
    let mut fields = FieldErrors::default();
    let (left, right) = (fields.check(parse_object(left.0, left.1)), fields.check(parse_object(right.0, right.1)));
    fields.finish(|| Some([left?, right?]))
}

/// Renders a prompt template without storing it.
#[utoipa::path(
    operation_id = "preview_prompt",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The prompt template"), WorkspaceQuery),
    request_body = PromptDraft,
    responses((status = 200, description = "The rendered prompt", body = PromptPreview), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/prompt-preview")]
pub(crate) async fn preview_prompt(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    body: DeferredBody<PromptDraft, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let authorize = api.services.assets.preauthorize_asset_write(&caller, Operation::PreviewPrompt, *asset, workspace);
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let (_, [content, arguments]) = body.split_members(["content", "arguments"]);
    let [content, arguments] = parse_objects([("content", content), ("arguments", arguments)])?;
    let text = api.services.assets.preview_prompt(&caller, *asset, workspace, content.into(), arguments).await?;
    let bytes = text.len();
    Ok(ResourceResponse::ok(&PromptPreview { text }).with_capacity(bytes).into_response())
}

/// Evaluates a policy bundle for one input without storing the bundle.
#[utoipa::path(
    operation_id = "try_policy",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The policy bundle"), WorkspaceQuery),
    request_body = PolicyDraft,
    responses((status = 200, description = "The decision, rule by rule", body = PolicyTrial), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/policy-trial")]
pub(crate) async fn try_policy(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    body: DeferredBody<PolicyDraft, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let workspace = query.resolve_with_body(None)?;
    let authorize = api.services.assets.preauthorize_asset_write(&caller, Operation::TryPolicy, *asset, workspace);
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let (_, [content, input]) = body.split_members(["content", "input"]);
    let [content, input] = parse_objects([("content", content), ("input", input)])?;
    let explanation = api.services.assets.try_policy(&caller, *asset, workspace, content.into(), input.into()).await?;
    Ok(ResourceResponse::ok(&PolicyTrial::of(explanation)).into_response())
}
