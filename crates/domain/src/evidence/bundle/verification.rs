//! The verification of bundles. Its result depends only on the file and on inputs that the verifier obtained elsewhere,
//! such as keys.

mod release_summary;
mod run_records;
mod trusted_inputs;

pub use run_records::has_run_records_digest;
pub use trusted_inputs::{SecondCheckpoint, TrustedInputs};

use super::{
    BundledRelease, BundledVersion, EXECUTION_PREDICATE_TYPE, Envelope, ExecutionPredicate, ExecutionStatement,
    PAYLOAD_TYPE, ProvenFact, STATEMENT_TYPE, Statement, StatementSubject,
    report::{BundleKind, BundleReport},
    slsa_release_summary::{ReleaseStatement, SUMMARY_PREDICATE_TYPE},
    subjects_of,
};
use crate::{
    asset::canonical::Checksum,
    audit::leaf_hash,
    id::{ExecutionId, TenantId},
    transparency_log::{Checkpoint, InclusionClaim, SignedNote, TreeHash, VerifierKey},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The kinds of facts that record the end of a run.
const END_KINDS: [&str; 4] = ["execution.ended", "execution.denied", "execution.reviewed", "execution.settled"];
/// The members of a run's evidence that the fact of its end repeats, if the run has them.
const END_FACT_MEMBERS: [&str; 7] =
    ["outcome", "error_code", "input_digest", "output_digest", "release_id", "workload_id", "environment"];

/// The kind of the fact that records a transition of a release.
const TRANSITION: &str = "release.transitioned";
/// The states that a release enters only with the required approvals.
const APPROVED_STATES: [&str; 2] = ["approved", "active"];

/// The kind of the fact that approves an erasure of texts.
const ERASURE_APPROVED: &str = "erasure.approved";

/// A fact of the bundle with its parsed body.
struct ParsedFact<'b> {
    index: u64,
    body: Value,
    proven: &'b ProvenFact,
}

impl ParsedFact<'_> {
    /// The text at a JSON pointer in the fact; empty if it is absent.
    fn text(&self, pointer: &str) -> &str {
        self.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn part(&self) -> String {
        format!("{} at index {}", self.text("/kind"), self.index)
    }
}

/// Verifies a bundle with log keys that the verifier obtained from another source. Without such a key, every bundle
/// fails.
#[must_use]
pub fn verify_bundle<'k>(file: &[u8], trusted: impl Into<TrustedInputs<'k>>) -> BundleReport {
    let (mut report, trusted) = (BundleReport::default(), trusted.into());
    // If a check of the bundle's form fails, the checks that depend on that form are skipped.
    let checkpoint = check_bundle(&mut report, file, trusted);
    if let Some(second) = trusted.second_checkpoint {
        trusted_inputs::check_second_checkpoint(&mut report, checkpoint.as_ref(), second, trusted.log_keys);
    }
    report
}

/// The outcome in the newest fact that ends a run; `None` if no fact ends the run.
pub fn last_outcome<'b>(facts: impl Iterator<Item = &'b [u8]>, execution: ExecutionId) -> Option<String> {
    let execution = execution.to_string();
    let outcomes = facts.filter_map(|fact| {
        let body: Value = serde_json::from_slice(fact).ok()?;
        let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_end = text("/subject/id") == execution && END_KINDS.contains(&text("/kind"));
        is_end.then(|| text("/detail/outcome").to_owned())
    });
    outcomes.last()
}

/// Checks the file of a bundle, and returns its checkpoint if that is valid.
fn check_bundle(report: &mut BundleReport, file: &[u8], trusted: TrustedInputs<'_>) -> Option<Checkpoint> {
    let keys = trusted.log_keys;
    let has_key = !keys.is_empty();
    report.require("key from outside the bundle", "", "at least one", keys.len().to_string(), has_key);
    let envelope = Envelope::parse(file);
    let form = if envelope.is_some() { "a canonical envelope" } else { "another file" };
    report.compare("form of the file", "", "a canonical envelope", form);
    let envelope = envelope?;
    let signer = keys.iter().find(|key| envelope.is_signed_by(key));
    let signed_by: Vec<&str> = envelope.signatures.iter().map(|signature| signature.key_id.as_str()).collect();
    let key_ids: Vec<String> = keys.iter().map(|key| format!("{}+{}", key.name(), key.id_hex())).collect();
    report.require(
        "signature of the envelope",
        "",
        format!("a valid signature by {}", key_ids.join(" or ")),
        format!("{} by {}", if signer.is_some() { "valid" } else { "none that is valid" }, signed_by.join(", ")),
        signer.is_some(),
    );
    report.compare("payload type", "", PAYLOAD_TYPE, envelope.payload_type.as_str());
    if statement_of::<ReleaseStatement>(&envelope.payload).is_some() {
        report.kind = BundleKind::Release;
        let statement = check_statement(report, &envelope.payload, SUMMARY_PREDICATE_TYPE)?;
        return release_summary::check_release_summary(report, &statement, trusted);
    }
    let statement: ExecutionStatement = check_statement(report, &envelope.payload, EXECUTION_PREDICATE_TYPE)?;
    let predicate = &statement.predicate;
    check_subjects(report, &subjects_of(&predicate.evidence), &statement.subject);
    let log = LogPart { tenant_id: predicate.tenant_id, facts: &predicate.facts, checkpoint: &predicate.checkpoint };
    let checkpoint = check_checkpoint(report, log, trusted);
    let facts = check_facts(report, log, checkpoint.as_ref());
    let end = check_end(report, predicate, &facts);
    check_erasure(report, predicate, &facts);
    run_records::check_records(report, predicate, &facts);
    check_release(report, predicate, &facts, end);
    if let Some(input) = trusted.policy_input {
        trusted_inputs::check_policy_decision(report, predicate, input);
    }
    checkpoint
}

