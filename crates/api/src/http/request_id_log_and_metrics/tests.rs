use super::*;
use crate::http::{site_guard::site_guard, test_support};
use actix_web::{
    App, HttpServer,
    body::to_bytes,
    http::header::LOCATION,
    middleware::from_fn,
    test::{self, TestRequest},
};
use serde_json::{Value, json};

const ID: &str = "0190f000-0000-7000-8000-00000000000a";

async fn ids() -> String {
    request_id_or_new().to_string()
}

async fn refuse() -> Result<String, ApiError> {
    Err(ApiError::forbidden("asset.create"))
}

async fn fail() -> Result<String, Error> {
    Err(actix_web::error::ErrorInternalServerError("SELECT secret FROM rows"))
}

async fn panicking() -> String {
    panic!("on purpose");
}

async fn with_own_headers() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "max-age=60"))
        .insert_header((header::CONTENT_SECURITY_POLICY, "default-src 'self'"))
        .insert_header((LOCATION, "/x"))
        .body("x")
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .route("/ids", web::get().to(ids))
        .route("/refuse/{thing}", web::get().to(refuse))
        .route("/fail", web::get().to(fail))
        .route("/panic", web::get().to(panicking))
        .route("/chosen", web::get().to(with_own_headers));
}

/// Sends a request to an app with the middlewares in their order.
async fn send_with_base(base: HttpState, request: TestRequest) -> (HttpResponse, Option<Error>) {
    let app = App::new().app_data(web::Data::new(base)).configure(routes);
    let app = test::init_service(app.wrap(from_fn(site_guard)).wrap(from_fn(identify_and_record_request))).await;
    match test::try_call_service(&app, request.to_request()).await {
        Ok(response) => (response.into_parts().1, None),
        Err(error) => (error.error_response(), Some(error)),
    }
}

async fn send(request: TestRequest) -> HttpResponse {
    send_with_base(test_support::http_state(), request).await.0
}

async fn json_of(response: HttpResponse) -> Value {
    serde_json::from_slice(&to_bytes(response.into_body()).await.unwrap()).unwrap()
}

#[actix_web::test]
async fn request_id_is_consistent() {
    for (client_id, is_kept) in [
        (Some(ID), true),
        (Some("my-request.1"), false),
        (Some("0190f00000007000800000000000000a"), false),
        (Some("{0190f000-0000-7000-8000-00000000000a}"), false),
        (Some("a b"), false),
        (None, false),
    ] {
        let mut request = TestRequest::with_uri("/ids");
        if let Some(id) = client_id {
            request = request.insert_header((REQUEST_ID, id));
        }
        let response = send(request).await;
        let header = response.headers().get(REQUEST_ID).unwrap().to_str().unwrap().to_owned();
        let body = to_bytes(response.into_body()).await.unwrap();
        assert_eq!(header.as_bytes(), body, "{client_id:?}");
        header.parse::<Uuid>().unwrap();
        assert_eq!(client_id == Some(&*header), is_kept, "{client_id:?}");
    }
    let uppercase = send(TestRequest::with_uri("/ids").insert_header((REQUEST_ID, ID.to_uppercase()))).await;
    assert_eq!(uppercase.headers().get(REQUEST_ID).unwrap(), ID);
    let repeated = TestRequest::with_uri("/ids").append_header((REQUEST_ID, ID)).append_header((REQUEST_ID, ID));
    assert_ne!(send(repeated).await.headers().get(REQUEST_ID).unwrap(), ID);
}

