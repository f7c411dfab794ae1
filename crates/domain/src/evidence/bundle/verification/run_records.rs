//! Checks of the records of a run: the log must contain their digest, and the evidence must match them.

use super::{END_KINDS, ParsedFact, member_text};
use crate::{
    asset::canonical::Checksum,
    evidence::{
        RETRIEVAL_EVENT,
        bundle::{BundleReport, ExecutionPredicate},
        run_records::{ArtifactEntry, DecisionEntry, RECORDS_DIGEST_MEMBER, REVIEW_REQUESTED_MEMBER, RunRecords},
    },
    id::ExecutionId,
    policy::DecisionOutcome,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The kind of the fact that requests the review of an answer. The process that executed the run writes no fact after
/// it.
const REVIEW_REQUEST: &str = "execution.review_asked";

/// Whether the first fact that closes a run contains the digest of the run's records. The digest is absent if the
/// process of the run ended before it stored any record.
pub fn has_run_records_digest<'b>(facts: impl Iterator<Item = &'b [u8]>, execution: ExecutionId) -> bool {
    let execution = execution.to_string();
    let bodies = facts.filter_map(|fact| serde_json::from_slice::<Value>(fact).ok());
    let text =
        |body: &Value, pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut closing_facts =
        bodies.filter(|body| text(body, "/subject/id") == execution && is_closing(&text(body, "/kind")));
    closing_facts.next().is_some_and(|body| !text(&body, &digest_pointer()).is_empty())
}

fn is_closing(kind: &str) -> bool {
    kind == REVIEW_REQUEST || END_KINDS.contains(&kind)
}

fn digest_pointer() -> String {
    format!("/detail/{RECORDS_DIGEST_MEMBER}")
}

