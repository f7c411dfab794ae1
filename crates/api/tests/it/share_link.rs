//! Share links: a token opens one workload, for a time and a number of runs, and nothing else.

use crate::{
    overheard::Overheard,
    stage::{ECHO_FLOW, Stage, TENANT},
};
use fairway_testkit::{
    TestApp, TestDatabase,
    app::{ActiveWorkload, Answer, Client, Request},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::{collections::BTreeMap, future::IntoFuture as _};

/// A link that was made.
struct Made {
    id: String,
    token: String,
}

fn links(workload: &ActiveWorkload) -> String {
    format!("/v1/workloads/{}/share-links", workload.workload_id)
}

async fn made(app: &Client, workload: &ActiveWorkload, terms: Value) -> Made {
    let made = app.post(links(workload), terms).await.expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    Made { id: text("share_link_id"), token: text("token") }
}

/// A workload that returns its ticket.
async fn echoing(app: &Client, slug: &str) -> ActiveWorkload {
    let given = app.given();
    let flow = given.flow(&format!("{slug}-flow"), ECHO_FLOW).await;
    let policy = given.policy(&format!("{slug}-policy")).await;
    given.active_with(slug, vec![flow, policy]).await
}

async fn open(app: &Client, workload: &ActiveWorkload, mode: &str) {
    let config = json!({ "interface_config": { "presentation_mode": "form", "access_mode": mode, "input_fields": [
        { "name": "ticket", "type": "text", "required": true },
    ] } });
    app.patch(format!("/v1/workloads/{}", workload.workload_id), config).await.expect(200);
}

async fn shared(app: &Client, slug: &str) -> ActiveWorkload {
    let workload = echoing(app, slug).await;
    open(app, &workload, "link_shared").await;
    workload
}

fn run(app: &Client, workload: &ActiveWorkload, token: &str) -> Request {
    let body = json!({ "environment": "dev", "inputs": { "ticket": "a refund" } });
    app.post(format!("{}?token={token}", workload.execute_path()), body)
}

async fn uses(app: &Client, workload: &ActiveWorkload, link: &Made) -> Value {
    let listed = app.get(links(workload)).await.expect(200);
    let found = listed.as_array().unwrap().iter().find(|row| row["share_link_id"] == *link.id).unwrap().clone();
    found["use_count"].clone()
}

async fn number(app: &TestApp, sql: &str) -> i64 {
    app.database().owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_link_is_made_listed_and_taken_back() {
    let app = TestApp::start().await;
    let workload = shared(&app, "main").await;
    let links = links(&workload);
    assert_eq!(app.get(&links).await.expect(200), json!([]));
    let answer = app.post(&links, json!({})).await;
    let first = answer.expect(201);
    let (id, token) = (first["share_link_id"].as_str().unwrap(), first["token"].as_str().unwrap());
    assert_eq!(answer.header("location"), Some(format!("{links}/{id}").as_str()));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let mut expected = json!({
        "share_link_id": id, "workload_id": workload.workload_id, "label": null, "lane": null, "max_uses": 1,
        "use_count": 0, "expires_at": first["expires_at"], "revoked": false, "created_at": first["created_at"],
        "created_by": "user:local", "token": token,
    });
    assert_eq!(first, expected);
    let tenant = TENANT.replace('-', "");
    let secret = token.strip_prefix(&format!("fws_{tenant}_")).unwrap();
    assert_eq!(secret.len(), 43);
    let hours = "SELECT count(*) FROM share_link WHERE expires_at BETWEEN now() + interval '23 hours 59 minutes'
        AND now() + interval '24 hours'";
    assert_eq!(number(&app, hours).await, 1);
    let terms = json!({ "ttl_hours": 720, "max_uses": 10_000, "label": "For Tina", "lane": "guided" });
    let second = app.post(&links, terms).await.expect(201);
    assert_eq!(
        (&second["label"], &second["lane"], &second["max_uses"]),
        (&json!("For Tina"), &json!("guided"), &json!(10_000))
    );
    // The list knows everything but the tokens.
    let listed = app.get(&links).await;
    assert!(!listed.text().contains("fws_") && !listed.text().contains(secret));
    expected.as_object_mut().unwrap().remove("token");
    assert_eq!(listed.expect(200)[1], expected);
    assert_eq!(listed.json()[0]["share_link_id"], second["share_link_id"]);
    // Taken back once, at its own workload.
    let other = app.given().workload("other").await;
    app.delete(format!("/v1/workloads/{other}/share-links/{id}")).await.refused(404, "not_found");
    app.delete(format!("{links}/{id}")).await.expect(204);
    app.delete(format!("{links}/{id}")).await.refused(404, "not_found");
    assert_eq!(app.get(&links).await.expect(200)[1]["revoked"], true);
    let facts = "SELECT kind, convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'share\\_link.%' ORDER BY fact_id";
    let rows = app.database().owner().await.unwrap().query(facts, &[]).await.unwrap();
    let told: Vec<(&str, Value)> = rows
        .iter()
        .map(|row| (row.get(0), serde_json::from_str::<Value>(row.get(1)).unwrap()["detail"].clone()))
        .collect();
    let of = |ttl_hours: u32, max_uses: u32, lane: Value| json!({ "workload_id": workload.workload_id, "ttl_hours": ttl_hours, "max_uses": max_uses, "lane": lane });
    assert_eq!(
        told,
        [
            ("share_link.created", of(24, 1, Value::Null)),
            ("share_link.created", of(720, 10_000, json!("guided"))),
            ("share_link.revoked", json!({ "workload_id": workload.workload_id })),
        ]
    );
}

#[tokio::test]
async fn what_a_link_may_be_has_bounds() {
    let app = TestApp::start().await;
    let workload = app.given().workload("main").await;
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
            let refused = app.post(&links, json!({ name: value })).await.refused(422, "validation_error");
            assert_eq!(refused["fields"][0]["path"], name, "{value}");
        }
    }
    for terms in [json!({ "ttl_hours": 1, "max_uses": 1 }), json!({ "ttl_hours": 720, "max_uses": 10_000 })] {
        app.post(&links, terms).await.expect(201);
    }
    assert_eq!(number(&app, "SELECT count(*) FROM share_link").await, 2);
}

