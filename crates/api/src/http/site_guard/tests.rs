use super::*;
use crate::http::test_support;
use actix_web::{
    App, HttpResponse,
    http::StatusCode,
    middleware::from_fn,
    test::{self, TestRequest},
};

async fn status_under(rules: HostRules, request: TestRequest) -> StatusCode {
    status_at(Scheme::Http, rules, request).await
}

async fn status_at(scheme: Scheme, rules: HostRules, request: TestRequest) -> StatusCode {
    let base = web::Data::new(HttpState { site_rules: rules, public_scheme: scheme, ..test_support::http_state() });
    let app = App::new()
        .app_data(base)
        .default_service(web::to(|| async { HttpResponse::Ok().finish() }))
        .wrap(from_fn(site_guard));
    test::call_service(&test::init_service(app).await, request.to_request()).await.status()
}

fn local_rules() -> HostRules {
    HostRules::LoopbackAnd(vec![HostName::parse("Portal.example").unwrap(), HostName::parse("other:8443").unwrap()])
}

#[actix_web::test]
async fn local_mode_serves_only_loopback_and_allowed_hosts() {
    for (host, is_served) in [
        ("localhost", true),
        ("LocalHost:8080", true),
        ("127.0.0.1", true),
        ("127.8.9.10:1", true),
        ("[::1]:8080", true),
        ("[0:0:0:0:0:0:0:1]", true),
        ("portal.example", true),
        ("PORTAL.EXAMPLE:99", true),
        ("other:8443", true),
        ("other", false),
        ("other:8444", false),
        ("localhost.", false),
        ("localhost.evil.example", false),
        ("evil.example", false),
        ("127.1", false),
        ("2130706433", false),
        ("[::ffff:127.0.0.1]", false),
        ("0.0.0.0", false),
        ("localhost:", false),
        ("localhost:x", false),
        ("localhost:99999", false),
        ("localhost:80:80", false),
        ("user@localhost", false),
        ("localhost/", false),
        ("::1", false),
        ("", false),
    ] {
        let status = status_under(local_rules(), TestRequest::get().insert_header(("host", host))).await;
        assert_eq!(status, if is_served { StatusCode::OK } else { StatusCode::MISDIRECTED_REQUEST }, "{host}");
    }
    assert_eq!(status_under(local_rules(), TestRequest::get()).await, StatusCode::MISDIRECTED_REQUEST);
    let repeated = TestRequest::get().append_header(("host", "localhost")).append_header(("host", "localhost"));
    assert_eq!(status_under(local_rules(), repeated).await, StatusCode::MISDIRECTED_REQUEST);
    let mismatched = TestRequest::with_uri("http://evil.example/x").insert_header(("host", "localhost"));
    assert_eq!(status_under(local_rules(), mismatched).await, StatusCode::MISDIRECTED_REQUEST);
    let forwarded =
        TestRequest::get().insert_header(("host", "evil.example")).insert_header(("forwarded", "host=localhost"));
    assert_eq!(status_under(local_rules(), forwarded).await, StatusCode::MISDIRECTED_REQUEST);
    let other_host = TestRequest::get().insert_header(("host", "evil.example"));
    assert_eq!(status_under(HostRules::AnyHost, other_host).await, StatusCode::OK);
}

#[actix_web::test]
async fn probes_choose_their_host_with_sign_in_only() {
    let hosts = || vec![HostName::parse("portal.example").unwrap()];
    for (rules, path, host, is_served) in [
        (HostRules::LoopbackAndProbes(hosts()), "/", Some("portal.example:8443"), true),
        (HostRules::LoopbackAndProbes(hosts()), "/", Some("127.0.0.1:8080"), true),
        (HostRules::LoopbackAndProbes(hosts()), "/", Some("evil.example"), false),
        (HostRules::LoopbackAndProbes(hosts()), "/mcp", Some("10.1.2.3:8080"), false),
        (HostRules::LoopbackAndProbes(hosts()), "/mcp", None, false),
        (HostRules::LoopbackAndProbes(hosts()), "/healthz", Some("10.1.2.3:8080"), true),
        (HostRules::LoopbackAndProbes(hosts()), "/readyz", None, true),
        (HostRules::LoopbackAndProbes(hosts()), "/readyz/", Some("evil.example"), false),
        (HostRules::LoopbackAndProbes(hosts()), "/metrics", Some("evil.example"), false),
        (HostRules::LoopbackAnd(hosts()), "/healthz", Some("evil.example"), false),
    ] {
        let request = TestRequest::with_uri(path);
        let request = match host {
            Some(host) => request.insert_header(("host", host)),
            None => request,
        };
        let status = status_under(rules, request).await;
        let expected = if is_served { StatusCode::OK } else { StatusCode::MISDIRECTED_REQUEST };
        assert_eq!(status, expected, "{path} {host:?}");
    }
}

