//! Inputs that a verifier obtains from other sources than the bundle: log keys, witnesses, a second checkpoint, and the
//! input of the policy decision.

use crate::{
    asset::kind::AssetKind,
    evidence::bundle::{ExecutionPredicate, report::BundleReport},
    policy::{CompiledPolicy, ExplanationRefusal, PolicyDecision},
    transparency_log::{Checkpoint, ConsistencyClaim, SignedNote, TreeHash, VerifierKey, WitnessKey},
};
use serde_json::Value;

/// The inputs of a verification that come from other sources than the bundle.
#[derive(Clone, Copy, Debug)]
pub struct TrustedInputs<'k> {
    /// The keys of the audit log. The bundle and the checkpoint must each have a signature by one of these keys.
    pub log_keys: &'k [VerifierKey],
    /// The keys of the witnesses that the verifier knows.
    pub witnesses: &'k [WitnessKey],
    /// The number of known witnesses that must have cosigned the checkpoint.
    pub required_witnesses: usize,
    /// A checkpoint of the same log from another source, if the verifier has one.
    pub second_checkpoint: Option<SecondCheckpoint<'k>>,
    /// The input of the effective policy decision as JSON, in the form of a policy test's `input`. The verifier
    /// obtained it elsewhere.
    pub policy_input: Option<&'k [u8]>,
}

/// A checkpoint of the same log that another party kept.
#[derive(Clone, Copy, Debug)]
pub struct SecondCheckpoint<'k> {
    /// The checkpoint as a signed note.
    pub note: &'k [u8],
    /// The JSON response of the API's consistency route. It is required if the two checkpoints have different sizes.
    pub consistency_proof: Option<&'k [u8]>,
}

impl<'k, K: AsRef<[VerifierKey]> + ?Sized> From<&'k K> for TrustedInputs<'k> {
    /// Verifies with the keys of the log only.
    fn from(log_keys: &'k K) -> Self {
        Self {
            log_keys: log_keys.as_ref(),
            witnesses: &[],
            required_witnesses: 0,
            second_checkpoint: None,
            policy_input: None,
        }
    }
}

/// Checks that enough of the known witnesses cosigned the checkpoint. Without a required number, absent cosignatures
/// are no failure.
pub(super) fn check_cosignatures(
    report: &mut BundleReport,
    note: Option<&SignedNote>,
    TrustedInputs { witnesses, required_witnesses, .. }: TrustedInputs<'_>,
) {
    const NAME: &str = "cosignature of the checkpoint";
    let mut cosigners: Vec<&str> = Vec::new();
    for witness in witnesses {
        match note.and_then(|note| witness.cosigned_at(note)) {
            Some(seconds) => {
                let actual = format!("valid, {seconds} s after 1970");
                report.require(NAME, witness.name(), "a valid cosignature", actual, true);
                cosigners.push(witness.name());
            }
            // Fewer witnesses are required than known, so this cosignature may be absent.
            None if required_witnesses < witnesses.len() => report.skip(NAME, witness.name(), "a valid cosignature"),
            None => {
                report.require(NAME, witness.name(), "a valid cosignature", "none that is valid", false);
            }
        }
    }
    // A witness counts once, even with two keys.
    cosigners.sort_unstable();
    cosigners.dedup();
    if required_witnesses > 0 {
        report.is_witnessed = true;
        report.require(
            "number of cosignatures",
            "",
            format!("at least {required_witnesses}"),
            cosigners.len().to_string(),
            cosigners.len() >= required_witnesses,
        );
    }
}

