//! The load shedding middleware, which attributes each request to a client.

use super::{ArrivingBodyGuard, BodySender, ClientKey};
use crate::{
    caller::{claims, has_share_token},
    compose::Api,
    error::ApiError,
    http::{client_address::client_of, path::decoded_path, request_id_log_and_metrics::LoadRefusalMarker},
};
use actix_web::{
    Error, HttpMessage as _, HttpRequest, ResponseError as _,
    body::{EitherBody, MessageBody},
    dev::{Payload, ServiceRequest, ServiceResponse},
    middleware::Next,
    web,
};
use fairway_domain::{access::ActorKind, id::TenantId};
use fairway_operations::access::IdentityClaims;
use fairway_postgres::{CallerKey, with_caller_key};
use futures_util::{StreamExt as _, stream};
use std::{task::Poll, time::Instant};
use tokio::time::sleep_until;

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
        .filter(|_| SHEDDABLE_PREFIXES.iter().any(|prefix| decoded_path(request.request()).starts_with(prefix)))
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
        request.extensions_mut().insert(BodySender::of_client(&client));
    }
    if let Some(mut permit) = api.load_shedder.admit(client, has_body, Instant::now()) {
        if let Some(guard) = permit.take_body_guard() {
            hold_until_arrived(&mut request, guard);
        }
        return Ok(with_caller_key(key, next.call(request)).await?.map_into_left_body());
    }
    // Refusals beyond a rate are delayed, because each refusal costs thread time that admitted requests need.
    let now = Instant::now();
    let due = api.load_shedder.reserve_refusal_time(now);
    api.metrics.count_load_refusal(due > now);
    if due > now {
        sleep_until(due.into()).await;
    }
    let (request, _) = request.into_parts();
    let mut response = ApiError::unavailable().error_response();
    response.extensions_mut().insert(LoadRefusalMarker);
    Ok(ServiceResponse::new(request, response).map_into_right_body())
}

/// Counts the body of a request as arriving until the body or the request ends.
fn hold_until_arrived(request: &mut ServiceRequest, guard: ArrivingBodyGuard) {
    let mut payload = request.parts_mut().1.take();
    let mut guard = Some(guard);
    let body = stream::poll_fn(move |context| {
        let part = payload.poll_next_unpin(context);
        if matches!(part, Poll::Ready(None | Some(Err(_)))) {
            drop(guard.take());
        }
        part
    });
    request.set_payload(Payload::Stream { payload: Box::pin(body) });
}

/// The client to which load shedding attributes a request.
fn client_key(request: &HttpRequest, claims: IdentityClaims) -> ClientKey {
    match chosen_tenant(&claims) {
        Some(tenant) => ClientKey::Tenant(tenant),
        None if has_share_token(request) => ClientKey::LinkHolder(client_of(request)),
        None => ClientKey::Caller(claims.actor),
    }
}

/// The key by which fair list queues attribute a request: its caller, within the tenant that it names.
fn list_key(request: &HttpRequest, claims: &IdentityClaims) -> CallerKey {
    let tenant = chosen_tenant(claims);
    if has_share_token(request) {
        return CallerKey::of(tenant, client_of(request));
    }
    CallerKey::of(tenant, &claims.actor)
}

/// The tenant to which a request is attributed; `None` for `anonymous`. An anonymous request that names a tenant is
/// refused later. If it counted for the tenant, its client could exhaust the share of any tenant. With each
/// invented tenant, the client would also get a new share.
fn chosen_tenant(claims: &IdentityClaims) -> Option<TenantId> {
    claims.tenant.filter(|_| claims.actor.kind() != ActorKind::Anonymous)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::path::parse_uuid;
    use actix_web::test::TestRequest;
    use fairway_domain::{access::ActorRef, client_address::ClientAddress};

    #[test]
    fn counts_share_link_holders_by_address_not_as_local_user() {
        let peer = "192.0.2.7:50000".parse().unwrap();
        let key_of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            client_key(&request, claims(&request).unwrap())
        };
        let holder = ClientKey::LinkHolder(ClientAddress::from_ip_truncating_v6(peer.ip()));
        let caller = |actor: &str| ClientKey::Caller(ActorRef::parse(actor).unwrap());
        assert_eq!(key_of("/v1/x", &[]), caller("user:local"));
        assert_eq!(key_of("/v1/x?tokens=a&x=token", &[]), caller("user:local"));
        assert_eq!(key_of("/v1/x?token=fws_x", &[]), holder);
        assert_eq!(key_of("/v1/x?a=b&token", &[]), holder);
        assert_eq!(key_of("/v1/x", &[("X-Share-Token", "fws_x")]), holder);
        assert_eq!(key_of("/v1/x?token=fws_x", &[("X-Actor-Ref", "user:ada")]), caller("user:ada"));
        let forwarded = [("X-Actor-Ref", "user:ada"), ("Via", "1.1 proxy")];
        assert_eq!(key_of("/v1/x", &forwarded), caller("anonymous"));
        assert_eq!(key_of("/v1/x?token=fws_x", &forwarded), holder);
    }

    #[test]
    fn ignores_tenant_header_of_anonymous_callers() {
        const TENANTS: [&str; 2] = ["00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-00000000beef"];
        let peer = "192.0.2.7:50000".parse().unwrap();
        let keys_of = |path: &str, headers: &[(&'static str, &'static str)]| {
            let request = TestRequest::with_uri(path).peer_addr(peer).insert_header(("Host", "localhost"));
            let request = headers.iter().fold(request, |request, header| request.insert_header(*header));
            let request = request.to_http_request();
            let claims = claims(&request).unwrap();
            (list_key(&request, &claims), client_key(&request, claims))
        };
        for header in [("Via", "1.1 proxy"), ("X-Actor-Ref", "anonymous")] {
            for path in ["/v1/x", "/v1/x?token=fws_x"] {
                let expected = keys_of(path, &[header]);
                for tenant in TENANTS {
                    assert_eq!(keys_of(path, &[header, ("X-Tenant-Id", tenant)]), expected, "{header:?} {path}");
                }
            }
        }
        let with_tenant = |tenant| keys_of("/v1/x", &[("X-Actor-Ref", "user:ada"), ("X-Tenant-Id", tenant)]);
        let [first, second] = TENANTS.map(with_tenant);
        assert_eq!(first.1, ClientKey::Tenant(parse_uuid(TENANTS[0]).unwrap().into()));
        assert_ne!(first, second);
    }
}
