//! Commands that write releases: create, bind, submit, review, activate.

use crate::{
    asset,
    failure::Failure,
    server::{Server, required_string, string_or_empty},
    workload,
};
use fairway_domain::{
    asset::kind::AssetKind,
    release::{StateName, review},
};
use serde_json::{Value, json};

/// Drafts a release and binds versions to it.
pub(super) fn create(
    server: &Server,
    workload: &str,
    environment: &str,
    target_lane: &str,
    policy: Option<&str>,
    bind: &[String],
) -> Result<Value, Failure> {
    // All lookups precede the first write.
    let workload = workload::find_workload(server, workload)?;
    let bound = bind.iter().map(|version| asset::resolve_version(server, version)).collect::<Result<Vec<_>, _>>()?;
    let is_bundle = |asset: &&Value| string_or_empty(asset, "asset_kind") == AssetKind::PolicyBundle.as_str();
    let policy = match policy {
        Some(slug) => Some(asset::find_asset(server, slug)?),
        None => bound.iter().map(|(asset, _)| asset).find(is_bundle).cloned(),
    };
    let policy = policy.as_ref().map(|policy| required_string(policy, "asset_id")).transpose()?;
    let body = json!({
        "workload_id": required_string(&workload, "workload_id")?,
        "environment": environment,
        "target_lane": target_lane,
        "policy_bundle_id": policy,
    });
    let release = server.post(&["releases"], &body)?;
    let id = required_string(&release, "release_id")?;
    for (asset, version) in &bound {
        bind_version(server, id, required_string(asset, "asset_kind")?, required_string(version, "asset_version_id")?)?;
    }
    server.get(&["releases", id], &[])
}

/// Binds versions, given as `SLUG[@LABEL]`, to a draft, and returns the draft. All lookups precede the first write.
pub(super) fn bind(server: &Server, release: &str, versions: &[String]) -> Result<Value, Failure> {
    let found = versions.iter().map(|version| asset::resolve_version(server, version));
    for (asset, version) in &found.collect::<Result<Vec<_>, _>>()? {
        let role = required_string(asset, "asset_kind")?;
        bind_version(server, release, role, required_string(version, "asset_version_id")?)?;
    }
    server.get(&["releases", release], &[])
}

/// Binds a version to a draft, in the role of its kind.
pub(crate) fn bind_version(server: &Server, release: &str, role: &str, version: &str) -> Result<(), Failure> {
    let body = json!({ "asset_version_id": version, "role": role });
    server.post(&["releases", release, "bindings"], &body).map(drop)
}

/// Requests a state transition.
pub(crate) fn transition(server: &Server, release: &str, to: StateName) -> Result<Value, Failure> {
    server.post(&["releases", release, "transition"], &json!({ "to_state": to.as_str() }))
}

/// Activates a release. Moves a release in review to `approved` first.
pub(super) fn activate(
    server: &Server,
    release: &str,
    lane: Option<&str>,
    plan: Option<Value>,
) -> Result<Value, Failure> {
    let found = server.get(&["releases", release], &[])?;
    if required_string(&found, "state")? == StateName::ReviewReady.as_str() {
        transition(server, release, StateName::Approved)?;
    }
    let body = json!({ "to_state": StateName::Active.as_str(), "lane": lane, "rollout_plan": plan });
    server.post(&["releases", release, "transition"], &body)
}

/// Submits a review outcome for a release.
pub(super) fn submit_review(
    server: &Server,
    release: &str,
    outcome: review::Verdict,
    note: Option<&str>,
) -> Result<Value, Failure> {
    let body = json!({ "outcome": outcome.as_str(), "subject_kind": "release", "subject_ref": release, "note": note });
    server.post(&["releases", release, "approvals"], &body)
}