/// Compares the checkpoint of the bundle with a second checkpoint. If their sizes differ, a consistency proof is
/// required.
pub(super) fn check_second_checkpoint(
    report: &mut BundleReport,
    checkpoint: Option<&Checkpoint>,
    second: SecondCheckpoint<'_>,
    keys: &[VerifierKey],
) {
    const CONSISTENT: &str = "a proof that the log only grew";
    let note = SignedNote::parse(second.note).ok();
    let is_signed = note.as_ref().is_some_and(|note| keys.iter().any(|key| note.is_signed_by(key)));
    let signature_state = if is_signed { "valid" } else { "none that is valid" };
    report.require(
        "signature of the second checkpoint",
        "",
        "a valid signature by a given key",
        signature_state,
        is_signed,
    );
    let other_checkpoint = note.and_then(|note| Checkpoint::parse(note.text()).ok());
    report.compare(
        "origin of the second checkpoint",
        "",
        checkpoint.map_or("", |checkpoint| checkpoint.origin.as_str()),
        other_checkpoint.as_ref().map_or("no checkpoint", |other_checkpoint| other_checkpoint.origin.as_str()),
    );
    let (Some(checkpoint), Some(other_checkpoint)) = (checkpoint, other_checkpoint.as_ref()) else { return };
    if checkpoint.size == other_checkpoint.size {
        let part = format!("{} facts", other_checkpoint.size);
        report.has_one_history = report.compare(
            "root of the second checkpoint",
            part,
            checkpoint.root.to_string(),
            other_checkpoint.root.to_string(),
        );
        return;
    }
    let (earlier, later) = if checkpoint.size < other_checkpoint.size {
        (checkpoint, other_checkpoint)
    } else {
        (other_checkpoint, checkpoint)
    };
    let part = format!("{} to {} facts", earlier.size, later.size);
    let name = "consistency with the second checkpoint";
    let Some(proof) = second.consistency_proof else {
        report.skip(name, part, "a proof");
        return;
    };
    let claim =
        ConsistencyClaim { from_size: earlier.size, from_root: earlier.root, to_size: later.size, to_root: later.root };
    let is_consistent = hashes_of(proof).is_some_and(|hashes| claim.is_proved_by(&hashes));
    report.has_one_history =
        report.require(name, part, CONSISTENT, if is_consistent { CONSISTENT } else { "no such proof" }, is_consistent);
}

/// Evaluates the bundled policy for the supplied input, and compares the decision with the one in the evidence.
pub(super) fn check_policy_decision(report: &mut BundleReport, predicate: &ExecutionPredicate, input: &[u8]) {
    const NAME: &str = "policy decision for the given input";
    let member = |name: &str| predicate.evidence.get("policy_decision").and_then(|decision| decision.get(name));
    let text = |name: &str| member(name).and_then(Value::as_str).unwrap_or("none");
    let rules: Vec<&str> =
        member("rules").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let expected = format!("{} {} by {}", text("outcome"), text("reason_code"), rules.join(", "));
    let policy = predicate.release.bindings.iter().find(|binding| binding.role == AssetKind::PolicyBundle.as_str());
    let Some(content) = policy.and_then(|policy| policy.content.as_deref()) else {
        report.skip(NAME, "", expected);
        return;
    };
    let content: Value = serde_json::from_str(content).unwrap_or_default();
    let actual = match serde_json::from_slice(input).map(|input| CompiledPolicy::explain(&content, &input)) {
        Ok(Ok(explanation)) => {
            let PolicyDecision { outcome, reason_code, matched_rules, .. } = explanation.decision;
            format!("{} {reason_code} by {}", outcome.as_str(), matched_rules.join(", "))
        }
        Ok(Err(ExplanationRefusal::Bundle(_))) => "the policy does not compile".to_owned(),
        Ok(Err(ExplanationRefusal::Input)) | Err(_) => "the input has another form".to_owned(),
    };
    report.has_decided_again = report.compare(NAME, "", expected, actual);
}

/// The hashes in a response of the API's consistency route; `None` if the response is malformed.
fn hashes_of(proof: &[u8]) -> Option<Vec<TreeHash>> {
    let document: Value = serde_json::from_slice(proof).ok()?;
    document.get("proof")?.as_array()?.iter().map(|hash| TreeHash::from_hex(hash.as_str()?)).collect()
}