#[tokio::test]
async fn a_token_opens_its_workload_and_starts_its_runs() {
    let app = TestApp::start().await;
    let workload = shared(&app, "main").await;
    let link = made(&app, &workload, json!({ "max_uses": 3, "lane": "restricted" })).await;
    let page = format!("/v1/workloads/by-slug/main?token={}", link.token);
    assert_eq!(app.get(&page).await.expect(200)["slug"], "main");
    app.get("/v1/workloads/by-slug/main").header("X-Share-Token", &link.token).await.expect(200);
    app.get(&page).header("X-Share-Token", &link.token).await.expect(200);
    let other = made(&app, &workload, json!({})).await;
    let both = app.get(&page).header("X-Share-Token", &other.token).await.refused(422, "validation_error");
    assert_eq!(both["fields"][0]["path"], "token");
    app.get(&page)
        .header("X-Share-Token", &link.token)
        .header("X-Share-Token", &link.token)
        .await
        .refused(422, "validation_error");
    app.get(format!("{page}&token={}", link.token)).await.refused(422, "validation_error");
    let ran = run(&app, &workload, &link.token).await.expect(200);
    assert_eq!((&ran["status"], &ran["output"]), (&json!("completed"), &json!("a refund")));
    assert_eq!(ran.get("result_token"), None);
    let path = format!("/v1/executions/{}", ran["execution_id"].as_str().unwrap());
    let seen = app.get(format!("{path}?token={}", link.token)).await.expect(200);
    assert_eq!(seen["submitted_by"], format!("share_link:{}", link.id));
    assert_eq!(
        (&seen["queued_result"]["result"], &seen["lane"], &seen["steps"]),
        (&json!("a refund"), &json!("restricted"), &Value::Null)
    );
    // Another link's holder, and somebody without one, are not its holder.
    app.get(format!("{path}?token={}", other.token)).await.refused(404, "not_found");
    app.get(&path).as_actor("anonymous").await.refused(404, "not_found");
    assert_eq!(app.get(&path).await.expect(200)["queued_result"], Value::Null);
    // A name beside the token: the run is the name's, and costs a use as well.
    let named = run(&app, &workload, &link.token).as_actor("user:ada").await.expect(200);
    let path = format!("/v1/executions/{}", named["execution_id"].as_str().unwrap());
    assert_eq!(app.get(&path).as_actor("user:ada").await.expect(200)["submitted_by"], "user:ada");
    app.get(format!("{path}?token={}", link.token)).await.refused(404, "not_found");
    assert_eq!(uses(&app, &workload, &link).await, 2);
    // A lane of one's own takes a permission that no link gives.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" }, "lane": "standard" });
    let chosen = app.post(format!("{}?token={}", workload.execute_path(), link.token), body).await;
    assert_eq!(chosen.refused(403, "forbidden")["permission"], "release.transition");
    assert_eq!(uses(&app, &workload, &link).await, 2);
    // What a link brought about stands on the run.
    let sql = format!("SELECT count(*) FROM execution WHERE share_link_id = '{}'", link.id);
    assert_eq!(number(&app, &sql).await, 2);
}

