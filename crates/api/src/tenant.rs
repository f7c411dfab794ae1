//! Routes of tenants.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        body::{Body, deserialize_present},
        etag::IfMatch,
        idempotency::IdempotencyHeader,
        paging::{ListRequest, NoFilter},
        path::PathId,
    },
    openapi::{IdempotencyKeyParams, IfMatchParams, PageParams, ReadRefusals, RevisionRefusal, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, patch, post, web};
use fairway_domain::{
    id::TenantId,
    slug::MAX_SLUG,
    tenant::{MAX_DISPLAY_NAME_CHARS, MAX_PUBLIC_HOSTS, Tenant, TenantRefusal, is_display_name},
};
use fairway_operations::tenant::TenantSettingsPatch;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A tenant, which is one organization.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    tenant_id: Uuid,
    slug: String,
    name: String,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl TenantView {
    fn of(tenant: &Tenant) -> Self {
        Self {
            tenant_id: tenant.tenant_id.uuid(),
            slug: tenant.slug.to_string(),
            name: tenant.name.clone(),
            created_at: tenant.created_at.to_string(),
            created_by: tenant.created_by.to_string(),
        }
    }
}

/// A tenant to create.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTenant {
    /// Slug that is unique in the installation.
    #[validate(length(min = 1, max = limit(MAX_SLUG)), custom(function = value_rules::slug))]
    slug: String,
    /// Human-readable name of the tenant.
    #[schema(min_length = 1, max_length = 200)]
    #[validate(length(min = 1, max = limit(MAX_DISPLAY_NAME_CHARS)), custom(function = name_rule))]
    name: String,
}

/// The notification settings and the public hosts of a tenant.
#[derive(Serialize, ToSchema)]
#[schema(as = TenantSettings)]
pub(crate) struct SettingsView {
    tenant_id: Uuid,
    notifications_enabled: bool,
    advanced_notifications_enabled: bool,
    public_hosts: Vec<String>,
}

impl SettingsView {
    fn of(tenant: &Tenant) -> Self {
        Self {
            tenant_id: tenant.tenant_id.uuid(),
            notifications_enabled: tenant.settings.notifications_enabled,
            advanced_notifications_enabled: tenant.settings.advanced_notifications_enabled,
            public_hosts: tenant.settings.public_hosts.clone(),
        }
    }
}

/// Settings to change; absent settings stay unchanged.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingsChange {
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = bool)]
    notifications_enabled: Option<bool>,
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = bool)]
    advanced_notifications_enabled: Option<bool>,
    /// Unique lower-case host names without a port. Loopback names, IP addresses and host names of the operator are
    /// refused. Requires `platform.manage`.
    #[serde(default, deserialize_with = "deserialize_present")]
    #[schema(required = false, value_type = Vec<String>, max_items = 50)]
    #[validate(length(max = limit(MAX_PUBLIC_HOSTS), code = "too_many_hosts"))]
    public_hosts: Option<Vec<String>>,
}

/// The rule for the name of a tenant or a workspace.
pub(crate) fn name_rule(text: &str) -> RuleResult {
    let refusal = (!is_display_name(text)).then_some(TenantRefusal::Name);
    value_rules::accept_unless(refusal.map(|refusal| FieldProblem::new("name", refusal.code(), refusal.to_string())))
}

/// Lists all tenants, newest first.
#[utoipa::path(
    operation_id = "list_tenants",
    tag = "tenants",
    params(PageParams),
    responses((status = 200, description = "A page of tenants", body = Vec<TenantView>), ReadRefusals)
)]
#[get("/v1/tenants")]
pub(crate) async fn list_tenants(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    list: ListRequest<NoFilter>,
) -> Result<HttpResponse, ApiError> {
    let tenants = api.services.tenants.list_tenants(&caller, list.paging()).await?;
    Ok(list.respond(&tenants.map(|tenant| TenantView::of(&tenant))))
}

/// Creates a tenant in the installation.
#[utoipa::path(
    operation_id = "create_tenant",
    tag = "tenants",
    params(IdempotencyKeyParams),
    request_body = NewTenant,
    responses((status = 201, description = "The new tenant", body = TenantView), WriteRefusals)
)]
#[post("/v1/tenants")]
pub(crate) async fn create_tenant(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    idempotency: IdempotencyHeader,
    body: Body<NewTenant>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let new = body.into_inner();
    let outcome = api.services.tenants.create_tenant(&caller, &new.slug, &new.name, key.as_ref()).await?;
    let view = TenantView::of(&outcome.value);
    let location = format!("/v1/tenants/{}/settings", view.tenant_id);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Reads the settings of a tenant.
#[utoipa::path(
    operation_id = "read_tenant_settings",
    tag = "tenants",
    params(("tenant_id" = Uuid, Path, description = "The tenant")),
    responses((status = 200, description = "The settings", body = SettingsView), ReadRefusals)
)]
#[get("/v1/tenants/{tenant_id}/settings")]
pub(crate) async fn read_tenant_settings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    tenant: PathId<TenantId>,
) -> Result<HttpResponse, ApiError> {
    let tenant = api.services.tenants.tenant_settings(&caller, *tenant).await?;
    Ok(ResourceResponse::ok(&SettingsView::of(&tenant)).with_etag(tenant.revision).into_response())
}

/// Changes the settings of a tenant.
#[utoipa::path(
    operation_id = "change_tenant_settings",
    tag = "tenants",
    params(("tenant_id" = Uuid, Path, description = "The tenant"), IfMatchParams),
    request_body = SettingsChange,
    responses((status = 200, description = "The new settings", body = SettingsView), RevisionRefusal, WriteRefusals)
)]
#[patch("/v1/tenants/{tenant_id}/settings")]
pub(crate) async fn change_tenant_settings(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    tenant: PathId<TenantId>,
    expected: IfMatch,
    body: Body<SettingsChange>,
) -> Result<HttpResponse, ApiError> {
    let change = body.into_inner();
    let patch = TenantSettingsPatch {
        notifications_enabled: change.notifications_enabled,
        advanced_notifications_enabled: change.advanced_notifications_enabled,
        public_hosts: change.public_hosts,
    };
    let tenant = api.services.tenants.change_tenant_settings(&caller, *tenant, patch, &expected).await?;
    Ok(ResourceResponse::ok(&SettingsView::of(&tenant)).with_etag(tenant.revision).into_response())
}
