//! Notifications over HTTP: from a fact to an inbox, preferences by scope, records of suppressed notifications, and
//! settings.

use crate::support::workspace_fixture::{TENANT, WorkspaceFixture};
use fairway_testkit::{
    TestApp,
    app::{Client, Response},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::{Duration, Instant};

const INBOX: &str = "/v1/notifications/inbox";
const PREFERENCES: &str = "/v1/notifications/preferences";
const PROFILES: &str = "/v1/notifications/default-profiles";

fn prefer(category: &str, channel: &str, enabled: bool) -> Value {
    json!([{ "category": category, "channel": channel, "enabled": enabled }])
}

async fn inbox(app: &Client, actor: &str) -> Vec<Value> {
    app.get(INBOX).as_actor(actor).await.expect(200).as_array().unwrap().clone()
}

/// Turns notification settings of the default tenant on or off.
async fn set_tenant(app: &Client, settings: Value) {
    app.patch(format!("/v1/tenants/{TENANT}/settings"), settings).await.expect(200);
}

/// Sets the status of the fixture's workload. Only the status `suspended` counts as an incident.
async fn set_status(fixture: &WorkspaceFixture<'_>, status: &str) {
    let path = fixture.fill_path("/v1/workloads/{workload_id}");
    fixture.app.patch(path, json!({ "status": status })).await.expect(200);
}

/// Suspends the workload, and waits until the local user is notified. The projector has then processed the fact.
async fn suspend(fixture: &WorkspaceFixture<'_>) -> Value {
    set_status(fixture, "registered").await;
    let known_notifications = inbox(fixture.app, "user:local").await;
    set_status(fixture, "suspended").await;
    let workload = fixture.workload.workload_id.as_str();
    let is_new = |notification: &Value| {
        notification["source_event"]["kind"] == "workload.changed"
            && notification["workload_id"] == workload
            && !known_notifications.contains(notification)
    };
    fixture.await_notification("user:local", is_new).await
}

fn notifications_about<'a>(inbox: &'a [Value], event: &Value) -> Vec<&'a Value> {
    inbox.iter().filter(|notification| notification["source_event"] == event["source_event"]).collect()
}

async fn bind_people(fixture: &WorkspaceFixture<'_>) {
    let workspace = Some(fixture.workspace.as_str());
    for role in ["viewer", "operator", "auditor"] {
        fixture.fixtures.bind_role(&format!("user:{role}"), role, "workspace", workspace).await;
    }
    let other_workspace = fixture.fixtures.workspace("next-door", "next-door").await;
    fixture.fixtures.bind_role("user:neighbour", "operator", "workspace", Some(&other_workspace)).await;
    let other_tenant = fixture.fixtures.tenant("abroad").await;
    let foreign_fixtures = fixture.app.fixtures().in_tenant(&other_tenant, "");
    foreign_fixtures.bind_role("user:stranger", "tenant_admin", "tenant", Some(&other_tenant)).await;
}

#[tokio::test]
async fn suspension_notifies_each_actor_of_its_workspace_once() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    let suspension = suspend(&fixture).await;
    assert_eq!((&suspension["category"], &suspension["severity"]), (&json!("incidents"), &json!("critical")));
    assert_eq!(suspension["title"], format!("The workload `{}` was suspended", fixture.workload.slug));
    assert_eq!((&suspension["status"], &suspension["read_at"]), (&json!("unread"), &Value::Null));
    assert_eq!(suspension["workspace_id"], fixture.workspace.as_str());
    let workload = fixture.workload.workload_id.as_str();
    assert_eq!(suspension["link"], format!("/console/workloads/{workload}?workspace={}", fixture.workspace));
    assert_eq!(suspension["body"], format!("workload {workload}, by user:local"));
    let notification_count = notifications_about(&inbox(&app, "user:operator").await, &suspension).len();
    assert_eq!(notification_count, 1, "the operator can resume the workload");
    for other_actor in ["user:viewer", "user:auditor", "user:neighbour", "user:stranger"] {
        assert_eq!(notifications_about(&inbox(&app, other_actor).await, &suspension).len(), 0, "{other_actor}");
    }
    // The source event of the notification is the fact in the audit log.
    let events = app.get("/v1/audit/events?limit=200").await.expect(200);
    let event = events.as_array().unwrap().iter().find(|event| event["event_id"] == suspension["source_event"]["id"]);
    assert_eq!(event.unwrap()["kind"], "workload.changed");
}