#[tokio::test]
async fn the_lane_of_a_link_serves_its_runs() {
    let app = TestApp::start().await;
    let workload = shared(&app, "main").await;
    let careful = app.given().approved(&workload.workload_id, &workload.versions).await;
    let body = json!({ "to_state": "active", "lane": "restricted" });
    app.post(format!("/v1/releases/{careful}/transition"), body).await.expect(200);
    for (lane, expected) in
        [(json!("restricted"), "restricted"), (json!(null), "standard"), (json!("guided"), "guided")]
    {
        let link = made(&app, &workload, json!({ "lane": lane })).await;
        let ran = run(&app, &workload, &link.token).await.expect(200);
        let path = format!("/v1/executions/{}?token={}", ran["execution_id"].as_str().unwrap(), link.token);
        let seen = app.get(path).await.expect(200);
        assert_eq!(seen["lane"], expected);
        assert_eq!(seen["release_id"] == *careful, expected == "restricted");
    }
}

#[tokio::test]
async fn every_reason_has_its_code_and_the_first_is_told() {
    let app = TestApp::start().await;
    let workload = shared(&app, "main").await;
    let page = |token: &str| app.get(format!("/v1/workloads/by-slug/main?token={token}"));
    app.get("/v1/workloads/by-slug/main").await.refused(401, "share_token_required");
    app.get("/v1/workloads/by-slug/main").as_actor("anonymous").await.refused(401, "share_token_required");
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    app.post(workload.execute_path(), body.clone()).await.refused(401, "share_token_required");
    let none = app.post(workload.execute_path(), body).as_actor("anonymous").await;
    none.refused(401, "share_token_required");
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let link = made(&app, &workload, json!({ "ttl_hours": 1 })).await;
    let ran = run(&app, &workload, &link.token).await.expect(200);
    let read = format!("/v1/executions/{}?token={}", ran["execution_id"].as_str().unwrap(), link.token);
    // Used up: no further run, and everything else stays readable.
    run(&app, &workload, &link.token).await.refused(401, "share_token_exhausted");
    page(&link.token).await.expect(200);
    app.get(&read).await.expect(200);
    // Before it is known what for.
    let wrong = json!({ "environment": "dev", "inputs": { "tocket": 1 } });
    let wrong = app.post(format!("{}?token={}", workload.execute_path(), link.token), wrong).await;
    wrong.refused(401, "share_token_exhausted");
    app.database().move_clock(60 * 60 + 1).await.unwrap();
    let all = |code: &'static str| {
        let requests = [run(&app, &workload, &link.token), page(&link.token), app.get(&read)];
        async move {
            for request in requests {
                request.await.refused(401, code);
            }
        }
    };
    all("share_token_expired").await;
    app.delete(format!("{}/{}", links(&workload), link.id)).await.expect(204);
    all("share_token_revoked").await;
    app.database().move_clock(0).await.unwrap();
    all("share_token_revoked").await;
    // Whoever may see runs still sees this one.
    app.get(read.split('?').next().unwrap()).await.expect(200);
}

