//! The actors that may decide on erasures, and the number of decisions.

use super::{APPROVER, REQUESTER, SUBJECT, approve, complete, request_erasure};
use crate::{audit::audit_log, support::workspace_fixture::WORKSPACE};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

#[tokio::test]
async fn requester_may_not_approve_its_own_erasure() {
    let app = TestApp::start().await;
    let erasure = request_erasure(&app, SUBJECT).await;
    let own_approval = app.post(format!("{erasure}/approve"), json!({})).as_actor(REQUESTER);
    own_approval.await.expect_refusal(403, "self_approval_not_allowed");
    assert_eq!(app.get(&erasure).await.expect(200)["status"], "requested");
    let events_of_requester: Vec<Value> =
        audit_log(&app).await.into_iter().filter(|event| event["actor"] == REQUESTER).collect();
    let kinds: Vec<&Value> = events_of_requester.iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds, ["erasure.self_approval_refused", "erasure.requested"]);
    assert_eq!(events_of_requester[0]["categories"], json!(["compliance_findings"]));
    approve(&app, &erasure).await;
    let approved = app.get(&erasure).await.expect(200);
    let people = [&approved["requested_by"], &approved["decided_by"]];
    assert_eq!((&approved["status"], people), (&json!("approved"), [&json!(REQUESTER), &json!(APPROVER)]));
    // The database also refuses an invalid decision, in case the server has a defect.
    let owner = app.database().connect_as_owner().await.unwrap();
    let forged = owner.batch_execute("UPDATE subject_erasure SET decided_by = requested_by").await;
    assert!(forged.unwrap_err().as_db_error().unwrap().message().contains("check constraint"));
}

#[tokio::test]
async fn each_erasure_is_decided_once() {
    let app = TestApp::start().await;
    let withdrawn = request_erasure(&app, SUBJECT).await;
    let refuse = app.post(format!("{withdrawn}/refuse"), json!({})).as_actor(REQUESTER).await.expect(200);
    assert_eq!((&refuse["status"], &refuse["decided_by"]), (&json!("refused"), &json!(REQUESTER)));
    let completed = request_erasure(&app, SUBJECT).await;
    approve(&app, &completed).await;
    for (erasure, state) in [(&withdrawn, "refused"), (&completed, "approved"), (&completed, "completed")] {
        if state == "completed" {
            complete(&app).await;
        }
        for verb in ["approve", "refuse"] {
            let second_response = app.post(format!("{erasure}/{verb}"), json!({})).as_actor("user:joan").await;
            let detail = second_response.expect_refusal(409, "invalid_transition");
            assert_eq!((&detail["current_state"], &detail["valid_transitions"]), (&json!(state), &json!([])));
        }
    }
    let statuses = async |query: &str| -> Vec<Value> {
        let listed = app.get(format!("/v1/erasures{query}")).await.expect(200);
        listed.as_array().unwrap().iter().map(|erasure| erasure["status"].clone()).collect()
    };
    assert_eq!(statuses("").await, ["completed", "refused"]);
    assert_eq!(statuses("?status=refused").await, ["refused"]);
    app.get("/v1/erasures?status=lost").await.expect_refusal(422, "validation_error");
    // The facts contain the subject's reference and counts. There is one fact for each decision.
    let owner = app.database().connect_as_owner().await.unwrap();
    let facts = "SELECT kind, convert_from(body, 'UTF8')::jsonb -> 'detail' FROM fact WHERE kind LIKE 'erasure.%' ORDER BY fact_id";
    let facts: Vec<(String, Value)> =
        owner.query(facts, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let expected_fact = json!({ "erased_actor": SUBJECT, "requested_by": REQUESTER });
    let expected = [
        ("erasure.requested".to_owned(), json!({ "erased_actor": SUBJECT })),
        ("erasure.refused".to_owned(), expected_fact.clone()),
        ("erasure.requested".to_owned(), json!({ "erased_actor": SUBJECT })),
        ("erasure.approved".to_owned(), expected_fact),
        ("erasure.completed".to_owned(), json!({ "erased_actor": SUBJECT, "runs": 0, "turns": 0, "documents": 0 })),
    ];
    assert_eq!(facts, expected);
}

#[tokio::test]
async fn erasures_stay_in_their_tenant_and_among_its_administrators() {
    let app = TestApp::start().await;
    let fixtures = app.fixtures();
    let erasure = request_erasure(&app, SUBJECT).await;
    let other_tenant = fixtures.tenant("elsewhere").await;
    for path in [erasure.clone(), "/v1/erasures/00000000-0000-7000-8000-00000000ffff".to_owned()] {
        app.get(&path).in_tenant(&other_tenant).await.expect_refusal(404, "not_found");
        for verb in ["approve", "refuse"] {
            let decide = app.post(format!("{path}/{verb}"), json!({})).in_tenant(&other_tenant);
            decide.await.expect_refusal(404, "not_found");
        }
    }
    assert_eq!(app.get("/v1/erasures").in_tenant(&other_tenant).await.expect(200), json!([]));
    fixtures.bind_role("user:boss", "workspace_admin", "workspace", Some(WORKSPACE)).await;
    fixtures.bind_role("user:auditor", "auditor", "workspace", Some(WORKSPACE)).await;
    for actor in ["user:boss", "user:auditor"] {
        for request in [
            app.get("/v1/erasures"),
            app.get(&erasure),
            app.post("/v1/erasures", json!({ "subject": SUBJECT })),
            app.post(format!("{erasure}/approve"), json!({})),
            app.post(format!("{erasure}/refuse"), json!({})),
        ] {
            let refusal = request.as_actor(actor).await.expect_refusal(403, "forbidden");
            assert_eq!(refusal["permission"], "tenant.manage");
        }
    }
    assert_eq!(app.get(&erasure).await.expect(200)["status"], "requested");
}

#[tokio::test]
async fn refuses_subjects_that_are_no_single_actor() {
    let app = TestApp::start().await;
    for subject in ["", "eve", "anonymous", "group:staff", "system:sequencer", "user:Eve", "user:eve;"] {
        let detail =
            app.post("/v1/erasures", json!({ "subject": subject })).await.expect_refusal(422, "validation_error");
        assert_eq!(detail["fields"][0]["path"], "subject", "{subject}");
    }
    let unknown = json!({ "subject": SUBJECT, "reason": "x" });
    app.post("/v1/erasures", unknown).await.expect_refusal(422, "validation_error");
    // A decision with a stale `If-Match` is refused.
    let erasure = request_erasure(&app, SUBJECT).await;
    let stale = app.post(format!("{erasure}/approve"), json!({})).as_actor(APPROVER).header("if-match", "\"7\"");
    stale.await.expect_refusal(412, "precondition_failed");
    let current = app.get(&erasure).await;
    let etag = current.header("etag").unwrap().to_owned();
    app.post(format!("{erasure}/approve"), json!({})).as_actor(APPROVER).header("if-match", etag).await.expect(200);
}
