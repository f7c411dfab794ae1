//! Evidence bundles: fetched over HTTP, and verified with the function that `fairway verify` uses.

use crate::support::workspace_fixture::WorkspaceFixture;
use fairway_domain::{
    evidence::bundle::{
        BundleReport, CheckVerdict, Envelope, ExecutionStatement,
        slsa_release_summary::{ReleaseStatement, SummaryResult},
        verify_bundle,
    },
    transparency_log::VerifierKey,
};
use fairway_testkit::{TestApp, app::Response};
use serde_json::json;
use std::time::Duration;

/// The bundle of a run, as soon as a checkpoint covers the run's end.
pub(crate) async fn bundle(app: &TestApp, execution: &str) -> Response {
    wait_for_bundle(app, &format!("/v1/executions/{execution}/evidence-bundle")).await
}

/// The bundle at a path, as soon as a checkpoint covers its facts.
async fn wait_for_bundle(app: &TestApp, path: &str) -> Response {
    let fetched = async {
        loop {
            let response = app.get(path).await;
            if response.status != 503 {
                return response;
            }
            response.expect_refusal(503, "not_yet_in_checkpoint");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let response = tokio::time::timeout(Duration::from_secs(60), fetched).await.unwrap();
    assert_eq!(response.status, 200, "{response}");
    response
}

pub(crate) async fn keys(app: &TestApp) -> Vec<VerifierKey> {
    let listed = app.get("/v1/audit/keys").await.expect(200);
    listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| VerifierKey::parse(key["verifier_key"].as_str().unwrap()).unwrap())
        .collect()
}

pub(crate) fn failed_checks(report: &BundleReport) -> Vec<&'static str> {
    report.checks.iter().filter(|check| check.verdict == CheckVerdict::Failed).map(|check| check.name).collect()
}

pub(crate) fn statement(response: &Response) -> ExecutionStatement {
    serde_json::from_slice(&Envelope::parse(&response.body).unwrap().payload).unwrap()
}

#[tokio::test]
async fn bundle_of_a_run_verifies_offline_and_holds_no_payload() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "canary-in-the-ticket" } });
    let run = app.post(workload.execute_path(), body).await.expect(200);
    let execution = run["execution_id"].as_str().unwrap();
    let response = bundle(&app, execution).await;
    assert_eq!(response.header("content-type"), Some("application/vnd.dsse.envelope.v1+json"));
    let report = verify_bundle(&response.body, &keys(&app).await);
    assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{report:#?}");
    assert!(report.has_passed());
    let statement = statement(&response);
    assert_eq!(statement.subject.len(), 2);
    assert_eq!(statement.subject[0].name, format!("executions/{execution}/output"));
    let predicate = &statement.predicate;
    assert_eq!(predicate.evidence["execution"]["execution_id"], execution);
    assert_eq!(predicate.release.bindings.len(), workload.versions.len());
    assert!(predicate.release.bindings.iter().all(|version| version.content.is_some()));
    assert!(predicate.facts.iter().any(|fact| fact.body.contains("\"execution.ended\"")));
    assert!(!String::from_utf8(statement.to_payload()).unwrap().contains("canary"));
    // The bundle contains the same evidence as the evidence route, but without texts that people wrote.
    let mut graph = app.get(format!("/v1/executions/{execution}/evidence-graph")).await.expect(200);
    for approval in graph["approvals"].as_array_mut().unwrap() {
        approval["note"] = json!(null);
        approval["note_withheld"] = json!(true);
    }
    assert_eq!(serde_json::Value::Object(predicate.evidence.clone()), graph);
}

#[tokio::test]
async fn changed_database_is_named_by_the_verifier() {
    let app = TestApp::start().await;
    let workload = app.active_workload("main").await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let run = app.post(workload.execute_path(), body).await.expect(200);
    let execution = run["execution_id"].as_str().unwrap();
    let first_bundle = bundle(&app, execution).await;
    let keys = keys(&app).await;
    let owner = app.database().connect_as_owner().await.unwrap();
    // Replaces a prompt in the database after the run. The running server signs the current database content, and
    // the verifier detects the change.
    let prompt = workload.versions.iter().find(|version| version.kind == "prompt_template").unwrap();
    let edit = format!(
        "ALTER TABLE asset_version DISABLE TRIGGER append_only;
         UPDATE asset_version SET content = replace(content, '}}', ' }}') WHERE asset_version_id = '{}';
         ALTER TABLE asset_version ENABLE TRIGGER append_only",
        prompt.asset_version_id
    );
    owner.batch_execute(&edit).await.unwrap();
    let changed_bundle = bundle(&app, execution).await;
    assert_ne!(changed_bundle.body, first_bundle.body);
    assert_eq!(failed_checks(&verify_bundle(&changed_bundle.body, &keys)), ["content of the version"]);
    // Replaces an approver in the stored evidence snapshot.
    let edit = "ALTER TABLE evidence_snapshot DISABLE TRIGGER append_only;
         UPDATE evidence_snapshot SET body = replace(body, 'user:', 'user:x');
         ALTER TABLE evidence_snapshot ENABLE TRIGGER append_only";
    owner.batch_execute(edit).await.unwrap();
    let changed_bundle = bundle(&app, execution).await;
    assert!(failed_checks(&verify_bundle(&changed_bundle.body, &keys)).contains(&"approval in the log"));
    // The bundle from before the changes still verifies.
    assert!(verify_bundle(&first_bundle.body, &keys).has_passed());
}

