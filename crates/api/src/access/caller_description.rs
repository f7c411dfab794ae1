//! Route that describes the caller of a request: actor, tenant, roles and permissions.

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::ApiError,
    http::authentication::{BrowserSession, challenge},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, get, web};
use fairway_domain::access::{ActorKind, Caller, Grant, Permission};
use serde::Serialize;
use std::collections::BTreeSet;
use utoipa::ToSchema;
use uuid::Uuid;

/// A role of the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = SessionRole)]
pub(crate) struct SessionRoleView {
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

impl SessionRoleView {
    fn of(grant: &Grant) -> Self {
        Self {
            role: grant.role.as_str(),
            scope_kind: grant.scope.kind(),
            scope_ref: grant.scope.reference(),
            source: grant.source.as_wire(),
        }
    }
}

/// The caller of the request.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// The actor, such as `user:ada`.
    actor: String,
    /// The actor's name for people.
    display_name: String,
    /// The tenant in which the request is served.
    tenant_id: Uuid,
    /// The groups that the identity provider names.
    groups: Vec<String>,
    /// The roles of the actor and its groups.
    roles: Vec<SessionRoleView>,
    /// Every permission that at least one of the roles includes. A permission counts only in the scope of that role.
    permissions: BTreeSet<&'static str>,
    /// CSRF token that state-changing requests of a browser session must send; null for callers without a session.
    csrf_token: Option<String>,
    /// The end of the browser session; null for callers without a session.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// Refuses an anonymous caller with 401 in OIDC mode, because the server could verify an identity there.
pub(super) fn refuse_anonymous_in_oidc_mode(caller: &Caller) -> Result<(), ApiError> {
    match challenge() {
        Some(challenge) if caller.actor.kind() == ActorKind::Anonymous => Err(ApiError::unauthenticated(challenge)),
        _ => Ok(()),
    }
}

/// Describes the caller: actor, tenant, roles and permissions.
#[utoipa::path(
    operation_id = "read_session",
    tag = "tenants",
    responses((status = 200, description = "The caller", body = SessionView), ReadRefusals)
)]
#[get("/v1/session")]
pub(crate) async fn read_session(
    request: HttpRequest,
    api: web::Data<Api>,
    caller: IdentifiedCaller,
) -> Result<HttpResponse, ApiError> {
    refuse_anonymous_in_oidc_mode(&caller)?;
    let session = request.extensions().get::<BrowserSession>().cloned();
    let grants = api.services.role_bindings.list_own_grants(&caller)?;
    let actor = caller.actor.to_string();
    let view = SessionView {
        display_name: match &session {
            Some(session) => session.active.snapshot.display_name.clone(),
            None => actor.split_once(':').map_or(actor.as_str(), |(_, name)| name).to_owned(),
        },
        actor,
        tenant_id: caller.tenant.uuid(),
        groups: caller.groups.iter().map(ToString::to_string).collect(),
        roles: grants.iter().map(SessionRoleView::of).collect(),
        permissions: grants.iter().flat_map(|grant| grant.permissions.iter()).map(Permission::as_str).collect(),
        csrf_token: session.as_ref().map(|session| session.token.csrf_token()),
        expires_at: session.map(|session| session.active.snapshot.expires_at.to_string()),
    };
    Ok(ResourceResponse::ok(&view).into_response())
}
