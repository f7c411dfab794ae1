//! Who a request is from.

use crate::{
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{
        admission::{Arriving, Party},
        client_address::client_of,
        forwarding::is_forwarded,
        path, query,
        request_context::{RefusedForLoad, request_id},
        site_guard::{HostName, host_of},
    },
};
use actix_web::{
    Error, FromRequest, HttpRequest, ResponseError as _,
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
    access::{ActorKind, ActorRef, Caller},
    id::TenantId,
    share_link::{ResultToken, ShareToken, TokenHash, TokenRefusal},
};
use fairway_operations::{
    Failure,
    access::Claims,
    share_link::{Arrival, Brought},
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
/// How the header spells a caller without identity.
const ANONYMOUS: &str = "anonymous";
/// The parameter that carries a share token.
const TOKEN: &str = "token";

/// Who a request says that it is from, in the tenant of its host where it names nobody. Rights have not been looked up yet.
#[derive(Clone, Debug)]
pub(crate) struct Claimed(pub(crate) Claims);

/// Who comes to a runtime interface, by name or by a share link; nothing has been looked up yet.
#[derive(Clone, Debug)]
pub(crate) struct Visitor(pub(crate) Arrival);

/// The caller, with rights read for this request.
#[derive(Clone, Debug)]
pub(crate) struct Identified(pub(crate) Caller);

impl Deref for Identified {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.0
    }
}

impl FromRequest for Claimed {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let claims = named(request);
        let api = request.app_data::<web::Data<Api>>().cloned();
        let host = host_of(request).map(HostName::into_name);
        Box::pin(async move {
            let api = api.ok_or_else(ApiError::internal)?;
            Ok(Self(api.services.at_host(claims?, host.as_deref()).await?))
        })
    }
}

impl FromRequest for Visitor {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(arrival(request).map(Self))
    }
}

impl FromRequest for Identified {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let claims = named(request);
        let api = request.app_data::<web::Data<Api>>().cloned();
        Box::pin(async move {
            let claims = claims?;
            let api = api.ok_or_else(ApiError::internal)?;
            let caller = api.services.identify(api.mode, &claims, request_id()).await?;
            Ok(Self(caller))
        })
    }
}

/// Fields that say whom a service acts for.
const ON_BEHALF: [&str; 4] = ["execution_mode", "actor_ref", "actor_type", "actor_auth_mode"];

/// The refusal of a body whose shape is wrong. A service whose word on others is taken is told that it is
/// not taken there: whatever it meant, this would be done in its own name.
pub(crate) fn unread_fields(request: &HttpRequest, problems: Vec<FieldProblem>) -> ApiError {
    let is_internal = || {
        let api = request.app_data::<web::Data<Api>>();
        let claims = claims(request).ok();
        api.zip(claims).is_some_and(|(api, claims)| api.services.is_internal_client(&claims.actor))
    };
    let is_on_behalf =
        |problem: &FieldProblem| problem.code == "unknown_field" && ON_BEHALF.contains(&problem.path.as_str());
    if problems.iter().any(is_on_behalf) && is_internal() {
        let message = "whom you act for is said where workloads are run, and nowhere else";
        return ApiError::new(StatusCode::FORBIDDEN, "forbidden_field", message);
    }
    ApiError::validation(problems)
}

/// What needs a place to be served. Probes, figures and the documents do not.
const JUDGED: [&str; 2] = ["/v1/", "/mcp"];

/// The middleware by which a request is served or refused for load: before it is routed and before anything is looked up
/// for it, because refusing has to be cheap when there is most of it to do.
///
/// # Errors
/// Those of the inside.
pub(crate) async fn admitted<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let has_body = !matches!(request.parts_mut().1, Payload::None);
    let Some(api) = request
        .app_data::<web::Data<Api>>()
        .cloned()
        .filter(|_| JUDGED.iter().any(|place| path::routed(request.request()).starts_with(place)))
    else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    // Who says what cannot be read is told so by its route, at no cost.
    let Ok(claims) = claims(request.request()) else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    let key = list_key(request.request(), &claims);
    if let Some(mut place) = api.admission.admit(party(request.request(), claims), has_body, Instant::now()) {
        if let Some(arriving) = place.take_arriving() {
            hold_until_arrived(&mut request, arriving);
        }
        return Ok(with_caller_key(key, next.call(request)).await?.map_into_left_body());
    }
    // Refusals beyond a rate are delayed, because each of them takes the thread from requests that are served.
    let now = Instant::now();
    let due = api.admission.refusal_due(now);
    api.metrics.refused_for_load(due > now);
    if due > now {
        sleep_until(due.into()).await;
    }
    let (request, _) = request.into_parts();
    let mut answer = ApiError::unavailable().error_response();
    answer.extensions_mut().insert(RefusedForLoad);
    Ok(ServiceResponse::new(request, answer).map_into_right_body())
}

/// Counts the body of a request as arriving until it ends or the request does.
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

/// Whom a request is counted for while there is too much to do.
fn party(request: &HttpRequest, claims: Claims) -> Party {
    match chosen_tenant(&claims) {
        Some(tenant) => Party::Tenant(tenant),
        None if holds_a_link(request) => Party::Holder(client_of(request)),
        None => Party::Caller(claims.actor),
    }
}

/// Whom the lists of a request are counted for: its caller, within the tenant that it names.
fn list_key(request: &HttpRequest, claims: &Claims) -> CallerKey {
    let tenant = chosen_tenant(claims);
    if holds_a_link(request) {
        return CallerKey::of(tenant, client_of(request));
    }
    CallerKey::of(tenant, &claims.actor)
}

