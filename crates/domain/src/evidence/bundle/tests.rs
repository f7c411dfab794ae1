use super::*;
use crate::{
    access::ActorRef,
    asset::canonical::Checksum,
    audit::{Fact, FactKind, FactSubject, Stamp, leaf_hash},
    evidence::run_records::RunRecords,
    time::Timestamp,
    transparency_log::{
        Checkpoint, NoteSignature, NoteSigningKey, ProofPlan, SignedNote, TreeEdge, TreeHash, VerifierKey,
    },
};
use proptest::prelude::*;
use serde_json::json;
use std::sync::LazyLock;
use uuid::Uuid;

const CONTENT: &str = r#"{"rules":[]}"#;
const INCLUDE: &str = r#"{"template":"x"}"#;
/// The log index of the fact that approves an erasure.
const ERASURE_FACT: usize = 45;
/// The log index of the fact that approves the release.
const APPROVAL_FACT: usize = 32;

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn tenant() -> TenantId {
    id(7).into()
}

fn signing_key(seed: u8) -> NoteSigningKey {
    NoteSigningKey::from_seed(&[seed; 32])
}

fn origin(tenant: TenantId) -> String {
    format!("logs.example/{tenant}")
}

fn verifier(seed: u8) -> VerifierKey {
    VerifierKey::new(&origin(tenant()), &signing_key(seed).public_key()).unwrap()
}

fn stamp(number: u128, actor: &str) -> Stamp {
    Stamp {
        fact_id: id(number).into(),
        at: Timestamp::parse("2026-11-27T08:00:00Z").unwrap(),
        actor: ActorRef::parse(actor).unwrap(),
        request_id: id(99).into(),
    }
}

fn digest_text() -> String {
    let (bound, included) = (Checksum::blake3_of(CONTENT.as_bytes()), Checksum::blake3_of(INCLUDE.as_bytes()));
    format!(
        "fairway.release.v1\n{}\ndev\nall\npolicy_bundle {} {bound}\nreference {} shared * {} {included}",
        id(2),
        id(4),
        id(4),
        id(5)
    )
}

fn version(role: &str, number: u128, content: &str) -> BundledVersion {
    BundledVersion {
        role: role.to_owned(),
        asset_version_id: id(number).into(),
        checksum: Checksum::blake3_of(content.as_bytes()).as_str().to_owned(),
        content: Some(content.to_owned()),
    }
}

/// The facts of a log. They include the facts about the run and its release, and the fact of the run's end contains the
/// digest of `records`.
fn log_with_records(records: &RunRecords) -> Vec<Vec<u8>> {
    let release = FactSubject { kind: "release", id: id(3) };
    let digest = Checksum::blake3_of(digest_text().as_bytes());
    let review_detail = json!({ "approval_id": id(6), "outcome": "approved", "bindings_digest": digest.as_str(), "state": "review_ready" });
    let end_detail = json!({
        "outcome": "success", "error_code": null, "output_digest": format!("blake3:{}", "1".repeat(64)),
        "input_digest": format!("blake3:{}", "2".repeat(64)), "release_id": id(3), "workload_id": id(2),
        "environment": "dev",
    });
    let fact =
        |kind, subject, stamp: &Stamp, detail| Fact::new(kind, subject, None, stamp, detail).canonical_bytes(tenant());
    let other_fact = |number: u128| {
        fact(
            FactKind::WorkspaceCreated,
            FactSubject { kind: "workspace", id: id(number) },
            &stamp(number, "user:bo"),
            json!({}),
        )
    };
    let mut log: Vec<Vec<u8>> = (100..130).map(other_fact).collect();
    log.push(fact(FactKind::ReleaseReviewed, release, &stamp(20, "user:ada"), review_detail));
    log.extend((130..140).map(other_fact));
    log[APPROVAL_FACT] = approval_fact("approved", digest.as_str());
    let run = FactSubject { kind: "execution", id: id(1) };
    let end = Fact::new(FactKind::ExecutionEnded, run, None, &stamp(21, "user:eve"), end_detail);
    log.push(end.with_records_digest(records).canonical_bytes(tenant()));
    log.extend((140..150).map(other_fact));
    let erasure = FactSubject { kind: "erasure", id: id(11) };
    let detail = json!({ "erased_actor": "user:eve", "requested_by": "user:bo" });
    log[ERASURE_FACT] = fact(FactKind::ErasureApproved, erasure, &stamp(22, "user:ada"), detail);
    log
}

