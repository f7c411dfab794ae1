//! Routes that generate bundle plans: from a description, and as the refinement of a draft.

use super::{GapView, UseCaseView, UseCaseWorkspaceQuery, credential_problem, description_rule};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body,
        etag::IfMatch,
        idempotency::{IdempotencyHeader, IdempotencyKey},
        path::PathId,
        query::Query,
    },
    note_field::parse_note,
    openapi::{ErrorBody, IdempotencyKeyParams, IfMatchParams, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, http::StatusCode, post, web};
use fairway_domain::{
    generator::MAX_DESCRIPTION, id::UseCaseId, note::MAX_NOTE_CHARS, text::is_blank, use_case::ports::RefinementKey,
};
use fairway_operations::{
    MaybeReplayed,
    use_case::{GenerationResult, PlanOrQuestion, PlanWarning, RefineRequest, RefinementOutcome},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// The maximum number of notes of a refinement.
const MAX_NOTES: u64 = 20;
/// The maximum length of an idempotency key, in characters.
const MAX_KEY: u64 = 255;

/// A request to generate a bundle plan.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerateRequest {
    /// Purpose of the use case, in plain words.
    #[schema(min_length = 1, max_length = 4000)]
    #[validate(length(min = 1, max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    description: String,
}

/// A note of a refinement. It implements `Serialize`, because `validator` requires serializable list items.
#[derive(Serialize, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefinementNote {
    /// Requested change, or the answer to a question.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_NOTE_CHARS)), custom(function = note_rule))]
    note: String,
}

/// A request to refine a draft use case.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefineUseCase {
    /// The description of the use case, unchanged.
    #[schema(min_length = 1, max_length = 4000)]
    #[validate(length(min = 1, max = limit(MAX_DESCRIPTION)), custom(function = description_rule))]
    description: String,
    /// Requested changes and answers, in the order of the conversation.
    #[schema(max_items = 20)]
    #[validate(length(max = MAX_NOTES), nested)]
    refinement_context: Vec<RefinementNote>,
    /// Repeated requests with the same key return the same successor. The key belongs to the use case of its first
    /// request and never expires.
    #[schema(min_length = 1, max_length = 255)]
    #[validate(length(min = 1, max = MAX_KEY), custom(function = key_rule))]
    idempotency_key: String,
}

fn note_rule(text: &str) -> RuleResult {
    let rule = "a note has 1 to 2000 characters, and no invisible ones except line breaks and tabs";
    let blank = is_blank(text).then(|| FieldProblem::new("note", "invalid_text", rule));
    value_rules::accept_unless(
        blank.or_else(|| parse_note("note", Some(text)).err()).or_else(|| credential_problem("note", text)),
    )
}

fn key_rule(text: &str) -> RuleResult {
    let rule = "expected a key of 1 to 255 visible ASCII characters";
    let is_key = IdempotencyKey::parse(text).is_some();
    value_rules::accept_unless((!is_key).then(|| FieldProblem::new("idempotency_key", "invalid", rule)))
}

/// A warning about a generated bundle.
#[derive(Serialize, ToSchema)]
#[schema(as = BundleWarning)]
pub(crate) struct BundleWarningView {
    code: &'static str,
    message: String,
}

/// The gaps of a bundle's references.
#[derive(Serialize, ToSchema)]
#[schema(as = Gaps)]
pub(crate) struct GapsView {
    model_policy: GapView,
    policy_bundle: GapView,
    connections: Vec<GapView>,
    /// Whether references are hidden from you, because you lack `connection.read`.
    redacted: bool,
}

/// A generated bundle, or a question. The server stores only the generator's run.
#[derive(Serialize, ToSchema)]
#[schema(as = GeneratedBundle)]
pub(crate) struct GeneratedBundleView {
    /// Whether the description is too short for a bundle.
    needs_clarification: bool,
    /// The bundle plan; absent if the response contains a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Object)]
    bundle: Option<Value>,
    /// The points that the author should check: assumptions and omissions of the bundle plan, and the effect of a
    /// failed step. Empty if the response contains a question.
    warnings: Vec<BundleWarningView>,
    /// Whether each reference exists, and how to resolve it; absent if the response contains a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = GapsView)]
    gaps: Option<GapsView>,
    /// The question; absent if the response contains a bundle plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    question: Option<String>,
    /// A proposed answer to the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    proposed_answer: Option<String>,
    /// Identifier of the generator's run.
    generation_id: Uuid,
}

