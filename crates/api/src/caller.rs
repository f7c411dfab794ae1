//! Caller identity: extractors for claims, callers and runtime clients.

use crate::{
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        authentication::RequestIdentity,
        client_address::client_of,
        path,
        proxy_detection::is_forwarded,
        query::{self, SHARE_TOKEN_PARAMETER},
        request_id_log_and_metrics::request_id_or_new,
        site_guard::{HostName, host_of},
    },
};
use actix_web::{
    FromRequest, HttpMessage as _, HttpRequest,
    dev::Payload,
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName},
    },
    web,
};
use fairway_domain::{
    access::{ActorKind, ActorRef, Caller, on_behalf_of_fields::OnBehalfOfField},
    share_link::{ResultToken, ShareToken, ShareTokenRefusal, TokenHash},
};
use fairway_operations::{
    Failure,
    access::IdentityClaims,
    share_link::{PresentedShareToken, RuntimeRequest},
};
use futures_util::future::LocalBoxFuture;
use std::{
    future::{Ready, ready},
    ops::Deref,
};

const ACTOR: HeaderName = HeaderName::from_static("x-actor-ref");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const SHARE_TOKEN: HeaderName = HeaderName::from_static("x-share-token");
pub(crate) const RESULT_TOKEN: HeaderName = HeaderName::from_static("x-result-token");
/// Header value of a caller without identity.
const ANONYMOUS: &str = "anonymous";

/// The claims of a request, before any lookup of rights. Without an actor, the tenant is that of the request's host.
#[derive(Clone, Debug)]
pub(crate) struct UnverifiedClaims(pub(crate) IdentityClaims);

/// The client of a runtime interface, identified by actor or share link. Its rights are not read yet.
#[derive(Clone, Debug)]
pub(crate) struct RuntimeClient(pub(crate) RuntimeRequest);

/// The caller, with the rights read for this request.
#[derive(Clone, Debug)]
pub(crate) struct IdentifiedCaller(pub(crate) Caller);

impl Deref for IdentifiedCaller {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl FromRequest for UnverifiedClaims {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let claims = api_claims(request);
        let api = request.app_data::<web::Data<Api>>().cloned();
        let host = host_of(request).map(HostName::into_name);
        Box::pin(async move {
            let api = api.ok_or_else(ApiError::internal)?;
            Ok(Self(api.services.share_links.add_host_tenant(claims?, host.as_deref()).await?))
        })
    }
}

impl FromRequest for RuntimeClient {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(runtime_request(request).map(Self))
    }
}

impl FromRequest for IdentifiedCaller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let claims = api_claims(request);
        let api = request.app_data::<web::Data<Api>>().cloned();
        Box::pin(async move {
            let claims = claims?;
            let api = api.ok_or_else(ApiError::internal)?;
            let caller = api.services.identities.resolve_caller(api.mode, &claims, request_id_or_new()).await?;
            Ok(Self(caller))
        })
    }
}

/// The error for a body with wrong fields. A trusted service that sends on-behalf-of fields to a route without
/// delegation gets 403. Without this error, the route would act under the service's own name.
pub(crate) fn map_body_problems(request: &HttpRequest, problems: Vec<FieldProblem>) -> ApiError {
    let is_internal = || {
        let api = request.app_data::<web::Data<Api>>();
        let claims = claims(request).ok();
        api.zip(claims).is_some_and(|(api, claims)| api.services.executions.is_delegating_client(&claims))
    };
    let is_on_behalf = |problem: &FieldProblem| {
        problem.code == "unknown_field" && OnBehalfOfField::ALL.iter().any(|field| field.field_name() == problem.path)
    };
    if problems.iter().any(is_on_behalf) && is_internal() {
        let message = "on-behalf-of fields are accepted by execute and tool calls only";
        return ApiError::new(StatusCode::FORBIDDEN, "forbidden_field", message);
    }
    ApiError::validation(problems)
}

/// Whether a request names no actor and carries a possible share token. The token is not verified here. Callers of
/// this function distinguish clients by address, because a client can invent any number of tokens.
pub(crate) fn has_share_token(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let in_query =
        || request.query_string().split('&').any(|pair| pair.split('=').next() == Some(SHARE_TOKEN_PARAMETER));
    !names_actor(request) && (headers.contains_key(&SHARE_TOKEN) || in_query())
}

/// Whether a path percent-encodes its workload. A share token is valid for one spelling of its workload only, and
/// slugs and identifiers never need percent-encoding. Session names may need it, because they may contain `:`.
fn respells_workload(path: &str) -> bool {
    path.split_once("/sessions/").map_or(path, |(workload, _)| workload).contains('%')
}

fn runtime_request(request: &HttpRequest) -> Result<RuntimeRequest, ApiError> {
    let is_respelled = respells_workload(request.uri().path());
    let token =
        presented_token(request)?.map(|token| if is_respelled { PresentedShareToken::Malformed } else { token });
    Ok(RuntimeRequest {
        claims: claims(request)?,
        has_identity: names_actor(request),
        token,
        address: client_of(request),
        host: host_of(request).map(HostName::into_name),
    })
}

/// The claims of a request to any route except those of runtime interfaces. A request with only a share token is
/// refused, because share links grant access to runtime interfaces only.
fn api_claims(request: &HttpRequest) -> Result<IdentityClaims, ApiError> {
    let claims = claims(request)?;
    // An anonymous caller has no roles, so it cannot select a tenant.
    if claims.actor.kind() == ActorKind::Anonymous && claims.tenant.is_some() {
        return Err(ApiError::not_found());
    }
    if names_actor(request) || presented_token(request)?.is_none() {
        return Ok(claims);
    }
    Err(Failure::ShareToken(ShareTokenRefusal::Invalid).into())
}

