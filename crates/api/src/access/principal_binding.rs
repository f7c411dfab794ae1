//! Routes of principal bindings of workloads.

use crate::{
    access::parse_principal,
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors},
    http::{
        body::Body,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::{Path, PathId},
    },
    openapi::{DeleteRefusals, IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    release::parse_lane,
    response::ResourceResponse,
    value_rules::{self, limit},
};
use actix_web::{HttpResponse, delete, get, http::StatusCode, put, web};
use fairway_domain::{
    access::{ActorRef, principal_binding::PrincipalBinding},
    id::WorkloadId,
    release::lane::Lane,
};
use fairway_operations::access::RequestedBinding;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A principal that is bound to a workload.
#[derive(Serialize, ToSchema)]
#[schema(as = PrincipalBinding)]
pub(crate) struct PrincipalBindingView {
    principal_binding_id: Uuid,
    workload_id: Uuid,
    principal: String,
    /// `restricted`, `guided` or `standard`: the lane of the principal; null for the default lane.
    lane: Option<&'static str>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
    #[schema(format = DateTime)]
    updated_at: String,
    updated_by: String,
}

impl PrincipalBindingView {
    fn of(binding: &PrincipalBinding) -> Self {
        Self {
            principal_binding_id: binding.principal_binding_id.uuid(),
            workload_id: binding.workload_id.uuid(),
            principal: binding.principal.to_string(),
            lane: binding.lane.map(Lane::as_str),
            created_at: binding.created_at.to_string(),
            created_by: binding.created_by.to_string(),
            updated_at: binding.updated_at.to_string(),
            updated_by: binding.updated_by.to_string(),
        }
    }
}

/// A principal binding to create or replace.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct WantedPrincipalBinding {
    /// `user:<name>`, `group:<name>` or `service:<name>`.
    #[validate(length(min = 1, max = limit(ActorRef::MAX_PRINCIPAL_CHARS)), custom(function = value_rules::principal))]
    principal: String,
    /// `restricted`, `guided` or `standard`; null or absent for the default lane.
    #[validate(custom(function = value_rules::lane))]
    lane: Option<String>,
}

/// Lists the principal bindings of a workload, newest first.
#[utoipa::path(
    operation_id = "list_principal_bindings",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload"), PageParams),
    responses((status = 200, description = "A page of bindings", body = Vec<PrincipalBindingView>), ReadRefusals)
)]
#[get("/v1/workloads/{workload_id}/principal-bindings")]
pub(crate) async fn list_principal_bindings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let bindings = api.services.principal_bindings.list_principal_bindings(&caller, *workload, list.paging()).await?;
    Ok(list.respond(&bindings.map(|binding| PrincipalBindingView::of(&binding))))
}

/// Binds a principal to a workload, or changes the lane of a bound principal.
#[utoipa::path(
    operation_id = "set_principal_binding",
    tag = "workloads",
    params(("workload_id" = Uuid, Path, description = "The workload"), IdempotencyKeyParams),
    request_body = WantedPrincipalBinding,
    responses((status = 200, description = "The binding", body = PrincipalBindingView), WriteRefusals)
)]
#[put("/v1/workloads/{workload_id}/principal-bindings")]
pub(crate) async fn set_principal_binding(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    workload: PathId<WorkloadId>,
    idempotency: IdempotencyHeader,
    body: Body<WantedPrincipalBinding>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let mut fields = FieldErrors::default();
    let principal = fields.check(parse_principal(&body.principal));
    let lane = fields.check(parse_lane(body.lane.as_deref()));
    let binding = fields.finish(|| Some(RequestedBinding { principal: principal?, lane: lane? }))?;
    let outcome =
        api.services.principal_bindings.set_principal_binding(&caller, *workload, binding, key.as_ref()).await?;
    Ok(ResourceResponse::idempotent(&outcome, &PrincipalBindingView::of(&outcome.value), StatusCode::OK)?
        .into_response())
}

/// Removes a principal's binding to a workload.
#[utoipa::path(
    operation_id = "delete_principal_binding",
    tag = "workloads",
    params(
        ("workload_id" = Uuid, Path, description = "The workload"),
        ("principal" = String, Path, description = "The principal, such as `user:ada`"),
    ),
    responses((status = 204, description = "The binding is removed"), DeleteRefusals)
)]
#[delete("/v1/workloads/{workload_id}/principal-bindings/{principal}")]
pub(crate) async fn delete_principal_binding(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    path: Path<(PathId<WorkloadId>, String)>,
) -> Result<HttpResponse, ApiError> {
    let (workload, principal) = path.into_inner();
    // A malformed principal cannot have a binding, so the response is 404.
    let principal = ActorRef::parse(&principal).map_err(|_| ApiError::not_found())?;
    api.services.principal_bindings.delete_principal_binding(&caller, *workload, &principal).await?;
    Ok(HttpResponse::NoContent().finish())
}
