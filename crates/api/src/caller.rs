//! Caller identity: extractors for claims, callers and visitors, and the load shedding middleware.

use crate::{
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        client_address::client_of,
        forwarding::is_forwarded,
        load_shedding::{Arriving, BodySender, ClientKey},
        path,
        query::{self, TOKEN_PARAMETER},
        request_context::{ShedForLoad, request_id},
        site_guard::{HostName, host_of},
    },
};
use actix_web::{
    Error, FromRequest, HttpMessage as _, HttpRequest, ResponseError as _,
    body::{EitherBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName},
    },
    middleware::Next,
    web,
};
use fairway_domain::{
    access::{ActorKind, ActorRef, Caller, on_behalf_of::OnBehalfOfField},
    id::TenantId,
    share_link::{ResultToken, ShareToken, ShareTokenRefusal, TokenHash},
};
use fairway_operations::{
    Failure,
    access::Claims,
    share_link::{PresentedToken, RuntimeRequest},
};
use fairway_postgres::{CallerKey, with_caller_key};
use futures_util::{StreamExt as _, future::LocalBoxFuture, stream};
use std::{
    future::{Ready, ready},
    ops::Deref,
    task::Poll,
    time::Instant,
};
use tokio::time::sleep_until;

const ACTOR: HeaderName = HeaderName::from_static("x-actor-ref");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const SHARE_TOKEN: HeaderName = HeaderName::from_static("x-share-token");
pub(crate) const RESULT_TOKEN: HeaderName = HeaderName::from_static("x-result-token");
/// Header value of a caller without identity.
const ANONYMOUS: &str = "anonymous";

/// The claims of a request, before any lookup of rights. Without an actor, the tenant is that of the request's host.
#[derive(Clone, Debug)]
pub(crate) struct UnverifiedClaims(pub(crate) Claims);

/// The client of a runtime interface, by name or by share link, before any lookup.
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
            Ok(Self(api.services.share_links.with_tenant_of_host(claims?, host.as_deref()).await?))
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
            let caller = api.services.identities.identify(api.mode, &claims, request_id()).await?;
            Ok(Self(caller))
        })
    }
}

/// The error for a body with wrong fields. An internal client that sends on-behalf-of fields to a route without
/// delegation gets 403: the route would act under the client's own name.
pub(crate) fn field_refusal(request: &HttpRequest, problems: Vec<FieldProblem>) -> ApiError {
    let is_internal = || {
        let api = request.app_data::<web::Data<Api>>();
        let claims = claims(request).ok();
        api.zip(claims).is_some_and(|(api, claims)| api.services.executions.is_delegating_client(&claims.actor))
    };
    let is_on_behalf = |problem: &FieldProblem| {
        problem.code == "unknown_field" && OnBehalfOfField::ALL.iter().any(|field| field.as_str() == problem.path)
    };
    if problems.iter().any(is_on_behalf) && is_internal() {
        let message = "on-behalf-of fields are accepted by execute and tool calls only";
        return ApiError::new(StatusCode::FORBIDDEN, "forbidden_field", message);
    }
    ApiError::validation(problems)
}

/// Path prefixes under load shedding. Probes, metrics and the documentation are exempt.
const SHEDDABLE_PREFIXES: [&str; 2] = ["/v1/", "/mcp"];

/// Load shedding middleware. It decides before routing and before any lookup, because refusals must be cheap under
/// load.
///
/// # Errors
/// The errors of the inner service.
pub(crate) async fn shed_load<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let has_body = !matches!(request.parts_mut().1, Payload::None);
    let Some(api) = request
        .app_data::<web::Data<Api>>()
        .cloned()
        .filter(|_| SHEDDABLE_PREFIXES.iter().any(|place| path::routed_path(request.request()).starts_with(place)))
    else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    // The route refuses invalid headers itself, without a database query.
    let Ok(claims) = claims(request.request()) else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    let key = list_key(request.request(), &claims);
    let client = client_key(request.request(), claims);
    if has_body {
        request.extensions_mut().insert(BodySender::of(&client));
    }
    if let Some(mut place) = api.load_shedder.admit(client, has_body, Instant::now()) {
        if let Some(arriving) = place.take_arriving() {
            hold_until_arrived(&mut request, arriving);
        }
        return Ok(with_caller_key(key, next.call(request)).await?.map_into_left_body());
    }
    // Refusals beyond a rate are delayed, because each refusal takes thread time from admitted requests.
    let now = Instant::now();
    let due = api.load_shedder.refusal_due(now);
    api.metrics.refused_for_load(due > now);
    if due > now {
        sleep_until(due.into()).await;
    }
    let (request, _) = request.into_parts();
    let mut response = ApiError::unavailable().error_response();
    response.extensions_mut().insert(ShedForLoad);
    Ok(ServiceResponse::new(request, response).map_into_right_body())
}

