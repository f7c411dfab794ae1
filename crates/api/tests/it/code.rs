//! Code mode: scripts that are let in like runs, handed over once, and never again.

use crate::{
    dispatch::{falls_silent, path},
    execution::ended,
    stage::WORKSPACE,
};
use fairway_domain::execution::code::{CodeResult, GatewayFailure, Language, MOST_AT_ONCE, ScriptFailure};
use fairway_testkit::{
    Cut, FaultyEndpoint, FaultyLine, Gateways, LineFault, Script, StubGateway, TestApp,
    app::{Answer, Request},
};
use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const HELLO: &str = "print('hello')\nresult = 1 + 1";

fn body(slug: &str) -> Value {
    json!({
        "workspace_id": WORKSPACE, "workload_slug": slug, "environment": "dev", "language": "starlark", "code": HELLO,
    })
}

fn script(app: &TestApp) -> Request {
    app.post("/v1/runtime/code", body("main"))
}

async fn app(gateway: &Arc<StubGateway>) -> TestApp {
    let app = TestApp::builder().gateway(gateway.clone()).start().await;
    app.active_workload("main").await;
    app
}

fn gives(result: Value, stdout: &str) -> Gateways {
    Gateways::Answers(Ok(CodeResult { result: Ok(result), stdout: stdout.to_owned() }))
}