#[tokio::test]
async fn running_and_awaiting_runs_have_no_bundle() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    for execution in [fixture.create_leased_run().await, fixture.create_awaiting_review_run().await] {
        app.get(format!("/v1/executions/{execution}/evidence-bundle")).await.expect_refusal(409, "execution_not_ended");
    }
}

#[tokio::test]
async fn summary_of_a_release_follows_its_life_and_verifies_offline() {
    let app = TestApp::start().await;
    let first_workload = app.active_workload("main").await;
    let keys = keys(&app).await;
    let bundle_path = |release: &str| format!("/v1/releases/{release}/evidence-bundle");
    let summary = |release: String| {
        let app = &app;
        async move {
            let response = wait_for_bundle(app, &bundle_path(&release)).await;
            let statement: ReleaseStatement =
                serde_json::from_slice(&Envelope::parse(&response.body).unwrap().payload).unwrap();
            (response, statement.predicate)
        }
    };
    let (response, predicate) = summary(first_workload.release_id.clone()).await;
    assert_eq!(response.header("content-type"), Some("application/vnd.dsse.envelope.v1+json"));
    let report = verify_bundle(&response.body, &keys);
    assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{report:#?}");
    assert_eq!(predicate.verification_result, SummaryResult::Passed);
    assert_eq!(predicate.evidence.release.bindings.len(), first_workload.versions.len());
    // A draft has no approvals, and its summary can be requested too.
    let body = json!({ "workload_id": first_workload.workload_id, "environment": "dev", "target_lane": "all" });
    let draft = app.post("/v1/releases", body).await.expect(201)["release_id"].as_str().unwrap().to_owned();
    let (response, predicate) = summary(draft).await;
    assert_eq!(predicate.verification_result, SummaryResult::Failed);
    assert_eq!(failed_checks(&verify_bundle(&response.body, &keys)), ["permission to deploy"]);
    // The first summary after a retirement contains the retirement.
    let retire = json!({ "to_state": "retired" });
    app.post(format!("/v1/releases/{}/transition", first_workload.release_id), retire).await.expect(200);
    let (response, predicate) = summary(first_workload.release_id.clone()).await;
    assert_eq!(predicate.verification_result, SummaryResult::Failed);
    assert_eq!(failed_checks(&verify_bundle(&response.body, &keys)), ["permission to deploy"]);
}

/// The use case from which a workload was published is part of the log, of each release summary, and of each run's
/// evidence.
#[tokio::test]
async fn evidence_names_the_use_case_of_a_workload() {
    let app = TestApp::start().await;
    let fixture = WorkspaceFixture::create(&app).await;
    let use_case = fixture.create_use_case(&[]).await;
    let published = app.post(fixture.use_case_path(&format!("/{use_case}/publish")), json!({})).await.expect(200);
    let (release, workload) = (published["release_id"].as_str().unwrap(), &published["workload_id"]);
    let keys = keys(&app).await;
    let names_origin = |body: &str| {
        let fact: serde_json::Value = serde_json::from_str(body).unwrap();
        fact["kind"] == "use_case.published"
            && fact["subject"]["id"] == use_case.as_str()
            && &fact["detail"]["workload_id"] == workload
    };
    let summary = async |release: &str| {
        let response = wait_for_bundle(&app, &format!("/v1/releases/{release}/evidence-bundle")).await;
        let statement: ReleaseStatement =
            serde_json::from_slice(&Envelope::parse(&response.body).unwrap().payload).unwrap();
        let facts = &statement.predicate.evidence.facts;
        assert!(facts.iter().any(|fact| names_origin(&fact.body)), "{release}");
        (response, statement.predicate.verification_result)
    };
    assert_eq!(summary(release).await.1, SummaryResult::Failed, "a draft is not approved");
    fixture.fixtures.transition(release, "review_ready").await;
    let verdict = json!({ "outcome": "approved", "subject_kind": "release", "subject_ref": release });
    app.post(format!("/v1/releases/{release}/approvals"), verdict).await.expect(201);
    fixture.fixtures.transition(release, "approved").await;
    fixture.fixtures.transition(release, "active").await;
    let (response, result) = summary(release).await;
    assert_eq!(result, SummaryResult::Passed);
    let report = verify_bundle(&response.body, &keys);
    assert!(report.has_passed(), "{report:#?}");
    // The use case is also named for a later release of the workload.
    let later_release = app.post("/v1/releases", json!({ "workload_id": workload, "environment": "production" })).await;
    assert_eq!(summary(later_release.expect(201)["release_id"].as_str().unwrap()).await.1, SummaryResult::Failed);
    let slug = app.get(format!("/v1/workloads/{}", workload.as_str().unwrap())).await.expect(200)["slug"].clone();
    let path = format!("/v1/workloads/by-slug/{}/execute", slug.as_str().unwrap());
    let run = app.post(path, json!({ "environment": "dev", "inputs": { "ticket": "A refund." } })).await.expect(200);
    let response = bundle(&app, run["execution_id"].as_str().unwrap()).await;
    assert!(statement(&response).predicate.facts.iter().any(|fact| names_origin(&fact.body)));
    assert!(verify_bundle(&response.body, &keys).has_passed());
    let events = app.get("/v1/audit/events?limit=200").await.expect(200);
    let is_origin = |event: &&serde_json::Value| {
        event["kind"] == "use_case.published" && event["subject"]["id"] == use_case.as_str()
    };
    assert_eq!(events.as_array().unwrap().iter().filter(is_origin).count(), 1, "{events}");
}
