//! Deliveries outside the inbox: the outbox from a fact to a receiver, delivery health, and tests of destinations.

use crate::{
    run_events::EventStream,
    support::{
        documented_routes::routes,
        workspace_fixture::{TENANT, WorkspaceFixture},
    },
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp, app::Client};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};

pub(crate) const DELIVERIES: &str = "/v1/notifications/deliveries";
pub(crate) const ORGANIZATION: &str = "/v1/notifications/organization/destinations";
const LOOPBACK: &str = "127.0.0.0/8";
/// A Standard Webhooks signing key: base64 of 32 bytes, with the prefix `whsec_`.
pub(crate) const KEY: &str = "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=";
pub(crate) const NEXT_KEY: &str = "whsec_YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";
/// Seconds after which every retry of a delivery is due.
pub(crate) const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// Starts a server whose tenant has a secret `hook` that contains these keys.
pub(crate) async fn server(keys: &str) -> (TestApp, tempfile::TempDir) {
    let secrets = tempfile::tempdir().unwrap();
    std::fs::create_dir(secrets.path().join("default")).unwrap();
    std::fs::write(secrets.path().join("default/hook"), keys).unwrap();
    let folder = secrets.path().to_str().unwrap();
    let app = TestApp::builder().setting("FAIRWAY_EGRESS_ALLOW", LOOPBACK).setting("FAIRWAY_SECRETS_DIR", folder);
    (app.start().await, secrets)
}

/// Opts the local user in to notifications of incidents on a channel.
pub(crate) async fn opt_in_to_incidents(app: &Client, channel: &str) {
    let preferences = json!([{ "category": "incidents", "channel": channel, "enabled": true }]);
    app.put("/v1/notifications/preferences", preferences).await.expect(200);
}

/// Creates a webhook destination of the organization. Returns its identifier.
pub(crate) async fn webhook(app: &Client, name: &str, url: &str, secret_ref: Option<&str>) -> String {
    destination(app, "webhook", name, json!({ "url": url }), secret_ref).await
}

/// Creates a destination of the organization. Returns its identifier.
pub(crate) async fn destination(
    app: &Client,
    kind: &str,
    name: &str,
    configuration: Value,
    secret_ref: Option<&str>,
) -> String {
    let body = json!({
        "destination_type": kind, "display_name": name, "redacted_metadata": configuration, "secret_ref": secret_ref,
        "is_enabled": true,
    });
    app.post(ORGANIZATION, body).await.expect(201)["destination_id"].as_str().unwrap().to_owned()
}

/// Suspends the fixture's workload, which is an incident and causes notifications.
pub(crate) async fn suspend(fixture: &WorkspaceFixture<'_>) {
    let path = fixture.fill_path("/v1/workloads/{workload_id}");
    for status in ["registered", "suspended"] {
        fixture.app.patch(&path, json!({ "status": status })).await.expect(200);
    }
}

pub(crate) async fn deliveries(app: &Client) -> Vec<Value> {
    app.get(DELIVERIES).await.expect(200).as_array().unwrap().clone()
}

