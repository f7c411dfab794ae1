//! Plans the steps that make a server match a sync directory.

mod asset;
mod release;
mod unmanaged;
mod unusable_reference;
mod workload;

pub(super) use asset::asset_step;
pub(super) use release::{bound_versions, release_step};
pub(super) use workload::{differing_fields, workload_step};

use super::{UnmanagedPolicy, directory::Directory, manifest_files::BindingManifest, remote_state::RemoteState};
use crate::{failure::Failure, http_client::ServerClient};
use fairway_domain::{asset::kind::AssetKind, release::StateName};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// All planned steps. Equal plans have equal effects.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The address of the server for which the plan was made.
    pub(super) server: String,
    pub(super) workspace_id: String,
    pub(super) assets: Vec<AssetStep>,
    pub(super) workloads: Vec<WorkloadStep>,
    pub(super) releases: Vec<ReleaseStep>,
    pub(super) unmanaged: Vec<UnmanagedAsset>,
}

/// The planned step for an asset.
#[derive(Debug, Serialize)]
pub(super) struct AssetStep {
    pub(super) slug: String,
    pub(super) kind: AssetKind,
    pub(super) action: AssetAction,
    /// The owner of a new asset.
    pub(super) owner_ref: String,
    pub(super) checksum: String,
    /// The checksum of a flow's text. Comments belong to the text but not to the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text_checksum: Option<String>,
    /// The label of the version that the step reuses, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The label of the newest version on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// The reason why a version is created although an equal version exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) because: Option<&'static str>,
    /// The content diff; only in plans that are printed or saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diff: Option<String>,
    /// A difference between directory and server that `apply` does not change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AssetAction {
    Create,
    Version,
    Reuse,
}

/// The planned step for a workload.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WorkloadStep {
    pub(super) slug: String,
    pub(super) action: WorkloadAction,
    /// The fields that `apply` sends.
    pub(super) fields: Map<String, Value>,
    /// The revision of the workload on which the step is based; `apply` refuses another revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkloadAction {
    Create,
    Change,
    Keep,
}

/// The planned step for a release.
#[derive(Debug, Serialize)]
pub(super) struct ReleaseStep {
    pub(super) workload: String,
    pub(super) environment: String,
    pub(super) target_lane: String,
    pub(super) action: ReleaseAction,
    /// The release that the step keeps or completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// The revision of the draft to complete on which the step is based; `apply` refuses another revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
    /// For a new draft: the newest release at the time of the plan. `apply` searches later releases first, because
    /// one of them may already be the desired release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// For a new draft: the differences between the manifest and the first active or pending release that was compared,
    /// one line each. Empty if no such release was compared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) because: Vec<String>,
    pub(super) bindings: Vec<BindingManifest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReleaseAction {
    /// Creates a draft.
    Draft,
    /// Adds missing bindings to an existing draft.
    Complete,
    /// Changes nothing, because an equal release exists.
    Keep,
}

/// An asset that the directory does not contain.
#[derive(Debug, Serialize)]
pub(super) struct UnmanagedAsset {
    pub(super) slug: String,
    pub(super) asset_id: String,
    pub(super) action: UnmanagedAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnmanagedAction {
    Leave,
    Archive,
    /// The asset cannot be archived, because a remaining release or content depends on it.
    InUse,
}

impl Plan {
    /// Whether the plan changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.assets.iter().all(|step| step.action == AssetAction::Reuse)
            && self.workloads.iter().all(|step| step.action == WorkloadAction::Keep)
            && self.releases.iter().all(|step| step.action == ReleaseAction::Keep)
            && self.unmanaged.iter().all(|asset| asset.action == UnmanagedAction::Leave)
    }

    /// Adds the content diff of each new version. Separate from planning, because diffs of long texts are slow and
    /// `status` does not need them.
    pub(super) fn with_diffs(mut self, desired: &Directory, remote_state: &RemoteState) -> Self {
        for (step, asset) in self.assets.iter_mut().zip(&desired.assets) {
            if step.action == AssetAction::Version {
                step.diff = Some(asset::asset_diff(asset, remote_state));
            }
        }
        self
    }

