//! Tests of the records of a run: the log contains their digest, and the evidence must match them.

use super::*;
use crate::evidence::run_records::{ArtifactEntry, DecisionEntry, LineageEntry};

const RETRIEVAL: &str = r#"{"chunks":[{"digest":"blake3:00","document_id":"d","index":0}],"index_revision":3,"knowledge_base_asset_id":"00000000-0000-0000-0000-000000000009","retrieved_chunk_count":2}"#;
const CALL: &str = r#"{"model":"m"}"#;

pub(super) fn documents() -> Vec<BundledEvidenceArtifact> {
    let document = |(number, body): (u128, &str)| BundledEvidenceArtifact {
        artifact_id: id(number).into(),
        body: Some(body.to_owned()),
    };
    [(50, RETRIEVAL), (51, CALL)].map(document).to_vec()
}

/// The records of the run: two decisions (the second is stricter), two artifacts, and a text that a step read.
pub(super) fn sample_records() -> RunRecords {
    let decision = |number: u128, outcome: &str, reason: &str, obligations: &[&str]| DecisionEntry {
        decision_id: id(number).into(),
        obligations: obligations.iter().copied().map(str::to_owned).collect(),
        outcome: outcome.to_owned(),
        reason_code: reason.to_owned(),
        rules: vec!["all".to_owned()],
    };
    let artifact = |number: u128, kind: &str, body: &str| ArtifactEntry {
        artifact_id: id(number).into(),
        artifact_kind: kind.to_owned(),
        digest: Checksum::blake3_of(body.as_bytes()),
    };
    RunRecords {
        artifacts: vec![artifact(50, "retrieval_event", RETRIEVAL), artifact(51, "provider_call", CALL)],
        decisions: vec![
            decision(60, "allow", "quiet", &[]),
            decision(61, "allow_with_obligations", "watched", &["record_transcript"]),
        ],
        lineage: vec![LineageEntry {
            action_class: "read".to_owned(),
            digest: format!("blake3:{}", "5".repeat(64)),
            influence_role: "evidence".to_owned(),
            lineage_id: id(70).into(),
            origin: "knowledge_base".to_owned(),
            reference: "handbook#d/0".to_owned(),
            size_bytes: 12,
        }],
    }
}

fn report_of(mutate: impl FnOnce(&mut ExecutionPredicate)) -> BundleReport {
    let mut predicate = predicate();
    mutate(&mut predicate);
    verify_bundle(seal(&ExecutionStatement::about_run(predicate), &[1]).as_bytes(), &[verifier(1)])
}