/// The fact of a transition of the release to the state `to`.
fn approval_fact(to: &str, digest: &str) -> Vec<u8> {
    let detail = json!({ "workload_id": id(2), "environment": "dev", "from": "review_ready", "to": to, "bindings_digest": digest });
    let release = FactSubject { kind: "release", id: id(3) };
    Fact::new(FactKind::ReleaseTransitioned, release, None, &stamp(25, "user:ada"), detail).canonical_bytes(tenant())
}

fn predicate() -> ExecutionPredicate {
    predicate_with(&[30, APPROVAL_FACT, 41])
}

/// The predicate of a run that contains the facts with these log indexes.
fn predicate_with(facts: &[usize]) -> ExecutionPredicate {
    predicate_over(&log_with_records(&run_records::sample_records()), facts)
}

fn predicate_over(log: &[Vec<u8>], facts: &[usize]) -> ExecutionPredicate {
    let mut tree = TreeEdge::default();
    for fact in log {
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
    let evidence = json!({
        "execution": {
            "execution_id": id(1), "workload_id": id(2), "release_id": id(3), "environment": "dev",
            "outcome": "success", "error_code": null, "input_digest": format!("blake3:{}", "2".repeat(64)),
            "output_digest": format!("blake3:{}", "1".repeat(64)),
        },
        "bindings": [{ "role": "policy_bundle", "asset_version_id": id(4), "asset_slug": "p" }],
        "approvals": [{ "approval_id": id(6), "approved_by": "user:ada", "approved_at": "2026-11-27T08:00:00Z" }],
        "policy_decision": { "decision_id": id(61), "outcome": "allow_with_obligations", "reason_code": "watched", "rules": ["all"] },
        "obligations": [{ "obligation_name": "record_transcript", "fulfilled_at": null }],
        "retrieval_events": [
            { "retrieval_event_id": id(50), "knowledge_base_asset_id": id(9), "retrieved_chunk_count": 2 },
        ],
        "evidence_artifacts": [
            { "artifact_id": id(50), "artifact_kind": "retrieval_event" },
            { "artifact_id": id(51), "artifact_kind": "provider_call" },
        ],
    });
    ExecutionPredicate {
        tenant_id: tenant(),
        evidence: evidence.as_object().unwrap().clone(),
        records: vec![run_records::sample_records().to_text()],
        documents: run_records::documents(),
        release: BundledRelease {
            digest_text: digest_text(),
            bindings: vec![version("policy_bundle", 4, CONTENT)],
            references: vec![version("prompt_template", 5, INCLUDE)],
        },
        facts: facts.iter().copied().map(prove).collect(),
        checkpoint: sign_checkpoint(&checkpoint, 1),
    }
}

fn sign_checkpoint(checkpoint: &Checkpoint, seed: u8) -> String {
    let text = checkpoint.to_string();
    let key = VerifierKey::new(&checkpoint.origin, &signing_key(seed).public_key()).unwrap();
    let signature = NoteSignature::new(&key, &signing_key(seed).sign(text.as_bytes()));
    SignedNote::new(text, vec![signature]).unwrap().to_string()
}

fn seal<P: Serialize>(statement: &Statement<P>, seeds: &[u8]) -> String {
    let payload = statement.to_payload();
    let signed_bytes = Envelope::signed_bytes(PAYLOAD_TYPE, &payload);
    let sign = |seed: &u8| EnvelopeSignature::new(&verifier(*seed), &signing_key(*seed).sign(&signed_bytes));
    let signatures = seeds.iter().map(sign).collect();
    Envelope { payload_type: PAYLOAD_TYPE.to_owned(), payload, signatures }.to_json()
}

static BUNDLE: LazyLock<String> = LazyLock::new(|| seal(&ExecutionStatement::about_run(predicate()), &[1]));

fn failed_checks(report: &BundleReport) -> Vec<&'static str> {
    report.checks.iter().filter(|check| check.verdict == CheckVerdict::Failed).map(|check| check.name).collect()
}

