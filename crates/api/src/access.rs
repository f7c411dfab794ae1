//! Routes of roles and role bindings.

pub(crate) mod caller_description;
pub(crate) mod explanation;
pub(crate) mod principal_binding;

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::Body,
        idempotency::IdempotencyHeader,
        paging::ListRequest,
        path::{PathId, parse_uuid},
    },
    openapi::{DeleteRefusals, IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, delete, get, post, web};
use fairway_domain::{
    access::{ActorRef, GrantScope, Permission, Role, RoleBinding},
    id::RoleBindingId,
};
use fairway_operations::access::CreateRoleBindingParams;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;
use validator::Validate;

/// A built-in role with its permissions.
#[derive(Serialize, ToSchema)]
#[schema(as = Role)]
pub(crate) struct RoleView {
    role: &'static str,
    permissions: Vec<&'static str>,
}

/// A role that a principal holds in a scope.
#[derive(Serialize, ToSchema)]
#[schema(as = RoleBinding)]
pub(crate) struct RoleBindingView {
    role_binding_id: Uuid,
    principal: String,
    role: &'static str,
    /// `platform`, `tenant`, `namespace`, `workspace` or `workload`.
    scope_kind: &'static str,
    scope_ref: Option<Uuid>,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl RoleBindingView {
    fn of(binding: &RoleBinding) -> Self {
        Self {
            role_binding_id: binding.role_binding_id.uuid(),
            principal: binding.principal.to_string(),
            role: binding.role.as_str(),
            scope_kind: binding.scope.kind(),
            scope_ref: binding.scope.reference(),
            created_at: binding.created_at.to_string(),
            created_by: binding.created_by.to_string(),
        }
    }
}

/// A role to grant to a principal in a scope.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = scope_rule, skip_on_field_errors = false))]
pub(crate) struct NewRoleBinding {
    /// `user:<name>`, `group:<name>` or `service:<name>`.
    #[validate(length(min = 1, max = limit(ActorRef::MAX_PRINCIPAL_CHARS)), custom(function = value_rules::principal))]
    principal: String,
    /// Name of a built-in role.
    #[validate(custom(function = role_rule))]
    role: String,
    /// `platform`, `tenant`, `namespace`, `workspace` or `workload`.
    #[validate(custom(function = scope_kind_rule))]
    scope_kind: String,
    /// The identifier of the scope; null for `platform`.
    #[schema(value_type = Option<Uuid>)]
    #[validate(custom(function = scope_ref_rule))]
    scope_ref: Option<String>,
}

/// Filters of the list of role bindings.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RoleBindingQuery {
    /// Only role bindings of this workspace; by default all role bindings of the tenant.
    workspace_id: Option<Uuid>,
}

/// Lists the built-in roles with their permissions.
#[utoipa::path(
    operation_id = "list_roles",
    tag = "tenants",
    responses((status = 200, description = "Roles and their permissions", body = Vec<RoleView>), ReadRefusals)
)]
#[get("/v1/roles")]
pub(crate) async fn list_roles(api: web::Data<Api>, caller: IdentifiedCaller) -> Result<HttpResponse, ApiError> {
    let roles = api.services.role_bindings.list_builtin_roles(&caller)?;
    let views: Vec<RoleView> = roles
        .into_iter()
        .map(|role| RoleView {
            role: role.as_str(),
            permissions: role.permissions().iter().map(Permission::as_str).collect(),
        })
        .collect();
    Ok(ResourceResponse::ok(&views).into_response())
}

/// Lists role bindings, newest first.
#[utoipa::path(
    operation_id = "list_role_bindings",
    tag = "tenants",
    params(RoleBindingQuery, PageParams),
    responses((status = 200, description = "A page of role bindings", body = Vec<RoleBindingView>), ReadRefusals)
)]
#[get("/v1/role-bindings")]
pub(crate) async fn list_role_bindings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<RoleBindingQuery>,
) -> Result<HttpResponse, ApiError> {
    let workspace = list.filter.workspace_id.map(Into::into);
    let bindings = api.services.role_bindings.list_role_bindings(&caller, workspace, list.paging()).await?;
    Ok(list.respond(&bindings.map(|binding| RoleBindingView::of(&binding))))
}