/// T29: a token opens one workload, and only there.
#[tokio::test]
async fn a_token_grants_that_workload_and_nothing_else() {
    let app = TestApp::start().await;
    let stage = Stage::set(&app).await;
    let workload = shared(&app, "shared").await;
    let other = shared(&app, "other").await;
    open(&app, &other, "authenticated").await;
    let link = made(&app, &workload, json!({ "max_uses": 5 })).await;
    let token = &link.token;
    run(&app, &other, token).await.refused(401, "share_token_invalid");
    app.get(format!("/v1/workloads/by-slug/other?token={token}")).await.refused(401, "share_token_invalid");
    // A slug that nobody has is answered like one that the link does not open.
    app.get(format!("/v1/workloads/by-slug/nobodys?token={token}")).await.refused(401, "share_token_invalid");
    let nobodys = ActiveWorkload { slug: "nobodys".to_owned(), ..other.clone() };
    run(&app, &nobodys, token).await.refused(401, "share_token_invalid");
    // With a name that may see the other one it opens no more.
    run(&app, &other, token).as_actor("user:local").await.refused(401, "share_token_invalid");
    // Everywhere else a token is nobody, and a name beside it is that name.
    let tokened = |request: Request| request.header("X-Share-Token", token);
    for operation in [
        "list_workloads",
        "read_workload",
        "list_executions",
        "list_share_links",
        "create_share_link",
        "revoke_share_link",
        "create_workload",
        "read_evidence_graph",
        "list_audit_events",
        "read_active_release",
    ] {
        tokened(stage.request(operation).await).await.refused(401, "share_token_invalid");
        let named = tokened(stage.request(operation).await).as_actor("anonymous").await;
        assert!([403, 404].contains(&named.status), "{named}");
    }
    tokened(app.get(links(&workload))).await.refused(401, "share_token_invalid");
    tokened(app.get(format!("/v1/workloads/{}", workload.workload_id))).await.refused(401, "share_token_invalid");
    tokened(app.get(format!("/v1/executions/{}", stage.execution))).await.refused(404, "not_found");
    // Another tenant's name for it, and another tenant.
    let abroad = app.given().tenant("abroad").await;
    let moved = token.replace(&TENANT.replace('-', ""), &abroad.replace('-', ""));
    run(&app, &workload, &moved).await.refused(401, "share_token_invalid");
    run(&app, &workload, token).in_tenant(&abroad).await.refused(404, "not_found");
    // Other spellings are other tokens.
    let last = &token[token.len() - 1..];
    let variants = [
        String::new(),
        "%20".to_owned(),
        format!("{token}%20"),
        format!("%20{token}"),
        format!("+{token}"),
        token.to_uppercase(),
        token[1..].to_owned(),
        token[..token.len() - 1].to_owned(),
        format!("{token}{last}"),
        format!("{token}="),
        token.replacen("fws_", "FWS_", 1),
        token.replacen("fws_", "fwr_", 1),
        format!("{token},{token}"),
        link.id.clone(),
        "x".repeat(2_000),
    ];
    for variant in variants {
        run(&app, &workload, &variant).await.refused(401, "share_token_invalid");
    }
    // The same bytes, percent-encoded, are the same token.
    let encoded: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
    assert_eq!(uses(&app, &workload, &link).await, 0);
    run(&app, &workload, &encoded).await.expect(200);
    assert_eq!(uses(&app, &workload, &link).await, 1);
}

#[tokio::test]
async fn a_link_stands_in_for_a_session() {
    let app = TestApp::start().await;
    let abroad = Stage::set_abroad(&app).await;
    let path = format!("/v1/workloads/{}/share-links", abroad.workload.workload_id);
    let link = app.post(path, json!({})).in_tenant(&abroad.tenant).await.expect(201);
    let token = link["token"].as_str().unwrap();
    // In the token's tenant, whoever asks.
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let run = app.post(format!("{}?token={token}", abroad.workload.execute_path()), body.clone()).await.expect(200);
    let read = app.get(format!("/v1/executions/{}?token={token}", run["execution_id"].as_str().unwrap()));
    assert!(!read.await.expect(200)["queued_result"]["result"].is_null());
    app.post(abroad.workload.execute_path(), body).as_actor("anonymous").await.refused(404, "not_found");
}

