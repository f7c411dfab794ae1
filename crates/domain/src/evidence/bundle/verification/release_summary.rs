//! The verification of the summary of a release.

use super::{LogPart, TrustedInputs, check_checkpoint, check_facts, check_subjects, check_versions};
use crate::{
    asset::canonical::Checksum,
    evidence::bundle::{
        report::BundleReport,
        slsa_release_summary::{
            LoggedReleaseState, ReleaseStatement, SummaryResult, VERIFIER_ID, resource_uri, subject_of,
        },
    },
    transparency_log::Checkpoint,
};

/// Checks that the result of a summary follows from the proven facts, and that its contents have the approved digests.
/// Returns the checkpoint if that is valid.
pub(super) fn check_release_summary(
    report: &mut BundleReport,
    statement: &ReleaseStatement,
    trusted: TrustedInputs<'_>,
) -> Option<Checkpoint> {
    let predicate = &statement.predicate;
    let evidence = &predicate.evidence;
    check_subjects(report, &[subject_of(evidence)], &statement.subject);
    report.compare("verifier", "", VERIFIER_ID, predicate.verifier.id.as_str());
    report.compare("resource", "", resource_uri(evidence), predicate.resource_uri.as_str());
    let log = LogPart { tenant_id: evidence.tenant_id, facts: &evidence.facts, checkpoint: &evidence.checkpoint };
    let checkpoint = check_checkpoint(report, log, trusted);
    let facts = check_facts(report, log, checkpoint.as_ref());
    // Only facts that are proven to be in the log determine the result.
    let proven = facts.iter().map(|fact| fact.proven.body.as_bytes());
    let digest = Checksum::blake3_of(evidence.release.digest_text.as_bytes());
    let history = LoggedReleaseState::from_facts(proven, evidence.release_id);
    let result = history.result(&digest);
    report.compare("time of the result", "", history.occurred_at, predicate.time_verified.as_str());
    report.compare("result by the log", "", result.as_str(), predicate.verification_result.as_str());
    // Pipelines deploy after a passed verification, so the verification fails for a release that must not be deployed.
    let stated_result = predicate.verification_result.as_str();
    report.compare("permission to deploy", "", SummaryResult::Passed.as_str(), stated_result);
    report.compare(
        "levels of the result",
        "",
        result.verified_levels().join(", "),
        predicate.verified_levels.join(", "),
    );
    report.require(
        "facts about the release",
        "",
        "at least one",
        facts.len().to_string(),
        facts.iter().any(|fact| fact.text("/subject/id") == evidence.release_id.to_string()),
    );
    let mut lines = evidence.release.digest_text.lines();
    report.compare("form of the approved text", "", "fairway.release.v1", lines.next().unwrap_or_default());
    let target_fact = facts.iter().rev().find(|fact| !fact.text("/detail/environment").is_empty());
    let target_text = |name: &str| target_fact.map_or("", |fact| fact.text(name));
    report.compare("workload of the release", "", target_text("/detail/workload_id"), lines.next().unwrap_or_default());
    report.compare(
        "environment of the release",
        "",
        target_text("/detail/environment"),
        lines.next().unwrap_or_default(),
    );
    let policy_end = format!("/environments/{}/settings", target_text("/detail/environment"));
    let policy = predicate.policy.uri.as_str();
    let is_of_environment =
        policy.starts_with(&format!("fairway:tenants/{}/", evidence.tenant_id)) && policy.ends_with(&policy_end);
    report.require(
        "policy of the summary",
        "",
        format!("the settings that end in {policy_end}"),
        policy,
        is_of_environment,
    );
    check_versions(report, &evidence.release);
    checkpoint
}
