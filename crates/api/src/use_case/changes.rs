//! The route that compares a use case with its predecessor, the use case that it refines.

use super::UseCaseWorkspaceQuery;
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::{path::PathId, query::Query},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{id::UseCaseId, use_case::plan_diff::PlanChange};
use fairway_operations::use_case::PlanComparison;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A member of the bundle plan that differs.
#[derive(Serialize, ToSchema)]
#[schema(as = PlanChange)]
pub(crate) struct PlanChangeView {
    /// Path of the member, such as `prompt_template` or `flow.steps.answer`; steps are named by their id.
    path: String,
    /// The member of the predecessor; null if it was added.
    #[schema(value_type = Option<Value>)]
    before: Option<Value>,
    /// The member of this use case; null if it was removed.
    #[schema(value_type = Option<Value>)]
    after: Option<Value>,
}

/// A use case compared with its predecessor.
#[derive(Serialize, ToSchema)]
#[schema(as = PlanComparison)]
pub(crate) struct PlanComparisonView {
    /// The predecessor that this use case refines; null if there is none.
    predecessor_id: Option<Uuid>,
    /// The members that differ, in the order of the bundle plan.
    changes: Vec<PlanChangeView>,
    /// Ids of the steps that are identical in both bundle plans.
    unchanged_steps: Vec<String>,
    /// Whether the bundle is hidden from you, because you lack `connection.read`.
    redacted: bool,
}

impl PlanComparisonView {
    fn of(comparison: PlanComparison) -> Self {
        let PlanComparison { predecessor_id, changes, redacted } = comparison;
        let change = |PlanChange { path, before, after }| PlanChangeView { path, before, after };
        Self {
            predecessor_id: predecessor_id.map(UseCaseId::uuid),
            changes: changes.changes.into_iter().map(change).collect(),
            unchanged_steps: changes.unchanged_steps,
            redacted,
        }
    }
}

/// Compares the bundle plan of a use case with that of the use case that it refines. Without `connection.read`, the
/// comparison is empty and `redacted` is true.
#[utoipa::path(
    operation_id = "read_use_case_changes",
    tag = "use cases",
    params(("use_case_id" = Uuid, Path, description = "The use case"), UseCaseWorkspaceQuery),
    responses((status = 200, description = "The comparison", body = PlanComparisonView), ReadRefusals)
)]
#[get("/v1/use-cases/{use_case_id}/changes")]
pub(crate) async fn read_use_case_changes(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    use_case: PathId<UseCaseId>,
    query: Query<UseCaseWorkspaceQuery>,
) -> Result<HttpResponse, ApiError> {
    let comparison = api.services.use_cases.compare_with_predecessor(&caller, query.id(), *use_case).await?;
    Ok(ResourceResponse::ok(&PlanComparisonView::of(comparison)).into_response())
}