#[test]
fn verifies_complete_bundle() {
    let report = verify_bundle(BUNDLE.as_bytes(), &[verifier(1)]);
    assert_eq!(failed_checks(&report), Vec::<&str>::new(), "{report:#?}");
    assert!(report.has_passed() && !report.proven_statements().is_empty() && !report.limitations().is_empty());
    assert!(report.checks.len() > 25, "{}", report.checks.len());
    // The verification accepts a final line feed, because editors add one, and it accepts further verifier keys.
    let with_line_feed = format!("{}\n", *BUNDLE);
    assert!(verify_bundle(with_line_feed.as_bytes(), &[verifier(9), verifier(1)]).has_passed());
    // During a key rotation, a signature by one of the two keys is enough.
    let signed_by_both_keys = seal(&ExecutionStatement::about_run(predicate()), &[2, 1]);
    assert!(verify_bundle(signed_by_both_keys.as_bytes(), &[verifier(1)]).has_passed());
}

#[test]
fn refuses_bundles_of_missing_or_other_keys() {
    let report = verify_bundle(BUNDLE.as_bytes(), &[] as &[VerifierKey]);
    assert!(failed_checks(&report).contains(&"key from outside the bundle"));
    assert!(!report.has_passed() && report.proven_statements().is_empty());
    let report = verify_bundle(BUNDLE.as_bytes(), &[verifier(2)]);
    assert_eq!(
        failed_checks(&report),
        ["signature of the envelope", "signature of the checkpoint", "origin of the log"]
    );
    let key_of_other_log = VerifierKey::new("logs.example/other", &signing_key(1).public_key()).unwrap();
    assert!(!verify_bundle(BUNDLE.as_bytes(), &[key_of_other_log]).has_passed());
    for file in ["", "{}", "[]", "\u{0}", "{\"payload\":\"\",\"payloadType\":\"\",\"signatures\":[]}"] {
        assert!(!verify_bundle(file.as_bytes(), &[verifier(1)]).has_passed(), "{file:?}");
    }
}

/// Three facts do not approve the run's bindings: a submission for review, an approval of other bindings, and an
/// approval after the run.
#[test]
fn bindings_must_be_approved_before_the_end_of_the_run() {
    let digest = Checksum::blake3_of(digest_text().as_bytes());
    let (release_digest, other_digest) = (digest.as_str(), "blake3:00");
    let fails = |index: usize, fact: Vec<u8>| {
        let mut log = log_with_records(&run_records::sample_records());
        log[APPROVAL_FACT] = log[0].clone();
        log[index] = fact;
        let mut facts = vec![30, 41, index];
        facts.sort_unstable();
        let bundle = seal(&ExecutionStatement::about_run(predicate_over(&log, &facts)), &[1]);
        failed_checks(&verify_bundle(bundle.as_bytes(), &[verifier(1)])).contains(&"approved bindings in the log")
    };
    assert!(!fails(APPROVAL_FACT, approval_fact("approved", release_digest)));
    assert!(!fails(APPROVAL_FACT, approval_fact("active", release_digest)));
    assert!(fails(APPROVAL_FACT, approval_fact("review_ready", release_digest)));
    assert!(fails(APPROVAL_FACT, approval_fact("approved", other_digest)));
    assert!(fails(44, approval_fact("approved", release_digest)));
}

