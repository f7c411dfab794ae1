//! Share links: creation, use limits and revocation. The module `share_token` covers the access that tokens give.

use crate::support::workspace_fixture::{ECHO_FLOW, TENANT};
use fairway_testkit::{
    TestApp,
    app::{ActiveWorkload, Client, Request, Response},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{collections::BTreeMap, future::IntoFuture as _};

/// A created share link with its token.
pub(crate) struct CreatedLink {
    pub(crate) id: String,
    pub(crate) token: String,
}

pub(crate) fn links_path(workload: &ActiveWorkload) -> String {
    format!("/v1/workloads/{}/share-links", workload.workload_id)
}

pub(crate) async fn create_link(app: &Client, workload: &ActiveWorkload, terms: Value) -> CreatedLink {
    let created = app.post(links_path(workload), terms).await.expect(201);
    let text = |name: &str| created[name].as_str().unwrap().to_owned();
    CreatedLink { id: text("share_link_id"), token: text("token") }
}

/// An active workload that returns its ticket.
pub(crate) async fn active_echo_workload(app: &Client, slug: &str) -> ActiveWorkload {
    let fixtures = app.fixtures();
    let flow = fixtures.flow(&format!("{slug}-flow"), ECHO_FLOW).await;
    let policy = fixtures.allow_all_policy(&format!("{slug}-policy")).await;
    fixtures.active_workload_with_bindings(slug, vec![flow, policy]).await
}

pub(crate) async fn set_access_mode(app: &Client, workload: &ActiveWorkload, mode: &str) {
    let config = json!({ "interface_config": { "presentation_mode": "form", "access_mode": mode, "input_fields": [
        { "name": "ticket", "type": "text", "required": true },
    ] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), config).await.expect(200);
}

pub(crate) async fn create_shared_workload(app: &Client, slug: &str) -> ActiveWorkload {
    let workload = active_echo_workload(app, slug).await;
    set_access_mode(app, &workload, "link_shared").await;
    workload
}

pub(crate) fn run_request(app: &Client, workload: &ActiveWorkload, token: &str) -> Request {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    app.post(format!("{}?token={token}", workload.execute_path()), body)
}

pub(crate) async fn use_count(app: &Client, workload: &ActiveWorkload, link: &CreatedLink) -> Value {
    let listed = app.get(links_path(workload)).await.expect(200);
    let found = listed.as_array().unwrap().iter().find(|row| row["share_link_id"] == *link.id).unwrap().clone();
    found["use_count"].clone()
}

pub(crate) async fn query_number(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn creates_lists_and_revokes_a_link() {
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let links = links_path(&workload);
    assert_eq!(app.get(&links).await.expect(200), json!([]));
    let response = app.post(&links, json!({})).await;
    let first_link = response.expect(201);
    let (id, token) = (first_link["share_link_id"].as_str().unwrap(), first_link["token"].as_str().unwrap());
    assert_eq!(response.header("location"), Some(format!("{links}/{id}").as_str()));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let mut expected = json!({
        "share_link_id": id, "workload_id": workload.workload_id, "label": null, "lane": null, "max_uses": 1,
        "use_count": 0, "expires_at": first_link["expires_at"], "revoked": false, "created_at": first_link["created_at"],
        "created_by": "user:local", "token": token,
    });
    assert_eq!(first_link, expected);
    let tenant = TENANT.replace('-', "");
    let secret = token.strip_prefix(&format!("fws_{tenant}_")).unwrap();
    assert_eq!(secret.len(), 43);
    let hours = "SELECT count(*) FROM share_link WHERE expires_at BETWEEN now() + interval '23 hours 59 minutes'
        AND now() + interval '24 hours'";
    assert_eq!(query_number(&app, hours).await, 1);
    let terms = json!({ "ttl_hours": 720, "max_uses": 10_000, "label": "For Tina", "lane": "guided" });
    let second_response = app.post(&links, terms).await.expect(201);
    assert_eq!(
        (&second_response["label"], &second_response["lane"], &second_response["max_uses"]),
        (&json!("For Tina"), &json!("guided"), &json!(10_000))
    );
    // The list contains all fields except tokens.
    let listed = app.get(&links).await;
    assert!(!listed.text().contains("fws_") && !listed.text().contains(secret));
    expected.as_object_mut().unwrap().remove("token");
    assert_eq!(listed.expect(200)[1], expected);
    assert_eq!(listed.json()[0]["share_link_id"], second_response["share_link_id"]);
    // The resource at `Location` has the same fields. The link is not found under another workload.
    let other_workload = app.fixtures().workload("other").await;
    let response = app.get(format!("{links}/{id}")).await;
    assert_eq!(response.expect(200), expected);
    app.get(format!("/v1/workloads/{other_workload}/share-links/{id}")).await.expect_refusal(404, "not_found");
    // A link can be revoked once, and only under its own workload.
    app.delete(format!("/v1/workloads/{other_workload}/share-links/{id}")).await.expect_refusal(404, "not_found");
    app.delete(format!("{links}/{id}")).await.expect(204);
    app.delete(format!("{links}/{id}")).await.expect_refusal(404, "not_found");
    assert_eq!(app.get(&links).await.expect(200)[1]["revoked"], true);
    assert_eq!(app.get(format!("{links}/{id}")).await.expect(200)["revoked"], true);
    let facts = "SELECT kind, convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'share\\_link.%' ORDER BY fact_id";
    let rows = app.database().connect_as_owner().await.unwrap().query(facts, &[]).await.unwrap();
    let details: Vec<(&str, Value)> = rows
        .iter()
        .map(|row| (row.get(0), serde_json::from_str::<Value>(row.get(1)).unwrap()["detail"].clone()))
        .collect();
    let link_terms = |ttl_hours: u32, max_uses: u32, lane: Value| json!({ "workload_id": workload.workload_id, "ttl_hours": ttl_hours, "max_uses": max_uses, "lane": lane });
    assert_eq!(
        details,
        [
            ("share_link.created", link_terms(24, 1, Value::Null)),
            ("share_link.created", link_terms(720, 10_000, json!("guided"))),
            ("share_link.revoked", json!({ "workload_id": workload.workload_id })),
        ]
    );
}

#[tokio::test]
async fn rejects_link_terms_out_of_bounds() {
    let app = TestApp::start().await;
    let workload = app.fixtures().workload("main").await;
    let links = format!("/v1/workloads/{workload}/share-links");
    for (name, values) in [
        ("ttl_hours", vec![json!(0), json!(-1), json!(721), json!(1_000_000_000), json!(1.5), json!("24")]),
        ("max_uses", vec![json!(0), json!(-1), json!(10_001), json!(1_u64 << 31), json!(1_u64 << 40), json!([1])]),
        ("label", vec![json!(""), json!(" "), json!("a\nb"), json!("a\u{202e}b"), json!("x".repeat(201)), json!(1)]),
        ("lane", vec![json!("all"), json!("Guided"), json!(1)]),
        ("token", vec![json!("mine")]),
        ("use_count", vec![json!(0)]),
    ] {
        for value in values {
            let refusal = app.post(&links, json!({ name: value })).await.expect_refusal(422, "validation_error");
            assert_eq!(refusal["fields"][0]["path"], name, "{value}");
        }
    }
    for terms in [json!({ "ttl_hours": 1, "max_uses": 1 }), json!({ "ttl_hours": 720, "max_uses": 10_000 })] {
        app.post(&links, terms).await.expect(201);
    }
    assert_eq!(query_number(&app, "SELECT count(*) FROM share_link").await, 2);
}

#[tokio::test]
async fn refused_tokens_report_the_first_applicable_reason() {
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let page = |token: &str| app.get(format!("/v1/workloads/by-slug/main?token={token}"));
    app.get("/v1/workloads/by-slug/main").await.expect_refusal(401, "share_token_required");
    app.get("/v1/workloads/by-slug/main").as_actor("anonymous").await.expect_refusal(401, "share_token_required");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    app.post(workload.execute_path(), body.clone()).await.expect_refusal(401, "share_token_required");
    let none = app.post(workload.execute_path(), body).as_actor("anonymous").await;
    none.expect_refusal(401, "share_token_required");
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let link = create_link(&app, &workload, json!({ "ttl_hours": 1 })).await;
    let response = run_request(&app, &workload, &link.token).await.expect(200);
    let run_path = format!("/v1/executions/{}?token={}", response["execution_id"].as_str().unwrap(), link.token);
    // An exhausted link starts no further run. The workload's page and the existing run remain readable.
    run_request(&app, &workload, &link.token).await.expect_refusal(401, "share_token_exhausted");
    page(&link.token).await.expect(200);
    app.get(&run_path).await.expect(200);
    // The token is checked before the inputs, so the refusal is about the token.
    let wrong_body = json!({ "environment": "dev", "inputs": { "tocket": 1 } });
    let wrong_response = app.post(format!("{}?token={}", workload.execute_path(), link.token), wrong_body).await;
    wrong_response.expect_refusal(401, "share_token_exhausted");
    app.database().set_clock_offset(60 * 60 + 1).await.unwrap();
    let assert_all_refused = |code: &'static str| {
        let requests = [run_request(&app, &workload, &link.token), page(&link.token), app.get(&run_path)];
        async move {
            for request in requests {
                request.await.expect_refusal(401, code);
            }
        }
    };
    assert_all_refused("share_token_expired").await;
    app.delete(format!("{}/{}", links_path(&workload), link.id)).await.expect(204);
    assert_all_refused("share_token_revoked").await;
    app.database().set_clock_offset(0).await.unwrap();
    assert_all_refused("share_token_revoked").await;
    // A caller that may view runs can still read the run.
    app.get(run_path.split('?').next().unwrap()).await.expect(200);
}

#[tokio::test]
async fn refused_runs_consume_no_use() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let rules = json!([{ "id": "r", "condition": "inputs.ticket == 'yes'", "outcome": "allow", "reason_code": "ok" }]);
    let (flow, policy) = (fixtures.flow("f", ECHO_FLOW).await, fixtures.policy_with_rules("p", rules).await);
    let workload = fixtures.active_workload_with_bindings("main", vec![flow, policy]).await;
    set_access_mode(&app, &workload, "link_shared").await;
    let link = create_link(&app, &workload, json!({ "max_uses": 1 })).await;
    let ask = |inputs: Value| {
        let body = json!({ "environment": "dev", "inputs": inputs });
        app.post(format!("{}?token={}", workload.execute_path(), link.token), body)
    };
    ask(json!({})).await.expect_refusal(422, "validation_error");
    ask(json!({ "ticket": 1 })).await.expect_refusal(422, "validation_error");
    let denied_response = ask(json!({ "ticket": "no" })).idempotency_key("d").await;
    let denial = denied_response.expect_refusal(403, "policy_denied");
    let body = json!({ "environment": "test", "inputs": { "ticket": "yes" } });
    let response = app.post(format!("{}?token={}", workload.execute_path(), link.token), body).await;
    response.expect_refusal(409, "no_active_release");
    let status =
        |status: &str| app.patch(format!("/v1/workloads/{}", workload.workload_id), json!({ "status": status }));
    status("suspended").await.expect(200);
    ask(json!({ "ticket": "yes" })).await.expect_refusal(409, "workload_suspended");
    status("registered").await.expect(200);
    assert_eq!(use_count(&app, &workload, &link).await, 0);
    // A replay returns only the identifier and the state of the run.
    let replay = ask(json!({ "ticket": "no" })).idempotency_key("d").await;
    let detail = replay.expect_refusal(403, "policy_denied");
    assert_eq!(
        (&detail["execution_id"], &detail["state"], detail.get("reason_code")),
        (&denial["execution_id"], &json!("denied"), None)
    );
    let first_response = ask(json!({ "ticket": "yes" })).idempotency_key("k").await.expect(200);
    let replay = ask(json!({ "ticket": "yes" })).idempotency_key("k").await;
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    assert_eq!(replay.expect(200), json!({ "execution_id": first_response["execution_id"], "state": "completed" }));
    ask(json!({ "ticket": "yes" })).idempotency_key("other").await.expect_refusal(401, "share_token_exhausted");
    ask(json!({ "ticket": "yeah" })).idempotency_key("k").await.expect_refusal(409, "idempotency_key_conflict");
    assert_eq!(use_count(&app, &workload, &link).await, 1);
    // A refused request does not consume its idempotency key.
    let keys = "SELECT count(*) FROM idempotency_key WHERE caller LIKE 'share_link:%'";
    assert_eq!(query_number(&app, keys).await, 2);
}

fn count_outcomes(responses: &[Response]) -> BTreeMap<(u16, String), usize> {
    let mut status_counts = BTreeMap::new();
    for response in responses {
        *status_counts.entry((response.status, response.code())).or_default() += 1;
    }
    status_counts
}

/// Two servers on one database respect the limit and the revocation of a share link (promise R12 in
/// `docs/security.md`). This is the short form of the test.
#[tokio::test]
async fn uses_stay_within_the_cap_and_revocations_apply_to_all_servers() {
    const MANY: usize = 50;
    let app = TestApp::start().await;
    let second_server = TestApp::builder().sharing_storage_of(&app).start().await;
    let workload = create_shared_workload(&app, "main").await;
    let servers: [&Client; 2] = [&app, &second_server];
    for cap in [1, 5] {
        for keyed in [false, true] {
            let link = create_link(&app, &workload, json!({ "max_uses": cap })).await;
            let ask = |number: usize| {
                let request = run_request(servers[number % 2], &workload, &link.token);
                if keyed { request.idempotency_key(&format!("{cap}-{number}")) } else { request }
            };
            let responses = join_all((0..MANY).map(|number| ask(number).into_future())).await;
            let expected =
                BTreeMap::from([((200, String::new()), cap), ((401, "share_token_exhausted".to_owned()), MANY - cap)]);
            assert_eq!(count_outcomes(&responses), expected);
            assert_eq!(use_count(&app, &workload, &link).await, cap);
            let sql = format!("SELECT count(*) FROM execution WHERE share_link_id = '{}'", link.id);
            assert_eq!(query_number(&app, &sql).await, i64::try_from(cap).unwrap());
        }
    }
    // Requests continue during the revocation. After its response, no further request is accepted.
    let link = create_link(&app, &workload, json!({ "max_uses": 10_000 })).await;
    let concurrent_runs =
        join_all((0..MANY).map(|number| run_request(servers[number % 2], &workload, &link.token).into_future()));
    let revoked = async {
        app.delete(format!("{}/{}", links_path(&workload), link.id)).await.expect(204);
        let later_runs = (0..MANY).map(|number| run_request(servers[number % 2], &workload, &link.token).into_future());
        count_outcomes(&join_all(later_runs).await)
    };
    let (concurrent_responses, later_responses) = futures_util::future::join(concurrent_runs, revoked).await;
    assert_eq!(later_responses, BTreeMap::from([((401, "share_token_revoked".to_owned()), MANY)]));
    let accepted = concurrent_responses.iter().filter(|response| response.status == 200).count();
    assert!(
        concurrent_responses.iter().all(|response| response.status == 200 || response.code() == "share_token_revoked"),
        "{concurrent_responses:?}"
    );
    assert_eq!(use_count(&app, &workload, &link).await, accepted);
}

/// A run that waited, for example in the queue, can check whether its link was revoked in the meantime.
#[tokio::test]
async fn run_reports_the_revocation_of_its_link() {
    use fairway_domain::{id::ExecutionId, share_link::ShareLinkStore as _, tenant::TenantScope};
    let app = TestApp::start().await;
    let workload = create_shared_workload(&app, "main").await;
    let link = create_link(&app, &workload, json!({})).await;
    let response = run_request(&app, &workload, &link.token).await.expect(200);
    let id: ExecutionId = response["execution_id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap().into();
    let scope = TenantScope::for_background_task(TENANT.parse::<uuid::Uuid>().unwrap().into());
    let options = fairway_postgres::DatabaseOptions {
        url: app.database().url_for_owner(),
        connections: 1,
        result_retention: std::time::Duration::from_secs(60),
    };
    let store = fairway_postgres::Database::new(&options).unwrap();
    assert!(!store.is_run_revoked(scope, id).await.unwrap());
    // A link that is expired or exhausted does not count as revoked.
    app.database().set_clock_offset(25 * 60 * 60).await.unwrap();
    assert!(!store.is_run_revoked(scope, id).await.unwrap());
    app.delete(format!("{}/{}", links_path(&workload), link.id)).await.expect(204);
    assert!(store.is_run_revoked(scope, id).await.unwrap());
}