impl GeneratedBundleView {
    fn of(result: GenerationResult) -> Self {
        let empty = Self {
            needs_clarification: false,
            bundle: None,
            warnings: Vec::new(),
            gaps: None,
            question: None,
            proposed_answer: None,
            generation_id: result.generation_id.uuid(),
        };
        match result.outcome {
            PlanOrQuestion::Question { question, proposed_answer } => {
                Self { needs_clarification: true, question: Some(question), proposed_answer, ..empty }
            }
            PlanOrQuestion::Plan(generated) => {
                let gaps = &generated.gaps;
                let plan = &generated.plan;
                let bundle = if gaps.redacted { plan.to_redacted_document() } else { plan.to_document() };
                let warning = |PlanWarning { code, message }| BundleWarningView { code, message };
                Self {
                    bundle: Some(bundle),
                    gaps: Some(GapsView {
                        model_policy: GapView::of(&gaps.model_policy),
                        policy_bundle: GapView::of(&gaps.policy_bundle),
                        connections: gaps.connections.iter().map(GapView::of).collect(),
                        redacted: gaps.redacted,
                    }),
                    warnings: generated.warnings.into_iter().map(warning).collect(),
                    ..empty
                }
            }
        }
    }
}

/// A successor, or a question. With a question nothing is created or archived.
#[derive(Serialize, ToSchema)]
#[schema(as = Refinement)]
pub(crate) struct RefinementView {
    /// The successor; null if the response contains a question.
    #[schema(value_type = Option<UseCaseView>)]
    use_case: Option<UseCaseView>,
    /// The question; null if the response contains a successor.
    question: Option<String>,
    /// A proposed answer to the question; null if the response contains a successor.
    proposed_answer: Option<String>,
}

/// Generates a bundle plan from a description. Nothing is created from it.
#[utoipa::path(
    operation_id = "generate_use_case",
    tag = "use cases",
    params(UseCaseWorkspaceQuery, IdempotencyKeyParams),
    request_body = GenerateRequest,
    responses(
        (status = 200, description = "The bundle, or a question", body = GeneratedBundleView),
        (status = 503, description = "The generator has no active release", body = ErrorBody),
        WriteRefusals,
    )
)]
#[post("/v1/use-cases/generate")]
pub(crate) async fn generate_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<UseCaseWorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<GenerateRequest>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || query.digest(body.digest()));
    let use_cases = &api.services.use_cases;
    let result = use_cases.generate_plan(&caller, query.id(), &body.description, key.as_ref()).await?;
    let outcome = MaybeReplayed { value: (), replayed: result.replayed.then_some(StatusCode::OK.as_u16()) };
    Ok(ResourceResponse::idempotent(&outcome, &GeneratedBundleView::of(result), StatusCode::OK)?.into_response())
}

/// Refines a draft.
///
/// Generates a bundle plan from the description and the notes, and creates a use case with that plan, which succeeds
/// the draft. The same transaction archives the draft.
#[utoipa::path(
    operation_id = "refine_use_case",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The draft"), UseCaseWorkspaceQuery, IfMatchParams),
    request_body = RefineUseCase,
    responses(
        (status = 201, description = "The successor", body = RefinementView),
        (status = 200, description = "A question, or the successor of an earlier request", body = RefinementView),
        (status = 503, description = "The generator has no active release", body = ErrorBody),
        RevisionRefusal,
        WriteRefusals,
    )
)]
#[post("/v1/use-cases/{use_case_id}/refine")]
pub(crate) async fn refine_use_case(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
    expected: IfMatch,
    body: Body<RefineUseCase>,
) -> Result<HttpResponse, ApiError> {
    let body_digest = body.digest();
    let RefineUseCase { description, refinement_context, idempotency_key } = body.into_inner();
    let mut fields = FieldErrors::default();
    let notes: Vec<_> = refinement_context
        .iter()
        .filter_map(|item| fields.check(parse_note("refinement_context", Some(&item.note))).flatten())
        .collect();
    let key = RefinementKey { key: idempotency_key, body_digest };
    let request = fields.finish(|| Some(RefineRequest { description, notes, key }))?;
    let refinement = api.services.use_cases.refine_use_case(&caller, query.id(), *use_case, request, &expected).await?;
    match refinement {
        RefinementOutcome::Question { question, proposed_answer } => {
            let view = RefinementView { use_case: None, question: Some(question), proposed_answer };
            Ok(ResourceResponse::ok(&view).into_response())
        }
        RefinementOutcome::Successor { use_case, is_replay } => {
            let view =
                RefinementView { use_case: Some(UseCaseView::of(&use_case)), question: None, proposed_answer: None };
            if is_replay {
                let outcome = MaybeReplayed { value: (), replayed: Some(StatusCode::OK.as_u16()) };
                let response = ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?;
                return Ok(response.with_etag(use_case.revision).into_response());
            }
            let outcome = MaybeReplayed { value: (), replayed: None };
            let location = format!("/v1/use-cases/{}?workspace_id={}", use_case.use_case_id, use_case.workspace_id);
            Ok(ResourceResponse::created(&outcome, &view, location)?.with_etag(use_case.revision).into_response())
        }
    }
}