/// Counts the body of a request as arriving until the body or the request ends.
fn hold_until_arrived(request: &mut ServiceRequest, arriving: Arriving) {
    let mut payload = request.parts_mut().1.take();
    let mut arriving = Some(arriving);
    let body = stream::poll_fn(move |context| {
        let part = payload.poll_next_unpin(context);
        if matches!(part, Poll::Ready(None | Some(Err(_)))) {
            drop(arriving.take());
        }
        part
    });
    request.set_payload(Payload::Stream { payload: Box::pin(body) });
}

/// The client that load shedding counts a request for.
fn client_key(request: &HttpRequest, claims: Claims) -> ClientKey {
    match chosen_tenant(&claims) {
        Some(tenant) => ClientKey::Tenant(tenant),
        None if has_share_token(request) => ClientKey::LinkHolder(client_of(request)),
        None => ClientKey::Caller(claims.actor),
    }
}

/// The key that fair list queues count a request for: its caller, within the tenant that it names.
fn list_key(request: &HttpRequest, claims: &Claims) -> CallerKey {
    let tenant = chosen_tenant(claims);
    if has_share_token(request) {
        return CallerKey::of(tenant, client_of(request));
    }
    CallerKey::of(tenant, &claims.actor)
}

/// The tenant that a request is counted for. `anonymous` is refused where it names a tenant. If its tenant counted, it
/// could exhaust the share of any tenant or get a new share with each made-up identifier.
fn chosen_tenant(claims: &Claims) -> Option<TenantId> {
    claims.tenant.filter(|_| claims.actor.kind() != ActorKind::Anonymous)
}

/// Whether a request names no actor and carries a possible share token. The token is not verified here. Clients are
/// therefore distinguished by address, because tokens can be made up without end.
fn has_share_token(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let in_query = || request.query_string().split('&').any(|pair| pair.split('=').next() == Some(TOKEN_PARAMETER));
    !names_actor(request) && (headers.contains_key(&SHARE_TOKEN) || in_query())
}

/// Whether a path percent-encodes its workload. A token opens its workload in one spelling only, and slugs and identifiers
/// never need percent-encoding. Session names may need it, because they may contain `:`.
fn respells_workload(path: &str) -> bool {
    path.split_once("/sessions/").map_or(path, |(workload, _)| workload).contains('%')
}

fn runtime_request(request: &HttpRequest) -> Result<RuntimeRequest, ApiError> {
    let is_respelled = respells_workload(request.uri().path());
    let brought =
        presented_token(request)?.map(|brought| if is_respelled { PresentedToken::Malformed } else { brought });
    Ok(RuntimeRequest {
        claims: claims(request)?,
        has_identity: names_actor(request),
        token: brought,
        address: client_of(request),
        host: host_of(request).map(HostName::into_name),
    })
}

/// The claims of a request to any route except a runtime interface. A request with only a share token is refused: share
/// links open runtime interfaces only.
fn api_claims(request: &HttpRequest) -> Result<Claims, ApiError> {
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

/// The share token in the query or the header. Two different tokens are refused, because readers disagree on which one
/// counts.
fn presented_token(request: &HttpRequest) -> Result<Option<PresentedToken>, ApiError> {
    let in_header = single_header(request.headers(), &SHARE_TOKEN, "X-Share-Token")?;
    let query = request.query_string();
    let in_query = if query.is_empty() { None } else { query::parameters(query)?.remove(TOKEN_PARAMETER) };
    let text = match (in_query.as_deref(), in_header) {
        (Some(one), Some(other)) if one != other => {
            let rule = "the query and the header name different tokens";
            return Err(ApiError::invalid_field(FieldProblem::new(TOKEN_PARAMETER, "invalid", rule)));
        }
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) => return Ok(None),
    };
    Ok(Some(ShareToken::parse(text).map_or(PresentedToken::Malformed, PresentedToken::Token)))
}

