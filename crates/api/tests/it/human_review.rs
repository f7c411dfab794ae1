//! Human review: a reviewer must approve an answer before the submitter sees it.

use crate::{
    dispatch::{async_run, execution_path},
    execution::{run, wait_until_ended},
    run_events::{kinds_of, parse_event_stream},
    support::workspace_fixture::WORKSPACE,
};
use fairway_testkit::{
    ProviderBehaviour, StubProvider, TestApp,
    app::{ActiveWorkload, Fixtures, Request, Response},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

const ANSWER: &str = "write to ada@example.com";

/// A workload with the obligation `human_review`, and with the obligations `other_obligations`.
async fn active_reviewed_workload(fixtures: &Fixtures, slug: &str, other_obligations: &[&str]) -> ActiveWorkload {
    let obligations: Vec<&str> = ["human_review"].into_iter().chain(other_obligations.iter().copied()).collect();
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": obligations }]);
    let policy = fixtures.policy_with_rules(&format!("{slug}-policy"), rules).await;
    // The route supports streaming, so only the policy can withhold the answer.
    let route = json!({
        "route_id": "local", "provider": "local", "model": "rules", "account_slot": "local", "state": "approved",
    });
    let content = json!({ "provider_route": route, "supports_streaming": true });
    let model = fixtures.asset_with_version("model_policy", &format!("{slug}-model"), content).await;
    let prompt = fixtures.ticket_prompt(&format!("{slug}-prompt")).await;
    fixtures.active_workload_with_bindings(slug, vec![prompt, model, policy]).await
}

async fn start_server() -> TestApp {
    TestApp::builder().provider(StubProvider::new(ProviderBehaviour::Answers(ANSWER.to_owned()))).start().await
}

/// Executes a run that ends up awaiting review. Returns its identifier and the response.
async fn run_until_review(app: &TestApp, workload: &ActiveWorkload) -> (Value, Response) {
    let response = run(app, workload).await;
    let body = response.expect(202);
    assert_eq!((&body["state"], &body["review"]), (&json!("queued"), &json!("pending")));
    assert_eq!(body.as_object().unwrap().len(), 3, "{body}");
    (body["execution_id"].clone(), response)
}

fn review_request(app: &TestApp, id: &Value, body: Value) -> Request {
    app.post(execution_path(id, "/review"), body).as_actor("user:reviewer")
}

async fn query_count(app: &TestApp, sql: &str) -> i64 {
    app.database().connect_as_owner().await.unwrap().query_one(sql, &[]).await.unwrap().get(0)
}

async fn facts_of_kind(app: &TestApp, kind: &str) -> Vec<Value> {
    let owner = app.database().connect_as_owner().await.unwrap();
    let sql = "SELECT convert_from(body, 'UTF8') FROM fact WHERE kind = $1 ORDER BY fact_id";
    let rows = owner.query(sql, &[&kind]).await.unwrap();
    rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
}

#[tokio::test]
async fn answer_is_hidden_until_approved_and_then_shown_to_its_submitter() {
    let app = start_server().await;
    let workload = active_reviewed_workload(&app.fixtures(), "main", &["redact_output", "notify_owner"]).await;
    let (id, accepted) = run_until_review(&app, &workload).await;
    assert_eq!(accepted.header("location"), Some(execution_path(&id, "").as_str()));
    for actor in ["user:local", "user:reviewer"] {
        let execution = app.get(execution_path(&id, "")).as_actor(actor).await;
        let body = execution.expect(200);
        assert_eq!((&body["status"], &body["outcome"]), (&json!("awaiting_review"), &Value::Null));
        assert_eq!((&body["queued_result"], &body["completed_at"]), (&Value::Null, &Value::Null));
        assert_eq!(body["steps"].as_array().map(Vec::len), Some(2));
        for suffix in ["", "/evidence-graph", "/evidence-graph?format=graph"] {
            let response = app.get(execution_path(&id, suffix)).as_actor(actor).await;
            response.expect(200);
            assert!(!response.text().contains("example.com") && !response.text().contains("[email]"), "{response}");
        }
    }
    // Only the reviewer sees the answer. It is redacted as it will be for the submitter.
    let read_review = || app.get(execution_path(&id, "/review"));
    let review = read_review().as_actor("user:reviewer").await.expect(200);
    assert_eq!((&review["execution_id"], &review["output"]), (&id, &json!("write to [email]")));
    assert!(review["asked_at"].as_str() < review["lapses_at"].as_str());
    read_review().await.expect_refusal(403, "self_approval_not_allowed");
    app.fixtures().bind_role("user:vera", "viewer", "workspace", Some(WORKSPACE)).await;
    read_review().as_actor("user:vera").await.expect_refusal(403, "forbidden");
    let evidence = app.get(execution_path(&id, "/evidence-graph")).await.expect(200);
    assert_eq!(evidence["obligations"][0]["obligation_name"], "human_review");
    assert_eq!(evidence["obligations"][0]["fulfilled_at"], Value::Null);
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution_lease").await, 0, "no worker holds a lease");
    let facts = facts_of_kind(&app, "execution.review_asked").await;
    assert_eq!((facts.len(), &facts[0]["categories"]), (1, &json!(["approvals"])));

    let approved =
        review_request(&app, &id, json!({ "outcome": "approved", "note": "Looks right." })).await.expect(200);
    assert_eq!((&approved["status"], &approved["outcome"]), (&json!("completed"), &json!("success")));
    assert_eq!(approved["queued_result"], Value::Null, "the reviewer does not see the submitter's result");
    let own_execution = app.get(execution_path(&id, "")).await.expect(200);
    assert_eq!(own_execution["queued_result"]["result"], "write to [email]", "other obligations precede the review");
    let evidence = app.get(execution_path(&id, "/evidence-graph")).await.expect(200);
    for obligation in evidence["obligations"].as_array().unwrap() {
        assert!(obligation["fulfilled_at"].is_string(), "{obligation}");
    }
    let kinds: Vec<&Value> =
        evidence["evidence_artifacts"].as_array().unwrap().iter().map(|artifact| &artifact["artifact_kind"]).collect();
    assert!(kinds.contains(&&json!("review")) && kinds.contains(&&json!("redaction")), "{kinds:?}");
    let review_facts = facts_of_kind(&app, "execution.reviewed").await;
    assert_eq!((review_facts.len(), &review_facts[0]["actor"]), (1, &json!("user:reviewer")));
    assert_eq!(review_facts[0]["categories"], json!(["approvals", "reports"]));
    assert_eq!(
        (&review_facts[0]["detail"]["verdict"], &review_facts[0]["detail"]["notify"]),
        (&json!("approved"), &json!("team:tests"))
    );
    assert!(!review_facts[0].to_string().contains("Looks right"), "facts must not contain notes");
    assert_eq!(
        facts_of_kind(&app, "execution.ended").await,
        Vec::<Value>::new(),
        "the review is the only end of the run"
    );
}

#[tokio::test]
async fn rejection_erases_the_answer_and_refuses_a_second_verdict() {
    let app = start_server().await;
    let workload = active_reviewed_workload(&app.fixtures(), "main", &[]).await;
    let id = run(&app, &workload).idempotency_key("k").await.expect(202)["execution_id"].clone();
    let rejection =
        review_request(&app, &id, json!({ "outcome": "rejected", "note": "It names a person." })).await.expect(200);
    assert_eq!((&rejection["status"], &rejection["outcome"]), (&json!("denied"), &json!("denied")));
    assert_eq!(rejection["error"]["code"], "review_rejected");
    assert_eq!(
        run(&app, &workload).idempotency_key("k").await.expect_refusal(403, "review_rejected")["execution_id"],
        id
    );
    let own_execution = app.get(execution_path(&id, "")).await.expect(200);
    assert_eq!((&own_execution["status"], &own_execution["queued_result"]), (&json!("denied"), &Value::Null));
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution_result").await, 0, "the rejected result is erased");
    for outcome in ["approved", "rejected"] {
        review_request(&app, &id, json!({ "outcome": outcome })).await.expect_refusal(409, "review_not_pending");
    }
    app.get(execution_path(&id, "/review")).as_actor("user:reviewer").await.expect_refusal(404, "not_found");
    app.post(execution_path(&id, "/cancel"), json!({})).await.expect_refusal(409, "execution_not_cancellable");
    assert_eq!(app.get(execution_path(&id, "")).await.expect(200), own_execution);
    let denied_runs = app.get("/v1/executions?status=denied").await.expect(200);
    assert_eq!(denied_runs[0]["execution_id"], id);
    // The evidence records reviewer, outcome and time. Only operators read the note, which can be erased.
    let evidence = app.get(execution_path(&id, "/evidence-graph")).await.expect(200);
    let artifacts = evidence["evidence_artifacts"].as_array().unwrap();
    let document = artifacts.iter().find(|artifact| artifact["artifact_kind"] == "review").unwrap();
    let document = execution_path(&id, &format!("/evidence-artifacts/{}", document["artifact_id"].as_str().unwrap()));
    let review_document = app.get(&document).await.expect(200);
    assert_eq!(
        (&review_document["content"]["outcome"], &review_document["content"]["reviewed_by"]),
        (&json!("rejected"), &json!("user:reviewer"))
    );
    assert!(
        review_document["content"]["reviewed_at"].is_string() && review_document["content"]["note_digest"].is_string(),
        "{review_document}"
    );
    assert!(!review_document["content"].to_string().contains("person"), "{review_document}");
    assert_eq!(review_document["payload"]["note"], "It names a person.");
    app.fixtures().bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    let review_document = app.get(&document).as_actor("user:viewer").await.expect(200);
    assert_eq!((&review_document["payload"], &review_document["payload_withheld"]), (&Value::Null, &json!(true)));
}

#[tokio::test]
async fn review_requires_the_approve_permission_and_another_submitter() {
    let app = start_server().await;
    let fixtures = app.fixtures();
    let workload = active_reviewed_workload(&fixtures, "main", &[]).await;
    let workspace = Some(WORKSPACE);
    for (actor, role) in [
        ("user:sender", "runtime_user"),
        ("user:both", "runtime_user"),
        ("user:both", "approver"),
        ("user:viewer", "viewer"),
        ("user:operator", "operator"),
        ("user:approver", "approver"),
    ] {
        fixtures.bind_role(actor, role, "workspace", workspace).await;
    }
    fixtures.bind_role("user:elsewhere", "approver", "workload", Some(&fixtures.workload("elsewhere").await)).await;
    let submit = async |actor: &str| run(&app, &workload).as_actor(actor).await.expect(202)["execution_id"].clone();
    let (id, own_run) = (submit("user:sender").await, submit("user:both").await);
    let verdict = json!({ "outcome": "approved" });
    let review_by = |id: &Value, actor: &str| app.post(execution_path(id, "/review"), verdict.clone()).as_actor(actor);
    review_by(&id, "user:elsewhere").await.expect_refusal(404, "not_found");
    for actor in ["user:viewer", "user:operator", "user:sender"] {
        assert_eq!(
            review_by(&id, actor).await.expect_refusal(403, "forbidden")["permission"],
            "release.approve",
            "{actor}"
        );
    }
    assert_eq!(facts_of_kind(&app, "execution.self_review_refused").await.len(), 0);
    review_by(&own_run, "user:both").await.expect_refusal(403, "self_approval_not_allowed");
    let refusals = facts_of_kind(&app, "execution.self_review_refused").await;
    assert_eq!((refusals.len(), &refusals[0]["categories"]), (1, &json!(["compliance_findings"])));
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution_review").await, 2, "both runs still await review");
    review_by(&own_run, "user:approver").await.expect(200);
    review_by(&id, "user:both").await.expect(200);
    // Invalid verdicts are refused.
    for body in [
        json!({}),
        json!({ "outcome": "changes_requested" }),
        json!({ "outcome": "approved", "note": "a".repeat(2_001) }),
    ] {
        app.post(execution_path(&id, "/review"), body)
            .as_actor("user:approver")
            .await
            .expect_refusal(422, "validation_error");
    }
}

/// Neither the delegating service nor the subject that it acts for may review the run.
#[tokio::test]
async fn service_may_not_review_runs_that_it_delegated() {
    let provider = StubProvider::new(ProviderBehaviour::Answers(ANSWER.to_owned()));
    let app =
        TestApp::builder().setting("FAIRWAY_INTERNAL_CLIENTS", "service:gateway").provider(provider).start().await;
    let workload = active_reviewed_workload(&app.fixtures(), "main", &[]).await;
    let bindings_path = format!("/v1/workloads/{}/principal-bindings", workload.workload_id);
    app.put(bindings_path, json!({ "principal": "user:ada" })).await.expect(200);
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" }, "execution_mode": "on_behalf_of",
        "actor_ref": "user:ada", "actor_type": "user", "actor_auth_mode": "local" });
    let submitted = app.post(workload.execute_path(), body).as_actor("service:gateway").await.expect(202);
    let id = &submitted["execution_id"];
    for actor in ["service:gateway", "user:ada"] {
        let verdict = app.post(execution_path(id, "/review"), json!({ "outcome": "approved" })).as_actor(actor);
        verdict.await.expect_refusal(403, "self_approval_not_allowed");
    }
    review_request(&app, id, json!({ "outcome": "approved" })).await.expect(200);
}