/// The part of a statement's predicate that connects it with the audit log.
#[derive(Clone, Copy)]
struct LogPart<'b> {
    tenant_id: TenantId,
    facts: &'b [ProvenFact],
    checkpoint: &'b str,
}

/// The text of a member; empty if the value has no such member.
fn member_text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn statement_of<S: for<'d> Deserialize<'d>>(payload: &[u8]) -> Option<S> {
    serde_json::from_slice(payload).ok()
}

/// Checks the form and the type names of a statement.
fn check_statement<P>(report: &mut BundleReport, payload: &[u8], predicate_type: &str) -> Option<Statement<P>>
where
    P: Serialize + for<'d> Deserialize<'d>,
{
    let statement: Option<Statement<P>> = statement_of(payload);
    let is_canonical = statement.as_ref().is_some_and(|statement| statement.to_payload() == payload);
    let form = if is_canonical { "a canonical statement" } else { "another payload" };
    report.compare("form of the statement", "", "a canonical statement", form);
    let statement = statement?;
    report.compare("statement type", "", STATEMENT_TYPE, statement.statement_type.as_str());
    report.compare("predicate type", "", predicate_type, statement.predicate_type.as_str());
    Some(statement)
}

fn check_subjects(report: &mut BundleReport, expected: &[StatementSubject], actual: &[StatementSubject]) {
    let describe = |subjects: &[StatementSubject]| {
        let digests = subjects.iter().flat_map(|subject| subject.digest.values().map(|hex| (&subject.name, hex)));
        digests.map(|(name, hex)| format!("{name} {hex}")).collect::<Vec<_>>().join(", ")
    };
    let is_equal = !expected.is_empty() && expected == actual;
    report.require("subject", "", describe(expected), describe(actual), is_equal);
}

fn check_checkpoint(report: &mut BundleReport, log: LogPart<'_>, trusted: TrustedInputs<'_>) -> Option<Checkpoint> {
    let note = SignedNote::parse(log.checkpoint.as_bytes()).ok();
    let signer = note.as_ref().and_then(|note| trusted.log_keys.iter().find(|key| note.is_signed_by(key)));
    let signature_state = if signer.is_some() { "valid" } else { "none that is valid" };
    report.require(
        "signature of the checkpoint",
        "",
        "a valid signature by a given key",
        signature_state,
        signer.is_some(),
    );
    let checkpoint = note.as_ref().and_then(|note| Checkpoint::parse(note.text()).ok());
    let origin = checkpoint.as_ref().map_or("", |checkpoint| checkpoint.origin.as_str());
    report.compare("origin of the log", "", signer.map_or("the name of a given key", VerifierKey::name), origin);
    let tenant = origin.rsplit('/').next().unwrap_or_default();
    report.compare("tenant of the log", "", log.tenant_id.to_string(), tenant);
    trusted_inputs::check_cosignatures(report, note.as_ref(), trusted);
    checkpoint
}

