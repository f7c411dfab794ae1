//! What would have to be done so that a server is as a directory says.

mod asset;
mod reference;
mod release;
mod rest;
mod workload;

pub(super) use asset::asset_step;
pub(super) use release::{bound_in, release_step};
pub(super) use workload::{differing_fields, workload_step};

use super::{Rest, directory::Directory, estate::Estate, manifest::BindingManifest};
use crate::{failure::Failure, server::Server};
use fairway_domain::{asset::kind::AssetKind, release::StateName};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Everything that would be done. Two plans that are equal do the same to the same things.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The address of the server that it was made for.
    pub(super) server: String,
    pub(super) workspace_id: String,
    pub(super) assets: Vec<AssetStep>,
    pub(super) workloads: Vec<WorkloadStep>,
    pub(super) releases: Vec<ReleaseStep>,
    pub(super) unmanaged: Vec<Unmanaged>,
}

/// What would be done with an asset.
#[derive(Debug, Serialize)]
pub(super) struct AssetStep {
    pub(super) slug: String,
    pub(super) kind: AssetKind,
    pub(super) action: AssetAction,
    /// Who answers for an asset that is made.
    pub(super) owner_ref: String,
    pub(super) checksum: String,
    /// Of the text that is sent, where content is made of one: comments are no part of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text_checksum: Option<String>,
    /// The version that is used as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The newest version that the server has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// Why a version is made although there is one that says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) because: Option<&'static str>,
    /// How the content would change; only in plans that are shown or agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diff: Option<String>,
    /// What stays different, because nothing changes it.
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

/// What would be done with a workload.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WorkloadStep {
    pub(super) slug: String,
    pub(super) action: WorkloadAction,
    /// What would be sent.
    pub(super) fields: Map<String, Value>,
    /// The state of the server that this was decided on.
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

/// What would be done for a release.
#[derive(Debug, Serialize)]
pub(super) struct ReleaseStep {
    pub(super) workload: String,
    pub(super) environment: String,
    pub(super) target_lane: String,
    pub(super) action: ReleaseAction,
    /// The release that is used or carried on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    /// When that release last changed, of one that is carried on: what it lacks was decided on that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
    /// The newest release that there was, of one that is drafted: whatever came since may be what was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// Why no release that serves or is on its way will do, one line for each difference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) because: Vec<String>,
    pub(super) bindings: Vec<BindingManifest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReleaseAction {
    /// A release is drafted.
    Draft,
    /// A draft gets what it lacks.
    Complete,
    /// A release with these versions is there.
    Keep,
}

/// An asset that the directory does not name.
#[derive(Debug, Serialize)]
pub(super) struct Unmanaged {
    pub(super) slug: String,
    pub(super) asset_id: String,
    pub(super) action: RestAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RestAction {
    Leave,
    Archive,
    /// It should be archived and cannot be: a release stands on it, or content that stays refers to it.
    InUse,
}

impl Plan {
    /// Whether there is nothing to do.
    pub(super) fn is_done(&self) -> bool {
        self.assets.iter().all(|step| step.action == AssetAction::Reuse)
            && self.workloads.iter().all(|step| step.action == WorkloadAction::Keep)
            && self.releases.iter().all(|step| step.action == ReleaseAction::Keep)
            && self.unmanaged.iter().all(|rest| rest.action == RestAction::Leave)
    }

    /// Tells of each asset that gets a version how its content would change. Of long texts that takes its time, and who asks
    /// only whether there is something to do has no need of it.
    pub(super) fn with_differences(mut self, wanted: &Directory, estate: &Estate) -> Self {
        for (step, asset) in self.assets.iter_mut().zip(&wanted.assets) {
            if step.action == AssetAction::Version {
                step.diff = Some(asset::asset_difference(asset, estate));
            }
        }
        self
    }

    /// # Errors
    /// When something would have to be put away that is in use.
    pub(super) fn refuse_if_blocked(&self) -> Result<(), Failure> {
        let blocked: Vec<&str> = self
            .unmanaged
            .iter()
            .filter(|rest| rest.action == RestAction::InUse)
            .map(|rest| rest.slug.as_str())
            .collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let blocked = blocked.join(", ");
        Err(Failure::Unfit(format!(
            "asset_in_use: releases or contents that stay stand on {blocked}; nothing was done"
        )))
    }

    /// # Errors
    /// When what was agreed on is another plan than this one, or one for another server.
    pub(super) fn refuse_if_other(&self, agreed: &Value) -> Result<(), Failure> {
        if agreed.get("server").and_then(Value::as_str) != Some(self.server.as_str()) {
            let message = "plan_of_another_server: the plan was made for another server; nothing was done";
            return Err(Failure::Unfit(message.to_owned()));
        }
        let now = serde_json::to_value(self).map_err(|error| Failure::Unfit(error.to_string()))?;
        if *agreed == now { Ok(()) } else { Err(stale("the directory or the server", "nothing was done")) }
    }
}

/// Something is no longer as the plan was decided on.
pub(super) fn stale(what: &str, outcome: &str) -> Failure {
    Failure::Unfit(format!("stale_plan: {what} changed since the plan was made; {outcome}"))
}

/// Compares a directory with a server.
///
/// # Errors
/// With everything of the directory that the server's state rules out.
pub(super) fn plan(server: &Server, wanted: &Directory, estate: &Estate, rest: Rest) -> Result<Plan, Failure> {
    let mut findings = Vec::new();
    let assets: Vec<AssetStep> = wanted.assets.iter().map(|asset| asset_step(asset, estate)).collect();
    let mut looking = reference::Looking::new(wanted, estate);
    for (asset, step) in wanted.assets.iter().zip(&assets) {
        asset::ruled_out(asset, (wanted, estate), &assets, &mut findings);
        looking.at_version((asset, step), &mut findings);
    }
    for (workload, located) in &wanted.workloads {
        workload::ruled_out((workload, located), estate, &mut findings);
    }
    let workloads = wanted.workloads.iter().map(|(workload, _)| workload_step(workload, estate)).collect();
    let mut releases = Vec::new();
    for (release, located) in &wanted.releases {
        let is_named = wanted.workloads.iter().any(|(workload, _)| workload.slug == release.workload);
        if !is_named && !estate.workloads.contains_key(&release.workload) {
            findings.push(located.finding(
                "/workload",
                "unknown_workload",
                "neither the directory nor the server has it",
            ));
            continue;
        }
        let step = release_step(server, release, estate, &assets)?;
        // What serves goes on, whatever became of the assets that it binds.
        if step.action != ReleaseAction::Keep {
            release::ruled_out((release, located), estate, &mut findings);
        }
        // What is inside of a draft is settled when it is handed in, also where nothing of it has to be changed.
        if step.action != ReleaseAction::Keep || step.state.as_deref() == Some(StateName::Draft.as_str()) {
            looking.within((release, located), &mut findings);
        }
        releases.push(step);
    }
    if !findings.is_empty() {
        let mut told = BTreeSet::new();
        // What gets a version and goes into a release was looked at twice.
        findings.retain(|finding| told.insert(finding.clone()));
        return Err(Failure::Files(findings));
    }
    let unmanaged = match rest {
        Rest::Left => rest::left(wanted, estate, server.workspace()?)?,
        Rest::Pruned => rest::pruned(server, (wanted, &assets), estate)?,
    };
    let (server, workspace_id) = (server.address().to_owned(), server.workspace()?.to_owned());
    Ok(Plan { server, workspace_id, assets, workloads, releases, unmanaged })
}