/// Manipulations of the database whose result the server would sign. The verification reports each of them.
#[test]
fn names_each_change_of_the_records() {
    type Mutation = fn(&mut ExecutionPredicate);
    fn replace_in_first_record(predicate: &mut ExecutionPredicate, from: &str, to: &str) {
        assert!(predicate.records[0].contains(from));
        predicate.records[0] = predicate.records[0].replacen(from, to, 1);
    }
    let mutations: [(&[&str], Mutation); 18] = [
        (&["policy decision in the records"], |predicate| {
            predicate.evidence["policy_decision"]["outcome"] = json!("allow")
        }),
        (&["policy decision in the records"], |predicate| {
            predicate.evidence["policy_decision"]["reason_code"] = json!("quiet")
        }),
        (&["policy decision in the records"], |predicate| {
            predicate.evidence["policy_decision"]["rules"] = json!(["all", "more"])
        }),
        // The records contain the first decision too, but the second decision is stricter.
        (&["policy decision in the records"], |predicate| {
            let decision =
                json!({ "decision_id": id(60), "outcome": "allow", "reason_code": "quiet", "rules": ["all"] });
            predicate.evidence["policy_decision"] = decision;
        }),
        (&["policy decision in the records"], |predicate| drop(predicate.evidence.remove("policy_decision"))),
        (&["number of obligations", "obligation in the evidence"], |predicate| {
            predicate.evidence["obligations"] = json!([])
        }),
        (&["obligation in the evidence"], |predicate| {
            predicate.evidence["obligations"][0]["obligation_name"] = json!("human_review")
        }),
        (&["document in the evidence"], |predicate| {
            predicate.evidence["evidence_artifacts"][1]["artifact_kind"] = json!("memory")
        }),
        (&["number of documents"], |predicate| {
            drop(predicate.evidence["evidence_artifacts"].as_array_mut().unwrap().pop());
        }),
        (&["number of retrievals", "retrieval in its document"], |predicate| {
            predicate.evidence["retrieval_events"] = json!([])
        }),
        (&["retrieval in its document"], |predicate| {
            predicate.evidence["retrieval_events"][0]["retrieved_chunk_count"] = json!(1)
        }),
        (&["retrieval in its document"], |predicate| {
            predicate.evidence["retrieval_events"][0]["knowledge_base_asset_id"] = json!(id(8));
        }),
        (&["text of the document"], |predicate| {
            predicate.documents[0].body = Some(RETRIEVAL.replace("blake3:00", "blake3:01"))
        }),
        (&["number of included documents", "text of the document"], |predicate| drop(predicate.documents.pop())),
        (&["number of included documents"], |predicate| predicate.documents.push(predicate.documents[0].clone())),
        (&["records that a fact names", "records of the run in the log"], |predicate| {
            replace_in_first_record(predicate, "blake3:5", "blake3:6")
        }),
        (&["records that a fact names", "records of the run in the log", "form of the records"], |predicate| {
            replace_in_first_record(predicate, "{\"artifacts\"", "{ \"artifacts\"");
        }),
        (&["number of records"], |predicate| predicate.records.push(predicate.records[0].clone())),
    ];
    for (expected, mutate) in mutations {
        let report = report_of(mutate);
        let failed_checks = failed_checks(&report);
        assert!(expected.iter().all(|name| failed_checks.contains(name)), "{expected:?}: {failed_checks:?}");
        assert!(report.proven_statements().is_empty());
    }
}

#[test]
fn omitted_documents_are_reported_and_do_not_fail() {
    let report = report_of(|predicate| predicate.documents[0].body = None);
    let skipped = |check: &&BundleCheck| check.verdict == CheckVerdict::NotIncluded;
    assert!(report.has_passed(), "{:?}", failed_checks(&report));
    assert_eq!(
        report.checks.iter().filter(skipped).map(|check| check.name).collect::<Vec<_>>(),
        ["text of the document"]
    );
}

/// The process of a run can end before it stores any record. The report then lists the missing proof as a limitation.
#[test]
fn run_without_records_digest_proves_less() {
    let with_records = report_of(|_| ());
    let mut predicate = predicate_over(&log_with_records(&RunRecords::default()), &[30, APPROVAL_FACT, 41]);
    (predicate.records, predicate.documents) = (Vec::new(), Vec::new());
    let without_records = ExecutionStatement::about_run(predicate);
    let without_records = verify_bundle(seal(&without_records, &[1]).as_bytes(), &[verifier(1)]);
    assert!(with_records.has_passed() && without_records.has_passed());
    let skipped = |check: &BundleCheck| check.verdict == CheckVerdict::NotIncluded;
    assert!(without_records.checks.iter().any(|check| check.name == "records of the run in the log" && skipped(check)));
    assert!(with_records.has_named_records && !without_records.has_named_records);
    assert_eq!(with_records.proven_statements().len(), without_records.proven_statements().len() + 1);
    assert_eq!(with_records.limitations().len() + 1, without_records.limitations().len());
}

