//! Local mode trusts requests from this machine, and treats requests that a proxy forwards as anonymous.

use crate::{public_workloads::create_public_workload, share_link::create_link};
use fairway_testkit::{
    TestApp,
    app::{Builder, Client, Request},
};
use serde_json::json;

/// Headers which show that a request on loopback was forwarded from another machine.
const FORWARDED: [(&str, &str); 11] = [
    ("Host", "forms.example"),
    ("X-Forwarded-For", "203.0.113.7"),
    ("X-Forwarded-Host", "forms.example"),
    ("Forwarded", "for=203.0.113.7"),
    ("Via", "1.1 proxy"),
    ("CDN-Loop", "network.example"),
    ("Forwarded-For", "203.0.113.7"),
    ("Fly-Client-IP", "203.0.113.7"),
    ("X-ProxyUser-Ip", "203.0.113.7"),
    ("X-Amzn-Trace-Id", "Root=1-67891233-abcdef012345678912345678"),
    ("Ngrok-Trace-Id", "0123456789abcdef"),
];

pub(crate) fn exposed_server() -> Builder {
    TestApp::builder()
        .setting("FAIRWAY_LOCAL_MODE_EXPOSED", "i-understand")
        .setting("FAIRWAY_ALLOWED_HOSTS", "forms.example")
}

/// Threats T21 and T48 in `docs/security.md`: whatever actor a forwarded request claims, the server treats it as
/// anonymous.
#[tokio::test]
async fn serves_forwarded_requests_as_anonymous_for_every_claimed_actor() {
    let app = exposed_server().setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").start().await;
    for (name, value) in FORWARDED {
        assert_anonymous(&app, name, value).await;
        let behalf = json!({ "environment": "dev", "inputs": {}, "execution_mode": "on_behalf_of",
            "actor_ref": "user:ada", "actor_type": "user", "actor_auth_mode": "local" });
        let run = app.post("/v1/workloads/by-slug/none/execute", behalf).as_actor("service:portal");
        let response = run.header(name, value).await;
        assert!(matches!(response.status, 403 | 422), "{name}: {response}");
    }
    app.get("/v1/tenants").header("Host", "localhost").await.expect(200);
    app.get("/v1/tenants").header("Host", "other.example").await.expect_refusal(421, "misdirected_request");
}

/// Forwarding headers suffice, without any setting, even if the proxy preserves the loopback host.
#[tokio::test]
async fn serves_forwarded_requests_as_anonymous_without_any_setting() {
    let app = TestApp::start().await;
    for (name, value) in &FORWARDED[1..] {
        assert_anonymous(&app, name, value).await;
    }
    let (host, name) = FORWARDED[0];
    app.get("/v1/tenants").header(host, name).await.expect_refusal(421, "misdirected_request");
}

async fn assert_anonymous(app: &Client, header: &str, value: &str) {
    let forwarded = |request: Request| request.header(header, value);
    for actor in [None, Some("user:local"), Some("user:ada"), Some("service:portal"), Some("anonymous"), Some("x")] {
        let as_named_actor = |request: Request| match actor {
            Some(actor) => forwarded(request).as_actor(actor),
            None => forwarded(request),
        };
        as_named_actor(app.get("/v1/tenants")).await.expect_refusal(403, "forbidden");
        as_named_actor(app.get("/v1/workloads")).await.expect_refusal(403, "forbidden");
        let skill = json!({ "slug": "x", "asset_kind": "skill", "owner_ref": "team:a" });
        as_named_actor(app.post("/v1/assets", skill)).await.expect_refusal(403, "forbidden");
        let tenant = fairway_domain::tenant::DEFAULT_TENANT_ID.to_string();
        as_named_actor(app.get("/v1/tenants")).in_tenant(&tenant).await.expect_refusal(404, "not_found");
    }
}

#[tokio::test]
async fn serves_public_workloads_and_share_links_through_a_proxy() {
    let app = exposed_server().setting("FAIRWAY_PUBLIC_RATE_BURST", "100").start().await;
    let workload = create_public_workload(&app, "main").await;
    let link = create_link(&app, &workload, json!({ "max_uses": FORWARDED.len() })).await;
    let link_only = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "link_shared",
        "input_fields": [{ "name": "ticket", "type": "text" }] } });
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    for (header, value) in FORWARDED {
        let run = app.post(workload.execute_path(), body.clone()).header(header, value);
        assert!(run.as_actor("user:local").await.expect(200)["result_token"].is_string(), "{header}");
    }
    app.patch(format!("/v1/workloads/{}", workload.workload_id), link_only).await.expect(200);
    for (header, value) in FORWARDED {
        let run = || app.post(workload.execute_path(), body.clone()).as_actor("user:local").header(header, value);
        run().await.expect_refusal(401, "share_token_required");
        let response = run().header("X-Share-Token", &link.token).await.expect(200);
        let read_request =
            app.get(format!("/v1/executions/{}?token={}", response["execution_id"].as_str().unwrap(), link.token));
        let execution = read_request.header(header, value).await.expect(200);
        assert_eq!(execution["submitted_by"], format!("share_link:{}", link.id), "{header}");
    }
}

/// Metrics and readiness details are only for requests from this machine, which count as the operator's.
#[tokio::test]
async fn hides_metrics_and_readiness_details_from_forwarded_requests() {
    let app = exposed_server().start().await;
    for (header, value) in FORWARDED {
        let get = |path: &str| app.get(path).header(header, value);
        get("/metrics").await.expect_refusal(404, "not_found");
        assert_eq!(get("/readyz").await.expect(200), json!({ "status": "ready" }), "{header}");
        assert_eq!(get("/healthz").await.expect(200), json!({ "status": "ok" }), "{header}");
    }
    app.database().set_clock_offset(60 * 60 * 24 * 200).await.unwrap();
    let unready = app.get("/readyz").header("Host", "forms.example").await;
    assert_eq!(unready.expect(503), json!({ "status": "unready" }));
    assert_eq!(app.get("/readyz").await.expect(503)["partitions"], "unavailable");
    let metrics = app.get("/metrics").await;
    assert!(metrics.status == 200 && metrics.text().contains("fairway_http_requests_total"), "{metrics}");
}