#[tokio::test]
async fn inbox_is_filtered_marked_and_read_by_its_recipient_alone() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    let event = suspend(&fixture).await;
    let operator_notification = notifications_about(&inbox(&app, "user:operator").await, &event)[0].clone();
    let path = format!("{INBOX}/{}", operator_notification["notification_id"].as_str().unwrap());
    for other_actor in ["user:local", "user:viewer", "user:neighbour", "user:stranger"] {
        app.patch(&path, json!({ "status": "read" })).as_actor(other_actor).await.expect_refusal(404, "not_found");
    }
    let set_status = |status: &str| app.patch(&path, json!({ "status": status })).as_actor("user:operator");
    let response = set_status("read").header("If-Match", "\"1\"").await;
    assert_eq!((&response.expect(200)["status"], response.header("etag")), (&json!("read"), Some("\"2\"")));
    assert!(response.json()["read_at"].is_string());
    set_status("archived").header("If-Match", "\"1\"").await.expect_refusal(412, "precondition_failed");
    assert_eq!(set_status("read").await.header("etag"), Some("\"2\""), "the present status changes nothing");
    assert_eq!(set_status("archived").await.expect(200)["status"], "archived");
    assert_eq!(set_status("unread").await.expect(200)["read_at"], Value::Null);
    set_status("seen").await.expect_refusal(422, "validation_error");
    let count = async |query: &str| {
        let listed = app.get(format!("{INBOX}?{query}")).as_actor("user:operator").await;
        (listed.expect(200).as_array().unwrap().len(), listed.header("x-total-count").unwrap().to_owned())
    };
    assert_eq!(count("category=incidents&status=unread").await, (1, "1".to_owned()));
    assert_eq!(count("category=incidents&status=archived").await.0, 0);
    assert_eq!(count("category=reports").await.0, 0);
    for query in ["status=seen", "category=incident", "category="] {
        let refusal = app.get(format!("{INBOX}?{query}")).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], query.split('=').next().unwrap());
    }
    let read_all = || app.post(format!("{INBOX}/read-all"), json!({})).as_actor("user:operator").idempotency_key("all");
    assert_eq!(read_all().await.expect(200)["unread_count"], 0);
    assert_eq!(read_all().await.header("idempotency-replayed"), Some("true"));
    assert_eq!(count("status=unread").await.0, 0);
    let unread = app.get(format!("{INBOX}?status=unread")).await.expect(200);
    assert!(!unread.as_array().unwrap().is_empty(), "the inbox of another recipient stays as it is");
}