async fn count(app: &TestApp, sql: &str) -> i64 {
    app.database().owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

async fn facts(app: &TestApp) -> Vec<Value> {
    let owner = app.database().owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind LIKE 'execution.%' ORDER BY fact_id";
    let rows = owner.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

async fn settle(app: &TestApp, id: &Value, outcome: &str) -> Answer {
    app.post(path(id, "/settle"), json!({ "outcome": outcome, "note": "Looked it up over there." })).await
}

#[tokio::test]
async fn a_script_is_a_run_with_all_that_belongs_to_one() {
    let gateway = StubGateway::new(gives(json!({ "sum": 2 }), "hello\n"));
    let app = app(&gateway).await;
    let answer = script(&app).await.expect(200);
    assert_eq!(
        (&answer["status"], &answer["result"], &answer["stdout"], &answer["error"]),
        (&json!("completed"), &json!({ "sum": 2 }), &json!("hello\n"), &Value::Null)
    );
    assert_eq!((gateway.count(), gateway.scripts()[0].language), (1, Language::Starlark));
    assert_eq!(gateway.scripts()[0].code, HELLO);
    let id = &answer["execution_id"];
    let read = app.get(path(id, "")).await.expect(200);
    assert_eq!((&read["status"], &read["lane"]), (&json!("completed"), &json!("standard")));
    assert_eq!(read["queued_result"]["result"], json!({ "sum": 2 }));
    assert_eq!((&read["steps"][0]["step_type"], read["steps"].as_array().map(Vec::len)), (&json!("code"), Some(1)));
    let evidence = app.get(path(id, "/evidence-graph")).await;
    let document = &evidence.expect(200)["evidence_artifacts"][0];
    assert_eq!(document["artifact_kind"], "code_run");
    assert!(!evidence.text().contains("hello"), "what scripts say is no evidence: {evidence}");
    let told = facts(&app).await;
    let kinds: Vec<&str> = told.iter().map(|fact| fact["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["execution.code_accepted", "execution.ended"]);
    assert_eq!(told[0]["detail"]["language"], "starlark");
    assert!(!json!(told).to_string().contains("hello"), "no fact holds a script");
}

#[tokio::test]
async fn a_script_that_fails_says_why_and_what_it_said() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    for failure in ScriptFailure::ALL {
        gateway.becomes(Gateways::Answers(Ok(CodeResult { result: Err(failure), stdout: "so far\n".to_owned() })));
        let answer = script(&app).await.expect(200);
        assert_eq!((&answer["status"], &answer["result"]), (&json!("failed"), &Value::Null));
        assert_eq!((&answer["error"]["code"], &answer["stdout"]), (&json!(failure.code()), &json!("so far\n")));
    }
}

#[tokio::test]
async fn scripts_pass_the_same_doors_as_runs_in_the_same_order() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    let given = app.given();
    let of = |slug: &str| app.post("/v1/runtime/code", body(slug));
    of("nobody").await.refused(404, "not_found");
    let elsewhere = given.workspace("elsewhere", "elsewhere").await;
    script(&app)
        .json({
            let mut there = body("main");
            there["workspace_id"] = json!(elsewhere);
            there
        })
        .await
        .refused(404, "not_found");
    given.workload("bare").await;
    of("bare").await.refused(409, "no_active_release");
    let rules = json!([{ "id": "no", "condition": "inputs.language == 'starlark'", "outcome": "deny",
        "reason_code": "no_starlark" }]);
    given.active_under("strict", given.policy_of("strict-policy", rules).await).await;
    let denied = of("strict").await.refused(403, "policy_denied");
    assert_eq!(denied["reason_code"], "no_starlark");
    assert_eq!(ended(&app, &denied["execution_id"]).await["status"], "denied");
    // Neither a public workload nor a link lets scripts in.
    given.role("user:viewer", "viewer", ("workspace", Some(WORKSPACE))).await;
    given.role("user:nobody", "viewer", ("workspace", Some(&elsewhere))).await;
    let public = given.active_workload("public").await;
    let exposed = json!({ "interface_config": { "presentation_mode": "form", "access_mode": "public" } });
    app.patch(format!("/v1/workloads/{}", public.workload_id), exposed).await.expect(200);
    let refused = of("public").as_actor("user:viewer").await.refused(403, "forbidden");
    assert_eq!(refused["permission"], "execution.run");
    of("public").as_actor("user:nobody").await.refused(404, "not_found");
    of("public").as_actor("anonymous").await.refused(404, "not_found");
    let suspend = app.patch(format!("/v1/workloads/{}", public.workload_id), json!({ "status": "suspended" }));
    suspend.await.expect(200);
    of("public").await.refused(409, "workload_suspended");
    assert_eq!(gateway.count(), 0);
}

#[tokio::test]
async fn fields_of_a_script_are_looked_at_before_anything_else() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    for (name, value) in [
        ("workspace_id", json!("main")),
        ("workload_slug", json!("Main!")),
        ("environment", json!("")),
        ("language", json!("python")),
        ("code", json!(1)),
        ("code", json!("x".repeat((256 << 10) + 1))),
        ("lane", json!("standard")),
        ("inputs", json!({})),
    ] {
        let mut sent = body("main");
        sent[name] = value;
        let refused = app.post("/v1/runtime/code", sent).await.refused(422, "validation_error");
        assert_eq!(refused["fields"][0]["path"], name, "{refused}");
    }
    assert_eq!(gateway.count(), 0);
}

/// T22, T23: whoever says in whose name, is not heard, however it is said.
#[tokio::test]
async fn nobody_says_in_whose_name_a_script_runs() {
    let gateway = StubGateway::quiet();
    let app =
        TestApp::builder().gateway(gateway.clone()).setting("FAIRWAY_INTERNAL_CLIENTS", "service:portal").start().await;
    app.active_workload("main").await;
    let plain = body("main").to_string();
    let with = |member: &str| format!("{},{member}}}", plain.trim_end_matches('}'));
    for member in [
        r#""actor":"S3CRET""#,
        r#""actor":null"#,
        r#""actor":["S3CRET"]"#,
        r#""actor":{"ref":"S3CRET"}"#,
        r#""\u0061ctor":"S3CRET""#,
        r#""ACTOR_REF":"S3CRET""#,
        r#""actorType":"S3CRET""#,
        r#""actor-auth-mode":"S3CRET""#,
        r#""execution_mode":"on_behalf_of""#,
        r#""tenant":"S3CRET""#,
        r#""tenant_id":"S3CRET""#,
        r#""principal":"S3CRET""#,
        r#""delegation":"S3CRET""#,
        r#""delegated_by":"S3CRET""#,
        r#""on_behalf_of":"S3CRET""#,
        r#""context.actor":"S3CRET""#,
        r#""context.actor_ref":"S3CRET""#,
        r#""Execution.Mode":"S3CRET""#,
        r#""my-actor-ref":"S3CRET""#,
        r#""run_as":"S3CRET""#,
        r#""runAs":null"#,
        r#""user":"S3CRET""#,
        r#""sub":"S3CRET""#,
        r#""\uff41\uff43\uff54\uff4f\uff52":"S3CRET""#,
        r#""ａｃｔｏｒ":"S3CRET""#,
        r#""аctor":"S3CRET""#,
        r#""ac\u200btor":"S3CRET""#,
        r#""options":[[{"a":{"Run-As":"S3CRET"}}]]"#,
        r#""language":{"user":"S3CRET"}"#,
        r#""metadata":{"deep":[{"actor":"S3CRET"}]}"#,
        r#""code":"1","actor":"S3CRET""#,
        r#""actor":"one","actor":"S3CRET""#,
    ] {
        for actor in ["user:local", "service:portal"] {
            let sent = app.post("/v1/runtime/code", Value::Null).bytes("application/json", with(member));
            let answer = sent.as_actor(actor).await;
            answer.refused(422, "forbidden_field");
            assert!(!answer.text().contains("S3CRET") && !answer.text().contains("actor"), "{answer}");
        }
    }
    let form = app.post("/v1/runtime/code", Value::Null);
    let form = form.bytes(
        "multipart/form-data; boundary=x",
        "--x\r\nContent-Disposition: form-data; name=\"actor\"\r\n\r\nroot\r\n--x--\r\n",
    );
    form.await.refused(415, "unsupported_media_type");
    app.post("/v1/runtime/code?actor_ref=user:root", body("main")).await.refused(422, "validation_error");
    // What is said twice is no JSON, whatever it is.
    let twice = app.post("/v1/runtime/code", Value::Null).bytes("application/json", with(r#""code":"2""#));
    twice.await.refused(400, "malformed_json");
    assert_eq!(gateway.count(), 0);
    assert_eq!(count(&app, "SELECT count(*) FROM execution").await, 0);
    // A script may say the words.
    let mut says = body("main");
    says["code"] = json!("{\"actor\": null}");
    app.post("/v1/runtime/code", says).await.expect(200);
}

/// A body is searched by the thread that serves others too: not for longer than a request could be meant well, and what was
/// not searched is not heard.
#[tokio::test]
async fn names_without_end_are_not_searched() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    let plain = body("main").to_string();
    let with = |name: &dyn Fn(usize) -> String, count: usize| {
        let members: String = (0..count).map(|index| format!(",{:?}:0", name(index))).collect();
        app.post("/v1/runtime/code", Value::Null)
            .bytes("application/json", format!("{}{members}}}", plain.trim_end_matches('}')))
    };
    with(&|index| format!("0{index:04}{}", "bB".repeat(112)), 8).await.refused(422, "validation_error");
    with(&|index| format!("0{index:04}{}", "bB".repeat(112)), 4_000).await.refused(422, "forbidden_field");
    with(&|index| format!("{index:04}{}", "\u{fdfa}".repeat(72)), 4_000).await.refused(422, "forbidden_field");
    with(&|index| if index < 4_000 { format!("n{index}") } else { "actor".into() }, 4_001)
        .await
        .refused(422, "forbidden_field");
    with(&|index| format!("n{index}"), 90_000).await.refused(413, "payload_too_large");
    // Twice the same name is no JSON.
    with(&|_| "n".repeat(200), 4_000).await.refused(400, "malformed_json");
    assert_eq!(gateway.count(), 0);
}

#[tokio::test]
async fn four_scripts_of_a_tenant_run_at_once_and_no_fifth() {
    let gateway = StubGateway::new(Gateways::Holds);
    let app = app(&gateway).await;
    let held: Vec<_> = (0..MOST_AT_ONCE).map(|_| tokio::spawn(script(&app).into_future())).collect();
    gateway.handed(MOST_AT_ONCE).await;
    let refused = script(&app).key("k").await;
    refused.refused(429, "too_many_scripts");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let given = app.given();
    let tenant = given.tenant("acme").await;
    let workspace = given.in_tenant(&tenant, "").workspace("there", "there").await;
    given.in_tenant(&tenant, &workspace).active_workload("main").await;
    let mut there = body("main");
    there["workspace_id"] = json!(workspace);
    let other = tokio::spawn(app.post("/v1/runtime/code", there).in_tenant(&tenant).into_future());
    gateway.handed(MOST_AT_ONCE + 1).await;
    gateway.becomes(gives(json!(1), ""));
    for answer in join_all(held).await.into_iter().chain([other.await]) {
        answer.unwrap().expect(200);
    }
    script(&app).key("k").await.expect(200);
    assert_eq!(gateway.count(), MOST_AT_ONCE + 2);
}

/// What comes with one key at once is one script: it takes one place, and whoever came second is told that the first runs.
#[tokio::test]
async fn twins_take_one_place() {
    let gateway = StubGateway::new(Gateways::Holds);
    let app = app(&gateway).await;
    let mut twins: FuturesUnordered<_> =
        (0..3 * MOST_AT_ONCE).map(|_| tokio::spawn(script(&app).key("twin").into_future())).collect();
    for _ in 1..twins.len() {
        twins.next().await.unwrap().unwrap().refused(409, "request_in_progress");
    }
    assert_eq!(gateway.count(), 1);
    let others: Vec<_> = (1..MOST_AT_ONCE).map(|_| tokio::spawn(script(&app).into_future())).collect();
    gateway.handed(MOST_AT_ONCE).await;
    script(&app).await.refused(429, "too_many_scripts");
    gateway.becomes(gives(json!(1), ""));
    let first = twins.next().await.unwrap().unwrap().expect(200);
    for answer in join_all(others).await {
        answer.unwrap().expect(200);
    }
    let again = script(&app).key("twin").await;
    assert_eq!((again.expect(200), again.header("idempotency-replayed")), (first, Some("true")));
    assert_eq!(gateway.count(), MOST_AT_ONCE);
}

/// R4: whatever a gateway does after it took a script, it is handed it once, its caller is told what is known, and the run
/// is there.
#[tokio::test]
async fn what_a_gateway_loses_is_unknown_and_never_sent_again() {
    let endpoint = FaultyEndpoint::start().await;
    let app = TestApp::builder().setting("FAIRWAY_RUNTIME_GATEWAY_URL", endpoint.url("/s3cret-path")).start().await;
    app.active_workload("main").await;
    endpoint.says(Script::json(&json!({ "result": [1], "stdout": "hi\n" })));
    let answer = script(&app).await.expect(200);
    assert_eq!((&answer["result"], &answer["stdout"]), (&json!([1]), &json!("hi\n")));
    let request = &endpoint.requests()[0];
    assert_eq!(request.header("idempotency-key"), answer["execution_id"].as_str());
    assert_eq!((&request.json()["code"], &request.json()["language"]), (&json!(HELLO), &json!("starlark")));
    assert_eq!(request.json()["execution_id"], answer["execution_id"]);
    endpoint.says(Script::json(&json!({ "failure": "script_error", "stdout": "no\n" })));
    assert_eq!(script(&app).await.expect(200)["error"]["code"], "script_error");

    let whole = Script::json(&json!({ "result": 1 }));
    for (fault, status, code) in [
        (Script::reset(), 502, "gateway_error"),
        (whole.clone().broken_off(), 502, "gateway_error"),
        (whole.clone().reset_half_way(), 502, "gateway_error"),
        (Script::status(200, "{garbage"), 502, "gateway_error"),
        (Script::status(200, "{\"failure\":\"made_up\"}"), 502, "gateway_error"),
        (Script::status(500, "{}"), 502, "gateway_error"),
        (Script::status(503, "{}"), 502, "gateway_error"),
        (Script::redirect("http://169.254.169.254/"), 502, "gateway_error"),
        (Script::status(200, &"x".repeat(1 << 20)), 502, "gateway_error"),
        (Script::hang(), 504, "gateway_timeout"),
        (whole.clone().hanging(), 504, "gateway_timeout"),
    ] {
        let before = endpoint.count();
        endpoint.says(fault.clone());
        let key = format!("key-{before}");
        let answer = script(&app).key(&key).await;
        let refused = answer.refused(status, code);
        assert!(!answer.text().contains("s3cret") && !answer.text().contains("hello"), "{answer}");
        let read = app.get(path(&refused["execution_id"], "")).await.expect(200);
        assert_eq!((&read["status"], &read["outcome"]), (&json!("unknown"), &json!("unknown")), "{fault:?}");
        let again = script(&app).key(&key).await;
        assert_eq!(again.refused(status, code)["execution_id"], refused["execution_id"]);
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(endpoint.count(), before + 1, "{fault:?} is handed over once");
    }
    let unknown = app.get("/v1/executions?status=unknown").await.expect(200);
    assert_eq!(unknown.as_array().map(Vec::len), Some(11));
    let waiting = facts(&app).await;
    let last = waiting.last().unwrap();
    assert_eq!((&last["detail"]["outcome"], &last["categories"]), (&json!("unknown"), &json!(["executions"])));
}

#[tokio::test]
async fn a_gateway_that_takes_nothing_ran_nothing() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let app =
        TestApp::builder().setting("FAIRWAY_RUNTIME_GATEWAY_URL", format!("http://127.0.0.1:{port}/")).start().await;
    app.active_workload("main").await;
    let refused = script(&app).await.refused(502, "gateway_unreachable");
    let read = app.get(path(&refused["execution_id"], "")).await.expect(200);
    assert_eq!((&read["status"], &read["outcome"]), (&json!("failed"), &json!("failure")));
    settle(&app, &refused["execution_id"], "success").await.refused(409, "execution_not_unknown");
}

#[tokio::test]
async fn an_unknown_run_is_settled_once_by_somebody_who_may() {
    let gateway = StubGateway::new(Gateways::Answers(Err(GatewayFailure::Lost)));
    let app = app(&gateway).await;
    let given = app.given();
    given.role("user:author", "author", ("workspace", Some(WORKSPACE))).await;
    given.role("user:operator", "operator", ("workspace", Some(WORKSPACE))).await;
    let elsewhere = given.workspace("elsewhere", "elsewhere").await;
    given.role("user:elsewhere", "operator", ("workspace", Some(&elsewhere))).await;
    for (outcome, status, error) in
        [("success", "completed", Value::Null), ("failure", "failed", json!("settled_as_failure"))]
    {
        let lost = script(&app).as_actor("user:author").key(outcome).await;
        let id = lost.refused(502, "gateway_error")["execution_id"].clone();
        let ask = |actor: &str, outcome: &str| {
            let said = json!({ "outcome": outcome, "note": "Looked it up over there." });
            app.post(path(&id, "/settle"), said).as_actor(actor)
        };
        let refused = ask("user:author", outcome).await.refused(403, "forbidden");
        assert_eq!(refused["permission"], "execution.kill");
        ask("user:elsewhere", outcome).await.refused(404, "not_found");
        ask("user:operator", "unknown").await.refused(422, "validation_error");
        let settled = ask("user:operator", outcome).key("k1").await.expect(200);
        assert_eq!((&settled["status"], &settled["outcome"]), (&json!(status), &json!(outcome)));
        assert_eq!(settled["error"]["code"], error);
        let again = ask("user:operator", outcome).key("k1").await;
        assert_eq!((again.expect(200), again.header("idempotency-replayed")), (settled, Some("true")));
        ask("user:operator", "success").await.refused(409, "execution_not_unknown");
        let listed = app.get("/v1/executions?status=unknown").await.expect(200);
        assert_eq!(listed, json!([]), "it is unknown no more");
        let listed = app.get(format!("/v1/executions?status={status}")).await.expect(200);
        assert_eq!(listed[0]["execution_id"], id);
        let replay = script(&app).as_actor("user:author").key(outcome).await;
        assert_eq!(replay.expect(200)["status"], status, "whoever asks again hears what is known now");
        let graph = app.get(path(&id, "/evidence-graph")).await.expect(200);
        let documents = graph["evidence_artifacts"].as_array().unwrap();
        assert!(documents.iter().any(|document| document["artifact_kind"] == "settlement"), "{graph}");
        app.database()
            .owner()
            .await
            .unwrap()
            .execute("DELETE FROM idempotency_key WHERE key = 'k1'", &[])
            .await
            .unwrap();
    }
    assert_eq!(gateway.count(), 2);
    let told: Vec<Value> = facts(&app).await.into_iter().filter(|fact| fact["kind"] == "execution.settled").collect();
    assert_eq!((told.len(), &told[0]["actor"]), (2, &json!("user:operator")));
    assert!(!json!(told).to_string().contains("Looked"), "notes are in no fact");
}

/// R4: without its row no script is handed over.
#[tokio::test]
async fn a_script_that_cannot_be_written_down_is_not_handed_over() {
    let gateway = StubGateway::quiet();
    let calm = app(&gateway).await;
    let line = FaultyLine::to(calm.database(), 1);
    let shaky = TestApp::builder().gateway(gateway.clone()).beside(&calm).over(&line).start().await;
    shaky.get("/v1/executions").await.expect(200);
    line.becomes(LineFault::At("INSERT INTO execution_lease"));
    script(&shaky).await.refused(503, "unavailable");
    assert_eq!((gateway.count(), gateway.prepared()), (0, (1, 0)), "it was ready for nothing");
    assert_eq!(count(&calm, "SELECT count(*) FROM execution").await, 0);
    // Written down, and nobody was told: it is found, and then handed over as it should be.
    line.becomes(LineFault::Once("INSERT INTO execution_lease", Cut::Behind));
    script(&shaky).await.expect(200);
    assert_eq!((gateway.count(), count(&calm, "SELECT count(*) FROM execution").await), (1, 1));
}

/// R4: that a script was let in is a fact, and without that fact it is not let in.
#[tokio::test]
async fn a_script_that_the_log_does_not_take_is_not_handed_over() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    let owner = app.database().owner().await.unwrap();
    for (number, state) in (1..).zip(["disk_full", "raise_exception", "insufficient_privilege", "check_violation"]) {
        let fails = format!(
            "CREATE OR REPLACE FUNCTION no_log() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'not today' USING ERRCODE = '{state}'; END $$;
            CREATE OR REPLACE TRIGGER no_log BEFORE INSERT ON fact FOR EACH ROW
                WHEN (NEW.kind = 'execution.code_accepted') EXECUTE FUNCTION no_log()"
        );
        owner.batch_execute(&fails).await.unwrap();
        let refused = script(&app).await;
        refused.refused(503, "unavailable");
        assert!(!refused.text().contains("not today"), "{refused}");
        assert_eq!(gateway.prepared(), (number, 0), "it was ready, and is no more: {state}");
        assert_eq!((gateway.count(), count(&app, "SELECT count(*) FROM execution").await), (0, 0), "{state}");
    }
    owner.batch_execute("DROP TRIGGER no_log ON fact").await.unwrap();
    script(&app).await.expect(200);
    assert_eq!(gateway.count(), 1);
}