/// Manipulations of the database whose result the server would sign. The verification reports each of them.
#[test]
fn reports_check_that_signed_change_breaks() {
    type Mutation = fn(&mut ExecutionStatement);
    let mutations: [(&str, Mutation); 24] = [
        ("subject", |statement| {
            statement.subject[0].digest = BTreeMap::from([(SALTED_DIGEST_NAME.to_owned(), "3".repeat(64))])
        }),
        ("subject", |statement| drop(statement.subject.pop())),
        ("statement type", |statement| statement.statement_type.push('x')),
        ("predicate type", |statement| statement.predicate_type.push('x')),
        ("tenant of the log", |statement| statement.predicate.tenant_id = id(8).into()),
        ("tenant of the fact", |statement| statement.predicate.tenant_id = id(8).into()),
        ("evidence of the run", |statement| statement.predicate.evidence["execution"]["outcome"] = json!("failure")),
        ("evidence of the run", |statement| {
            statement.predicate.evidence["execution"]["output_digest"] = json!("blake3:00")
        }),
        ("evidence of the run", |statement| {
            statement.predicate.evidence["execution"]["environment"] = json!("production")
        }),
        ("end of the run in the log", |statement| drop(statement.predicate.facts.pop())),
        ("end of the run in the log", |statement| {
            statement.predicate.evidence["execution"]["execution_id"] = json!(id(77))
        }),
        ("approval in the log", |statement| {
            statement.predicate.evidence["approvals"][0]["approved_by"] = json!("user:eve")
        }),
        ("approval in the log", |statement| {
            statement.predicate.evidence["approvals"][0]["approval_id"] = json!(id(78))
        }),
        ("approved bindings in the log", |statement| drop(statement.predicate.facts.remove(1))),
        ("approved bindings in the log", |statement| statement.predicate.release.digest_text.push('x')),
        ("content of the version", |statement| statement.predicate.release.bindings[0].content = Some("{}".to_owned())),
        ("binding in the approved text", |statement| {
            statement.predicate.release.bindings[0] = version("policy_bundle", 4, "{}")
        }),
        ("binding in the evidence", |statement| statement.predicate.evidence["bindings"][0]["role"] = json!("skill")),
        ("number of bindings", |statement| drop(statement.predicate.release.bindings.pop())),
        ("references without a version", |statement| drop(statement.predicate.release.references.pop())),
        ("reference in the approved text", |statement| {
            statement.predicate.release.references[0].asset_version_id = id(79).into()
        }),
        ("inclusion of the fact in the log", |statement| statement.predicate.facts[0].index += 1),
        ("inclusion of the fact in the log", |statement| {
            statement.predicate.facts[2].body = statement.predicate.facts[2].body.replace("eve", "bob")
        }),
        ("order of the facts", |statement| statement.predicate.facts.swap(0, 1)),
    ];
    for (name, mutate) in mutations {
        let mut statement = ExecutionStatement::about_run(predicate());
        mutate(&mut statement);
        let report = verify_bundle(seal(&statement, &[1]).as_bytes(), &[verifier(1)]);
        assert!(failed_checks(&report).contains(&name), "{name}: {:?}", failed_checks(&report));
    }
}