#[tokio::test]
async fn runs_awaiting_review_are_listed_and_streamed() {
    let app = start_server().await;
    let workload = active_reviewed_workload(&app.fixtures(), "main", &[]).await;
    let other_workload = app.active_workload("other").await;
    run(&app, &other_workload).await.expect(200);
    let (sync, _) = run_until_review(&app, &workload).await;
    let queued_run = async_run(&app, &workload).await.expect(202);
    assert_eq!(queued_run.as_object().unwrap().len(), 2, "a queued run has no review field: {queued_run}");
    let list_runs = async || {
        let page = app.get("/v1/executions?review=pending").await.expect(200);
        let rows = page.as_array().unwrap().clone();
        assert!(rows.iter().all(|row| row["status"] == "awaiting_review" && row["queued_result"].is_null()), "{page}");
        rows.iter().map(|row| row["execution_id"].clone()).collect::<Vec<_>>()
    };
    let wait_for_both = async { while list_runs().await.len() < 2 {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), wait_for_both).await.unwrap();
    assert_eq!(list_runs().await, [queued_run["execution_id"].clone(), sync.clone()]);
    for (query, rows) in [
        (format!("workload_id={}", workload.workload_id), 2),
        (format!("workload_id={}", other_workload.workload_id), 0),
        (format!("release_id={}", workload.release_id), 2),
        ("status=awaiting_review".to_owned(), 2),
    ] {
        let page = app.get(format!("/v1/executions?review=pending&{query}")).await.expect(200);
        assert_eq!(page.as_array().unwrap().len(), rows, "{query}");
    }
    for query in ["review=done", "review=", "review=pending&status=completed"] {
        let refusal = app.get(format!("/v1/executions?{query}")).await.expect_refusal(422, "validation_error");
        assert_eq!(refusal["fields"][0]["path"], "review", "{query}");
    }
    // The stream reports that the answer awaits review, and ends. A reader gets the remaining events after the verdict.
    let steps = ["execution.started", "step.started", "step.completed", "step.started", "step.completed"];
    for id in [&queued_run["execution_id"], &sync] {
        let events_so_far = parse_event_stream(&app.get(execution_path(id, "/events")).await);
        let last_event = events_so_far.last().unwrap();
        assert_eq!(
            (last_event.kind.as_str(), &last_event.data["review"]),
            ("execution.awaiting_review", &json!("pending"))
        );
        assert_eq!(&last_event.data["execution_id"], id);
        assert_eq!(kinds_of(&events_so_far[..events_so_far.len() - 1]), steps, "no output event precedes the review");
        let later_events = || app.get(execution_path(id, "/events")).header("last-event-id", last_event.id.to_string());
        assert_eq!(later_events().await.status, 204, "204 stops reconnects before the verdict");
        review_request(&app, id, json!({ "outcome": "approved" })).await.expect(200);
        let remaining_events = parse_event_stream(&later_events().await);
        assert_eq!(
            (kinds_of(&remaining_events), &remaining_events[0].data["output"]),
            (vec!["execution.completed"], &json!(ANSWER))
        );
        let all_events: Vec<_> = events_so_far.iter().chain(&remaining_events).cloned().collect();
        for last_event_id in ["", "0"] {
            let response = app.get(execution_path(id, "/events")).header("last-event-id", last_event_id).await;
            assert_eq!(parse_event_stream(&response), all_events, "events keep their identifiers, {last_event_id:?}");
        }
        assert_eq!(
            parse_event_stream(&app.get(execution_path(id, "/events")).await),
            all_events,
            "events keep their identifiers"
        );
    }
    // The event stream of a rejected run also contains its end, for readers that connect later.
    let (rejected, _) = run_until_review(&app, &workload).await;
    review_request(&app, &rejected, json!({ "outcome": "rejected" })).await.expect(200);
    for reader in ["user:local", "user:reviewer"] {
        let events_so_far = parse_event_stream(&app.get(execution_path(&rejected, "/events")).as_actor(reader).await);
        let end_facts = ["execution.awaiting_review", "execution.failed"];
        assert_eq!(kinds_of(&events_so_far), [steps.as_slice(), &end_facts].concat(), "{reader}");
    }
    assert_eq!(list_runs().await, Vec::<Value>::new());
}

