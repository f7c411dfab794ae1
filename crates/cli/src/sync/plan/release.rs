//! Plans the step for a release.

use super::{
    super::{
        manifest_files::ReleaseManifest,
        remote_state::{RemoteState, string_or_empty},
    },
    AssetStep, ReleaseAction, ReleaseStep,
};
use crate::{
    failure::{Failure, Finding},
    http_client::{ServerClient, required_string},
    untrusted_file::LocatedValue,
};
use fairway_domain::{
    asset::{Lifecycle, kind::AssetKind},
    release::{ReleaseRefusal, StateName, lane::TargetLane},
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Collects the conflicts between a release and the server's state.
pub(super) fn find_conflicts(
    release: &ReleaseManifest,
    located: &LocatedValue,
    remote_state: &RemoteState,
    findings: &mut Vec<Finding>,
) {
    for (index, binding) in release.bindings.iter().enumerate() {
        let mut add_finding = |member: &str, code: &str, message: &str| {
            findings.push(located.finding(&format!("/bindings/{index}/{member}"), code, message));
        };
        let remote_asset = remote_state.assets.get(&binding.asset);
        if binding.version.is_some()
            && remote_state.version_labelled(&binding.asset, binding.version.as_deref()).is_none()
        {
            add_finding("version", "unknown_version", "the server has no such version of this asset");
        }
        let Some(remote_asset) = remote_asset else { continue };
        if binding.version.is_some() && string_or_empty(remote_asset, "asset_kind") != binding.role.as_str() {
            add_finding("role", ReleaseRefusal::RoleKindMismatch.code(), "the asset is of another kind on the server");
        }
        if string_or_empty(remote_asset, "lifecycle_state") != Lifecycle::Active.as_str() {
            add_finding(
                "asset",
                ReleaseRefusal::AssetNotActive.code(),
                "the asset accepts no new bindings on the server",
            );
        }
    }
}

pub(in super::super) fn release_step(
    server: &ServerClient,
    release: &ReleaseManifest,
    remote_state: &RemoteState,
    assets: &[AssetStep],
) -> Result<ReleaseStep, Failure> {
    let mut step = ReleaseStep {
        workload: release.workload.clone(),
        environment: release.environment.clone(),
        target_lane: release.target_lane.clone(),
        action: ReleaseAction::Draft,
        release_id: None,
        state: None,
        updated_at: None,
        newest: None,
        because: Vec::new(),
        bindings: release.bindings.clone(),
    };
    let Some(workload) = remote_state.workloads.get(&release.workload) else { return Ok(step) };
    let requirements = ReleaseRequirements::of(release, remote_state, assets);
    match find_existing(server, release, required_string(workload, "workload_id")?, &requirements)? {
        ExistingRelease::None { newest, because } => (step.newest, step.because) = (newest, because),
        ExistingRelease::Found(action, found) => {
            step.action = action;
            step.release_id = Some(required_string(&found, "release_id")?.to_owned());
            step.state = Some(required_string(&found, "state")?.to_owned());
            if action == ReleaseAction::Complete {
                step.updated_at = Some(required_string(&found, "updated_at")?.to_owned());
            }
        }
    }
    Ok(step)
}

/// The bindings and the policy that a release must have to match its manifest.
struct ReleaseRequirements<'p> {
    /// Each bound asset with the versions that qualify; an empty set if a version must be created first.
    bindings: Vec<(&'p str, BTreeSet<&'p str>)>,
    policy: Option<&'p str>,
    assets: &'p [AssetStep],
    remote_state: &'p RemoteState,
}

impl<'p> ReleaseRequirements<'p> {
    fn of(release: &'p ReleaseManifest, remote_state: &'p RemoteState, assets: &'p [AssetStep]) -> Self {
        let bindings = release.bindings.iter().map(|binding| {
            let qualifying: BTreeSet<&str> = match &binding.version {
                None => matching_versions(remote_state, assets, &binding.asset),
                Some(label) => {
                    let version = remote_state.version_labelled(&binding.asset, Some(label));
                    version.map(|version| string_or_empty(version, "asset_version_id")).into_iter().collect()
                }
            };
            (binding.asset.as_str(), qualifying)
        });
        let bindings = bindings.collect();
        let policy = release.bindings.iter().rfind(|binding| binding.role == AssetKind::PolicyBundle);
        let policy = policy
            .and_then(|binding| remote_state.assets.get(&binding.asset))
            .map(|asset| string_or_empty(asset, "asset_id"));
        Self { bindings, policy, assets, remote_state }
    }