/// The share token in the query or the header. Two different tokens are refused, because a proxy and this server
/// could each use another one.
fn presented_token(request: &HttpRequest) -> Result<Option<PresentedShareToken>, ApiError> {
    let in_header = single_header(request.headers(), &SHARE_TOKEN, "X-Share-Token")?;
    let query = request.query_string();
    let in_query = if query.is_empty() { None } else { query::parameters(query)?.remove(SHARE_TOKEN_PARAMETER) };
    let text = match (in_query.as_deref(), in_header) {
        (Some(query_token), Some(header_token)) if query_token != header_token => {
            let rule = "the query and the header name different tokens";
            return Err(ApiError::invalid_field(FieldProblem::new(SHARE_TOKEN_PARAMETER, "invalid", rule)));
        }
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) => return Ok(None),
    };
    Ok(Some(ShareToken::parse(text).map_or(PresentedShareToken::Malformed, PresentedShareToken::Token)))
}

/// Reads the result token of a request, and returns its hash; `None` without a token.
pub(crate) fn result_token_hash(headers: &HeaderMap) -> Result<Option<TokenHash>, ApiError> {
    Ok(single_header(headers, &RESULT_TOKEN, "X-Result-Token")?.map(ResultToken::hash_of))
}

/// Whether a request comes from `anonymous` or a share link. Requests with invalid identity headers count as guests.
pub(crate) fn is_guest(request: &HttpRequest) -> bool {
    let is_anonymous = claims(request).map_or(true, |claims| claims.actor.kind() == ActorKind::Anonymous);
    is_anonymous || has_share_token(request)
}

/// Whether a request names an actor: by a verified identity, or in local mode by the actor header. The header of a
/// forwarded request does not count.
fn names_actor(request: &HttpRequest) -> bool {
    match request.extensions().get::<RequestIdentity>() {
        Some(RequestIdentity::Verified(_)) => true,
        Some(RequestIdentity::Anonymous { .. }) => false,
        None => request.headers().contains_key(&ACTOR) && !is_forwarded(request),
    }
}

/// Checks the actor header of a trusted service: the header may only repeat the principal of the body.
pub(crate) fn check_actor_header(request: &HttpRequest, subject: Option<&ActorRef>) -> Result<(), ApiError> {
    let is_verified = request.extensions().get::<RequestIdentity>().is_some();
    if !is_verified || !request.headers().contains_key(&ACTOR) {
        return Ok(());
    }
    let actor_header = single_header(request.headers(), &ACTOR, "X-Actor-Ref")?;
    if actor_header == subject.map(ToString::to_string).as_deref() {
        return Ok(());
    }
    Err(FieldProblem::new("X-Actor-Ref", "invalid", "the header must equal `actor_ref`").into())
}

/// The claims of a request. In OIDC mode they are verified; in local mode the client asserts them.
pub(crate) fn claims(request: &HttpRequest) -> Result<IdentityClaims, ApiError> {
    match request.extensions().get::<RequestIdentity>() {
        Some(RequestIdentity::Verified(claims)) => Ok(claims.clone()),
        Some(RequestIdentity::Anonymous { tenant }) => {
            Ok(IdentityClaims { actor: ActorRef::anonymous(), groups: Vec::new(), tenant: *tenant })
        }
        None => local_claims(request),
    }
}

/// The claims of a request in local mode, which trusts the actor header. Without the header, the caller is the
/// local user. A forwarded request comes from another machine, so its caller is always `anonymous`.
fn local_claims(request: &HttpRequest) -> Result<IdentityClaims, ApiError> {
    let headers = request.headers();
    let actor = if is_forwarded(request) { Some(ANONYMOUS) } else { single_header(headers, &ACTOR, "X-Actor-Ref")? };
    let actor = match actor {
        None => ActorRef::local(),
        Some(text) => match ActorRef::parse(text).map(|actor| (actor.kind(), actor)) {
            Ok((ActorKind::User | ActorKind::Service | ActorKind::Anonymous, actor)) => actor,
            Ok((ActorKind::Group | ActorKind::System | ActorKind::ShareLink, _)) | Err(_) => {
                return Err(ApiError::invalid_field(FieldProblem::new(
                    "X-Actor-Ref",
                    "invalid",
                    "expected `user:<name>`, `service:<name>` or `anonymous`",
                )));
            }
        },
    };
    let tenant = match single_header(headers, &TENANT, "X-Tenant-Id")? {
        None => None,
        // A malformed identifier cannot name a tenant, so the response is 404.
        Some(text) => Some(path::parse_uuid(text).ok_or_else(ApiError::not_found)?.into()),
    };
    Ok(IdentityClaims { actor, groups: Vec::new(), tenant })
}

/// The single value of a header. A repeated header is refused, because a proxy and this server could each use
/// another value.
fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName, label: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::invalid_field(FieldProblem::invalid(label))),
        },
        (Some(_), Some(_)) => Err(ApiError::repeated_header(label)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_names_may_be_percent_encoded_and_workloads_may_not() {
        for (path, expected) in [
            ("/v1/workloads/by-slug/a/execute", false),
            ("/v1/workloads/by-slug/%61/execute", true),
            ("/v1/workloads/00000000-0000-7000-8000-000000000001/sessions/chat%3A7/memory", false),
            ("/v1/workloads/%30/sessions/chat%3A7/memory", true),
        ] {
            assert_eq!(respells_workload(path), expected, "{path}");
        }
    }
}
