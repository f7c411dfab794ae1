//! Tests of release summaries and their verification.

use super::{
    super::slsa_release_summary::{
        LoggedReleaseState, ReleaseLocation, ReleaseStatement, ReleaseSummaryEvidence, SUMMARY_PREDICATE_TYPE,
        SummaryResult,
    },
    *,
};
use crate::slug::Slug;

fn digest() -> Checksum {
    Checksum::blake3_of(digest_text().as_bytes())
}

fn release_fact(kind: FactKind, number: u128, detail: serde_json::Value) -> Vec<u8> {
    let subject = FactSubject { kind: "release", id: id(3) };
    Fact::new(kind, subject, None, &stamp(number, "user:ada"), detail).canonical_bytes(tenant())
}

fn transition_fact(from: &str, to: &str) -> Vec<u8> {
    let detail = json!({
        "workload_id": id(2), "environment": "dev", "from": from, "to": to, "bindings_digest": digest().as_str(),
    });
    release_fact(FactKind::ReleaseTransitioned, 40, detail)
}

fn creation_fact() -> Vec<u8> {
    release_fact(FactKind::ReleaseCreated, 39, json!({ "workload_id": id(2), "environment": "dev" }))
}

fn review_fact(outcome: &str, state: &str) -> Vec<u8> {
    let detail =
        json!({ "approval_id": id(6), "outcome": outcome, "bindings_digest": digest().as_str(), "state": state });
    release_fact(FactKind::ReleaseReviewed, 41, detail)
}

fn rollback_fact(to: &str) -> Vec<u8> {
    release_fact(
        FactKind::ReleaseRolledBack,
        42,
        json!({ "workload_id": id(2), "environment": "dev", "to": to, "lanes": [] }),
    )
}

fn approved_history() -> Vec<Vec<u8>> {
    vec![
        creation_fact(),
        transition_fact("draft", "review_ready"),
        review_fact("approved", "review_ready"),
        transition_fact("review_ready", "approved"),
        transition_fact("approved", "active"),
    ]
}

/// The evidence of a release whose facts are mixed with other facts in a log.
fn evidence_of(facts: &[Vec<u8>]) -> ReleaseSummaryEvidence {
    let other_fact = FactSubject { kind: "workspace", id: id(50) };
    let other_fact = Fact::new(FactKind::WorkspaceCreated, other_fact, None, &stamp(50, "user:bo"), json!({}));
    let other_fact = other_fact.canonical_bytes(tenant());
    let log: Vec<&Vec<u8>> = facts.iter().flat_map(|fact| [&other_fact, fact]).collect();
    let mut tree = TreeEdge::default();
    for fact in &log {
        assert!(tree.append(TreeHash::new(leaf_hash(fact))).is_empty());
    }
    let checkpoint = Checkpoint { origin: origin(tenant()), size: tree.size(), root: tree.root() };
    let prove = |index: usize| {
        let plan = ProofPlan::inclusion(index as u64, tree.size()).unwrap();
        let hashes = plan.hashes(&|tile| tree.tile(tile)).unwrap();
        ProvenFact {
            index: index as u64,
            body: String::from_utf8(log[index].clone()).unwrap(),
            proof: hashes.iter().map(TreeHash::to_string).collect(),
        }
    };
    ReleaseSummaryEvidence {
        tenant_id: tenant(),
        release_id: id(3).into(),
        release: predicate().release,
        facts: (0..facts.len()).map(|fact| prove(2 * fact + 1)).collect(),
        checkpoint: sign_checkpoint(&checkpoint, 1),
    }
}

fn summary_of(facts: &[Vec<u8>]) -> ReleaseStatement {
    let environment = Slug::parse("dev").unwrap();
    let location = ReleaseLocation { workspace_id: id(9).into(), environment: &environment };
    ReleaseStatement::from_evidence(evidence_of(facts), location)
}