#[test]
fn accepts_only_erasures_that_log_approves_for_submitter() {
    let verify = |facts: &[usize], members: serde_json::Value| {
        let mut predicate = predicate_with(facts);
        let run = predicate.evidence["execution"].as_object_mut().unwrap();
        run.extend(members.as_object().unwrap().clone());
        verify_bundle(seal(&ExecutionStatement::about_run(predicate), &[1]).as_bytes(), &[verifier(1)])
    };
    let erasure_members = |erasure: u128, submitter: &str| json!({ "erased_at": "2026-11-28T08:00:00Z", "erasure_id": id(erasure), "submitted_by": submitter });
    let report = verify(&[30, APPROVAL_FACT, 41, ERASURE_FACT], erasure_members(11, "user:eve"));
    assert!(report.has_passed(), "{:?}", failed_checks(&report));
    assert!(report.checks.iter().any(|check| check.name == "erasure in the log"));
    for (facts, members) in [
        ([30, APPROVAL_FACT, 41].as_slice(), erasure_members(11, "user:eve")),
        (&[30, APPROVAL_FACT, 41, ERASURE_FACT], erasure_members(12, "user:eve")),
        (&[30, APPROVAL_FACT, 41, ERASURE_FACT], erasure_members(11, "user:bo")),
        (
            &[30, APPROVAL_FACT, 41, ERASURE_FACT],
            json!({ "erased_at": "2026-11-28T08:00:00Z", "submitted_by": "user:eve" }),
        ),
    ] {
        assert_eq!(failed_checks(&verify(facts, members.clone())), ["erasure in the log"], "{facts:?} {members}");
    }
}

#[test]
fn refuses_proofs_against_other_checkpoints() {
    let original = predicate();
    let note = SignedNote::parse(original.checkpoint.as_bytes()).unwrap();
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    let other_origin = Checkpoint { origin: origin(id(8).into()), ..checkpoint.clone() };
    let forged = Checkpoint { root: TreeHash::of_empty_tree(), ..checkpoint.clone() };
    let shorter = Checkpoint { size: 40, ..checkpoint.clone() };
    for (name, note) in [
        ("signature of the checkpoint", sign_checkpoint(&other_origin, 1)),
        ("signature of the checkpoint", sign_checkpoint(&checkpoint, 2)),
        ("inclusion of the fact in the log", sign_checkpoint(&forged, 1)),
        ("inclusion of the fact in the log", sign_checkpoint(&shorter, 1)),
        ("signature of the checkpoint", original.checkpoint.replace("\n52\n", "\n53\n")),
        ("signature of the checkpoint", String::new()),
    ] {
        let statement = ExecutionStatement::about_run(ExecutionPredicate { checkpoint: note, ..original.clone() });
        let report = verify_bundle(seal(&statement, &[1]).as_bytes(), &[verifier(1)]);
        assert!(failed_checks(&report).contains(&name), "{name}: {:?}", failed_checks(&report));
    }
}

#[test]
fn omitted_contents_are_reported_and_do_not_fail() {
    let mut original = predicate();
    original.release.bindings[0].content = None;
    let report = verify_bundle(seal(&ExecutionStatement::about_run(original), &[1]).as_bytes(), &[verifier(1)]);
    assert!(report.has_passed());
    let skipped: Vec<&str> = report
        .checks
        .iter()
        .filter(|check| check.verdict == CheckVerdict::NotIncluded)
        .map(|check| check.name)
        .collect();
    assert_eq!(skipped, ["content of the version"]);
}

mod release_summary;
mod run_records;
mod trusted_inputs;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The verification detects each single change of the file: a changed, removed, inserted or swapped byte, or a
    /// truncation.
    #[test]
    fn every_single_mutation_is_detected(
        position in any::<prop::sample::Index>(),
        mutation in 0_u8..5,
        byte in any::<u8>(),
    ) {
        let bundle = BUNDLE.as_bytes();
        let offset = position.index(bundle.len() - 1);
        let mut changed = bundle.to_vec();
        match mutation {
            0 => changed[offset] = byte,
            1 => drop(changed.remove(offset)),
            2 => changed.insert(offset, byte),
            3 => changed.swap(offset, offset + 1),
            _ => changed.truncate(offset),
        }
        prop_assume!(changed != bundle);
        prop_assert!(!verify_bundle(&changed, &[verifier(1)]).has_passed(), "{} at {}", mutation, offset);
    }
}
