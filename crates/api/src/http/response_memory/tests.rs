use super::*;
use crate::http::{load_shedding::BodySender, test_support::http_state};
use actix_web::{
    App, HttpRequest, HttpResponse,
    body::to_bytes,
    http::{Method, StatusCode},
    middleware::from_fn,
    test::{TestRequest, call_service, init_service},
};
use fairway_domain::client_address::ClientAddress;
use futures_util::stream;
use serde_json::Value;

/// The budget of one client for responses, in bytes.
const CLIENT_BUDGET: usize = 32 << 20;
/// The budget of one sender for large requests, in bytes.
const SENDER_BUDGET: usize = 28 << 20;

fn client() -> ClientAddress {
    ClientAddress::from_ip_truncating_v6([0, 0, 0, 0].into())
}

async fn endless_stream(request: HttpRequest, base: web::Data<HttpState>) -> HttpResponse {
    let mut memory = base.memory_budgets.empty_request_reservation(client(), BodySender::default());
    memory.resize_for_values(SENDER_BUDGET).await.unwrap();
    request.extensions_mut().insert(memory);
    HttpResponse::Ok().streaming(stream::pending::<Result<Bytes, Infallible>>())
}

#[actix_web::test]
async fn stream_releases_request_memory() {
    let base = web::Data::new(http_state());
    let app = App::new()
        .app_data(base.clone())
        .wrap(from_fn(reserve_response_memory))
        .default_service(web::to(endless_stream));
    let app = init_service(app).await;
    let response = call_service(&app, TestRequest::post().to_request()).await;
    assert_eq!(response.status(), StatusCode::OK);
    tokio::time::pause();
    let mut reservation = base.memory_budgets.empty_request_reservation(client(), BodySender::default());
    assert_eq!(reservation.resize_for_values(SENDER_BUDGET).await, Ok(()), "the open stream holds no body memory");
    drop(response);
}

async fn large_response() -> HttpResponse {
    HttpResponse::Ok().body(vec![b'x'; 100_000])
}

#[actix_web::test]
async fn lost_response_reports_possible_change() {
    let base = web::Data::new(http_state());
    let app = App::new()
        .app_data(base.clone())
        .wrap(from_fn(reserve_response_memory))
        .default_service(web::to(large_response));
    let app = init_service(app).await;
    let _reservation = base.memory_budgets.reserve_response(client(), CLIENT_BUDGET).unwrap();
    for (method, key, may_have_happened) in [
        (Method::POST, None, true),
        (Method::PATCH, None, true),
        (Method::POST, Some("k"), false),
        (Method::GET, None, false),
    ] {
        let request = TestRequest::default().method(method.clone());
        let request = match key {
            Some(key) => request.insert_header((IDEMPOTENCY_KEY, key)),
            None => request,
        };
        let response = call_service(&app, request.to_request()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let bytes = to_bytes(response.into_body()).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = may_have_happened.then_some(&Value::Bool(true));
        assert_eq!(body.pointer("/detail/may_have_happened"), expected, "{method} {key:?}: {body}");
    }
}