/// R4: a process that dies between the row and the gateway's answer leaves an unknown run, which nobody hands over again,
/// whether there are workers or not.
#[tokio::test]
async fn a_script_whose_process_dies_is_unknown_and_not_taken_up() {
    for dispatch in ["hybrid", "inline", "queued"] {
        let (dying, living) = (StubGateway::new(Gateways::Holds), StubGateway::quiet());
        let keeper = TestApp::builder().gateway(living.clone()).setting("FAIRWAY_DISPATCH", dispatch).start().await;
        keeper.active_workload("main").await;
        let builder = TestApp::builder().gateway(dying.clone()).setting("FAIRWAY_DISPATCH", dispatch);
        let victim = builder.beside(&keeper).start().await;
        let request = tokio::spawn(script(&victim).into_future());
        dying.handed(1).await;
        let running = keeper.get("/v1/executions?status=running").await.expect(200);
        let id = running[0]["execution_id"].clone();
        falls_silent(&keeper).await;
        let read = ended(&keeper, &id).await;
        assert_eq!((&read["status"], &read["outcome"]), (&json!("unknown"), &json!("unknown")), "{dispatch}");
        assert_eq!(read["error"]["code"], "gateway_error");
        // Whoever was thought dead and was not writes nothing over it.
        dying.becomes(gives(json!(1), "late"));
        drop(request.await.unwrap());
        assert_eq!(ended(&keeper, &id).await, read, "{dispatch}");
        assert_eq!((dying.count(), living.count()), (1, 0), "{dispatch}: it is handed over once");
        settle(&keeper, &id, "success").await.expect(200);
    }
}

