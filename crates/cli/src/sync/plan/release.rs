//! What would have to be done for a release.

use super::{
    super::{
        estate::{Estate, word},
        manifest::ReleaseManifest,
    },
    AssetStep, ReleaseAction, ReleaseStep,
};
use crate::{
    failure::{Failure, Finding},
    file::Located,
    server::{Server, text},
};
use fairway_domain::{
    asset::{Lifecycle, kind::AssetKind},
    release::{ReleaseRefusal, StateName, lane::TargetLane},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// What of a release cannot come true on this server.
pub(super) fn ruled_out(
    (release, located): (&ReleaseManifest, &Located),
    estate: &Estate,
    findings: &mut Vec<Finding>,
) {
    for (index, binding) in release.bindings.iter().enumerate() {
        let mut found = |member: &str, code: &str, message: &str| {
            findings.push(located.finding(&format!("/bindings/{index}/{member}"), code, message));
        };
        let live = estate.assets.get(&binding.asset);
        if binding.version.is_some() && estate.labelled(&binding.asset, binding.version.as_deref()).is_none() {
            found("version", "unknown_version", "the server has no such version of this asset");
        }
        let Some(live) = live else { continue };
        if binding.version.is_some() && word(live, "asset_kind") != binding.role.as_str() {
            found("role", ReleaseRefusal::RoleKindMismatch.code(), "the asset is of another kind on the server");
        }
        if word(live, "lifecycle_state") != Lifecycle::Active.as_str() {
            found("asset", ReleaseRefusal::AssetNotActive.code(), "the asset takes no new bindings on the server");
        }
    }
}

pub(in super::super) fn release_step(
    server: &Server,
    release: &ReleaseManifest,
    estate: &Estate,
    assets: &[AssetStep],
) -> Result<ReleaseStep, Failure> {
    // The versions that are there already; none stands for one that would have to be made.
    let mut versions: BTreeSet<Option<String>> = BTreeSet::new();
    let mut policy = None;
    for binding in &release.bindings {
        let version = match &binding.version {
            None => {
                let step = assets.iter().find(|step| step.slug == binding.asset);
                step.and_then(|step| estate.version_of(&step.slug, &step.checksum))
            }
            Some(label) => estate.labelled(&binding.asset, Some(label)),
        };
        if binding.role == AssetKind::PolicyBundle {
            policy = estate.assets.get(&binding.asset).map(|asset| word(asset, "asset_id"));
        }
        versions.insert(version.map(|version| word(version, "asset_version_id").to_owned()));
    }
    let mut step = ReleaseStep {
        workload: release.workload.clone(),
        environment: release.environment.clone(),
        target_lane: release.target_lane.clone(),
        action: ReleaseAction::Draft,
        release_id: None,
        state: None,
        updated_at: None,
        bindings: release.bindings.clone(),
    };
    let Some(workload) = estate.workloads.get(&release.workload) else { return Ok(step) };
    if let Some((action, found)) = standing(server, release, text(workload, "workload_id")?, (&versions, policy))? {
        step.action = action;
        step.release_id = Some(text(&found, "release_id")?.to_owned());
        step.state = Some(text(&found, "state")?.to_owned());
        if action == ReleaseAction::Complete {
            step.updated_at = Some(text(&found, "updated_at")?.to_owned());
        }
    }
    Ok(step)
}

/// The release that serves with exactly these versions, or is on its way, or a draft that can become one.
fn standing(
    server: &Server,
    wanted: &ReleaseManifest,
    workload: &str,
    (versions, policy): (&BTreeSet<Option<String>>, Option<&str>),
) -> Result<Option<(ReleaseAction, Value)>, Failure> {
    let mut query = vec![("environment", wanted.environment.as_str())];
    if wanted.target_lane != TargetLane::All.as_str() {
        query.push(("lane", &wanted.target_lane));
    }
    let exactly = |bound: &BTreeSet<Option<String>>| bound == versions && !versions.contains(&None);
    // What may serve on all lanes may serve on this one.
    let covers =
        |release: &Value| [TargetLane::All.as_str(), &wanted.target_lane].contains(&word(release, "target_lane"));
    let active = server.find(&["workloads", workload, "active-release"], &query)?;
    if let Some(active) = active.filter(|active| covers(active) && exactly(&bound_in(active))) {
        return Ok(Some((ReleaseAction::Keep, active)));
    }
    let mut draft = None;
    for listed in server.list(&["releases"], &[("workload_id", workload), ("environment", &wanted.environment)])? {
        let is_over = match StateName::parse(word(&listed, "state")) {
            // Active without serving there: a rollout is under way, or holds, and whether it goes on is for people to say.
            Some(StateName::Draft | StateName::ReviewReady | StateName::Approved | StateName::Active) => false,
            Some(StateName::Superseded | StateName::Retired) | None => true,
        };
        if is_over || word(&listed, "target_lane") != wanted.target_lane {
            continue;
        }
        let found = server.get(&["releases", text(&listed, "release_id")?], &[])?;
        let bound = bound_in(&found);
        if exactly(&bound) {
            return Ok(Some((ReleaseAction::Keep, found)));
        }
        let same_policy = found.get("policy_bundle_id").and_then(Value::as_str) == policy;
        if draft.is_none()
            && same_policy
            && word(&found, "state") == StateName::Draft.as_str()
            && bound.is_subset(versions)
        {
            draft = Some((ReleaseAction::Complete, found));
        }
    }
    Ok(draft)
}

/// The versions that a release binds.
pub(in super::super) fn bound_in(release: &Value) -> BTreeSet<Option<String>> {
    let bindings = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    bindings.map(|binding| binding.get("asset_version_id").and_then(Value::as_str).map(str::to_owned)).collect()
}