/// The hash of the request's result token.
pub(crate) fn result_token(headers: &HeaderMap) -> Result<Option<TokenHash>, ApiError> {
    Ok(single_header(headers, &RESULT_TOKEN, "X-Result-Token")?.map(ResultToken::hash_of))
}

/// Whether a request comes from `anonymous` or a share link. Requests with invalid identity headers count as guests.
pub(crate) fn is_guest(request: &HttpRequest) -> bool {
    let is_anonymous = claims(request).map_or(true, |claims| claims.actor.kind() == ActorKind::Anonymous);
    is_anonymous || has_share_token(request)
}

/// Whether a request names an actor. The header of a forwarded request does not count.
fn names_actor(request: &HttpRequest) -> bool {
    request.headers().contains_key(&ACTOR) && !is_forwarded(request)
}

/// The claims of a request. A local server trusts the header; without one, the caller is the local user. A forwarded
/// request comes from another machine and is always `anonymous`.
fn claims(request: &HttpRequest) -> Result<Claims, ApiError> {
    let headers = request.headers();
    let named = if is_forwarded(request) { Some(ANONYMOUS) } else { single_header(headers, &ACTOR, "X-Actor-Ref")? };
    let actor = match named {
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
        // No tenant has a malformed identifier.
        Some(text) => Some(path::parse_uuid(text).ok_or_else(ApiError::not_found)?.into()),
    };
    Ok(Claims { actor, groups: Vec::new(), tenant })
}

/// The single value of a header. A repeated header is refused, because readers disagree on which value counts.
fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::invalid_field(FieldProblem::invalid(shown))),
        },
        (Some(_), Some(_)) => {
            let problem = FieldProblem::new(shown, "invalid", "this header occurs more than once");
            Err(ApiError::invalid_field(problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn counts_share_link_holders_by_address_not_as_local_user() {
        let peer = "192.0.2.7:50000".parse().unwrap();
        let of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            client_key(&request, claims(&request).unwrap())
        };
        let holder = ClientKey::LinkHolder(fairway_domain::rate_limit::ClientAddress::from_ip(peer.ip()));
        let caller = |actor: &str| ClientKey::Caller(ActorRef::parse(actor).unwrap());
        assert_eq!(of("/v1/x", &[]), caller("user:local"));
        assert_eq!(of("/v1/x?tokens=a&x=token", &[]), caller("user:local"));
        assert_eq!(of("/v1/x?token=fws_x", &[]), holder);
        assert_eq!(of("/v1/x?a=b&token", &[]), holder);
        assert_eq!(of("/v1/x", &[("X-Share-Token", "fws_x")]), holder);
        assert_eq!(of("/v1/x?token=fws_x", &[("X-Actor-Ref", "user:ada")]), caller("user:ada"));
        let forwarded = [("X-Actor-Ref", "user:ada"), ("Via", "1.1 proxy")];
        assert_eq!(of("/v1/x", &forwarded), caller("anonymous"));
        assert_eq!(of("/v1/x?token=fws_x", &forwarded), holder);
    }

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

    #[test]
    fn ignores_tenant_header_of_anonymous_callers() {
        const TENANTS: [&str; 2] = ["00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-00000000beef"];
        let peer = "192.0.2.7:50000".parse().unwrap();
        let of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            let claims = claims(&request).unwrap();
            (list_key(&request, &claims), client_key(&request, claims))
        };
        for unnamed in [("Via", "1.1 proxy"), ("X-Actor-Ref", "anonymous")] {
            for path in ["/v1/x", "/v1/x?token=fws_x"] {
                let nowhere = of(path, &[unnamed]);
                for tenant in TENANTS {
                    assert_eq!(of(path, &[unnamed, ("X-Tenant-Id", tenant)]), nowhere, "{unnamed:?} {path}");
                }
            }
        }
        let named = |tenant| of("/v1/x", &[("X-Actor-Ref", "user:ada"), ("X-Tenant-Id", tenant)]);
        let [first, second] = TENANTS.map(named);
        assert_eq!(first.1, ClientKey::Tenant(path::parse_uuid(TENANTS[0]).unwrap().into()));
        assert_ne!(first, second);
    }
}
