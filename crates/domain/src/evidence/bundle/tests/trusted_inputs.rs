//! Tests of the inputs that a verifier supplies: witnesses, a second checkpoint, and the input of the policy decision.

use super::*;
use crate::{
    evidence::bundle::{SecondCheckpoint, TrustedInputs},
    transparency_log::{WitnessKey, cosigned_message},
};

const SECONDS: u64 = 1_790_000_000;

fn witness(seed: u8) -> WitnessKey {
    WitnessKey::new(&format!("witness.example/{seed}"), &signing_key(seed).public_key()).unwrap()
}

/// A bundle whose checkpoint is cosigned by the witnesses with these key seeds.
fn cosigned_by(seeds: &[u8]) -> String {
    let mut predicate = predicate();
    let note = SignedNote::parse(predicate.checkpoint.as_bytes()).unwrap();
    let lines: Vec<NoteSignature> = seeds
        .iter()
        .map(|seed| {
            let message = cosigned_message(note.text(), SECONDS);
            witness(*seed).cosignature_line(SECONDS, &signing_key(*seed).sign(&message))
        })
        .collect();
    predicate.checkpoint = note.with_signatures(lines).to_string();
    seal(&ExecutionStatement::about_run(predicate), &[1])
}

fn verify(bundle: &str, witnesses: &[WitnessKey], required_witnesses: usize) -> BundleReport {
    let log_keys = &[verifier(1)];
    let trusted_inputs =
        TrustedInputs { log_keys, witnesses, required_witnesses, second_checkpoint: None, policy_input: None };
    verify_bundle(bundle.as_bytes(), trusted_inputs)
}

#[test]
fn requires_number_of_witnesses_that_verifier_sets() {
    let witnesses = [witness(31), witness(32), witness(33)];
    for (cosigners, required, is_sufficient) in [
        (&[31, 32, 33][..], 3, true),
        (&[31, 32], 3, false),
        (&[31, 33], 2, true),
        (&[33], 2, false),
        (&[], 1, false),
        // The cosignature of an unknown witness does not count. Two cosignatures of one witness count once.
        (&[31, 40, 41], 2, false),
        (&[31, 31], 2, false),
    ] {
        let report = verify(&cosigned_by(cosigners), &witnesses, required);
        assert_eq!(report.has_passed(), is_sufficient, "{cosigners:?} of {required}");
        assert_eq!(
            failed_checks(&report).contains(&"number of cosignatures"),
            !is_sufficient,
            "{cosigners:?} of {required}"
        );
        assert_eq!(report.proven_statements().iter().any(|line| line.contains("witnesses")), is_sufficient);
    }
}

#[test]
fn ignores_cosignatures_without_trusted_witnesses() {
    let report = verify(&cosigned_by(&[31]), &[], 0);
    assert!(report.has_passed() && !report.is_witnessed);
    assert!(!report.proven_statements().iter().any(|line| line.contains("witnesses")));
    // Two keys with the same witness name belong to one witness.
    let two_keys_of_witness =
        [witness(31), WitnessKey::new("witness.example/31", &signing_key(32).public_key()).unwrap()];
    assert!(failed_checks(&verify(&cosigned_by(&[31]), &two_keys_of_witness, 2)).contains(&"number of cosignatures"));
}

