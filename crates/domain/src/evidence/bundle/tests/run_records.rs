//! The records of a run: the log contains their digest, and the evidence must match them.

use super::*;
use crate::evidence::run_records::{ArtifactEntry, DecisionEntry, LineageEntry};

const RETRIEVAL: &str = r#"{"chunks":[{"digest":"blake3:00","document_id":"d","index":0}],"index_revision":3,"knowledge_base_asset_id":"00000000-0000-0000-0000-000000000009","retrieved_chunk_count":2}"#;
const CALL: &str = r#"{"model":"m"}"#;

pub(super) fn documents() -> Vec<BundledDocument> {
    let document =
        |(number, body): (u128, &str)| BundledDocument { artifact_id: id(number).into(), body: Some(body.to_owned()) };
    [(50, RETRIEVAL), (51, CALL)].map(document).to_vec()
}

/// The records of the run: two decisions, of which the second is stricter, two documents, and a text that a step read.
pub(super) fn recorded() -> RunRecords {
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
    let mut changed = predicate();
    mutate(&mut changed);
    verify_bundle(seal(&ExecutionStatement::new(changed), &[1]).as_bytes(), &[verifier(1)])
}

/// Changes that a server would sign after a manipulation of its database.
#[test]
fn names_each_change_of_the_records() {
    type Mutation = fn(&mut ExecutionPredicate);
    fn first_text(predicate: &mut ExecutionPredicate, from: &str, to: &str) {
        assert!(predicate.records[0].contains(from));
        predicate.records[0] = predicate.records[0].replacen(from, to, 1);
    }
    let mutations: [(&[&str], Mutation); 18] = [
        (&["policy decision in the records"], |it| it.evidence["policy_decision"]["outcome"] = json!("allow")),
        (&["policy decision in the records"], |it| it.evidence["policy_decision"]["reason_code"] = json!("quiet")),
        (&["policy decision in the records"], |it| it.evidence["policy_decision"]["rules"] = json!(["all", "more"])),
        // The first decision is in the records, but a stricter decision followed it.
        (&["policy decision in the records"], |it| {
            let decision =
                json!({ "decision_id": id(60), "outcome": "allow", "reason_code": "quiet", "rules": ["all"] });
            it.evidence["policy_decision"] = decision;
        }),
        (&["policy decision in the records"], |it| drop(it.evidence.remove("policy_decision"))),
        (&["number of obligations", "obligation in the evidence"], |it| it.evidence["obligations"] = json!([])),
        (&["obligation in the evidence"], |it| {
            it.evidence["obligations"][0]["obligation_name"] = json!("human_review")
        }),
        (&["document in the evidence"], |it| it.evidence["evidence_artifacts"][1]["artifact_kind"] = json!("memory")),
        (&["number of documents"], |it| {
            drop(it.evidence["evidence_artifacts"].as_array_mut().unwrap().pop());
        }),
        (&["number of retrievals", "retrieval in its document"], |it| it.evidence["retrieval_events"] = json!([])),
        (&["retrieval in its document"], |it| it.evidence["retrieval_events"][0]["retrieved_chunk_count"] = json!(1)),
        (&["retrieval in its document"], |it| {
            it.evidence["retrieval_events"][0]["knowledge_base_asset_id"] = json!(id(8));
        }),
        (&["text of the document"], |it| it.documents[0].body = Some(RETRIEVAL.replace("blake3:00", "blake3:01"))),
        (&["number of included documents", "text of the document"], |it| drop(it.documents.pop())),
        (&["number of included documents"], |it| it.documents.push(it.documents[0].clone())),
        (&["records that a fact names", "records of the run in the log"], |it| first_text(it, "blake3:5", "blake3:6")),
        (&["records that a fact names", "records of the run in the log", "form of the records"], |it| {
            first_text(it, "{\"artifacts\"", "{ \"artifacts\"");
        }),
        (&["number of records"], |it| it.records.push(it.records[0].clone())),
    ];
    for (expected, mutate) in mutations {
        let report = report_of(mutate);
        let failed = failed(&report);
        assert!(expected.iter().all(|name| failed.contains(name)), "{expected:?}: {failed:?}");
        assert!(report.proven_statements().is_empty());
    }
}

#[test]
fn omitted_documents_are_reported_and_do_not_fail() {
    let report = report_of(|it| it.documents[0].body = None);
    let skipped = |check: &&BundleCheck| check.verdict == CheckVerdict::NotIncluded;
    assert!(report.has_passed(), "{:?}", failed(&report));
    assert_eq!(
        report.checks.iter().filter(skipped).map(|check| check.name).collect::<Vec<_>>(),
        ["text of the document"]
    );
}