#[actix_web::test]
async fn refuses_cross_site_changes() {
    for (header, value, accepted) in [
        ("origin", "http://localhost:8080", true),
        ("origin", "HTTP://LOCALHOST:8080", true),
        ("origin", "http://localhost", false),
        ("origin", "http://localhost:8081", false),
        ("origin", "https://localhost:8080", false),
        ("origin", "http://127.0.0.1:8080", false),
        ("origin", "https://evil.example", false),
        ("origin", "null", false),
        ("origin", "", false),
        ("origin", "chrome-extension://localhost:8080", false),
        ("sec-fetch-site", "same-origin", true),
        ("sec-fetch-site", "none", true),
        ("sec-fetch-site", "same-site", false),
        ("sec-fetch-site", "cross-site", false),
        ("sec-fetch-site", "anything", false),
        ("x-other", "1", true),
    ] {
        for rules in [local_rules(), HostRules::AnyHost] {
            let request = |method: Method| {
                TestRequest::default()
                    .method(method)
                    .insert_header(("host", "localhost:8080"))
                    .insert_header((header, value))
            };
            for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
                let status = status_under(rules.clone(), request(method)).await;
                assert_eq!(status, if accepted { StatusCode::OK } else { StatusCode::FORBIDDEN }, "{header}: {value}");
            }
            assert_eq!(status_under(rules, request(Method::GET)).await, StatusCode::OK);
        }
    }
}

#[actix_web::test]
async fn accepts_omitted_default_port() {
    for (host, origin, accepted) in [
        ("fairway.example", "http://fairway.example", false),
        ("fairway.example:443", "http://fairway.example:443", false),
        ("fairway.example:80", "http://fairway.example", false),
        ("fairway.example", "https://fairway.example", true),
        ("fairway.example:443", "https://fairway.example", true),
        ("fairway.example", "https://fairway.example:443", true),
        ("fairway.example", "https://fairway.example:8443", false),
        ("fairway.example:80", "https://fairway.example", false),
        ("[::1]:8080", "https://[::1]:8080", true),
    ] {
        let request = TestRequest::post().insert_header(("host", host)).insert_header(("origin", origin));
        let status = status_at(Scheme::Https, HostRules::AnyHost, request).await;
        assert_eq!(status, if accepted { StatusCode::OK } else { StatusCode::FORBIDDEN }, "{host} {origin}");
    }
    let request = TestRequest::post().insert_header(("host", "portal.example"));
    let request = request.insert_header(("origin", "http://portal.example:80"));
    assert_eq!(status_at(Scheme::Http, HostRules::AnyHost, request).await, StatusCode::OK);
}

#[actix_web::test]
async fn fails_without_site_rules() {
    let app = App::new().default_service(web::to(|| async { HttpResponse::Ok().finish() })).wrap(from_fn(site_guard));
    let response = test::call_service(&test::init_service(app).await, TestRequest::get().to_request()).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
}

#[actix_web::test]
async fn refuses_backchannel_logout_from_browsers() {
    let base = web::Data::new(HttpState { site_rules: local_rules(), ..test_support::http_state() });
    let resource = || web::resource("/sign-out/backchannel").to(|| async { HttpResponse::Ok().finish() });
    let app = test::init_service(App::new().app_data(base).service(resource()).wrap(from_fn(site_guard))).await;
    for (name, value, expected) in [
        ("accept", "*/*", StatusCode::OK),
        ("origin", "http://localhost", StatusCode::FORBIDDEN),
        ("sec-fetch-site", "same-origin", StatusCode::FORBIDDEN),
    ] {
        let request = TestRequest::post().uri("/sign-out/backchannel");
        let request = request.insert_header(("host", "localhost")).insert_header((name, value)).to_request();
        assert_eq!(test::call_service(&app, request).await.status(), expected, "{name}");
    }
}