#[tokio::test]
async fn pending_review_ends_by_cancel_suspension_or_timeout() {
    let app = start_server().await;
    let fixtures = app.fixtures();
    let workload = active_reviewed_workload(&fixtures, "main", &["notify_owner"]).await;
    fixtures.bind_role("user:operator", "operator", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:viewer", "viewer", "workspace", Some(WORKSPACE)).await;
    let (first_run, second_run) =
        (run_until_review(&app, &workload).await.0, run_until_review(&app, &workload).await.0);
    let cancel = |id: &Value, actor: &str| app.post(execution_path(id, "/cancel"), json!({})).as_actor(actor);
    cancel(&first_run, "user:viewer").await.expect_refusal(403, "forbidden");
    let cancelled = cancel(&first_run, "user:local").idempotency_key("stop").await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["error"]["code"]), (&json!("cancelled"), &json!("cancelled")));
    let replay = cancel(&first_run, "user:local").idempotency_key("stop").await;
    assert_eq!((replay.status, replay.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(cancel(&second_run, "user:operator").await.expect(200)["outcome"], "cancelled");
    let end_facts = facts_of_kind(&app, "execution.ended").await;
    assert_eq!(
        (&end_facts[1]["actor"], &end_facts[1]["detail"]["notify"]),
        (&json!("user:operator"), &json!("team:tests"))
    );

    let suspended = active_reviewed_workload(&fixtures, "suspended", &[]).await;
    let (switched_off, _) = run_until_review(&app, &suspended).await;
    let path_of = |workload: &ActiveWorkload| format!("/v1/workloads/{}", workload.workload_id);
    app.patch(path_of(&suspended), json!({ "status": "suspended" })).await.expect(200);
    // The workload is suspended: the verdict is refused at once, even before the sweep has ended the run.
    review_request(&app, &switched_off, json!({ "outcome": "approved" }))
        .await
        .expect_refusal(409, "review_not_pending");
    let ended_run = wait_until_ended(&app, &switched_off).await;
    assert_eq!(
        (&ended_run["status"], &ended_run["error"]["code"]),
        (&json!("cancelled"), &json!("workload_suspended"))
    );

    let (unreviewed, _) = run_until_review(&app, &workload).await;
    const WEEK: i64 = 7 * 86_400;
    app.database().set_clock_offset(WEEK - 60).await.unwrap();
    assert_eq!(
        app.services().reviews.end_reviews_without_verdict().await.unwrap(),
        0,
        "the review expires a minute later"
    );
    app.database().set_clock_offset(WEEK + 1).await.unwrap();
    review_request(&app, &unreviewed, json!({ "outcome": "approved" })).await.expect_refusal(409, "review_not_pending");
    let ended_run = wait_until_ended(&app, &unreviewed).await;
    assert_eq!((&ended_run["status"], &ended_run["outcome"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!((&ended_run["error"]["code"], &ended_run["queued_result"]), (&json!("review_lapsed"), &Value::Null));
    assert_eq!(facts_of_kind(&app, "execution.ended").await.last().unwrap()["actor"], "system:review");
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution_review").await, 0);
    assert_eq!(query_count(&app, "SELECT count(*) FROM execution_result").await, 0);
}

#[tokio::test]
async fn one_of_many_concurrent_verdicts_counts() {
    let app = start_server().await;
    let workload = active_reviewed_workload(&app.fixtures(), "main", &[]).await;
    let (id, _) = run_until_review(&app, &workload).await;
    let verdicts = (0..12).map(|number| {
        let outcome = if number % 2 == 0 { "approved" } else { "rejected" };
        app.post(execution_path(&id, "/review"), json!({ "outcome": outcome }))
            .as_actor(&format!("user:r{number}"))
            .into_future()
    });
    let responses = join_all(verdicts).await;
    assert_eq!(responses.iter().filter(|response| response.status == 200).count(), 1);
    responses.iter().filter(|response| response.status != 200).for_each(|response| {
        response.expect_refusal(409, "review_not_pending");
    });
    assert_eq!(facts_of_kind(&app, "execution.reviewed").await.len(), 1);
    let status = app.get(execution_path(&id, "")).await.expect(200)["status"].clone();
    let result_count = query_count(&app, "SELECT count(*) FROM execution_result").await;
    assert_eq!(result_count, i64::from(status == "completed"));
}

/// In every dispatch mode, a waiting caller gets its response when the review starts. Its idempotency key then finds
/// the run.
#[tokio::test]
async fn idempotency_key_finds_a_run_that_awaits_review() {
    for dispatch in ["hybrid", "queued"] {
        let provider = StubProvider::new(ProviderBehaviour::Answers(ANSWER.to_owned()));
        let app = TestApp::builder().setting("FAIRWAY_DISPATCH", dispatch).provider(provider.clone()).start().await;
        let workload = active_reviewed_workload(&app.fixtures(), "main", &[]).await;
        let started_at = std::time::Instant::now();
        let first_response = run(&app, &workload).idempotency_key("k").await.expect(202);
        assert_eq!(first_response["review"], "pending", "{dispatch}");
        assert!(started_at.elapsed() < std::time::Duration::from_secs(10), "no wait for the review: {dispatch}");
        let replay = run(&app, &workload).idempotency_key("k").await;
        assert_eq!((replay.expect(202), replay.header("idempotency-replayed")), (first_response.clone(), Some("true")));
        review_request(&app, &first_response["execution_id"], json!({ "outcome": "approved" })).await.expect(200);
        assert_eq!(run(&app, &workload).idempotency_key("k").await.expect(200)["output"], ANSWER);
        assert_eq!(provider.call_count(), 1);
    }
}
