//! The route that explains what an actor may do.

use super::{caller_description::refuse_anonymous_in_oidc_mode, parse_scope, parse_scope_ref};
use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::query::Query,
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::access::{ActorRef, GrantScope, Permission};
use fairway_operations::access::{AccessExplanationRequest, DecidingGrant, Operation};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The operation, scope and actor to explain.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct AccessQuery {
    /// The operation, by its `operationId` in this document.
    operation: String,
    /// `platform`, `tenant`, `namespace`, `workspace` or `workload`; default the caller's tenant.
    scope_kind: Option<String>,
    /// The identifier of the scope; absent for `platform`.
    #[param(value_type = Option<Uuid>)]
    scope_ref: Option<String>,
    /// The actor, such as `user:ada`; default the caller. Another actor than the caller requires
    /// `workspace.manage`.
    actor: Option<String>,
}

/// Whether an actor may perform an operation.
#[derive(Serialize, ToSchema)]
#[schema(as = AccessExplanation)]
pub(crate) struct AccessExplanationView {
    /// Whether the roles of the actor allow the operation.
    allowed: bool,
    /// The permission that decides: the one that the operation requires, or the first missing one of several. Null
    /// if the operation requires none.
    permission: Option<&'static str>,
    /// The roles that give the permission.
    by: Vec<DecidingRoleView>,
}

/// A role that gives a permission.
#[derive(Serialize, ToSchema)]
#[schema(as = DecidingRole)]
pub(crate) struct DecidingRoleView {
    /// The role binding; null for a role of the server's configuration.
    role_binding_id: Option<Uuid>,
    role: &'static str,
    /// `platform`, `tenant`, `namespace`, `workspace` or `workload`.
    scope_kind: &'static str,
    /// The identifier of the scope; null for `platform`.
    scope_ref: Option<Uuid>,
    /// `bootstrap_admins` if the role comes from the setting `FAIRWAY_BOOTSTRAP_ADMINS`; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    source: Option<&'static str>,
}

impl DecidingRoleView {
    fn of(deciding_grant: &DecidingGrant) -> Self {
        Self {
            role_binding_id: deciding_grant.role_binding_id.map(|id| id.uuid()),
            role: deciding_grant.grant.role.as_str(),
            scope_kind: deciding_grant.grant.scope.kind(),
            scope_ref: deciding_grant.grant.scope.reference(),
            source: deciding_grant.grant.source.as_wire(),
        }
    }
}

fn parse_operation(id: &str) -> Result<Operation, FieldProblem> {
    let rule = "names no operation of this API; `GET /openapi.json` lists them";
    Operation::parse(id).ok_or_else(|| FieldProblem::new("operation", "unknown_operation", rule))
}

fn parse_optional_scope(kind: Option<&str>, reference: Option<&str>) -> Result<Option<GrantScope>, FieldProblem> {
    let reference = reference.map(parse_scope_ref).transpose()?;
    match kind {
        None if reference.is_some() => Err(FieldProblem::missing("scope_kind")),
        None => Ok(None),
        Some(kind) if !GrantScope::KINDS.contains(&kind) => Err(FieldProblem::invalid("scope_kind")),
        Some(kind) => parse_scope(kind, reference).map(Some),
    }
}

fn parse_actor(text: Option<&str>) -> Result<Option<ActorRef>, FieldProblem> {
    let parse = |text| ActorRef::parse(text).map_err(|error| FieldProblem::new("actor", "invalid", error.to_string()));
    text.map(parse).transpose()
}

/// Explains whether an actor may perform an operation in a scope, and which roles decide.
///
/// The explanation considers roles only. The state of a resource may still forbid the operation. Submitters may
/// always read and cancel their own runs.
#[utoipa::path(
    operation_id = "explain_access",
    tag = "tenants",
    params(AccessQuery),
    responses((status = 200, description = "The decision and its roles", body = AccessExplanationView), ReadRefusals)
)]
#[get("/v1/session/can")]
pub(crate) async fn explain_access(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    query: Query<AccessQuery>,
) -> Result<HttpResponse, ApiError> {
    refuse_anonymous_in_oidc_mode(&caller)?;
    let query = query.into_inner();
    let mut fields = FieldErrors::default();
    let operation = fields.check(parse_operation(&query.operation));
    let scope = fields.check(parse_optional_scope(query.scope_kind.as_deref(), query.scope_ref.as_deref()));
    let actor = fields.check(parse_actor(query.actor.as_deref()));
    let request = fields.finish(|| {
        let (operation, (scope, actor)) = operation.zip(scope.zip(actor))?;
        Some(AccessExplanationRequest { operation, scope, actor })
    })?;
    let explanation = api.services.access_explanations.explain(&caller, &request).await?;
    let view = AccessExplanationView {
        allowed: explanation.allowed,
        permission: explanation.permission.map(Permission::as_str),
        by: explanation.by.iter().map(DecidingRoleView::of).collect(),
    };
    Ok(ResourceResponse::ok(&view).into_response())
}