    /// The differences between a release and the requirements. Compares the bindings, and included assets of the
    /// directory. Ignores pinned references, and included assets outside the directory.
    fn differences(&self, found: &Value) -> Vec<String> {
        let bound = bound_versions(found);
        let is_bound = |qualifying: &BTreeSet<&str>| qualifying.iter().any(|version| bound.contains(*version));
        let unbound = self.bindings.iter().filter(|(_, qualifying)| !is_bound(qualifying));
        let mut lines: Vec<String> =
            unbound.map(|(slug, _)| format!("does not bind the directory's content of {slug}")).collect();
        if lines.is_empty() {
            let extra = bound.iter().filter(|version| !self.is_desired(version));
            lines.extend(extra.map(|version| self.describe_extra_binding(version)));
        }
        let references = found.get("references").and_then(Value::as_array).into_iter().flatten();
        for reference in references.filter(|reference| reference.get("pinned") == Some(&Value::Bool(false))) {
            let slug = string_or_empty(reference, "asset_slug");
            let is_in_directory = self.assets.iter().any(|step| step.slug == slug);
            if is_in_directory
                && !matching_versions(self.remote_state, self.assets, slug)
                    .contains(string_or_empty(reference, "asset_version_id"))
            {
                let label = string_or_empty(reference, "version_label");
                lines.push(format!("includes {slug} {label}, which differs from the directory"));
            }
        }
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert(line.clone()));
        lines
    }

    /// Whether the release binds no version beyond the desired versions.
    fn has_no_extra_bindings(&self, bound: &BTreeSet<String>) -> bool {
        bound.iter().all(|version| self.is_desired(version))
    }

    fn is_desired(&self, version: &str) -> bool {
        self.bindings.iter().any(|(_, qualifying)| qualifying.contains(version))
    }

    /// Why a bound version is not a desired one. The versions of every asset of the directory were read, so a version
    /// of an unknown asset is outside it.
    fn describe_extra_binding(&self, version: &str) -> String {
        let Some(slug) = self.remote_state.slug_of_version(version) else {
            return "binds assets outside the directory".to_owned();
        };
        if self.bindings.iter().any(|(bound, _)| *bound == slug) {
            format!("also binds another version of {slug}")
        } else if self.assets.iter().any(|step| step.slug == slug) {
            format!("binds {slug}, which the release file does not bind")
        } else {
            format!("binds {slug}, which is outside the directory")
        }
    }
}

/// The versions of an asset with the directory's content.
fn matching_versions<'p>(remote_state: &'p RemoteState, assets: &'p [AssetStep], slug: &str) -> BTreeSet<&'p str> {
    let step = assets.iter().find(|step| step.slug == slug);
    let versions = step.into_iter().flat_map(|step| remote_state.versions_with_checksum(&step.slug, &step.checksum));
    versions.map(|version| string_or_empty(version, "asset_version_id")).collect()
}

/// The result of the search for an existing release.
enum ExistingRelease {
    /// No release qualifies. Contains the newest release, and the reasons why the most similar
    /// release does not qualify.
    None {
        newest: Option<String>,
        because: Vec<String>,
    },
    Found(ReleaseAction, Value),
}

/// Finds an equal release that serves or is pending, or a draft that can be completed.
fn find_existing(
    server: &ServerClient,
    desired: &ReleaseManifest,
    workload: &str,
    requirements: &ReleaseRequirements<'_>,
) -> Result<ExistingRelease, Failure> {
    let mut query = vec![("environment", desired.environment.as_str())];
    if desired.target_lane != TargetLane::All.as_str() {
        query.push(("lane", &desired.target_lane));
    }
    // A release for all lanes also covers the desired lane.
    let covers = |release: &Value| {
        [TargetLane::All.as_str(), &desired.target_lane].contains(&string_or_empty(release, "target_lane"))
    };
    let mut because = Vec::new();
    let mut record_differences = |found: &Value, differences: Vec<String>| {
        if because.is_empty() {
            let release_name =
                format!("the {} release {}", string_or_empty(found, "state"), string_or_empty(found, "release_id"));
            because.extend(differences.iter().map(|difference| format!("{release_name} {difference}")));
        }
    };
    let active = server.find(&["workloads", workload, "active-release"], &query)?;
    if let Some(active) = active.filter(|active| covers(active)) {
        match requirements.differences(&active) {
            differences if differences.is_empty() => return Ok(ExistingRelease::Found(ReleaseAction::Keep, active)),
            differences => record_differences(&active, differences),
        }
    }
    let mut draft = None;
    let releases = server.list(&["releases"], &[("workload_id", workload), ("environment", &desired.environment)])?;
    let newest = releases.first().map(|newest| string_or_empty(newest, "release_id").to_owned());
    for listed in releases {
        let is_draft = match StateName::parse(string_or_empty(&listed, "state")) {
            Some(StateName::Draft) => true,
            // An active release that does not serve this lane belongs to a paused or running rollout, which operators
            // control.
            Some(StateName::ReviewReady | StateName::Approved | StateName::Active) => false,
            Some(StateName::Superseded | StateName::Retired) | None => continue,
        };
        if string_or_empty(&listed, "target_lane") != desired.target_lane {
            continue;
        }
        let found = server.get(&["releases", required_string(&listed, "release_id")?], &[])?;
        let differences = requirements.differences(&found);
        if differences.is_empty() {
            return Ok(ExistingRelease::Found(ReleaseAction::Keep, found));
        }
        let same_policy = found.get("policy_bundle_id").and_then(Value::as_str) == requirements.policy;
        if !is_draft {
            record_differences(&found, differences);
        } else if draft.is_none() && same_policy && requirements.has_no_extra_bindings(&bound_versions(&found)) {
            draft = Some(found);
        }
    }
    let none = ExistingRelease::None { newest, because };
    Ok(draft.map_or(none, |found| ExistingRelease::Found(ReleaseAction::Complete, found)))
}

/// The versions that a release binds.
pub(in super::super) fn bound_versions(release: &Value) -> BTreeSet<String> {
    let bindings = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    bindings.filter_map(|binding| binding.get("asset_version_id")?.as_str()).map(str::to_owned).collect()
}