#[test]
fn second_checkpoint_reveals_forked_history() {
    let leaves: Vec<TreeHash> =
        log_with_records(&run_records::sample_records()).iter().map(|fact| TreeHash::new(leaf_hash(fact))).collect();
    let tree_of = |leaves: &[TreeHash]| {
        let mut tree = TreeEdge::default();
        leaves.iter().for_each(|leaf| drop(tree.append(*leaf)));
        tree
    };
    let note_of = |tree: &TreeEdge, seed| {
        sign_checkpoint(&Checkpoint { origin: origin(tenant()), size: tree.size(), root: tree.root() }, seed)
    };
    let longer_leaves: Vec<TreeHash> = leaves.iter().copied().chain([TreeHash::new([9; 32]); 30]).collect();
    let proof_json_of = |from: usize, to: &[TreeHash]| {
        let tree = tree_of(to);
        let hashes = ProofPlan::consistency(from as u64, tree.size()).unwrap().hashes(&|tile| tree.tile(tile));
        json!({ "proof": hashes.unwrap().iter().map(TreeHash::to_string).collect::<Vec<_>>() }).to_string()
    };
    let mut forked_leaves = longer_leaves.clone();
    forked_leaves[3] = TreeHash::new([8; 32]);
    let leaf_count = leaves.len();
    for (name, note, proof_json, failure, has_one_history) in [
        ("the same", note_of(&tree_of(&leaves), 1), None, None, true),
        ("earlier", note_of(&tree_of(&leaves[..7]), 1), Some(proof_json_of(7, &leaves)), None, true),
        ("later", note_of(&tree_of(&longer_leaves), 1), Some(proof_json_of(leaf_count, &longer_leaves)), None, true),
        ("later without a proof", note_of(&tree_of(&longer_leaves), 1), None, None, false),
        (
            "fork",
            note_of(&tree_of(&forked_leaves[..leaf_count]), 1),
            None,
            Some("root of the second checkpoint"),
            false,
        ),
        (
            "later fork",
            note_of(&tree_of(&forked_leaves), 1),
            Some(proof_json_of(leaf_count, &forked_leaves)),
            Some("consistency with the second checkpoint"),
            false,
        ),
        (
            "no proof",
            note_of(&tree_of(&longer_leaves), 1),
            Some("{\"proof\":[1]}".to_owned()),
            Some("consistency with the second checkpoint"),
            false,
        ),
        ("another key", note_of(&tree_of(&leaves), 2), None, Some("signature of the second checkpoint"), true),
    ] {
        let consistency_proof = proof_json.as_deref().map(str::as_bytes);
        let second_checkpoint = Some(SecondCheckpoint { note: note.as_bytes(), consistency_proof });
        let log_keys = &[verifier(1)];
        let trusted_inputs =
            TrustedInputs { log_keys, witnesses: &[], required_witnesses: 0, second_checkpoint, policy_input: None };
        let report = verify_bundle(BUNDLE.as_bytes(), trusted_inputs);
        assert_eq!(failed_checks(&report), failure.into_iter().collect::<Vec<_>>(), "{name}");
        assert_eq!(report.has_one_history, has_one_history, "{name}");
        let proves_one_history = report.proven_statements().iter().any(|line| line.contains("one history"));
        assert_eq!(proves_one_history, has_one_history && failure.is_none(), "{name}");
    }
}

#[test]
fn evaluates_bundled_policy_for_supplied_input() {
    const NAME: &str = "policy decision for the given input";
    let policy = json!({ "rules": [{
        "id": "small", "condition": "inputs.amount < 100", "outcome": "allow", "reason_code": "small_amount",
    }]});
    let mut predicate = predicate();
    predicate.release.bindings[0].content = Some(policy.to_string());
    let policy_decision = json!({ "outcome": "allow", "reason_code": "small_amount", "rules": ["small"] });
    predicate.evidence.insert("policy_decision".to_owned(), policy_decision);
    let verify = |predicate: &ExecutionPredicate, input: Option<&str>| {
        let log_keys = &[verifier(1)];
        let policy_input = input.map(str::as_bytes);
        let trusted_inputs = TrustedInputs { policy_input, ..TrustedInputs::from(log_keys) };
        verify_bundle(seal(&ExecutionStatement::about_run(predicate.clone()), &[1]).as_bytes(), trusted_inputs)
    };
    let verdict =
        |report: &BundleReport| report.checks.iter().find(|check| check.name == NAME).map(|check| check.verdict);
    for (input, expected) in [
        (Some(r#"{"inputs":{"amount":50}}"#), Some(CheckVerdict::Passed)),
        (Some(r#"{"inputs":{"amount":500}}"#), Some(CheckVerdict::Failed)),
        (Some(r#"{"inputs":{}}"#), Some(CheckVerdict::Failed)),
        (Some(r#"{"stranger":1}"#), Some(CheckVerdict::Failed)),
        (Some("no JSON"), Some(CheckVerdict::Failed)),
        (None, None),
    ] {
        let report = verify(&predicate, input);
        assert_eq!(verdict(&report), expected, "{input:?}");
        assert_eq!(report.has_decided_again, expected == Some(CheckVerdict::Passed), "{input:?}");
    }
    predicate.release.bindings[0].content = None;
    let report = verify(&predicate, Some(r#"{"inputs":{"amount":50}}"#));
    assert_eq!(verdict(&report), Some(CheckVerdict::NotIncluded));
}