/// Checks that the checkpoint covers each fact, and returns the facts that pass.
fn check_facts<'b>(
    report: &mut BundleReport,
    log: LogPart<'b>,
    checkpoint: Option<&Checkpoint>,
) -> Vec<ParsedFact<'b>> {
    let mut proven_facts = Vec::new();
    let mut previous = None;
    for proven in log.facts {
        let body: Value = serde_json::from_str(&proven.body).unwrap_or_default();
        let fact = ParsedFact { index: proven.index, body, proven };
        let part = fact.part();
        let is_ordered = previous.is_none_or(|previous| previous < fact.index);
        previous = Some(fact.index);
        let order = if is_ordered { "in order" } else { "repeated or out of order" };
        let mut is_proven = report.compare("order of the facts", part.as_str(), "in order", order);
        let tenant = log.tenant_id.to_string();
        is_proven &= report.compare("tenant of the fact", part.as_str(), tenant, fact.text("/tenant_id"));
        let proof: Option<Vec<TreeHash>> = fact.proven.proof.iter().map(|hash| TreeHash::from_hex(hash)).collect();
        let root = checkpoint.zip(proof).and_then(|(checkpoint, proof)| {
            let claim = InclusionClaim {
                index: fact.index,
                leaf: TreeHash::new(leaf_hash(proven.body.as_bytes())),
                tree_size: checkpoint.size,
                root: checkpoint.root,
            };
            claim.root_from(&proof)
        });
        let expected = checkpoint.map_or_else(String::new, |checkpoint| checkpoint.root.to_string());
        let actual = root.map_or_else(|| "no root: the proof does not fit".to_owned(), |root| root.to_string());
        is_proven &= report.compare("inclusion of the fact in the log", part.as_str(), expected, actual);
        if is_proven {
            proven_facts.push(fact);
        }
    }
    proven_facts
}

/// Compares the evidence with the fact of the run's end, and returns that fact.
fn check_end<'f, 'b>(
    report: &mut BundleReport,
    predicate: &ExecutionPredicate,
    facts: &'f [ParsedFact<'b>],
) -> Option<&'f ParsedFact<'b>> {
    let evidence = |name: &str| predicate.evidence.get("execution").and_then(|run| run.get(name));
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "null".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let execution = text(evidence("execution_id"));
    let is_about_run =
        |fact: &&ParsedFact<'_>| fact.text("/subject/kind") == "execution" && fact.text("/subject/id") == execution;
    let end = facts.iter().filter(is_about_run).rfind(|fact| END_KINDS.contains(&fact.text("/kind")));
    let actual = end.map_or_else(|| "none".to_owned(), ParsedFact::part);
    report.require("end of the run in the log", execution, "a proven fact", actual, end.is_some());
    let end = end?;
    for name in END_FACT_MEMBERS {
        if let Some(logged_value) = end.body.pointer("/detail").and_then(|detail| detail.get(name)) {
            report.compare("evidence of the run", name, text(Some(logged_value)), text(evidence(name)));
        } else if name == "output_digest" && evidence(name).is_some_and(|digest| !digest.is_null()) {
            report.skip("evidence of the run", name, text(evidence(name)));
        }
    }
    Some(end)
}