#[test]
fn summary_of_an_approved_release_passes_and_has_the_slsa_fields() {
    let summary = summary_of(&approved_history());
    let report = verify_bundle(seal(&summary, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{report:#?}");
    assert!(report.has_passed() && report.kind == BundleKind::Release);
    let summary_json = serde_json::to_value(&summary).unwrap();
    assert_eq!(summary_json["predicateType"], SUMMARY_PREDICATE_TYPE);
    assert_eq!(summary_json["subject"][0]["digest"]["blake3"], digest().as_str().trim_start_matches("blake3:"));
    let predicate = &summary_json["predicate"];
    assert_eq!(predicate["verificationResult"], "PASSED");
    assert_eq!(predicate["verifiedLevels"], json!(["FAIRWAY_RELEASE_APPROVED"]));
    assert_eq!(predicate["timeVerified"], "2026-11-27T08:00:00Z");
    for field in ["/verifier/id", "/resourceUri", "/policy/uri"] {
        assert!(predicate.pointer(field).is_some_and(serde_json::Value::is_string), "{field}");
    }
}

#[test]
fn result_follows_from_the_facts_about_the_release() {
    use SummaryResult::{Failed, Passed};
    let submission_facts = [creation_fact(), transition_fact("draft", "review_ready")];
    let approval_facts = [review_fact("approved", "review_ready"), transition_fact("review_ready", "approved")];
    let cases: [(&str, Vec<Vec<u8>>, SummaryResult); 9] = [
        ("draft", vec![creation_fact()], Failed),
        ("submitted", submission_facts.to_vec(), Failed),
        ("approved by a person, not yet by the rule", [&submission_facts[..], &approval_facts[..1]].concat(), Failed),
        ("approved", [&submission_facts[..], &approval_facts[..]].concat(), Passed),
        ("active", approved_history(), Passed),
        ("sent back", [&submission_facts[..], &[review_fact("changes_requested", "draft")]].concat(), Failed),
        ("rolled back from one lane", [&approved_history()[..], &[rollback_fact("active")]].concat(), Failed),
        (
            "activated again",
            [&approved_history()[..], &[rollback_fact("superseded"), transition_fact("superseded", "active")]].concat(),
            Passed,
        ),
        ("retired", [&approved_history()[..], &[transition_fact("active", "retired")]].concat(), Failed),
    ];
    for (name, facts, expected) in cases {
        let result = LoggedReleaseState::from_facts(facts.iter().map(Vec::as_slice), id(3).into()).result(&digest());
        assert_eq!(result, expected, "{name}");
        // A pipeline must not deploy a release whose result is `FAILED`.
        let report = verify_bundle(seal(&summary_of(&facts), &[1]).as_bytes(), &[verifier(1)]);
        let expected = if expected == Passed { vec![] } else { vec!["permission to deploy"] };
        assert_eq!(failed_checks(&report), expected, "{name}");
    }
    let other_release = LoggedReleaseState::from_facts(approved_history().iter().map(Vec::as_slice), id(33).into());
    assert_eq!(other_release.result(&digest()), Failed, "facts about another release");
    let history = LoggedReleaseState::from_facts(approved_history().iter().map(Vec::as_slice), id(3).into());
    assert_eq!(history.result(&Checksum::blake3_of(b"other bindings")), Failed);
}

/// Manipulations of the database whose result the server would sign. The verification reports each of them.
#[test]
fn reports_check_that_signed_change_breaks() {
    type Mutation = fn(&mut ReleaseStatement);
    let mutations: [(&str, Mutation); 17] = [
        ("time of the result", |summary| summary.predicate.time_verified = "2026-11-27T08:00:01Z".to_owned()),
        ("subject", |summary| summary.subject[0].name.push('x')),
        ("subject", |summary| summary.predicate.evidence.release_id = id(77).into()),
        ("statement type", |summary| summary.statement_type.push('x')),
        ("predicate type", |summary| summary.predicate_type.push('x')),
        ("verifier", |summary| summary.predicate.verifier.id.push('x')),
        ("resource", |summary| summary.predicate.resource_uri.push('x')),
        ("policy of the summary", |summary| summary.predicate.policy.uri.push('x')),
        ("levels of the result", |summary| summary.predicate.verified_levels.push("SLSA_BUILD_LEVEL_3".to_owned())),
        ("tenant of the log", |summary| summary.predicate.evidence.tenant_id = id(8).into()),
        ("facts about the release", |summary| summary.predicate.evidence.release_id = id(77).into()),
        ("result by the log", |summary| drop(summary.predicate.evidence.facts.drain(3..))),
        ("result by the log", |summary| summary.predicate.evidence.release.digest_text.push('x')),
        ("inclusion of the fact in the log", |summary| summary.predicate.evidence.facts[4].index += 1),
        ("order of the facts", |summary| summary.predicate.evidence.facts.swap(0, 1)),
        ("content of the version", |summary| {
            summary.predicate.evidence.release.bindings[0].content = Some("{}".to_owned())
        }),
        ("number of bindings", |summary| drop(summary.predicate.evidence.release.bindings.pop())),
    ];
    for (name, mutate) in mutations {
        let mut summary = summary_of(&approved_history());
        mutate(&mut summary);
        let report = verify_bundle(seal(&summary, &[1]).as_bytes(), &[verifier(1)]);
        assert!(failed_checks(&report).contains(&name), "{name}: {:?}", failed_checks(&report));
    }
    // Two results contradict the log: `PASSED` for a release without approval, and `FAILED` for an approved one.
    let mut false_pass = summary_of(&[creation_fact(), transition_fact("draft", "review_ready")]);
    false_pass.predicate.verification_result = SummaryResult::Passed;
    false_pass.predicate.verified_levels = SummaryResult::Passed.verified_levels();
    let report = verify_bundle(seal(&false_pass, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed_checks(&report), ["result by the log", "levels of the result"]);
    let mut false_failure = summary_of(&approved_history());
    false_failure.predicate.verification_result = SummaryResult::Failed;
    let report = verify_bundle(seal(&false_failure, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed_checks(&report), ["result by the log", "permission to deploy"]);
}