#[actix_web::test]
async fn every_error_has_the_common_body() {
    for (uri, host, status, code) in [
        ("/refuse/1", "localhost", 403, "forbidden"),
        ("/fail", "localhost", 500, "internal"),
        ("/panic", "localhost", 500, "internal"),
        ("/nothing?token=x", "localhost", 404, "not_found"),
        ("/ids", "evil.example", 421, "misdirected_request"),
    ] {
        let base = HttpState {
            site_rules: crate::http::site_guard::HostRules::LoopbackAnd(Vec::new()),
            ..test_support::http_state()
        };
        let request = TestRequest::with_uri(uri).insert_header((REQUEST_ID, ID)).insert_header(("host", host));
        let (response, _) = send_with_base(base, request).await;
        assert_eq!(response.status().as_u16(), status, "{uri}");
        assert_eq!(response.headers().get(REQUEST_ID).unwrap(), ID);
        assert_eq!(response.headers().get("x-content-type-options").unwrap(), "nosniff");
        let body = json_of(response).await;
        assert_eq!(body.pointer("/detail/error"), Some(&json!(code)), "{uri}");
        assert_eq!(body.pointer("/request_id"), Some(&json!(ID)));
        assert!(!body.to_string().contains("secret"));
    }
}

#[actix_web::test]
async fn every_response_has_the_common_headers() {
    let headers = |response: &HttpResponse| {
        ["x-content-type-options", "cache-control", "referrer-policy", "content-security-policy"]
            .map(|name| response.headers().get(name).unwrap().to_str().unwrap().to_owned())
    };
    let default = send(TestRequest::with_uri("/ids")).await;
    assert_eq!(headers(&default), ["nosniff", "no-store", "no-referrer", "default-src 'none'; frame-ancestors 'none'"]);
    let custom = send(TestRequest::with_uri("/chosen")).await;
    assert_eq!(headers(&custom), ["nosniff", "max-age=60", "no-referrer", "default-src 'self'"]);
    assert!(default.headers().get("access-control-allow-origin").is_none());
}

#[actix_web::test]
async fn labels_metrics_by_route_not_path() {
    let base = test_support::http_state();
    let metrics = base.metrics.clone();
    let app = App::new().app_data(web::Data::new(base)).configure(routes);
    let app = test::init_service(app.wrap(from_fn(identify_and_record_request))).await;
    for uri in ["/refuse/1", "/refuse/2?token=secret", "/stranger-1", "/stranger-2"] {
        test::call_service(&app, TestRequest::with_uri(uri).to_request()).await;
    }
    test::try_call_service(&app, TestRequest::with_uri("/panic").to_request()).await.unwrap_err();
    let text = metrics.render().unwrap();
    for line in [
        r#"fairway_http_requests_total{method="GET",route="/refuse/{thing}",status="4xx"} 2"#,
        r#"fairway_http_requests_total{method="GET",route="unmatched",status="4xx"} 2"#,
        r#"fairway_http_requests_total{method="GET",route="unmatched",status="5xx"} 1"#,
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("stranger") && !text.contains("secret"), "{text}");
}

#[actix_web::test]
async fn server_survives_handler_panic() {
    let base = web::Data::new(test_support::http_state());
    let server = HttpServer::new(move || {
        App::new()
            .app_data(base.clone())
            .configure(routes)
            .wrap(from_fn(site_guard))
            .wrap(from_fn(identify_and_record_request))
    });
    let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
    let address = *server.addrs().first().unwrap();
    let running = server.run();
    let handle = running.handle();
    actix_web::rt::spawn(running);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |path: &str| client.get(format!("http://{address}{path}")).header("x-request-id", ID).send();
    for _ in 0..2 {
        let response = get("/panic").await.unwrap();
        assert_eq!(response.status().as_u16(), 500);
        assert_eq!(response.headers().get("x-request-id").unwrap(), ID);
        let body: Value = response.json().await.unwrap();
        assert_eq!(body.pointer("/detail/error"), Some(&json!("internal")));
        assert_eq!(body.pointer("/request_id"), Some(&json!(ID)));
    }
    assert_eq!(get("/ids").await.unwrap().text().await.unwrap(), ID);
    let head_response = client.head(format!("http://{address}/ids")).send().await.unwrap();
    assert_eq!(head_response.status().as_u16(), 200);
    assert_eq!(head_response.headers().get("content-length").unwrap(), "36");
    assert_eq!(head_response.text().await.unwrap(), "");
    handle.stop(false).await;
}