/// If the evidence says that texts were erased, checks that the log contains the approval of that erasure for the run's
/// submitter.
fn check_erasure(report: &mut BundleReport, predicate: &ExecutionPredicate, facts: &[ParsedFact<'_>]) {
    let run = predicate.evidence.get("execution");
    let member = |name: &str| run.and_then(|run| run.get(name)).filter(|value| !value.is_null());
    if member("erased_at").is_none() && member("erasure_id").is_none() {
        return;
    }
    let text = |name: &str| member(name).and_then(Value::as_str).unwrap_or_default();
    let erasure = text("erasure_id");
    let approval = facts.iter().find(|fact| {
        fact.text("/kind") == ERASURE_APPROVED
            && fact.text("/subject/kind") == "erasure"
            && fact.text("/subject/id") == erasure
    });
    let actual = approval
        .map_or_else(|| "none".to_owned(), |fact| format!("approved for {}", fact.text("/detail/erased_actor")));
    report.compare("erasure in the log", erasure, format!("approved for {}", text("submitted_by")), actual);
}

fn check_release(
    report: &mut BundleReport,
    predicate: &ExecutionPredicate,
    facts: &[ParsedFact<'_>],
    end: Option<&ParsedFact<'_>>,
) {
    let release = &predicate.release;
    let digest = Checksum::blake3_of(release.digest_text.as_bytes());
    let release_id = end.map_or("", |end| end.text("/detail/release_id"));
    let release_facts: Vec<&ParsedFact<'_>> = facts
        .iter()
        .filter(|fact| fact.text("/subject/kind") == "release" && fact.text("/subject/id") == release_id)
        .collect();
    // Submissions, rejections and later transitions contain a digest too, so only transitions to approved states count.
    let is_approval = |fact: &&ParsedFact<'_>| {
        fact.text("/kind") == TRANSITION
            && APPROVED_STATES.contains(&fact.text("/detail/to"))
            && end.is_some_and(|end| fact.index < end.index)
    };
    let mut approved_digests =
        release_facts.iter().copied().filter(is_approval).map(|fact| fact.text("/detail/bindings_digest"));
    let approved_digest = approved_digests.next_back().unwrap_or("none");
    report.compare("approved bindings in the log", release_id, digest.as_str(), approved_digest);
    let mut lines = release.digest_text.lines();
    report.compare("form of the approved text", "", "fairway.release.v1", lines.next().unwrap_or_default());
    let text = |name: &str| end.map_or("", |end| end.text(name));
    report.compare("workload of the release", "", text("/detail/workload_id"), lines.next().unwrap_or_default());
    report.compare("environment of the release", "", text("/detail/environment"), lines.next().unwrap_or_default());
    check_approvals(report, predicate, &release_facts, digest.as_str());
    check_versions(report, release);
    check_listed_bindings(report, predicate);
}

fn check_approvals(
    report: &mut BundleReport,
    predicate: &ExecutionPredicate,
    release_facts: &[&ParsedFact<'_>],
    digest: &str,
) {
    let approvals = predicate.evidence.get("approvals").and_then(Value::as_array);
    for approval in approvals.into_iter().flatten() {
        let member = |name: &str| approval.get(name).and_then(Value::as_str).unwrap_or_default();
        let has_approval_id = |fact: &&&ParsedFact<'_>| fact.text("/detail/approval_id") == member("approval_id");
        let expected = format!("approved by {} at {} of {digest}", member("approved_by"), member("approved_at"));
        let actual = release_facts.iter().find(has_approval_id).map_or_else(
            || "none".to_owned(),
            |fact| {
                let (outcome, digest) = (fact.text("/detail/outcome"), fact.text("/detail/bindings_digest"));
                format!("{outcome} by {} at {} of {digest}", fact.text("/actor"), fact.text("/occurred_at"))
            },
        );
        report.compare("approval in the log", member("approval_id"), expected, actual);
    }
}

/// Compares the bindings in the evidence with the bindings of the release.
fn check_listed_bindings(report: &mut BundleReport, predicate: &ExecutionPredicate) {
    let release = &predicate.release;
    let listed_bindings = predicate.evidence.get("bindings").and_then(Value::as_array);
    let is_listed = |version: &BundledVersion| {
        let id = version.asset_version_id.to_string();
        listed_bindings.into_iter().flatten().any(|binding| {
            binding.get("asset_version_id").and_then(Value::as_str) == Some(id.as_str())
                && binding.get("role").and_then(Value::as_str) == Some(version.role.as_str())
        })
    };
    report.compare(
        "number of bindings in the evidence",
        "",
        release.bindings.len().to_string(),
        listed_bindings.map_or(0, Vec::len).to_string(),
    );
    for version in &release.bindings {
        let actual = if is_listed(version) { "listed" } else { "missing" };
        report.compare("binding in the evidence", version.role.as_str(), "listed", actual);
    }
}

/// Checks that the bundle contains exactly the versions that the approved text names.
fn check_versions(report: &mut BundleReport, release: &BundledRelease) {
    // The first four lines contain the format version and the target of the release. A line of two words names the
    // required policy bundle, and lines of bindings and references have more words.
    let lines: Vec<&str> = release.digest_text.lines().skip(4).filter(|line| line.split(' ').count() > 2).collect();
    let is_reference = |line: &&&str| line.starts_with("reference ");
    let bound_count = lines.iter().filter(|line| !is_reference(line)).count();
    report.compare("number of bindings", "", bound_count.to_string(), release.bindings.len().to_string());
    for version in &release.bindings {
        let line = format!("{} {} {}", version.role, version.asset_version_id, version.checksum);
        let actual = if lines.contains(&line.as_str()) { line.as_str() } else { "none" };
        report.compare("binding in the approved text", version.role.as_str(), line.as_str(), actual);
        check_content(report, version);
    }
    let is_included = |line: &&str| {
        let text =
            |version: &BundledVersion| format!("{} {} {}", version.role, version.asset_version_id, version.checksum);
        release.bindings.iter().any(|version| text(version) == *line)
    };
    let missing = lines.iter().filter(|line| !is_reference(line)).filter(|line| !is_included(line)).count();
    report.compare("bindings without a version", "", "0", missing.to_string());
    for version in &release.references {
        let end = format!(" {} {}", version.asset_version_id, version.checksum);
        let is_named = lines.iter().filter(is_reference).any(|line| line.ends_with(&end));
        let actual = if is_named { end.as_str() } else { "none" };
        report.compare("reference in the approved text", version.role.as_str(), end.as_str(), actual);
        check_content(report, version);
    }
    let lines_without_version = lines.iter().filter(is_reference).filter(|line| {
        !release
            .references
            .iter()
            .any(|version| line.ends_with(&format!(" {} {}", version.asset_version_id, version.checksum)))
    });
    report.compare("references without a version", "", "0", lines_without_version.count().to_string());
}

fn check_content(report: &mut BundleReport, version: &BundledVersion) {
    let part = format!("{} {}", version.role, version.asset_version_id);
    match &version.content {
        None => report.skip("content of the version", part, version.checksum.as_str()),
        Some(content) => {
            let actual = Checksum::blake3_of(content.as_bytes());
            report.compare("content of the version", part, version.checksum.as_str(), actual.as_str());
        }
    }
}