fn effective_preference(response: &Response, channel: &str) -> (bool, String) {
    let preferences = response.expect(200);
    let entry = preferences.as_array().unwrap().iter().find(|entry| entry["channel"] == channel).unwrap();
    (entry["enabled"].as_bool().unwrap(), entry["scope"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn preference_of_the_narrowest_scope_decides() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let workspace = format!("/v1/notifications/workspaces/{}", fixture.workspace);
    let workload = format!("{workspace}/workloads/{}", fixture.workload.workload_id);
    let environment = format!("{workload}/environments/dev");
    let effective = format!(
        "{PREFERENCES}/effective?category=incidents&workspace_id={}&workload_id={}&environment=dev",
        fixture.workspace, fixture.workload.workload_id
    );
    let explain = async || effective_preference(&app.get(&effective).await, "email");
    assert_eq!(explain().await, (false, "fallback".to_owned()));
    assert_eq!(effective_preference(&app.get(&effective).await, "portal"), (true, "fallback".to_owned()));
    let defaults = json!([
        { "profile_ref": "platform_admin", "category": "incidents", "channel": "email", "enabled": true },
        { "profile_ref": "viewer", "category": "incidents", "channel": "email", "enabled": false },
    ]);
    app.put(PROFILES, defaults).await.expect(200);
    assert_eq!(explain().await, (true, "default_profile".to_owned()));
    app.put(PREFERENCES, prefer("incidents", "email", false)).await.expect(200);
    assert_eq!(explain().await, (false, "global".to_owned()));
    app.put(format!("{workspace}/preferences"), prefer("incidents", "email", true)).await.expect(200);
    assert_eq!(explain().await, (true, "workspace".to_owned()));
    // Preferences of workloads and environments require the advanced tier.
    let (project, deepest) = (format!("{workload}/preferences"), format!("{environment}/preferences"));
    for path in [&project, &deepest] {
        for request in [app.get(path), app.put(path, prefer("incidents", "email", false))] {
            let refusal = request.await.expect_refusal(403, "enterprise_capability_required");
            assert_eq!(refusal["setting"], "advanced_notifications_enabled");
        }
    }
    set_tenant(&app, json!({ "advanced_notifications_enabled": true })).await;
    app.put(&project, prefer("incidents", "email", false)).await.expect(200);
    assert_eq!(explain().await, (false, "project".to_owned()));
    app.put(&deepest, prefer("incidents", "email", true)).await.expect(200);
    let unknown = format!("{workload}/environments/nowhere/preferences");
    for request in [app.get(&unknown), app.put(&unknown, prefer("incidents", "email", true))] {
        let refusal = request.await.expect_refusal(422, "validation_error");
        assert_eq!(
            (&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]),
            (&json!("environment"), &json!("not_found"))
        );
    }
    assert_eq!(explain().await, (true, "environment".to_owned()));
    assert_eq!(app.get(format!("{workload}/environments")).await.expect(200), json!(["dev"]));
    // Without the advanced tier, stored preferences of these scopes are ignored.
    set_tenant(&app, json!({ "advanced_notifications_enabled": false })).await;
    assert_eq!(explain().await, (true, "workspace".to_owned()));
    // Preferences of other people have no effect.
    assert_eq!(
        effective_preference(&app.get(&effective).as_actor("user:ada").await, "email"),
        (false, "fallback".to_owned())
    );
}

#[tokio::test]
async fn preferences_are_upserted_under_a_revision() {
    let app = TestApp::start().await;
    let unset = app.get(PREFERENCES).await;
    assert_eq!((unset.expect(200), unset.header("etag")), (json!([]), Some("\"0\"")));
    let stale_put = app.put(PREFERENCES, prefer("incidents", "email", true)).header("If-Match", "\"1\"");
    stale_put.await.expect_refusal(412, "precondition_failed");
    let first_response = app.put(PREFERENCES, prefer("incidents", "email", true)).header("If-Match", "\"0\"").await;
    assert_eq!(
        (first_response.expect(200), first_response.header("etag")),
        (prefer("incidents", "email", true), Some("\"1\""))
    );
    let second_response = app.put(PREFERENCES, prefer("reports", "portal", false)).header("If-Match", "\"1\"").await;
    assert_eq!(second_response.expect(200).as_array().unwrap().len(), 2, "the first one stays");
    let stale_put = app.put(PREFERENCES, prefer("reports", "portal", true)).header("If-Match", "\"0\"");
    stale_put.await.expect_refusal(412, "precondition_failed");
    let stale = app.put(PREFERENCES, prefer("reports", "portal", true)).header("If-Match", "\"1\"");
    stale.await.expect_refusal(412, "precondition_failed");
    let response = app.put(PREFERENCES, prefer("reports", "portal", false)).await;
    assert_eq!(response.header("etag"), Some("\"2\""), "an unchanged preference changes nothing");
    let response = app.get(PREFERENCES).await;
    assert_eq!((response.expect(200), response.header("etag")), (second_response.json(), Some("\"2\"")));
    assert_eq!(app.get(PREFERENCES).as_actor("user:ada").await.expect(200), json!([]));
    let entry = |enabled: Value| json!([{ "category": "incidents", "channel": "email", "enabled": enabled }]);
    let duplicate_entries = json!([entry(json!(true))[0], entry(json!(false))[0]]);
    for (body, path, code) in [
        (entry(Value::Null), "[0].enabled", "invalid"),
        (prefer("incident", "email", true), "[0].category", "invalid"),
        (prefer("incidents", "sms", true), "[0].channel", "invalid"),
        (duplicate_entries, "[1]", "duplicate_item"),
    ] {
        let refusal = app.put(PREFERENCES, body).await.expect_refusal(422, "validation_error");
        assert_eq!((&refusal["fields"][0]["path"], &refusal["fields"][0]["code"]), (&json!(path), &json!(code)));
    }
    let unknown = json!([{ "profile_ref": "boss", "category": "incidents", "channel": "email", "enabled": true }]);
    let refusal = app.put(PROFILES, unknown).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "[0].profile_ref");
}