#[tokio::test]
async fn what_is_refused_costs_no_use() {
    let app = TestApp::start().await;
    let given = app.given();
    let rules = json!([{ "id": "r", "condition": "inputs.ticket == 'yes'", "outcome": "allow", "reason_code": "ok" }]);
    let (flow, policy) = (given.flow("f", ECHO_FLOW).await, given.policy_of("p", rules).await);
    let workload = given.active_with("main", vec![flow, policy]).await;
    open(&app, &workload, "link_shared").await;
    let link = made(&app, &workload, json!({ "max_uses": 1 })).await;
    let ask = |inputs: Value| {
        let body = json!({ "environment": "dev", "inputs": inputs });
        app.post(format!("{}?token={}", workload.execute_path(), link.token), body)
    };
    ask(json!({})).await.refused(422, "validation_error");
    ask(json!({ "ticket": 1 })).await.refused(422, "validation_error");
    let denied = ask(json!({ "ticket": "no" })).key("d").await;
    let denied = denied.refused(403, "policy_denied");
    let body = json!({ "environment": "test", "inputs": { "ticket": "yes" } });
    let nowhere = app.post(format!("{}?token={}", workload.execute_path(), link.token), body).await;
    nowhere.refused(409, "no_active_release");
    let status =
        |status: &str| app.patch(format!("/v1/workloads/{}", workload.workload_id), json!({ "status": status }));
    status("suspended").await.expect(200);
    ask(json!({ "ticket": "yes" })).await.refused(409, "workload_suspended");
    status("registered").await.expect(200);
    assert_eq!(uses(&app, &workload, &link).await, 0);
    // The key's run is named again, and nothing more.
    let again = ask(json!({ "ticket": "no" })).key("d").await;
    let detail = again.refused(403, "policy_denied");
    assert_eq!(
        (&detail["execution_id"], &detail["state"], detail.get("reason_code")),
        (&denied["execution_id"], &json!("denied"), None)
    );
    let first = ask(json!({ "ticket": "yes" })).key("k").await.expect(200);
    let again = ask(json!({ "ticket": "yes" })).key("k").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.expect(200), json!({ "execution_id": first["execution_id"], "state": "completed" }));
    ask(json!({ "ticket": "yes" })).key("other").await.refused(401, "share_token_exhausted");
    ask(json!({ "ticket": "yeah" })).key("k").await.refused(409, "idempotency_key_conflict");
    assert_eq!(uses(&app, &workload, &link).await, 1);
    // A key that was refused is free.
    let keys = "SELECT count(*) FROM idempotency_key WHERE caller LIKE 'share_link:%'";
    assert_eq!(number(&app, keys).await, 2);
}

fn tally(answers: &[Answer]) -> BTreeMap<(u16, String), usize> {
    let mut all = BTreeMap::new();
    for answer in answers {
        *all.entry((answer.status, answer.code())).or_default() += 1;
    }
    all
}

/// R12, in short: two servers over one database.
#[tokio::test]
async fn uses_never_exceed_the_cap_and_a_revocation_holds_at_once_everywhere() {
    const MANY: usize = 50;
    let app = TestApp::start().await;
    let twin = TestApp::builder().beside(&app).start().await;
    let workload = shared(&app, "main").await;
    let servers: [&Client; 2] = [&app, &twin];
    for cap in [1, 5] {
        for keyed in [false, true] {
            let link = made(&app, &workload, json!({ "max_uses": cap })).await;
            let ask = |number: usize| {
                let request = run(servers[number % 2], &workload, &link.token);
                if keyed { request.key(&format!("{cap}-{number}")) } else { request }
            };
            let answers = join_all((0..MANY).map(|number| ask(number).into_future())).await;
            let expected =
                BTreeMap::from([((200, String::new()), cap), ((401, "share_token_exhausted".to_owned()), MANY - cap)]);
            assert_eq!(tally(&answers), expected);
            assert_eq!(uses(&app, &workload, &link).await, cap);
            let sql = format!("SELECT count(*) FROM execution WHERE share_link_id = '{}'", link.id);
            assert_eq!(number(&app, &sql).await, i64::try_from(cap).unwrap());
        }
    }
    // Runs go on while the link is taken back: none is accepted that was asked for after the answer.
    let link = made(&app, &workload, json!({ "max_uses": 10_000 })).await;
    let during = join_all((0..MANY).map(|number| run(servers[number % 2], &workload, &link.token).into_future()));
    let revoked = async {
        app.delete(format!("{}/{}", links(&workload), link.id)).await.expect(204);
        let after = (0..MANY).map(|number| run(servers[number % 2], &workload, &link.token).into_future());
        tally(&join_all(after).await)
    };
    let (during, after) = futures_util::future::join(during, revoked).await;
    assert_eq!(after, BTreeMap::from([((401, "share_token_revoked".to_owned()), MANY)]));
    let accepted = during.iter().filter(|answer| answer.status == 200).count();
    assert!(during.iter().all(|answer| answer.status == 200 || answer.code() == "share_token_revoked"), "{during:?}");
    assert_eq!(uses(&app, &workload, &link).await, accepted);
}