#[tokio::test]
async fn a_script_is_stopped_like_every_run_and_owes_what_a_policy_imposes() {
    let gateway = StubGateway::new(Gateways::Holds);
    let app = app(&gateway).await;
    let request = tokio::spawn(script(&app).into_future());
    gateway.handed(1).await;
    let running = app.get("/v1/executions?status=running").await.expect(200);
    let stopped = app.post(path(&running[0]["execution_id"], "/cancel"), json!({})).await.expect(200);
    assert_eq!(stopped["status"], "cancelled");
    assert_eq!(request.await.unwrap().expect(200)["status"], "cancelled");

    gateway.becomes(gives(json!("ada@example.com"), "grace@example.com\n"));
    let given = app.given();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["redact_output", "record_transcript"] }]);
    given.active_under("masked", given.policy_of("masked-policy", rules).await).await;
    let masked = app.post("/v1/runtime/code", body("masked")).await.expect(200);
    assert_eq!((&masked["result"], &masked["stdout"]), (&json!("[email]"), &json!("[email]\n")));
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["human_review"] }]);
    given.active_under("looked-at", given.policy_of("looked-at-policy", rules).await).await;
    let waiting = app.post("/v1/runtime/code", body("looked-at")).await.expect(202);
    assert_eq!(waiting["review"], "pending");
    let id = &waiting["execution_id"];
    assert_eq!(app.get(path(id, "")).await.expect(200)["queued_result"], Value::Null, "nobody has looked at it yet");
    let seen = app.get(path(id, "/review")).as_actor("user:reviewer").await.expect(200);
    assert_eq!(seen["metadata"]["stdout"], "grace@example.com\n");
    let verdict = app.post(path(id, "/review"), json!({ "outcome": "approved" })).as_actor("user:reviewer");
    verdict.await.expect(200);
    let given = &app.get(path(id, "")).await.expect(200)["queued_result"];
    assert_eq!((&given["result"], &given["stdout"]), (&json!("ada@example.com"), &json!("grace@example.com\n")));
}