/// Canonical JSON (RFC 8785) of a value with ASCII texts and integers only, as `docs/operations/audit.md` describes it.
fn canonical(value: &Value) -> String {
    let Value::Object(members) = value else { return value.to_string() };
    let mut members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{}", json!(name), canonical(value))).collect();
    members.sort();
    format!("{{{}}}", members.join(","))
}

fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The digest of a suppression record, computed from the response that contains the record.
fn digest_of(record: &Value) -> Value {
    let mut expected_record = record.clone();
    for member in ["record_digest", "audit_event_id"] {
        expected_record.as_object_mut().unwrap().remove(member).unwrap();
    }
    json!(format!("sha256:{}", sha256_hex(canonical(&expected_record))))
}

/// The leaf hash of an event without categories, computed from the response that contains the event.
fn leaf_of(event: &Value) -> Value {
    let mut entry = json!({ "fact_id": event["event_id"], "tenant_id": TENANT });
    for member in ["actor", "detail", "kind", "occurred_at", "request_id", "subject", "workspace_id"] {
        entry[member] = event[member].clone();
    }
    json!(sha256_hex(format!("\0{}", canonical(&entry))))
}

/// Waits for the audit event about a suppressed notification. Reads as an auditor of the workspace.
async fn suppression_event(app: &Client, record: &Value) -> Value {
    let subject = record["suppressed_decision_id"].as_str().unwrap();
    let query = format!("subject_id={subject}&workspace_id={}", record["workspace_id"].as_str().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let events = app.get(format!("/v1/audit/events?{query}")).as_actor("user:auditor").await.expect(200);
        if let [event] = &events.as_array().unwrap()[..] {
            assert_eq!((&event["event_id"], &event["subject"]["id"]), (&record["audit_event_id"], &json!(subject)));
            return event.clone();
        }
        assert!(Instant::now() < deadline, "the suppression is not in the log: {events}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn altered_record_of_a_suppression_contradicts_the_audit_log() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    app.put(PREFERENCES, prefer("incidents", "portal", false)).as_actor("user:operator").await.expect(200);
    let suspension = suspend(&fixture).await;
    let path = format!(
        "/v1/notifications/suppressed-decisions?recipient=user:operator&source_event_id={}",
        suspension["source_event"]["id"].as_str().unwrap()
    );
    let read_record = async || app.get(&path).as_actor("user:auditor").await.expect(200)[0].clone();
    let original_record = read_record().await;
    let event = suppression_event(&app, &original_record).await;
    assert_eq!(digest_of(&original_record), event["detail"]["digest"]);
    let owner = app.database().connect_as_owner().await.unwrap();
    owner.batch_execute("SET session_replication_role = replica").await.unwrap();
    let id = original_record["suppressed_decision_id"].as_str().unwrap();
    for (column, altered) in [
        ("category", "'executions'"),
        ("event_kind", "'workload.created'"),
        ("reason_code", "'default_profile_off'"),
        ("deciding_scope", "'workspace'"),
        ("deciding_revision", "2"),
        ("deciding_channel", "'email'"),
        ("unreachable_channels", "'{email}'"),
        ("workload_id", "NULL"),
        ("created_at", "created_at + interval '1 us'"),
    ] {
        let change =
            format!("UPDATE suppressed_decision SET {column} = {altered} WHERE suppressed_decision_id = '{id}'");
        owner
            .batch_execute(&format!(
                "CREATE TEMPORARY TABLE before AS SELECT {column} AS value FROM suppressed_decision
            WHERE suppressed_decision_id = '{id}'; {change}"
            ))
            .await
            .unwrap();
        let altered = read_record().await;
        assert_ne!(digest_of(&altered), event["detail"]["digest"], "{column}");
        assert_eq!(altered["record_digest"], digest_of(&altered), "{column}");
        owner
            .batch_execute(&format!(
                "UPDATE suppressed_decision SET {column} = (SELECT value FROM before)
            WHERE suppressed_decision_id = '{id}'; DROP TABLE before"
            ))
            .await
            .unwrap();
    }
    assert_eq!(read_record().await, original_record);
}

#[tokio::test]
async fn opt_out_leaves_one_record_whose_digest_is_in_the_audit_log() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    app.put(PREFERENCES, prefer("incidents", "portal", false)).as_actor("user:operator").await.expect(200);
    let suspension = suspend(&fixture).await;
    assert_eq!(notifications_about(&inbox(&app, "user:operator").await, &suspension).len(), 0);
    let path = format!("/v1/notifications/suppressed-decisions?workspace_id={}", fixture.workspace);
    let records = app.get(&path).as_actor("user:auditor").await.expect(200);
    let records: Vec<&Value> = records
        .as_array()
        .unwrap()
        .iter()
        .filter(|decision| decision["source_event"] == suspension["source_event"])
        .collect();
    let [record] = records[..] else { panic!("{records:?}") };
    assert_eq!(
        (&record["recipient"], &record["category"], &record["reason_code"], &record["scope"], &record["revision"]),
        (&json!("user:operator"), &json!("incidents"), &json!("preference_off"), &json!("global"), &json!(1))
    );
    let event = suppression_event(&app, record).await;
    assert_eq!(event["detail"]["digest"], digest_of(record), "an auditor recomputes the digest from the answer");
    assert_eq!((&record["record_digest"], leaf_of(&event)), (&event["detail"]["digest"], event["leaf_hash"].clone()));
    for (query, count) in [
        ("recipient=user:operator".to_owned(), 1),
        ("recipient=user:viewer".to_owned(), 0),
        (format!("source_event_id={}", record["source_event"]["id"].as_str().unwrap()), 1),
        (format!("source_event_id={}&recipient=user:operator", record["source_event"]["id"].as_str().unwrap()), 1),
        (format!("source_event_id={}", record["audit_event_id"].as_str().unwrap()), 0),
    ] {
        let found = app.get(format!("{path}&{query}")).as_actor("user:auditor").await.expect(200);
        let found = found.as_array().unwrap().iter().filter(|decision| decision == &record).count();
        assert_eq!(found, count, "{query}");
    }
    let refusal = app.get(format!("{path}&recipient=operator")).await.expect_refusal(422, "validation_error");
    assert_eq!(refusal["fields"][0]["path"], "recipient");
    // Callers that may not audit notifications get no records.
    for other_actor in ["user:operator", "user:viewer", "user:neighbour"] {
        app.get(&path).as_actor(other_actor).await.expect_refusal(403, "forbidden");
    }
    app.get(&path).as_actor("user:stranger").await.expect_refusal(404, "not_found");
    let own_list = app.get("/v1/notifications/suppressed-decisions").as_actor("user:stranger").await;
    assert_eq!(own_list.expect(200), json!([]));
}

#[tokio::test]
async fn only_channel_without_a_receiver_leaves_one_record() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    let both_preferences = json!([prefer("incidents", "portal", false)[0], prefer("incidents", "email", true)[0]]);
    app.put(PREFERENCES, both_preferences).as_actor("user:operator").await.expect(200);
    let records = async |suspension: &Value| {
        let event = suspension["source_event"]["id"].as_str().unwrap();
        let path = format!("/v1/notifications/suppressed-decisions?recipient=user:operator&source_event_id={event}");
        let found = app.get(path).as_actor("user:auditor").await.expect(200);
        found.as_array().unwrap().clone()
    };
    // The operator has never signed in, so there is no verified e-mail address.
    let suspension = suspend(&fixture).await;
    let found = records(&suspension).await;
    let [record] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (&record["reason_code"], &record["scope"], &record["channel"], &record["unreachable_channels"]),
        (&json!("preference_off"), &json!("global"), &json!("portal"), &json!(["email"]))
    );
    let event = suppression_event(&app, record).await;
    assert_eq!((&event["detail"]["digest"], &record["record_digest"]), (&digest_of(record), &digest_of(record)));
    // The list of deliveries shows the same failure, which is final without an attempt.
    let failed = app.get("/v1/notifications/deliveries?status=failed").await.expect(200);
    let about = |decision: &&Value| {
        decision["source_event"] == suspension["source_event"] && decision["recipient"] == "user:operator"
    };
    let failed: Vec<&Value> = failed.as_array().unwrap().iter().filter(about).collect();
    let [failed] = failed[..] else { panic!("{failed:?}") };
    assert_eq!((&failed["last_error"], &failed["attempt_count"]), (&json!("no_address"), &json!(0)));
    // With a verified address, the event causes a delivery and no suppression record.
    let owner = app.database().connect_as_owner().await.unwrap();
    let verified = format!(
        "INSERT INTO identity (tenant_id, identity_id, issuer, subject, actor, groups, email, first_seen_at,
            last_seen_at)
         VALUES ('{TENANT}', gen_random_uuid(), 'https://idp.example', 'operator', 'user:operator', '{{}}',
            'operator@example.org', now(), now())"
    );
    owner.batch_execute(&verified).await.unwrap();
    let suspension = suspend(&fixture).await;
    assert_eq!(records(&suspension).await, Vec::<Value>::new());
    let of_event = "SELECT count(*) FROM notification_delivery WHERE event_id = $1 AND recipient = 'user:operator'
        AND channel = 'email' AND last_error IS DISTINCT FROM 'no_address'";
    let event: uuid::Uuid = suspension["source_event"]["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(owner.query_one(of_event, &[&event]).await.unwrap().get::<_, i64>(0), 1);
}

