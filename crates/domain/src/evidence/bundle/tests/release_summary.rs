//! Summaries of releases.

use super::{
    super::release_verification_summary::{
        ReleaseChain, ReleaseHistory, ReleaseLocation, ReleaseStatement, SUMMARY_PREDICATE, SummaryResult,
    },
    *,
};
use crate::slug::Slug;

fn digest() -> Checksum {
    Checksum::blake3_of(digest_text().as_bytes())
}

fn release_fact(kind: FactKind, number: u128, detail: serde_json::Value) -> Vec<u8> {
    let subject = Subject { kind: "release", id: id(3) };
    Fact::new(kind, subject, None, &stamp(number, "user:ada"), detail).canonical_bytes(tenant())
}

fn moved(from: &str, to: &str) -> Vec<u8> {
    let detail = json!({
        "workload_id": id(2), "environment": "dev", "from": from, "to": to, "bindings_digest": digest().as_str(),
    });
    release_fact(FactKind::ReleaseTransitioned, 40, detail)
}

fn created() -> Vec<u8> {
    release_fact(FactKind::ReleaseCreated, 39, json!({ "workload_id": id(2), "environment": "dev" }))
}

fn reviewed(outcome: &str, state: &str) -> Vec<u8> {
    let detail =
        json!({ "approval_id": id(6), "outcome": outcome, "bindings_digest": digest().as_str(), "state": state });
    release_fact(FactKind::ReleaseReviewed, 41, detail)
}

fn rolled_back(to: &str) -> Vec<u8> {
    release_fact(
        FactKind::ReleaseRolledBack,
        42,
        json!({ "workload_id": id(2), "environment": "dev", "to": to, "lanes": [] }),
    )
}

fn approved_history() -> Vec<Vec<u8>> {
    vec![
        created(),
        moved("draft", "review_ready"),
        reviewed("approved", "review_ready"),
        moved("review_ready", "approved"),
        moved("approved", "active"),
    ]
}

/// The chain of a release whose facts are among other facts in a log.
fn chain_of(facts: &[Vec<u8>]) -> ReleaseChain {
    let other = Subject { kind: "workspace", id: id(50) };
    let other = Fact::new(FactKind::WorkspaceCreated, other, None, &stamp(50, "user:bo"), json!({}));
    let other = other.canonical_bytes(tenant());
    let log: Vec<&Vec<u8>> = facts.iter().flat_map(|fact| [&other, fact]).collect();
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
    ReleaseChain {
        tenant_id: tenant(),
        release_id: id(3).into(),
        release: predicate().release,
        facts: (0..facts.len()).map(|fact| prove(2 * fact + 1)).collect(),
        checkpoint: sign_checkpoint(&checkpoint, 1),
    }
}

fn summary_of(facts: &[Vec<u8>]) -> ReleaseStatement {
    let environment = Slug::parse("dev").unwrap();
    let place = ReleaseLocation { workspace_id: id(9).into(), environment: &environment };
    ReleaseStatement::summarize(chain_of(facts), place)
}