/// Waits until the deliveries meet a condition, and returns them.
pub(crate) async fn await_deliveries(app: &Client, is_met: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = deliveries(app).await;
        if is_met(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until digests contain this many notifications.
pub(crate) async fn await_digest_lines(app: &TestApp, count: i64) {
    let owner = app.database().connect_as_owner().await.unwrap();
    let lines = "SELECT count(*) FROM notification_digest_line";
    let deadline = Instant::now() + Duration::from_secs(60);
    while owner.query_one(lines, &[]).await.unwrap().get::<_, i64>(0) < count {
        assert!(Instant::now() < deadline, "{count} lines of digests are not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn await_status(app: &Client, status: &str) -> Value {
    let has_status = |found: &[Value]| !found.is_empty() && found.iter().all(|delivery| delivery["status"] == status);
    await_deliveries(app, has_status).await.swap_remove(0)
}

fn verifies(request: &fairway_testkit::RecordedRequest, key: &str) -> bool {
    let mut headers = http::HeaderMap::new();
    for (name, value) in &request.headers {
        headers.insert(http::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    standardwebhooks::Webhook::new(key).unwrap().verify(&request.body, &headers).is_ok()
}

#[tokio::test]
async fn webhook_is_signed_and_its_delivery_recorded() {
    let (app, _secrets) = server(&format!("{KEY} {NEXT_KEY}")).await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::json(&json!({})));
    let destination = webhook(&app, "hook", &receiver.url("/in"), Some("file:hook")).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    receiver.wait_for_requests(1).await;
    let sent_delivery = await_status(&app, "sent").await;
    assert_eq!((&sent_delivery["destination_id"], &sent_delivery["recipient"]), (&json!(destination), &Value::Null));
    assert_eq!((&sent_delivery["attempt_count"], &sent_delivery["last_error"]), (&json!(1), &Value::Null));
    assert_eq!((&sent_delivery["last_response_status"], &sent_delivery["next_retry_at"]), (&json!(200), &Value::Null));
    let request = &receiver.requests()[0];
    assert_eq!(request.header("content-type"), Some("application/cloudevents+json"));
    assert_eq!(request.header("webhook-id"), sent_delivery["delivery_id"].as_str());
    // During a rotation, signatures of both keys are sent, and no other key verifies the message.
    assert!(verifies(request, KEY) && verifies(request, NEXT_KEY));
    assert!(!verifies(request, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="));
    let event = request.json();
    assert_eq!((&event["specversion"], &event["type"]), (&json!("1.0"), &json!("fairway.workload.changed")));
    assert_eq!(event["id"], sent_delivery["source_event"]["id"]);
    assert_eq!(event["data"]["workload_id"], fixture.workload.workload_id.as_str());
    assert_eq!(event["data"]["link"], Value::Null, "the server has no public address");
    for query in ["status=failed", &format!("destination_id={TENANT}")] {
        assert_eq!(app.get(format!("{DELIVERIES}?{query}")).await.expect(200), json!([]), "{query}");
    }
    app.get(format!("{DELIVERIES}?workspace_id={TENANT}")).await.expect_refusal(404, "not_found");
    app.get(format!("{DELIVERIES}?status=pending&workspace_id=")).await.expect_refusal(422, "validation_error");
    let own_deliveries = app.get(format!("{DELIVERIES}?status=sent&destination_id={destination}")).await;
    assert_eq!(own_deliveries.expect(200).as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failed_attempts_repeat_the_same_message_until_they_are_used_up() {
    let (app, _secrets) = server(KEY).await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    let failure = ScriptedResponse::status(503, KEY).header("Retry-After", "120");
    receiver.respond_with(failure);
    webhook(&app, "hook", &receiver.url("/in"), Some("file:hook")).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    for attempt in 1..=8_usize {
        receiver.wait_for_requests(attempt).await;
        let status = if attempt < 8 { "pending" } else { "failed" };
        let is_stored = |found: &[Value]| {
            found.iter().any(|delivery| delivery["attempt_count"] == json!(attempt) && delivery["status"] == status)
        };
        let found = await_deliveries(&app, is_stored).await;
        let error = (&found[0]["last_error"], &found[0]["last_response_status"]);
        assert_eq!(error, (&json!("receiver_failed"), &json!(503)), "the stored error is a code");
        assert_eq!(found[0]["next_retry_at"].is_string(), attempt < 8);
        if attempt == 1 {
            let owner = app.database().connect_as_owner().await.unwrap();
            let due = "SELECT due_at - fairway_now() BETWEEN interval '90 seconds' AND interval '120 seconds'
                FROM notification_delivery";
            assert!(owner.query_one(due, &[]).await.unwrap().get::<_, bool>(0), "the receiver asks for 120 s, not 5");
        }
        assert!(!found[0].to_string().contains("whsec"), "nothing that the receiver answers is stored");
        let seconds = TWO_DAYS * i64::try_from(attempt).unwrap();
        app.database().set_clock_offset(seconds).await.unwrap();
    }
    let requests = receiver.requests();
    let key = |index: usize| (requests[index].header("webhook-id").map(str::to_owned), requests[index].body.clone());
    assert!((1..8).all(|index| key(index) == key(0)), "identifier and body are equal over all attempts");

    let delivery = await_status(&app, "failed").await;
    let path = format!("{DELIVERIES}/{}/retry", delivery["delivery_id"].as_str().unwrap());
    let retry = || app.post(&path, json!({}));
    for (role, status) in [("operator", 403), ("viewer", 404), ("auditor", 403)] {
        let actor = format!("user:{role}");
        fixture.fixtures.bind_role(&actor, role, "workspace", Some(&fixture.workspace)).await;
        retry().as_actor(&actor).await.expect_refusal(status, if status == 403 { "forbidden" } else { "not_found" });
    }
    receiver.respond_with(ScriptedResponse::status(204, ""));
    let retried = retry().idempotency_key("again").await;
    assert_eq!(retried.expect(200)["status"], "pending");
    receiver.wait_for_requests(9).await;
    let sent_delivery = await_status(&app, "sent").await;
    assert_eq!((&sent_delivery["attempt_count"], &sent_delivery["last_error"]), (&json!(9), &Value::Null));
    assert_eq!(retry().idempotency_key("again").await.header("idempotency-replayed"), Some("true"));
    let refusal = retry().await.expect_refusal(409, "delivery_not_failed");
    assert_eq!(refusal["status"], "sent");
    assert_eq!(receiver.request_count(), 9);
}

#[tokio::test]
async fn addresses_are_refused_at_delivery_without_a_packet() {
    // This server's egress guard allows no address of this machine.
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let canary_endpoint = ScriptedEndpoint::start().await;
    let port = canary_endpoint.url("/").rsplit_once(':').unwrap().1.trim_end_matches('/').to_owned();
    let addresses: Vec<String> = [
        "127.1",
        "0.0.0.0",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "[2001:0::1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "169.254.169.254",
        "100.100.100.200",
        "100.64.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "localhost.",
        "user@127.0.0.1",
    ]
    .iter()
    .flat_map(|host| [format!("https://{host}/in"), format!("http://{host}:{port}/in")])
    .chain(
        ["file:///etc/passwd", "gopher://127.0.0.1/", "unix:/run/x", "http://a#@b", "not an address"]
            .map(str::to_owned),
    )
    .chain([22, 25, 5432].map(|port| format!("https://192.0.2.1:{port}/")))
    .collect();
    for (number, address) in addresses.iter().enumerate() {
        webhook(&app, &format!("hook {number}"), address, None).await;
    }
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    let is_done =
        |found: &[Value]| found.len() == addresses.len() && found.iter().all(|delivery| delivery["status"] == "failed");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = app.get(format!("{DELIVERIES}?limit=200")).await.expect(200);
        let found = found.as_array().unwrap();
        if is_done(found) {
            for delivery in found {
                assert_eq!(
                    (&delivery["last_error"], &delivery["attempt_count"]),
                    (&json!("address_refused"), &json!(1)),
                    "{delivery}"
                );
            }
            break;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(canary_endpoint.request_count(), 0);
}

#[tokio::test]
async fn queued_deliveries_of_disabled_settings_and_destinations_are_not_sent() {
    let (app, _secrets) = server(KEY).await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::status(503, ""));
    let settings = |is_enabled: bool| {
        app.patch(format!("/v1/tenants/{TENANT}/settings"), json!({ "notifications_enabled": is_enabled }))
    };
    let destination = webhook(&app, "hook", &receiver.url("/in"), None).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    await_deliveries(&app, |found| found.iter().any(|delivery| delivery["last_error"] == "receiver_failed")).await;
    // Turns notifications off and at once on again. Deliveries that were queued before remain suppressed.
    settings(false).await.expect(200);
    settings(true).await.expect(200);
    assert_eq!(await_status(&app, "suppressed").await["attempt_count"], 1);
    suspend(&fixture).await;
    await_deliveries(&app, |found| found[0]["last_error"] == "receiver_failed" && found.len() == 2).await;
    let path = format!("{ORGANIZATION}/{destination}");
    for is_enabled in [false, true] {
        app.patch(&path, json!({ "is_enabled": is_enabled })).await.expect(200);
    }
    let found = deliveries(&app).await;
    assert_eq!((&found[0]["status"], &found[1]["status"]), (&json!("cancelled"), &json!("suppressed")));
    // The filter uses the shown status, even before a sender has processed the delivery.
    for (status, count) in [("pending", 0), ("cancelled", 1), ("suppressed", 1), ("failed", 0)] {
        let filtered = app.get(format!("{DELIVERIES}?status={status}")).await.expect(200);
        let filtered = filtered.as_array().unwrap();
        assert!(
            filtered.len() == count && filtered.iter().all(|delivery| delivery["status"] == status),
            "{filtered:?}"
        );
    }
    app.database().set_clock_offset(TWO_DAYS).await.unwrap();
    receiver.respond_with(ScriptedResponse::status(200, ""));
    // The later fact is sent only after the sender has processed the earlier due deliveries.
    suspend(&fixture).await;
    await_deliveries(&app, |found| found.iter().any(|delivery| delivery["status"] == "sent")).await;
    assert_eq!(receiver.request_count(), 3, "two failed attempts and the later fact");
    let stored = app.database().connect_as_owner().await.unwrap();
    let rows = stored.query("SELECT status FROM notification_delivery ORDER BY status", &[]).await.unwrap();
    let stored: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(stored, ["cancelled", "sent", "suppressed"]);
}

#[tokio::test]
async fn test_of_a_destination_shows_the_status_and_never_the_text_of_the_receiver() {
    let (app, _secrets) = server(KEY).await;
    let receiver = ScriptedEndpoint::start().await;
    let id = webhook(&app, "hook", &receiver.url("/in"), Some("file:hook")).await;
    let path = format!("{ORGANIZATION}/{id}/test");
    app.patch(format!("{ORGANIZATION}/{id}"), json!({ "is_enabled": false })).await.expect(200);
    for (response, status, error, code) in [
        (ScriptedResponse::status(200, KEY), "sent", Value::Null, json!(200)),
        (ScriptedResponse::status(500, KEY), "failed", json!("receiver_failed"), json!(500)),
        (ScriptedResponse::status(401, KEY), "failed", json!("rejected"), json!(401)),
        (ScriptedResponse::redirect("http://127.0.0.1:1/"), "failed", json!("redirected"), Value::Null),
        (ScriptedResponse::reset(), "failed", json!("connection_failed"), Value::Null),
    ] {
        receiver.respond_with(response);
        let response = app.post(&path, json!({})).await;
        let tested = response.expect(200);
        assert_eq!((&tested["status"], &tested["error"], &tested["response_status"]), (&json!(status), &error, &code));
        assert!(tested["duration_ms"].is_u64() && !response.text().contains("whsec"), "{response}");
    }
    assert!(verifies(&receiver.requests()[0], KEY), "a disabled destination can be tested");
    // Without its credential, the redacted URL is a different address, so the server does not call it.
    let requests_before = receiver.request_count();
    let redacted = webhook(&app, "redacted", &receiver.url("/in?token=abc&x=1"), None).await;
    let tested = app.post(format!("{ORGANIZATION}/{redacted}/test"), json!({})).await.expect(200);
    assert_eq!((&tested["error"], receiver.request_count()), (&json!("address_refused"), requests_before));
    let missing = webhook(&app, "keyless", &receiver.url("/in"), Some("file:nobody")).await;
    let tested = app.post(format!("{ORGANIZATION}/{missing}/test"), json!({})).await.expect(200);
    assert_eq!(tested["error"], "secret_unavailable");
    let owner = app.database().connect_as_owner().await.unwrap();
    let tests = "SELECT count(*) FROM fact WHERE kind = 'notification.destination_tested'
        AND position('whsec' IN convert_from(body, 'UTF8')) = 0";
    assert_eq!(owner.query_one(tests, &[]).await.unwrap().get::<_, i64>(0), 7);
    assert_eq!(deliveries(&app).await, [] as [Value; 0], "a test is no delivery");
}

#[tokio::test]
async fn accepted_message_is_sent_once_though_its_response_never_ends() {
    let (app, _secrets) = server(KEY).await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::status(200, "and so on").hanging_at_end());
    webhook(&app, "hook", &receiver.url("/in"), None).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    assert_eq!(await_status(&app, "sent").await["attempt_count"], 1);
    assert_eq!(receiver.request_count(), 1);
}

#[tokio::test]
async fn projection_failure_of_one_tenant_does_not_delay_others() {
    let app = TestApp::start().await;
    let other_tenant = WorkspaceFixture::in_other_tenant(&app).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // Corrupts the preferences of the first tenant in the projector's order, so that no server version can read them.
    opt_in_to_incidents(&app, "webhook").await;
    owner.execute("UPDATE notification_preference SET settings = '[{}]'", &[]).await.unwrap();
    let fixture = WorkspaceFixture::create(&app).await;
    suspend(&fixture).await;
    // Waits until the notification exists.
    other_tenant.create_notification().await;
    // The tenant has no row in `notification_position` if its first batch of facts fails.
    let unprojected_sql = "SELECT count(*) FROM fact_log LEFT JOIN notification_position USING (tenant_id)
        WHERE tenant_id = $1 AND size > coalesce(position, 0)";
    let tenant: uuid::Uuid = TENANT.parse().unwrap();
    // Waits until the tenant's fact is sequenced, but not projected because of the unreadable preferences.
    let deadline = Instant::now() + Duration::from_secs(60);
    while owner.query_one(unprojected_sql, &[&tenant]).await.unwrap().get::<_, i64>(0) != 1 {
        assert!(Instant::now() < deadline, "the facts do not wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    owner.execute("UPDATE notification_preference SET settings = '[]'", &[]).await.unwrap();
    fixture.await_notification("user:local", |notification| notification["category"] == "incidents").await;
}

#[tokio::test]
async fn disabled_notifications_answer_every_route_with_the_setting() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let mut requests = Vec::new();
    for route in routes().iter().filter(|route| route.path.starts_with("/v1/notifications/")) {
        requests.push((route.operation_id().to_owned(), fixture.successful_request(route.operation_id()).await));
    }
    assert!(requests.len() >= 30, "{}", requests.len());
    let disabled = json!({ "notifications_enabled": false });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), disabled).await.expect(200);
    for (operation, request) in requests {
        let response = request.await;
        if operation == "read_effective_preferences" {
            response.expect(200);
            continue;
        }
        let detail = response.expect_refusal(403, "enterprise_capability_required");
        assert_eq!(detail["setting"], "notifications_enabled", "{operation}");
    }
}

#[tokio::test]
async fn inbox_stream_resumes_after_the_last_event() {
    let app = TestApp::builder().setting("FAIRWAY_INBOX_STREAM_LIFETIME", "2m").start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let path = "/v1/notifications/inbox/stream";
    let mut stream = EventStream::open(&app, path, "").await;
    let (kind, data) = stream.next_event().await;
    assert_eq!((kind.as_str(), data["unread_count"].is_u64()), ("unread_count", true));
    suspend(&fixture).await;
    let first_notification = loop {
        let (kind, data) = stream.next_event().await;
        if kind == "notification" && data["source_event"]["kind"] == "workload.changed" {
            break data;
        }
    };
    assert_eq!(
        (&first_notification["status"], &first_notification["category"]),
        (&json!("unread"), &json!("incidents"))
    );
    drop(stream);
    // The resumed stream contains each notification that occurred during the interruption once, and none that was
    // received before.
    let owner = app.database().connect_as_owner().await.unwrap();
    let id: uuid::Uuid = first_notification["notification_id"].as_str().unwrap().parse().unwrap();
    let row = owner.query_one("SELECT log_index FROM notification WHERE notification_id = $1", &[&id]).await.unwrap();
    let position = row.get::<_, i64>(0) + 1;
    suspend(&fixture).await;
    let about = |notification: &Value| {
        notification["category"] == "incidents"
            && notification["notification_id"] != first_notification["notification_id"]
    };
    let second_notification = fixture.await_notification("user:local", about).await;
    let mut resumed = EventStream::open(&app, path, &format!("Last-Event-ID: {position}\r\n")).await;
    let (kind, data) = resumed.next_event().await;
    assert_eq!((kind.as_str(), &data["notification_id"]), ("notification", &second_notification["notification_id"]));
    // The stream reports a changed number of unread notifications when another request changes it.
    app.post("/v1/notifications/inbox/read-all", json!({})).await.expect(200);
    loop {
        let (kind, data) = resumed.next_event().await;
        if kind == "unread_count" && data["unread_count"] == 0 {
            break;
        }
    }
    drop(resumed);
    // A position beyond the end of the log is treated as the end.
    let mut beyond = EventStream::open(&app, path, "Last-Event-ID: 9999999999999999999\r\n").await;
    assert_eq!(beyond.next_event().await, ("unread_count".to_owned(), json!({ "unread_count": 0 })));
    suspend(&fixture).await;
    let (kind, data) = beyond.next_event().await;
    assert_eq!((kind.as_str(), &data["source_event"]["kind"]), ("notification", &json!("workload.changed")));
    // An empty `Last-Event-ID` counts as absent: the stream starts at the end of the log.
    let mut empty = EventStream::open(&app, path, "Last-Event-ID:\r\n").await;
    assert_eq!(empty.next_event().await.0, "unread_count");
    drop(empty);
    let refusal = app.get(path).header("Last-Event-ID", "x").await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "Last-Event-ID");
    app.get(path).as_actor("anonymous").await.expect_refusal(403, "forbidden");
}

/// Recomputes the digest of an announcement's text, and finds the digest in the audit log, only with API responses.
async fn prove_text(app: &Client, announcement: &Value) {
    let salt = announcement["text_salt"].as_str().unwrap();
    let bytes = (0..16).map(|position| u8::from_str_radix(&salt[2 * position..2 * position + 2], 16).unwrap());
    let text = format!(
        "{{\"announcement_id\":{},\"body\":{},\"title\":{}}}",
        announcement["announcement_id"], announcement["body"], announcement["title"]
    );
    let digest = Sha256::new().chain_update(bytes.collect::<Vec<u8>>()).chain_update(text).finalize();
    let digest = digest.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    assert_eq!(announcement["text_digest"], digest);
    let id = announcement["announcement_id"].as_str().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let events = app.get(format!("/v1/audit/events?subject_id={id}")).await.expect(200);
        if let [event] = &events.as_array().unwrap()[..] {
            assert_eq!(event["detail"]["text_digest"], digest);
            return;
        }
        assert!(Instant::now() < deadline, "the announcement is not in the log: {events}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn profiles_and_announcements_require_the_advanced_tier() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    fixture.fixtures.bind_role("user:viewer", "viewer", "workspace", Some(&fixture.workspace)).await;
    fixture.fixtures.bind_role("user:author", "author", "workspace", Some(&fixture.workspace)).await;
    let (profile, announcements) = ("/v1/notifications/profile", "/v1/notifications/announcements");
    let chosen = json!({
        "time_zone": "Europe/Berlin", "digest": { "incidents": "daily", "approvals": "off" }, "chat_secret_ref": "env:MY_CHAT",
    });
    let announcement = json!({
        "title": "Maintenance tonight", "body": "From ten to eleven.",
        "audience": { "roles": ["viewer"], "workspaces": [fixture.workspace.as_str()] },
    });
    for response in [
        app.get(profile).await,
        app.put(profile, chosen.clone()).await,
        app.post(announcements, announcement.clone()).await,
    ] {
        let detail = response.expect_refusal(403, "enterprise_capability_required");
        assert_eq!(detail["setting"], "advanced_notifications_enabled");
    }
    let settings = json!({ "advanced_notifications_enabled": true });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
    let unset = app.get(profile).await;
    assert_eq!((&unset.expect(200)["time_zone"], unset.header("etag")), (&json!("UTC"), Some("\"0\"")));
    let stored = app.put(profile, chosen.clone()).header("If-Match", "\"0\"").await;
    assert_eq!((stored.expect(200), stored.header("etag")), (chosen.clone(), Some("\"1\"")));
    assert_eq!(app.get(profile).await.expect(200), chosen);
    app.put(profile, chosen.clone()).header("If-Match", "\"7\"").await.expect_refusal(412, "precondition_failed");
    for (field, value) in [
        ("time_zone", json!("Mars/Olympus")),
        ("digest", json!({ "incidents": "weekly" })),
        ("digest", json!({ "weather": "daily" })),
        ("chat_secret_ref", json!("https://hooks.example/canary")),
    ] {
        let mut body = chosen.clone();
        body[field] = value;
        let response = app.put(profile, body).await;
        assert_eq!(response.expect_refusal(422, "validation_error")["fields"][0]["path"], field);
        assert!(!response.text().contains("canary"));
    }
    app.post(announcements, announcement.clone()).as_actor("user:author").await.expect_refusal(403, "forbidden");
    let first_response = app.post(announcements, announcement.clone()).idempotency_key("once").await;
    let created = first_response.expect(201);
    assert_eq!(app.get(first_response.header("location").unwrap()).await.expect(200), created);
    prove_text(&app, &created).await;
    let replay = app.post(announcements, announcement.clone()).idempotency_key("once").await;
    assert_eq!((replay.expect(201), replay.header("idempotency-replayed")), (created, Some("true")));
    let is_announcement =
        |notification: &Value| notification["source_event"]["kind"] == "notification.announcement_made";
    let notification = fixture.await_notification("user:viewer", is_announcement).await;
    assert_eq!((&notification["title"], &notification["body"]), (&announcement["title"], &announcement["body"]));
    let inbox_of_author = app.get("/v1/notifications/inbox").as_actor("user:author").await.expect(200);
    assert!(!inbox_of_author.as_array().unwrap().iter().any(is_announcement), "authors are not in the audience");
    let own_inbox = app.get("/v1/notifications/inbox").await.expect(200);
    assert!(!own_inbox.as_array().unwrap().iter().any(is_announcement), "the local user is no viewer");
    let mut inverted = announcement.clone();
    inverted["body"] = json!("a\u{202e}b");
    let refusal = app.post(announcements, inverted).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "body");
    let mut without_scope = announcement.clone();
    without_scope["audience"]["workspaces"] = json!([TENANT]);
    app.post(announcements, without_scope).await.expect_refusal(422, "validation_error");
    let mut without_audience = announcement;
    without_audience["audience"]["roles"] = json!(["emperor"]);
    let refusal = app.post(announcements, without_audience).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "audience.roles[0]");
}

#[tokio::test]
async fn digest_waits_for_the_end_of_its_window() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let settings = json!({ "advanced_notifications_enabled": true });
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
    let daily = json!({ "time_zone": "Pacific/Auckland", "digest": { "incidents": "daily" } });
    app.put("/v1/notifications/profile", daily).await.expect(200);
    opt_in_to_incidents(&app, "email").await;
    suspend(&fixture).await;
    suspend(&fixture).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    await_digest_lines(&app, 2).await;
    let waiting_deliveries = deliveries(&app).await;
    assert_eq!(waiting_deliveries.len(), 1, "one digest for both facts: {waiting_deliveries:#?}");
    assert_eq!(
        (&waiting_deliveries[0]["status"], &waiting_deliveries[0]["recipient"]),
        (&json!("pending"), &json!("user:local"))
    );
    let midnight = "SELECT to_char(due_at AT TIME ZONE 'Pacific/Auckland', 'HH24:MI') FROM notification_delivery";
    assert_eq!(owner.query_one(midnight, &[]).await.unwrap().get::<_, &str>(0), "00:01");
    app.database().set_clock_offset(TWO_DAYS).await.unwrap();
    let failed = await_status(&app, "failed").await;
    assert_eq!(failed["last_error"], "no_address", "the local user has no verified address");
}

#[tokio::test]
async fn metrics_show_attempts_and_the_backlog_by_channel() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    fixture.create_failed_delivery().await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let expected_lines = [
        r#"fairway_notification_attempts_total{channel="webhook",outcome="failed"} 1"#,
        r#"fairway_notification_deliveries{channel="webhook",status="pending"} 0"#,
        r#"fairway_notification_overdue_seconds{channel="webhook"} 0"#,
        "fairway_projector_lag_facts 0",
        "fairway_projector_lag_seconds 0",
    ];
    loop {
        let text = app.get("/metrics").await.text();
        let missing: Vec<_> = expected_lines.iter().filter(|line| !text.lines().any(|found| found == **line)).collect();
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{missing:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