#[tokio::test]
async fn disabled_notifications_are_refused_recorded_and_never_sent_later() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    bind_people(&fixture).await;
    suspend(&fixture).await;
    let count_before = inbox(&app, "user:operator").await.len();
    set_tenant(&app, json!({ "notifications_enabled": false })).await;
    for path in [INBOX, PREFERENCES, PROFILES, "/v1/notifications/suppressed-decisions"] {
        let refusal = app.get(path).await.expect_refusal(403, "enterprise_capability_required");
        assert_eq!(refusal["setting"], "notifications_enabled", "{path}");
    }
    app.get(format!("{PREFERENCES}/effective?category=incidents")).await.expect(200);
    set_status(&fixture, "registered").await;
    set_status(&fixture, "suspended").await;
    // The projector processes the log in order. Once a later fact is processed, the suspension is processed too.
    let owner = app.database().connect_as_owner().await.unwrap();
    let suppressed_sql = "SELECT count(*) FROM suppressed_decision
        WHERE reason_code = 'notifications_disabled' AND recipient = 'user:operator' AND event_kind = 'workload.changed'";
    let deadline = Instant::now() + Duration::from_secs(20);
    while owner.query_one(suppressed_sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "the suspension was not recorded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    set_tenant(&app, json!({ "notifications_enabled": true })).await;
    suspend(&fixture).await;
    assert_eq!(inbox(&app, "user:operator").await.len(), count_before + 1, "only the last suspension");
}