    /// Refuses to apply the plan if an asset that it archives is in use.
    ///
    /// # Errors
    /// When an asset to archive is in use.
    pub(super) fn refuse_if_blocked(&self) -> Result<(), Failure> {
        let blocked: Vec<&str> = self
            .unmanaged
            .iter()
            .filter(|asset| asset.action == UnmanagedAction::InUse)
            .map(|asset| asset.slug.as_str())
            .collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let blocked = blocked.join(", ");
        Err(Failure::Failed(format!(
            "asset_in_use: remaining releases or contents depend on {blocked}; nothing was changed"
        )))
    }

    /// Refuses a saved plan unless it equals this plan, which was computed for the current state.
    ///
    /// # Errors
    /// When the saved plan differs from this one, or was made for another server.
    pub(super) fn refuse_if_different(&self, saved_plan: &Value) -> Result<(), Failure> {
        if saved_plan.get("server").and_then(Value::as_str) != Some(self.server.as_str()) {
            let message = "plan_of_another_server: the plan was made for another server; nothing was changed";
            return Err(Failure::Failed(message.to_owned()));
        }
        let current_plan = serde_json::to_value(self).map_err(|error| Failure::Failed(error.to_string()))?;
        if *saved_plan == current_plan {
            Ok(())
        } else {
            Err(stale_plan("the directory or the server", "nothing was changed"))
        }
    }
}

/// The failure for a plan that no longer matches the server's state.
pub(super) fn stale_plan(subject: &str, outcome: &str) -> Failure {
    Failure::Failed(format!("stale_plan: {subject} changed since the plan was made; {outcome}"))
}

/// Compares a directory with a server.
///
/// # Errors
/// When parts of the directory conflict with the server's state; the failure lists all conflicts.
pub(super) fn build_plan(
    server: &ServerClient,
    desired: &Directory,
    remote_state: &RemoteState,
    unmanaged_policy: UnmanagedPolicy,
) -> Result<Plan, Failure> {
    let mut findings = Vec::new();
    let assets: Vec<AssetStep> = desired.assets.iter().map(|asset| asset_step(asset, remote_state)).collect();
    let mut validator = unusable_reference::ReferenceValidator::new(desired, remote_state);
    for (asset, step) in desired.assets.iter().zip(&assets) {
        asset::find_conflicts(asset, desired, remote_state, &assets, &mut findings);
        validator.check_asset(asset, step, &mut findings);
    }
    for (workload, located) in &desired.workloads {
        workload::find_conflicts(workload, located, remote_state, &mut findings);
    }
    let workloads = desired.workloads.iter().map(|(workload, _)| workload_step(workload, remote_state)).collect();
    let mut releases = Vec::new();
    for (release, located) in &desired.releases {
        let is_in_directory = desired.workloads.iter().any(|(workload, _)| workload.slug == release.workload);
        if !is_in_directory && !remote_state.workloads.contains_key(&release.workload) {
            findings.push(located.finding(
                "/workload",
                "unknown_workload",
                "the workload exists neither in the directory nor on the server",
            ));
            continue;
        }
        let step = release_step(server, release, remote_state, &assets)?;
        // Skips an unchanged release: if it serves, it stays valid regardless of its assets.
        if step.action != ReleaseAction::Keep {
            release::find_conflicts(release, located, remote_state, &mut findings);
        }
        // Also checks an unchanged draft, because its references are resolved only at submission.
        if step.action != ReleaseAction::Keep || step.state.as_deref() == Some(StateName::Draft.as_str()) {
            validator.check_release(release, located, &mut findings);
        }
        releases.push(step);
    }
    if !findings.is_empty() {
        let mut seen_findings = BTreeSet::new();
        // Removes duplicate findings: an asset with a new version that belongs to a release was checked twice.
        findings.retain(|finding| seen_findings.insert(finding.clone()));
        return Err(Failure::Files(findings));
    }
    let unmanaged = match unmanaged_policy {
        UnmanagedPolicy::Keep => unmanaged::list_kept(desired, remote_state, server.workspace_id()?)?,
        UnmanagedPolicy::Archive => unmanaged::list_pruned(server, desired, &assets, remote_state)?,
    };
    let (server, workspace_id) = (server.address().to_owned(), server.workspace_id()?.to_owned());
    Ok(Plan { server, workspace_id, assets, workloads, releases, unmanaged })
}