/// Compares the records with the facts about the run, and compares the evidence with the records.
pub(super) fn check_records(report: &mut BundleReport, predicate: &ExecutionPredicate, facts: &[ParsedFact<'_>]) {
    let run = predicate.evidence.get("execution").unwrap_or(&Value::Null);
    let execution = member_text(run, "execution_id");
    let is_about_run =
        |fact: &&ParsedFact<'_>| fact.text("/subject/kind") == "execution" && fact.text("/subject/id") == execution;
    let closing_facts: Vec<&ParsedFact<'_>> =
        facts.iter().filter(is_about_run).filter(|fact| is_closing(fact.text("/kind"))).collect();
    check_earlier_fact(report, &closing_facts);
    let pointer = digest_pointer();
    let named_digests: Vec<(String, &str)> = closing_facts
        .iter()
        .map(|fact| (fact.part(), fact.text(&pointer)))
        .filter(|(_, digest)| !digest.is_empty())
        .collect();
    report.compare("number of records", "", named_digests.len().to_string(), predicate.records.len().to_string());
    let text_digests: Vec<Checksum> =
        predicate.records.iter().map(|text| Checksum::blake3_of(text.as_bytes())).collect();
    for (part, digest) in &named_digests {
        let included = text_digests.iter().any(|text| text.as_str() == *digest);
        report.compare("records that a fact names", part.as_str(), *digest, if included { digest } else { "none" });
    }
    let mut records = RunRecords::default();
    for (text, digest) in predicate.records.iter().zip(&text_digests) {
        let is_named = named_digests.iter().any(|(_, named_digest)| *named_digest == digest.as_str());
        let actual = if is_named { digest.as_str() } else { "none" };
        report.compare("records of the run in the log", "", digest.as_str(), actual);
        let parsed: Option<RunRecords> = serde_json::from_str(text).ok();
        let parsed = parsed.filter(|parsed| parsed.to_text() == *text);
        let form = if parsed.is_some() { "canonical records" } else { "another text" };
        report.compare("form of the records", digest.as_str(), "canonical records", form);
        let RunRecords { artifacts, decisions, lineage } = parsed.unwrap_or_default();
        records.artifacts.extend(artifacts);
        records.decisions.extend(decisions);
        records.lineage.extend(lineage);
    }
    report.has_named_records = closing_facts.first().is_some_and(|first| !first.text(&pointer).is_empty());
    if report.has_named_records {
        check_decisions(report, &predicate.evidence, &records);
        check_artifacts(report, &predicate.evidence, &records);
    } else {
        // No fact contains a digest, because the process of the run ended before it stored any record.
        report.skip("records of the run in the log", "", "a fact that names them");
    }
    check_documents(report, predicate, &records);
}

/// If a person decided on the run, the bundle must also contain the earlier fact that closed the run. That earlier fact
/// contains the digest of the records.
fn check_earlier_fact(report: &mut BundleReport, closing_facts: &[&ParsedFact<'_>]) {
    let Some((end, earlier)) = closing_facts.split_last() else { return };
    let was_review_requested =
        end.body.pointer(&format!("/detail/{REVIEW_REQUESTED_MEMBER}")) == Some(&Value::Bool(true));
    let expected_kind = match end.text("/kind") {
        "execution.reviewed" => REVIEW_REQUEST,
        "execution.settled" => "execution.ended",
        _ if was_review_requested => REVIEW_REQUEST,
        _ => return,
    };
    let earlier_fact = earlier.iter().find(|fact| fact.text("/kind") == expected_kind);
    let actual = earlier_fact.map_or_else(|| "none".to_owned(), |fact| fact.part());
    report.require("fact before the end of the run", expected_kind, "a proven fact", actual, earlier_fact.is_some());
}

/// Checks that the evidence contains the strictest decision of the run, and every obligation that a decision imposed.
fn check_decisions(report: &mut BundleReport, evidence: &Map<String, Value>, records: &RunRecords) {
    let strictest = records.decisions.iter().max_by_key(|entry| DecisionOutcome::parse(&entry.outcome));
    let expected = strictest.map_or_else(
        || "none".to_owned(),
        |entry| {
            let DecisionEntry { decision_id, outcome, reason_code, rules, .. } = entry;
            format!("{decision_id}: {outcome} {reason_code} by {}", rules.join(", "))
        },
    );
    let stated_decision = evidence.get("policy_decision").unwrap_or(&Value::Null);
    let [id, outcome, reason] =
        ["decision_id", "outcome", "reason_code"].map(|name| member_text(stated_decision, name));
    let rules: Vec<&str> = items(stated_decision.get("rules")).filter_map(Value::as_str).collect();
    report.compare(
        "policy decision in the records",
        "",
        expected,
        format!("{id}: {outcome} {reason} by {}", rules.join(", ")),
    );
    let imposed: BTreeSet<&str> =
        records.decisions.iter().flat_map(|entry| &entry.obligations).map(String::as_str).collect();
    let stated_obligations: Vec<&str> =
        items(evidence.get("obligations")).map(|obligation| member_text(obligation, "obligation_name")).collect();
    report.compare("number of obligations", "", imposed.len().to_string(), stated_obligations.len().to_string());
    for name in imposed {
        report.compare(
            "obligation in the evidence",
            name,
            "shown",
            if stated_obligations.contains(&name) { "shown" } else { "missing" },
        );
    }
}

/// Checks that the evidence lists the artifacts in the records, and the queries among them.
fn check_artifacts(report: &mut BundleReport, evidence: &Map<String, Value>, records: &RunRecords) {
    let listed_documents: Vec<&Value> = items(evidence.get("evidence_artifacts")).collect();
    report.compare("number of documents", "", records.artifacts.len().to_string(), listed_documents.len().to_string());
    for entry in &records.artifacts {
        let id = entry.artifact_id.to_string();
        let artifact = listed_documents.iter().find(|artifact| member_text(artifact, "artifact_id") == id);
        let kind = artifact.map_or("", |artifact| member_text(artifact, "artifact_kind"));
        report.compare("document in the evidence", id, entry.artifact_kind.as_str(), kind);
    }
    let expected_count = records.artifacts.iter().filter(|entry| entry.artifact_kind == RETRIEVAL_EVENT).count();
    let listed_count = items(evidence.get("retrieval_events")).count();
    report.compare("number of retrievals", "", expected_count.to_string(), listed_count.to_string());
}

/// Compares the artifacts in the bundle with their digests in the records.
fn check_documents(report: &mut BundleReport, predicate: &ExecutionPredicate, records: &RunRecords) {
    report.compare(
        "number of included documents",
        "",
        records.artifacts.len().to_string(),
        predicate.documents.len().to_string(),
    );
    for entry in &records.artifacts {
        let id = entry.artifact_id.to_string();
        let document = predicate.documents.iter().find(|document| document.artifact_id == entry.artifact_id);
        match document.map(|document| document.body.as_deref()) {
            None => {
                report.compare("text of the document", id, entry.digest.as_str(), "none");
            }
            Some(None) => report.skip("text of the document", id, entry.digest.as_str()),
            Some(Some(body)) => {
                let actual = Checksum::blake3_of(body.as_bytes());
                if report.compare("text of the document", id.as_str(), entry.digest.as_str(), actual.as_str()) {
                    check_retrieval(report, predicate, entry, body);
                }
            }
        }
    }
}

/// Compares a query in the evidence with the artifact that records it.
fn check_retrieval(report: &mut BundleReport, predicate: &ExecutionPredicate, entry: &ArtifactEntry, body: &str) {
    if entry.artifact_kind != RETRIEVAL_EVENT {
        return;
    }
    let id = entry.artifact_id.to_string();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let describe = |value: &Value| {
        let count = value.get("retrieved_chunk_count").and_then(Value::as_u64).unwrap_or_default();
        format!("{count} texts of {}", member_text(value, "knowledge_base_asset_id"))
    };
    let stated_retrieval = items(predicate.evidence.get("retrieval_events"))
        .find(|retrieval| member_text(retrieval, "retrieval_event_id") == id);
    report.compare(
        "retrieval in its document",
        id,
        describe(&body),
        stated_retrieval.map_or_else(|| "none".to_owned(), describe),
    );
}

/// The items of a JSON list; empty for any other value.
fn items(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    value.and_then(Value::as_array).into_iter().flatten()
}