/// A run that waited meanwhile can be held against its link.
#[tokio::test]
async fn a_run_knows_whether_its_link_was_taken_back() {
    use fairway_domain::{id::ExecutionId, share_link::ShareLinkStore as _, tenant::TenantScope};
    let app = TestApp::start().await;
    let workload = shared(&app, "main").await;
    let link = made(&app, &workload, json!({})).await;
    let ran = run(&app, &workload, &link.token).await.expect(200);
    let id: ExecutionId = ran["execution_id"].as_str().unwrap().parse::<uuid::Uuid>().unwrap().into();
    let scope = TenantScope::for_relay(TENANT.parse::<uuid::Uuid>().unwrap().into());
    let options = fairway_postgres::DatabaseOptions {
        url: app.database().url(),
        connections: 1,
        result_retention: std::time::Duration::from_secs(60),
    };
    let store = fairway_postgres::Database::new(&options).unwrap();
    assert!(!store.is_run_revoked(scope, id).await.unwrap());
    // Expired or used up is not taken back.
    app.database().move_clock(25 * 60 * 60).await.unwrap();
    assert!(!store.is_run_revoked(scope, id).await.unwrap());
    app.delete(format!("{}/{}", links(&workload), link.id)).await.expect(204);
    assert!(store.is_run_revoked(scope, id).await.unwrap());
}

/// T30: whoever tries tokens is stopped, on every server, and those with a good one elsewhere are not.
#[tokio::test]
async fn tokens_are_not_tried_without_end() {
    let rate = |builder: fairway_testkit::app::Builder| {
        builder.setting("FAIRWAY_PUBLIC_RATE_PER_MINUTE", "5").setting("FAIRWAY_TRUSTED_PROXIES", "127.0.0.1")
    };
    let app = rate(TestApp::builder()).start().await;
    let twin = rate(TestApp::builder()).beside(&app).start().await;
    let workload = shared(&app, "main").await;
    let link = made(&app, &workload, json!({})).await;
    let wrong = format!("{}AAAA", &link.token[..link.token.len() - 4]);
    let guess = |server: &Client, from: &str| run(server, &workload, &wrong).header("X-Forwarded-For", from);
    for number in 0..5 {
        let server: &Client = if number % 2 == 0 { &app } else { &twin };
        guess(server, "192.0.2.1").await.refused(401, "share_token_invalid");
    }
    for server in [&app, &twin] {
        let refused = guess(server, "192.0.2.1").await;
        refused.refused(429, "rate_limited");
        assert!(refused.header("retry-after").is_some_and(|seconds| (1..=12).contains(&seconds.parse().unwrap())));
        // Not even a good one is looked at then.
        run(server, &workload, &link.token).header("X-Forwarded-For", "192.0.2.1").await.refused(429, "rate_limited");
    }
    guess(&app, "192.0.2.2").await.refused(401, "share_token_invalid");
    run(&app, &workload, &link.token).header("X-Forwarded-For", "192.0.2.2").await.expect(200);
    // What was used up or taken back was no guess.
    for _ in 0..10 {
        run(&app, &workload, &link.token)
            .header("X-Forwarded-For", "192.0.2.3")
            .await
            .refused(401, "share_token_exhausted");
    }
}

