//! Route of context lineage: the inputs of a run's steps.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{paging, path::PathId, query::Query},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    evidence::lineage::{ActionClass, InfluenceRole, LineageFilter, LineageRow, Origin},
    id::ExecutionId,
    policy::DecisionOutcome,
};
use fairway_operations::execution::Disclosure;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// A page of the inputs of a run's steps, newest first. The list may be incomplete: retention and erasure remove
/// details, and intermediate outputs are not stored.
#[derive(Serialize, ToSchema)]
#[schema(as = ContextLineage)]
pub(crate) struct LineageView {
    /// Number of items that match the filters.
    total: u64,
    offset: u32,
    limit: u32,
    items: Vec<ItemView>,
}

/// One input that a step of the run read.
#[derive(Serialize, ToSchema)]
#[schema(as = ContextLineageItem)]
struct ItemView {
    lineage_id: Uuid,
    /// `user_input`, `prompt_template`, `knowledge_base`, `memory`, `tool_result` or `system`.
    origin: &'static str,
    /// `instruction`, `evidence`, `input` or `example`.
    influence_role: &'static str,
    /// `read`, `generate`, `tool_call` or `write`.
    action_class: &'static str,
    /// Reference to the item: a version as `<slug>@<label>`, `inputs`, or `steps.<id>.output`.
    r#ref: String,
    /// Checksum of a version; for all other items a salted digest.
    digest: String,
    size_bytes: u64,
    /// `trusted` or `untrusted`.
    trust: &'static str,
    /// Whether the text is unavailable, because it was erased or never stored.
    redacted: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(flatten)]
    disclosed: Option<DisclosedView>,
}

/// Additional fields of a lineage item for operators.
#[derive(Serialize, ToSchema)]
#[schema(as = ContextLineageDisclosure)]
struct DisclosedView {
    /// The policy decision under which the step acted: `allow` or `allow_with_obligations`.
    action_posture: Option<&'static str>,
    /// Why the item is untrusted: `user_supplied`, `retrieved_document` or `model_output`; null if it is trusted.
    untrusted_reason: Option<String>,
    /// Up to ten policy decisions that the run had made when it read the item, latest first.
    decision_evidence_refs: Vec<Uuid>,
}

/// Maximum policy decisions that the response lists for an item.
const MAX_DECISIONS: usize = 10;

impl ItemView {
    fn of(row: LineageRow, disclosure: Disclosure) -> Self {
        let disclosed = match disclosure {
            Disclosure::Summary => None,
            Disclosure::Operator => Some(DisclosedView {
                action_posture: row.strictest_prior_outcome().map(DecisionOutcome::as_str),
                untrusted_reason: row.untrusted.clone(),
                decision_evidence_refs: row.decisions.iter().map(|(id, _)| id.uuid()).take(MAX_DECISIONS).collect(),
            }),
        };
        Self {
            lineage_id: row.lineage_id.uuid(),
            origin: row.origin.as_str(),
            influence_role: row.influence_role.as_str(),
            action_class: row.action_class.as_str(),
            r#ref: row.reference,
            digest: row.digest,
            size_bytes: row.size_bytes,
            trust: if row.untrusted.is_some() { "untrusted" } else { "trusted" },
            redacted: row.redacted,
            created_at: row.created_at.to_string(),
            disclosed,
        }
    }
}

/// Filters and page parameters of the lineage.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LineageQuery {
    /// The run must be in this workspace.
    workspace_id: Uuid,
    /// Only items of this origin.
    origin: Option<String>,
    /// Only items with this influence role.
    influence_role: Option<String>,
    /// Only items with this action class.
    action_class: Option<String>,
    /// Maximum number of items: 1 to 200; default 50.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u64>,
    /// Number of items to skip: 0 to 10,000; default 0.
    #[param(minimum = 0, maximum = 10_000, default = 0)]
    offset: Option<u64>,
}

/// Parses a parameter whose value must be one of a fixed set of words.
fn parse_word<T>(
    name: &'static str,
    text: Option<&String>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, FieldProblem> {
    text.map(|text| parse(text).ok_or_else(|| FieldProblem::invalid(name))).transpose()
}

/// Reads the context lineage of a run: the inputs that each step read.
#[utoipa::path(
    operation_id = "read_context_lineage",
    tag = "executions",
    params(("execution_id" = Uuid, Path, description = "The run"), LineageQuery),
    responses((status = 200, description = "The inputs of its steps", body = LineageView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/context-lineage")]
pub(crate) async fn read_context_lineage(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
    query: Query<LineageQuery>,
) -> Result<HttpResponse, ApiError> {
    let (limit, offset) = paging::parse_limit_and_offset(query.limit, query.offset)?;
    let mut fields = FieldErrors::default();
    let origin = fields.check(parse_word("origin", query.origin.as_ref(), Origin::parse));
    let influence_role =
        fields.check(parse_word("influence_role", query.influence_role.as_ref(), InfluenceRole::parse));
    let action_class = fields.check(parse_word("action_class", query.action_class.as_ref(), ActionClass::parse));
    let filter = fields.finish(|| {
        Some(LineageFilter { origin: origin?, influence_role: influence_role?, action_class: action_class? })
    })?;
    let workspace = query.workspace_id.into();
    let (page, disclosure) =
        api.services.execution_reader.context_lineage(&caller, *execution, workspace, filter, limit, offset).await?;
    let items = page.items.into_iter().map(|row| ItemView::of(row, disclosure)).collect();
    Ok(ResourceResponse::ok(&LineageView { total: page.total, offset, limit, items }).into_response())
}