#[test]
fn summary_of_an_approved_release_passes_and_has_the_slsa_fields() {
    let summary = summary_of(&approved_history());
    let report = verify_bundle(seal(&summary, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed(&report), Vec::<&str>::new(), "{report:#?}");
    assert!(report.has_passed() && report.kind == BundleKind::Release);
    let wire = serde_json::to_value(&summary).unwrap();
    assert_eq!(wire["predicateType"], SUMMARY_PREDICATE);
    assert_eq!(wire["subject"][0]["digest"]["blake3"], digest().as_str().trim_start_matches("blake3:"));
    let predicate = &wire["predicate"];
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
    let start = [created(), moved("draft", "review_ready")];
    let approved = [reviewed("approved", "review_ready"), moved("review_ready", "approved")];
    let cases: [(&str, Vec<Vec<u8>>, SummaryResult); 9] = [
        ("draft", vec![created()], Failed),
        ("submitted", start.to_vec(), Failed),
        ("approved by a person, not yet by the rule", [&start[..], &approved[..1]].concat(), Failed),
        ("approved", [&start[..], &approved[..]].concat(), Passed),
        ("active", approved_history(), Passed),
        ("sent back", [&start[..], &[reviewed("changes_requested", "draft")]].concat(), Failed),
        ("rolled back from one lane", [&approved_history()[..], &[rolled_back("active")]].concat(), Failed),
        (
            "activated again",
            [&approved_history()[..], &[rolled_back("superseded"), moved("superseded", "active")]].concat(),
            Passed,
        ),
        ("retired", [&approved_history()[..], &[moved("active", "retired")]].concat(), Failed),
    ];
    for (name, facts, expected) in cases {
        let result = ReleaseHistory::of(facts.iter().map(Vec::as_slice), id(3).into()).result(&digest());
        assert_eq!(result, expected, "{name}");
        // A pipeline must not deploy a release whose result is `FAILED`.
        let report = verify_bundle(seal(&summary_of(&facts), &[1]).as_bytes(), &[verifier(1)]);
        let expected = if expected == Passed { vec![] } else { vec!["permission to deploy"] };
        assert_eq!(failed(&report), expected, "{name}");
    }
    let other = ReleaseHistory::of(approved_history().iter().map(Vec::as_slice), id(33).into());
    assert_eq!(other.result(&digest()), Failed, "facts about another release");
    let history = ReleaseHistory::of(approved_history().iter().map(Vec::as_slice), id(3).into());
    assert_eq!(history.result(&Checksum::blake3_of(b"other bindings")), Failed);
}

/// Changes that a server would sign after a manipulation of its database. The verification reports each of them.
#[test]
fn names_the_statement_that_a_signed_change_breaks() {
    type Mutation = fn(&mut ReleaseStatement);
    let mutations: [(&str, Mutation); 17] = [
        ("time of the result", |it| it.predicate.time_verified = "2026-11-27T08:00:01Z".to_owned()),
        ("subject", |it| it.subject[0].name.push('x')),
        ("subject", |it| it.predicate.chain.release_id = id(77).into()),
        ("statement type", |it| it.statement_type.push('x')),
        ("predicate type", |it| it.predicate_type.push('x')),
        ("verifier", |it| it.predicate.verifier.id.push('x')),
        ("resource", |it| it.predicate.resource_uri.push('x')),
        ("policy of the summary", |it| it.predicate.policy.uri.push('x')),
        ("levels of the result", |it| it.predicate.verified_levels.push("SLSA_BUILD_LEVEL_3".to_owned())),
        ("tenant of the log", |it| it.predicate.chain.tenant_id = id(8).into()),
        ("facts about the release", |it| it.predicate.chain.release_id = id(77).into()),
        ("result by the log", |it| drop(it.predicate.chain.facts.drain(3..))),
        ("result by the log", |it| it.predicate.chain.release.digest_text.push('x')),
        ("inclusion of the fact in the log", |it| it.predicate.chain.facts[4].index += 1),
        ("order of the facts", |it| it.predicate.chain.facts.swap(0, 1)),
        ("content of the version", |it| it.predicate.chain.release.bindings[0].content = Some("{}".to_owned())),
        ("number of bindings", |it| drop(it.predicate.chain.release.bindings.pop())),
    ];
    for (name, mutate) in mutations {
        let mut summary = summary_of(&approved_history());
        mutate(&mut summary);
        let report = verify_bundle(seal(&summary, &[1]).as_bytes(), &[verifier(1)]);
        assert!(failed(&report).contains(&name), "{name}: {:?}", failed(&report));
    }
    // Results that contradict the log: `PASSED` and `FAILED`.
    let mut passed = summary_of(&[created(), moved("draft", "review_ready")]);
    passed.predicate.verification_result = SummaryResult::Passed;
    passed.predicate.verified_levels = SummaryResult::Passed.verified_levels();
    let report = verify_bundle(seal(&passed, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed(&report), ["result by the log", "levels of the result"]);
    let mut refused = summary_of(&approved_history());
    refused.predicate.verification_result = SummaryResult::Failed;
    let report = verify_bundle(seal(&refused, &[1]).as_bytes(), &[verifier(1)]);
    assert_eq!(failed(&report), ["result by the log", "permission to deploy"]);
}