/// Verifies the bundle of a run on which a person decided. The fact `last` records that decision, and the fact `first`
/// precedes it. The bundle contains the facts with these log indexes.
fn person_decision_report(
    first: FactKind,
    last: FactKind,
    kind: &str,
    first_records: &RunRecords,
    facts: &[usize],
) -> BundleReport {
    const DECISION: &str = r#"{"outcome":"approved"}"#;
    let decision = ArtifactEntry {
        artifact_id: id(52).into(),
        artifact_kind: kind.to_owned(),
        digest: Checksum::blake3_of(DECISION.as_bytes()),
    };
    let decision = RunRecords { artifacts: vec![decision], ..RunRecords::default() };
    let mut log = log_with_records(&RunRecords::default());
    let end: Value = serde_json::from_slice(&log[41]).unwrap();
    let run = FactSubject { kind: "execution", id: id(1) };
    let fact = |kind, number, records: &RunRecords| {
        let fact = Fact::new(kind, run, None, &stamp(number, "user:eve"), end["detail"].clone());
        fact.with_records_digest(records).canonical_bytes(tenant())
    };
    log[35] = fact(first, 23, first_records);
    log[41] = fact(last, 24, &decision);
    let mut predicate = predicate_over(&log, facts);
    if first_records.is_empty() {
        (predicate.records, predicate.documents) = (Vec::new(), Vec::new());
    }
    predicate.records.push(decision.to_text());
    predicate.documents.push(BundledEvidenceArtifact { artifact_id: id(52).into(), body: Some(DECISION.to_owned()) });
    let listed_artifacts = predicate.evidence["evidence_artifacts"].as_array_mut().unwrap();
    listed_artifacts.push(json!({ "artifact_id": id(52), "artifact_kind": kind }));
    verify_bundle(seal(&ExecutionStatement::about_run(predicate), &[1]).as_bytes(), &[verifier(1)])
}

/// Without the fact that requests the review, a reviewed run would look like a run without records.
#[test]
fn reviewed_run_needs_the_request_for_its_review() {
    let review_report = |facts: &[usize]| {
        let (first, last) = (FactKind::ExecutionReviewRequested, FactKind::ExecutionReviewed);
        person_decision_report(first, last, "review", &sample_records(), facts)
    };
    let report = review_report(&[30, APPROVAL_FACT, 35, 41]);
    assert!(report.has_passed() && report.has_named_records, "{:?}", failed_checks(&report));
    assert!(failed_checks(&review_report(&[30, APPROVAL_FACT, 41])).contains(&"fact before the end of the run"));
}

/// The process of a script ended before it stored a record, and a person resolved the outcome.
#[test]
fn resolved_run_without_records_passes_with_fewer_statements() {
    let resolution_report = |facts: &[usize]| {
        let (first, last) = (FactKind::ExecutionEnded, FactKind::ExecutionResolved);
        person_decision_report(first, last, "settlement", &RunRecords::default(), facts)
    };
    let report = resolution_report(&[30, APPROVAL_FACT, 35, 41]);
    assert!(report.has_passed() && !report.has_named_records, "{:?}", failed_checks(&report));
    assert!(failed_checks(&resolution_report(&[30, APPROVAL_FACT, 41])).contains(&"fact before the end of the run"));
}

#[test]
fn first_closing_fact_shows_whether_log_has_records_digest() {
    let run = id(1).into();
    let has_digest = |records: &RunRecords| {
        let log = log_with_records(records);
        has_run_records_digest(log.iter().map(Vec::as_slice), run)
    };
    assert!(has_digest(&sample_records()) && !has_digest(&RunRecords::default()));
    assert!(!has_run_records_digest(std::iter::empty(), run));
}

#[test]
fn text_is_canonical() {
    let records = sample_records();
    let canonical = serde_json_canonicalizer::to_string(&records).unwrap();
    assert_eq!(records.to_text(), canonical);
    let special = "\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}/\"\\\u{1f600}";
    let special_records = RunRecords {
        decisions: vec![DecisionEntry { reason_code: special.to_owned(), ..records.decisions[0].clone() }],
        ..RunRecords::default()
    };
    assert_eq!(special_records.to_text(), serde_json_canonicalizer::to_string(&special_records).unwrap());
}