/// The process of a run may end before it stores any record. The report then lists the missing proof as a limitation.
#[test]
fn run_without_named_records_shows_less() {
    let named = report_of(|_| ());
    let mut lost = predicate_over(&log_naming(&RunRecords::default()), &[30, APPROVAL_FACT, 41]);
    (lost.records, lost.documents) = (Vec::new(), Vec::new());
    let unnamed = ExecutionStatement::new(lost);
    let unnamed = verify_bundle(seal(&unnamed, &[1]).as_bytes(), &[verifier(1)]);
    assert!(named.has_passed() && unnamed.has_passed());
    let skipped = |check: &BundleCheck| check.verdict == CheckVerdict::NotIncluded;
    assert!(unnamed.checks.iter().any(|check| check.name == "records of the run in the log" && skipped(check)));
    assert!(named.has_named_records && !unnamed.has_named_records);
    assert_eq!(named.proven_statements().len(), unnamed.proven_statements().len() + 1);
    assert_eq!(named.limitations().len() + 1, unnamed.limitations().len());
}

/// The bundle of a run whose fact `first` is followed by a person's decision, the fact `last`. It contains the facts
/// at these indexes of the log.
fn decided_by_a_person(
    first: FactKind,
    last: FactKind,
    kind: &str,
    named: &RunRecords,
    facts: &[usize],
) -> BundleReport {
    const DECISION: &str = r#"{"outcome":"approved"}"#;
    let decision = ArtifactEntry {
        artifact_id: id(52).into(),
        artifact_kind: kind.to_owned(),
        digest: Checksum::blake3_of(DECISION.as_bytes()),
    };
    let decision = RunRecords { artifacts: vec![decision], ..RunRecords::default() };
    let mut log = log_naming(&RunRecords::default());
    let end: Value = serde_json::from_slice(&log[41]).unwrap();
    let run = Subject { kind: "execution", id: id(1) };
    let fact = |kind, number, records: &RunRecords| {
        let fact = Fact::new(kind, run, None, &stamp(number, "user:eve"), end["detail"].clone());
        fact.with_records_digest(records).canonical_bytes(tenant())
    };
    log[35] = fact(first, 23, named);
    log[41] = fact(last, 24, &decision);
    let mut predicate = predicate_over(&log, facts);
    if named.is_empty() {
        (predicate.records, predicate.documents) = (Vec::new(), Vec::new());
    }
    predicate.records.push(decision.to_text());
    predicate.documents.push(BundledDocument { artifact_id: id(52).into(), body: Some(DECISION.to_owned()) });
    let shown = predicate.evidence["evidence_artifacts"].as_array_mut().unwrap();
    shown.push(json!({ "artifact_id": id(52), "artifact_kind": kind }));
    verify_bundle(seal(&ExecutionStatement::new(predicate), &[1]).as_bytes(), &[verifier(1)])
}

/// Without the fact that requests the review, a reviewed run would look like a run without records.
#[test]
fn reviewed_run_needs_the_request_for_its_review() {
    let reviewed = |facts: &[usize]| {
        let (first, last) = (FactKind::ExecutionReviewRequested, FactKind::ExecutionReviewed);
        decided_by_a_person(first, last, "review", &recorded(), facts)
    };
    let report = reviewed(&[30, APPROVAL_FACT, 35, 41]);
    assert!(report.has_passed() && report.has_named_records, "{:?}", failed(&report));
    assert!(failed(&reviewed(&[30, APPROVAL_FACT, 41])).contains(&"fact before the end of the run"));
}

/// The process of a script ended before it stored any record, and a person resolved the outcome.
#[test]
fn resolved_run_without_records_shows_less_and_passes() {
    let settled = |facts: &[usize]| {
        let (first, last) = (FactKind::ExecutionEnded, FactKind::ExecutionResolved);
        decided_by_a_person(first, last, "settlement", &RunRecords::default(), facts)
    };
    let report = settled(&[30, APPROVAL_FACT, 35, 41]);
    assert!(report.has_passed() && !report.has_named_records, "{:?}", failed(&report));
    assert!(failed(&settled(&[30, APPROVAL_FACT, 41])).contains(&"fact before the end of the run"));
}

#[test]
fn first_closing_fact_tells_whether_records_are_named() {
    let run = id(1).into();
    let named = |records: &RunRecords| {
        let log = log_naming(records);
        has_run_records_digest(log.iter().map(Vec::as_slice), run)
    };
    assert!(named(&recorded()) && !named(&RunRecords::default()));
    assert!(!has_run_records_digest(std::iter::empty(), run));
}

#[test]
fn text_is_canonical() {
    let records = recorded();
    let canonical = serde_json_canonicalizer::to_string(&records).unwrap();
    assert_eq!(records.to_text(), canonical);
    let special = "\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}/\"\\\u{1f600}";
    let odd = RunRecords {
        decisions: vec![DecisionEntry { reason_code: special.to_owned(), ..records.decisions[0].clone() }],
        ..RunRecords::default()
    };
    assert_eq!(odd.to_text(), serde_json_canonicalizer::to_string(&odd).unwrap());
}