/// Everything that the database holds, as text. Bytes are shown in hex.
async fn dump(database: &TestDatabase) -> String {
    let owner = database.owner().await.unwrap();
    let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
        AND relnamespace = 'public'::regnamespace";
    let mut all = String::new();
    for table in owner.query(tables, &[]).await.unwrap() {
        let sql =
            format!("SELECT coalesce(string_agg(row::text, E'\\n'), '') FROM \"{}\" AS row", table.get::<_, &str>(0));
        all += owner.query_one(&sql, &[]).await.unwrap().get(0);
    }
    all
}

/// A text in the spellings in which it might lie somewhere.
fn spellings(token: &str) -> Vec<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let secret = &token[token.len() - 43..];
    let mut all = vec![secret.to_owned(), hex(token.as_bytes()), hex(secret.as_bytes()), hex(&base64(secret))];
    // In base64 it looks different behind none, one and two other bytes; the edges depend on the neighbours.
    for before in 0..3 {
        let encoded = encoded(&[&vec![0; before], secret.as_bytes()].concat());
        all.push(encoded[4..encoded.len() - 4].to_owned());
    }
    all
}

const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(text: &str) -> Vec<u8> {
    let bits: String =
        text.bytes().map(|byte| format!("{:06b}", ALPHABET.iter().position(|one| *one == byte).unwrap())).collect();
    bits.as_bytes()
        .chunks_exact(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect()
}

fn encoded(bytes: &[u8]) -> String {
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let letter =
        |bits: &[u8]| char::from(ALPHABET[usize::from_str_radix(std::str::from_utf8(bits).unwrap(), 2).unwrap()]);
    bits.as_bytes().chunks_exact(6).map(letter).collect()
}

/// R13 and T28: tokens are found nowhere but in the one answer that shows them.
#[tokio::test]
async fn tokens_lie_nowhere() {
    let server = Overheard::start("trace").await;
    let app = &server.client;
    let workload = shared(app, "main").await;
    let public = echoing(app, "public").await;
    open(app, &public, "public").await;
    let mut tokens = Vec::new();
    for number in 0..20 {
        let link = made(app, &workload, json!({ "max_uses": 2 })).await;
        run(app, &workload, &link.token).key(&format!("k{number}")).await.expect(200);
        let wrong = format!("{}AAAA", &link.token[..link.token.len() - 4]);
        let requests = [
            app.get(format!("/v1/workloads/by-slug/main?token={}", link.token)),
            app.get("/v1/workloads/by-slug/main").header("X-Share-Token", &link.token),
            app.get(format!("/v1/workloads?token={}", link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={wrong}")),
            app.get(format!("/nowhere?token={}", link.token)),
            app.get(format!("/ticket-classifier?token={}", link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={}&token={}", link.token, link.token)),
            app.get(format!("/v1/workloads/by-slug/main?token={}&x=1", link.token)),
            app.post(format!("{}?token={}", workload.execute_path(), link.token), json!({ "environment": 1 })),
        ];
        for request in requests {
            let answer = request.await;
            assert!(!answer.text().contains(&link.token) && !answer.text().contains(&wrong), "{answer}");
            assert!(
                answer
                    .headers
                    .values()
                    .all(|value| !value.as_bytes().windows(43).any(|part| part == &link.token.as_bytes()[37..]))
            );
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{answer}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer}");
        }
        tokens.push(link.token);
    }
    for _ in 0..5 {
        let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
        let ran = app.post(public.execute_path(), body).as_actor("anonymous").await.expect(200);
        let token = ran["result_token"].as_str().unwrap().to_owned();
        let path = format!("/v1/executions/{}", ran["execution_id"].as_str().unwrap());
        app.get(&path).as_actor("anonymous").header("X-Result-Token", &token).await.expect(200);
        tokens.push(token);
    }
    let metrics = app.get("/metrics").await.text();
    let events = app.get("/v1/audit/events?limit=200").await.text();
    let (said, database) = server.end().await;
    let rows = dump(&database).await;
    assert!(rows.contains("share_link") && said.log.contains("by-slug") && said.spans.len() > 1_000);
    for token in &tokens {
        for spelling in spellings(token) {
            for (what, text) in [
                ("log", &said.log),
                ("spans", &said.spans),
                ("metrics", &metrics),
                ("audit log", &events),
                ("database", &rows),
            ] {
                assert!(!text.contains(&spelling), "the {what} holds {spelling} of {token}");
            }
        }
    }
}