/// The tenant that a request is counted for. `anonymous` has no tenant to choose and is refused where it names one, so it could
/// use up the share of any tenant, or get a new share with each identifier that it makes up.
fn chosen_tenant(claims: &Claims) -> Option<TenantId> {
    claims.tenant.filter(|_| claims.actor.kind() != ActorKind::Anonymous)
}

/// Whether a request names nobody and carries what may be a share token. What it opens is not looked up here, so holders
/// are told apart by where they are: tokens can be made up without end.
fn holds_a_link(request: &HttpRequest) -> bool {
    let headers = request.headers();
    let in_query = || request.query_string().split('&').any(|pair| pair.split('=').next() == Some(TOKEN));
    !names_an_actor(request) && (headers.contains_key(&SHARE_TOKEN) || in_query())
}

/// Whether a path spells its workload with percent-encoding. A token opens its workload in one spelling, and slugs and
/// identifiers never need another. Names of sessions do: they may have a `:`.
fn respells_workload(path: &str) -> bool {
    path.split_once("/sessions/").map_or(path, |(workload, _)| workload).contains('%')
}

fn arrival(request: &HttpRequest) -> Result<Arrival, ApiError> {
    let is_respelled = respells_workload(request.uri().path());
    let brought = brought(request)?.map(|brought| if is_respelled { Brought::Nonsense } else { brought });
    Ok(Arrival {
        claims: claims(request)?,
        named: names_an_actor(request),
        brought,
        address: client_of(request),
        host: host_of(request).map(HostName::into_name),
    })
}

/// Who a request says that it is from, anywhere but at a runtime interface. Whoever says nothing but that it holds a share
/// link is that link's holder, and links open runtime interfaces alone.
fn named(request: &HttpRequest) -> Result<Claims, ApiError> {
    let claims = claims(request)?;
    // Who holds no role anywhere has no tenant to choose.
    if claims.actor.kind() == ActorKind::Anonymous && claims.tenant.is_some() {
        return Err(ApiError::not_found());
    }
    if names_an_actor(request) || brought(request)?.is_none() {
        return Ok(claims);
    }
    Err(Failure::Token(TokenRefusal::Invalid).into())
}

/// The share token that a request carries, in its query or in a header. Of two, one reader would take the first and
/// another the last.
fn brought(request: &HttpRequest) -> Result<Option<Brought>, ApiError> {
    let in_header = single(request.headers(), &SHARE_TOKEN, "X-Share-Token")?;
    let query = request.query_string();
    let in_query = if query.is_empty() { None } else { query::parameters(query)?.remove(TOKEN) };
    let text = match (in_query.as_deref(), in_header) {
        (Some(one), Some(other)) if one != other => {
            let rule = "the query and the header name different tokens";
            return Err(ApiError::invalid_field(FieldProblem::new(TOKEN, "invalid", rule)));
        }
        (Some(text), _) | (None, Some(text)) => text,
        (None, None) => return Ok(None),
    };
    Ok(Some(ShareToken::parse(text).map_or(Brought::Nonsense, Brought::Token)))
}

/// The hash of the result token that a request carries.
pub(crate) fn result_token(headers: &HeaderMap) -> Result<Option<TokenHash>, ApiError> {
    Ok(single(headers, &RESULT_TOKEN, "X-Result-Token")?.map(ResultToken::hash_of))
}

/// Whether a request comes from `anonymous` or from the holder of a share link. One whose identity cannot be read counts as
/// such.
pub(crate) fn is_guest(request: &HttpRequest) -> bool {
    let is_anonymous = claims(request).map_or(true, |claims| claims.actor.kind() == ActorKind::Anonymous);
    is_anonymous || holds_a_link(request)
}

/// Whether a request names an actor and may do so.
fn names_an_actor(request: &HttpRequest) -> bool {
    request.headers().contains_key(&ACTOR) && !is_forwarded(request)
}

/// A local server believes the header; without one, the person in front of it speaks. A forwarded request comes from
/// another machine: whatever actor it names, it is `anonymous`.
fn claims(request: &HttpRequest) -> Result<Claims, ApiError> {
    let headers = request.headers();
    let named = if is_forwarded(request) { Some(ANONYMOUS) } else { single(headers, &ACTOR, "X-Actor-Ref")? };
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
    let tenant = match single(headers, &TENANT, "X-Tenant-Id")? {
        None => None,
        // What is no identifier is nobody's tenant.
        Some(text) => Some(path::identifier(text).ok_or_else(ApiError::not_found)?.into()),
    };
    Ok(Claims { actor, groups: Vec::new(), tenant })
}

/// The one value of a header. Of two, one reader would pick the first and another the last.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(ApiError::invalid_field(FieldProblem::invalid(shown))),
        },
        (Some(_), Some(_)) => {
            let problem = FieldProblem::new(shown, "invalid", "this header is given more than once");
            Err(ApiError::invalid_field(problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn holders_of_links_are_not_the_person_in_front_of_the_server() {
        let peer = "192.0.2.7:50000".parse().unwrap();
        let of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            party(&request, claims(&request).unwrap())
        };
        let holder = Party::Holder(fairway_domain::throttle::ClientAddress::of(peer.ip()));
        let caller = |actor: &str| Party::Caller(ActorRef::parse(actor).unwrap());
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
    fn anonymous_callers_are_counted_for_no_tenant_that_they_name() {
        const TENANTS: [&str; 2] = ["00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-00000000beef"];
        let peer = "192.0.2.7:50000".parse().unwrap();
        let of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            let claims = claims(&request).unwrap();
            (list_key(&request, &claims), party(&request, claims))
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
        assert_eq!(first.1, Party::Tenant(path::identifier(TENANTS[0]).unwrap().into()));
        assert_ne!(first, second);
    }
}