pub(crate) fn parse_principal(text: &str) -> Result<ActorRef, FieldProblem> {
    ActorRef::parse(text).map_err(|refusal| FieldProblem::new("principal", "invalid_principal", refusal.to_string()))
}

fn parse_role(text: &str) -> Result<Role, FieldProblem> {
    Role::parse(text).ok_or_else(|| FieldProblem::invalid("role"))
}

fn parse_scope_ref(text: &str) -> Result<Uuid, FieldProblem> {
    parse_uuid(text).ok_or_else(|| FieldProblem::invalid("scope_ref"))
}

/// Combines kind and reference to a scope, or reports that they do not fit. Other rules check each of them alone.
fn parse_scope(kind: &str, reference: Option<Uuid>) -> Result<GrantScope, FieldProblem> {
    GrantScope::from_parts(kind, reference).ok_or_else(|| match reference {
        None => FieldProblem::missing("scope_ref"),
        Some(_) => FieldProblem::new("scope_ref", "invalid", "the scope `platform` has no `scope_ref`"),
    })
}

fn role_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_role(text))
}

fn scope_kind_rule(kind: &str) -> RuleResult {
    value_rules::accept_unless((!GrantScope::KINDS.contains(&kind)).then(|| FieldProblem::invalid("scope_kind")))
}

fn scope_ref_rule(text: &str) -> RuleResult {
    value_rules::accept(parse_scope_ref(text))
}

/// Checks that kind and reference of the scope fit together. Malformed values pass, because the rules of the two fields
/// report them.
fn scope_rule(new: &NewRoleBinding) -> RuleResult {
    let is_known_kind = GrantScope::KINDS.contains(&new.scope_kind.as_str());
    match new.scope_ref.as_deref().map(parse_scope_ref).transpose() {
        Ok(reference) if is_known_kind => value_rules::accept(parse_scope(&new.scope_kind, reference)),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Grants a role to a principal.
#[utoipa::path(
    operation_id = "create_role_binding",
    tag = "tenants",
    params(IdempotencyKeyParams),
    request_body = NewRoleBinding,
    responses((status = 201, description = "The role binding", body = RoleBindingView), WriteRefusals)
)]
#[post("/v1/role-bindings")]
pub(crate) async fn create_role_binding(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewRoleBinding>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let mut fields = FieldErrors::default();
    let principal = fields.check(parse_principal(&new.principal));
    let role = fields.check(parse_role(&new.role));
    let reference = fields.check(new.scope_ref.as_deref().map(parse_scope_ref).transpose());
    let scope = reference.and_then(|reference| fields.check(parse_scope(&new.scope_kind, reference)));
    let grant =
        fields.finish(|| Some(CreateRoleBindingParams { principal: principal?, role: role?, scope: scope? }))?;
    let outcome = api.services.role_bindings.create_role_binding(&caller, grant, key.as_ref()).await?;
    let view = RoleBindingView::of(&outcome.value);
    let location = format!("/v1/role-bindings/{}", view.role_binding_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Revokes a role binding.
#[utoipa::path(
    operation_id = "delete_role_binding",
    tag = "tenants",
    params(("role_binding_id" = Uuid, Path, description = "The role binding")),
    responses((status = 204, description = "The role binding is revoked"), DeleteRefusals)
)]
#[delete("/v1/role-bindings/{role_binding_id}")]
pub(crate) async fn delete_role_binding(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    binding: PathId<RoleBindingId>,
) -> Result<HttpResponse, ApiError> {
    api.services.role_bindings.delete_role_binding(&caller, *binding).await?;
    Ok(HttpResponse::NoContent().finish())
}
