//! Records of runs that read documents. The audit log contains their digest, so a bundle reveals each change in the
//! database.

use super::{RETRIEVAL_FLOW, RetrievalWorkload};
use crate::{
    evidence_bundle::{bundle, failed_checks, keys, statement},
    execution::wait_until_ended,
    support::workspace_fixture::knowledge_content,
};
use fairway_domain::{
    asset::canonical::Checksum,
    evidence::{bundle::verify_bundle, run_records::RunRecords},
};
use serde_json::{Value, json};

const PASSAGE: &str = "Everybody has thirty days of leave a year.";

async fn run(desk: &RetrievalWorkload) -> Value {
    desk.execute("How many days of leave?").await.expect(200)["execution_id"].clone()
}

#[tokio::test]
async fn bundle_names_decisions_documents_and_their_index_revision() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &["require_citation"]).await;
    let execution = run(&setup).await;
    let response = bundle(&setup.app, execution.as_str().unwrap()).await;
    let report = verify_bundle(&response.body, &keys(&setup.app).await);
    assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{report:#?}");
    assert!(report.has_named_records);
    let predicate = statement(&response).predicate;
    let [text] = predicate.records.as_slice() else { panic!("{:?}", predicate.records) };
    let records: RunRecords = serde_json::from_str(text).unwrap();
    let [decision] = records.decisions.as_slice() else { panic!("{:?}", records.decisions) };
    assert_eq!((decision.outcome.as_str(), decision.reason_code.as_str()), ("allow_with_obligations", "fine"));
    assert_eq!(decision.obligations, ["require_citation"]);
    let passage = Checksum::blake3_of(PASSAGE.as_bytes());
    let lineage_item = records.lineage.iter().find(|item| item.reference == "handbook#leave/0").unwrap();
    assert_eq!((lineage_item.origin.as_str(), lineage_item.digest.as_str()), ("knowledge_base", passage.as_str()));
    let inputs = records.lineage.iter().find(|item| item.reference == "inputs").unwrap();
    assert_eq!(predicate.evidence["execution"]["input_digest"], inputs.digest.as_str());
    let retrieval = records.artifacts.iter().find(|entry| entry.artifact_kind == "retrieval_event").unwrap();
    let document = predicate.documents.iter().find(|document| document.artifact_id == retrieval.artifact_id).unwrap();
    let document: Value = serde_json::from_str(document.body.as_deref().unwrap()).unwrap();
    assert_eq!(document["index_revision"], 1);
    assert_eq!(document["chunks"][0]["document_id"], "leave");
    assert_eq!(document["chunks"][0]["digest"], passage.as_str());
    assert!(!String::from_utf8(response.body.to_vec()).unwrap().contains("thirty days"));
}

/// A running server signs the current database content. The log still contains the digest of the original records.
#[tokio::test]
async fn changed_records_are_named_by_the_verifier() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let owner = setup.app.database().connect_as_owner().await.unwrap();
    let keys = keys(&setup.app).await;
    for (table, edit) in [
        ("policy_decision", "UPDATE policy_decision SET reason_code = 'better'"),
        ("policy_decision", "UPDATE policy_decision SET outcome = 'allow_with_obligations'"),
        (
            "evidence_artifact",
            "UPDATE evidence_artifact SET body = replace(body, '\"index_revision\":1', '\"index_revision\":2')",
        ),
        (
            "evidence_artifact",
            "UPDATE evidence_artifact SET body = replace(body, '\"document_id\":\"leave\"', '\"document_id\":\"other\"')",
        ),
        ("evidence_artifact", "DELETE FROM evidence_artifact"),
        ("context_lineage", "UPDATE context_lineage SET digest = decode(repeat('ab', 32), 'hex')"),
        ("context_lineage", "DELETE FROM context_lineage"),
    ] {
        let execution = run(&setup).await;
        let execution = execution.as_str().unwrap();
        let first_bundle = bundle(&setup.app, execution).await;
        assert!(verify_bundle(&first_bundle.body, &keys).has_passed(), "{edit}");
        let edit = format!(
            "ALTER TABLE {table} DISABLE TRIGGER append_only; {edit} WHERE execution_id = '{execution}';
             ALTER TABLE {table} ENABLE TRIGGER append_only"
        );
        owner.batch_execute(&edit).await.unwrap();
        let changed_bundle = bundle(&setup.app, execution).await;
        assert_ne!(statement(&changed_bundle).predicate.records, statement(&first_bundle).predicate.records, "{edit}");
        let failed = failed_checks(&verify_bundle(&changed_bundle.body, &keys));
        assert!(failed.contains(&"records that a fact names"), "{edit}: {failed:?}");
    }
}

/// The records include the decisions at acceptance, at the start by a worker, and of a reviewer.
#[tokio::test]
async fn queued_and_reviewed_runs_have_all_their_decisions() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &["human_review"]).await;
    let keys = keys(&setup.app).await;
    for verdict in ["approved", "rejected"] {
        let body = json!({ "environment": "dev", "inputs": { "ticket": "leave" } });
        let queued =
            setup.app.post(setup.workload.execute_path(), body).header("prefer", "respond-async").await.expect(202);
        let path = format!("/v1/executions/{}", queued["execution_id"].as_str().unwrap());
        let wait_for_review = async { while setup.app.get(&path).await.expect(200)["status"] != "awaiting_review" {} };
        tokio::time::timeout(std::time::Duration::from_secs(60), wait_for_review).await.unwrap();
        let review = json!({ "outcome": verdict });
        setup.app.post(format!("{path}/review"), review).as_actor("user:reviewer").await.expect(200);
        wait_until_ended(&setup.app, &queued["execution_id"]).await;
        let response = bundle(&setup.app, queued["execution_id"].as_str().unwrap()).await;
        let report = verify_bundle(&response.body, &keys);
        assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{verdict}: {report:#?}");
        let records: Vec<RunRecords> =
            statement(&response).predicate.records.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        assert!(report.has_named_records && records.len() == 2, "{records:#?}");
        assert_eq!(records[0].decisions.len(), 2, "at acceptance and at the start");
        assert_eq!(records[1].artifacts[0].artifact_kind, "review");
    }
}

/// A run that its policy denies has one decision. The fact of the denial names this record.
#[tokio::test]
async fn denied_runs_name_their_decision() {
    let setup = RetrievalWorkload::start(knowledge_content("handbook"), &[]).await;
    let fixtures = setup.app.fixtures();
    let rule = json!([{ "id": "none", "condition": "always", "outcome": "deny", "reason_code": "closed" }]);
    let versions = vec![
        fixtures.ticket_prompt("prompt2").await,
        fixtures.policy_with_rules("policy2", rule).await,
        fixtures.model_policy("models2").await,
        setup.base.clone(),
        fixtures.flow("flow2", RETRIEVAL_FLOW).await,
    ];
    let denied_workload = fixtures.active_workload_with_bindings("closed", versions).await;
    let body = json!({ "environment": "dev", "inputs": { "ticket": "x" } });
    let denial = setup.app.post(denied_workload.execute_path(), body).await.expect_refusal(403, "policy_denied");
    let response = bundle(&setup.app, denial["execution_id"].as_str().unwrap()).await;
    let report = verify_bundle(&response.body, &keys(&setup.app).await);
    assert!(report.has_passed() && report.has_named_records, "{report:#?}");
    let records: RunRecords = serde_json::from_str(&statement(&response).predicate.records[0]).unwrap();
    assert_eq!(records.decisions[0].reason_code, "closed");
}