/// A run has its time, also where its script waits at a gateway. What somebody else was handed may go on there.
#[tokio::test]
async fn a_deadline_leaves_unknown_what_somebody_else_was_handed() {
    let gateway = StubGateway::new(Gateways::Holds);
    let app = TestApp::builder().gateway(gateway.clone()).setting("FAIRWAY_EXECUTION_DEADLINE", "1s").start().await;
    app.active_workload("main").await;
    let detail = script(&app).await.refused(504, "gateway_timeout");
    let read = app.get(path(&detail["execution_id"], "")).await.expect(200);
    assert_eq!((&read["outcome"], gateway.count()), (&json!("unknown"), 1));
    settle(&app, &detail["execution_id"], "failure").await.expect(200);
}

/// R4, contract 12: a client that goes away does not end its run, whenever it goes.
#[tokio::test]
async fn clients_that_are_gone_leave_no_run_behind_that_nobody_runs() {
    let gateway = StubGateway::quiet();
    let app = app(&gateway).await;
    let sent = body("main").to_string();
    let head = format!(
        "POST /v1/runtime/code HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        app.address(),
        sent.len()
    );
    for millis in (0..10).cycle().take(100) {
        let mut stream = TcpStream::connect(app.address()).await.unwrap();
        // What is closed is reset, which a server learns of while it works.
        stream.set_zero_linger().unwrap();
        stream.write_all(format!("{head}{sent}").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    let owner = app.database().owner().await.unwrap();
    let under_way = "SELECT count(*) FILTER (WHERE finished_at IS NULL), count(*) FILTER (WHERE status = 'completed'),
        count(*) FROM execution";
    let since = Instant::now();
    let (completed, all) = loop {
        let row = owner.query_one(under_way, &[]).await.unwrap();
        let (open, completed, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        if open == 0 && all > 0 {
            break (completed, all);
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{open} of {all} are run by nobody");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((completed, usize::try_from(all).unwrap()), (all, gateway.count()));
}

/// Whoever prints and then fails is not told past the person who has to look.
#[tokio::test]
async fn what_a_failing_script_printed_waits_for_nobody_and_is_told_to_nobody() {
    let failed = Err(ScriptFailure::Error);
    let gateway = StubGateway::new(Gateways::Answers(Ok(CodeResult { result: failed, stdout: "canary".to_owned() })));
    let app = TestApp::builder().gateway(gateway.clone()).start().await;
    let rules = json!([{
        "id": "look", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "watched",
        "obligations": ["human_review"],
    }]);
    let policy = app.given().policy_of("looked-at", rules).await;
    app.given().active_under("main", policy).await;
    let answer = script(&app).await;
    let id = answer.expect(200)["execution_id"].clone();
    let read = app.get(path(&id, "")).await;
    assert_eq!(read.expect(200)["status"], "failed");
    assert!(!answer.text().contains("canary") && !read.text().contains("canary"), "{answer} {read}");
}

/// Replays are answered from what is stored, also while all places are taken, and take none.
#[tokio::test]
async fn a_replay_takes_no_place() {
    let gateway = StubGateway::new(gives(json!(2), ""));
    let app = app(&gateway).await;
    script(&app).key("k").await.expect(200);
    let (prepared, _) = gateway.prepared();
    let again = script(&app).key("k").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(gateway.prepared(), (prepared, 0), "nobody is made ready for what is over");
}

#[tokio::test]
async fn a_key_names_one_script() {
    let gateway = StubGateway::new(gives(json!(2), "hello\n"));
    let app = app(&gateway).await;
    let first = script(&app).key("k").await;
    let again = script(&app).key("k").await;
    assert_eq!((first.expect(200), again.header("idempotency-replayed")), (again.expect(200), Some("true")));
    let mut other = body("main");
    other["code"] = json!("result = 3");
    app.post("/v1/runtime/code", other).key("k").await.refused(409, "idempotency_key_conflict");
    assert_eq!(gateway.count(), 1);
    gateway.becomes(Gateways::Holds);
    let slow = tokio::spawn(script(&app).key("slow").into_future());
    gateway.handed(2).await;
    script(&app).key("slow").await.refused(409, "request_in_progress");
    gateway.becomes(gives(json!(2), ""));
    slow.await.unwrap().expect(200);
    assert_eq!(gateway.count(), 2);
}
