//! Applies a plan step by step. Every step is idempotent, so an interrupted apply can be repeated.

mod asset;
mod release;

use super::{
    directory::Directory,
    manifest_files::WorkloadManifest,
    plan::{Plan, UnmanagedAction, UnmanagedAsset, WorkloadAction, WorkloadStep, differing_fields, stale_plan},
    remote_state::RemoteState,
    render_plan::SETTINGS_EFFECT,
};
use crate::{
    failure::Failure,
    http_client::{Method, ServerClient, required_string, string_or_empty},
    output::{Output, eprint},
};
use asset::ensure_version;
pub(super) use asset::next_label;
use fairway_domain::{asset::Lifecycle, release::StateName};
use release::ensure_release;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The end of the error message when a concurrent change on the server stops an apply.
const CONFLICT_OUTCOME: &str = "completed steps stay, and `apply` can be repeated";

/// The resulting versions and releases of an apply.
pub(super) struct ApplyResult {
    assets: Vec<Value>,
    pub(super) releases: Vec<Value>,
}

impl ApplyResult {
    /// Prints the releases. The output for programs also contains the versions.
    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        if !output.is_for_people() {
            return output.value(&json!({ "assets": self.assets, "releases": self.releases }));
        }
        output.list(
            &self.releases,
            &[("WORKLOAD", "/workload"), ("ENV", "/environment"), ("RELEASE", "/release_id"), ("STATE", "/state")],
        )
    }

    /// The ids of the drafts among the releases.
    pub(super) fn drafts(&self) -> impl Iterator<Item = &str> {
        let is_draft = |release: &&Value| string_or_empty(release, "state") == StateName::Draft.as_str();
        self.releases.iter().filter(is_draft).map(|release| string_or_empty(release, "release_id"))
    }
}

/// Applies the plan, and returns the resulting versions and releases.
pub(super) fn apply(
    server: &ServerClient,
    desired: &Directory,
    remote_state: &RemoteState,
    plan: &Plan,
) -> Result<ApplyResult, Failure> {
    let mut versions = BTreeMap::new();
    for (asset, step) in desired.assets.iter().zip(&plan.assets) {
        versions.insert(asset.slug.as_str(), ensure_version(server, remote_state, asset, step)?);
    }
    for ((manifest, _), step) in desired.workloads.iter().zip(&plan.workloads) {
        apply_workload(server, remote_state, manifest, step)?;
    }
    let mut releases = Vec::new();
    for ((manifest, _), step) in desired.releases.iter().zip(&plan.releases) {
        let mut release = ensure_release(server, desired, remote_state, step, &versions)?;
        if let Some(members) = release.as_object_mut() {
            members.insert("example_inputs".to_owned(), json!(manifest.example_inputs));
        }
        releases.push(release);
    }
    for asset in plan.unmanaged.iter().filter(|asset| asset.action == UnmanagedAction::Archive) {
        archive(server, asset)?;
    }
    let assets: Vec<Value> = plan
        .assets
        .iter()
        .filter_map(|step| {
            let version = versions.get(step.slug.as_str())?;
            Some(json!({
                "slug": step.slug,
                "action": step.action,
                "asset_id": version.asset_id,
                "asset_version_id": version.asset_version_id,
                "version_label": version.label,
            }))
        })
        .collect();
    Ok(ApplyResult { assets, releases })
}

/// Archives an asset. An asset that is already archived counts as success.
fn archive(server: &ServerClient, asset: &UnmanagedAsset) -> Result<(), Failure> {
    match server.post(&["assets", &asset.asset_id, "archive"], &json!({ "workspace_id": server.workspace_id()? })) {
        Err(Failure::Refused(refusal))
            if refusal.code == "invalid_transition"
                && string_or_empty(&refusal.detail, "current_state") == Lifecycle::Archived.as_str() => {}
        result => {
            result?;
            eprint(&format!("archived {}", asset.slug));
        }
    }
    Ok(())
}

fn apply_workload(
    server: &ServerClient,
    remote_state: &RemoteState,
    desired: &WorkloadManifest,
    step: &WorkloadStep,
) -> Result<(), Failure> {
    match step.action {
        WorkloadAction::Keep => {}
        WorkloadAction::Change => {
            let remote_workload = remote_state.workloads.get(&step.slug).unwrap_or(&Value::Null);
            change_workload(server, desired, step, required_string(remote_workload, "workload_id")?, &step.fields)?;
            eprint(&format!("changed workload {}; {SETTINGS_EFFECT}", step.slug));
        }
        WorkloadAction::Create => {
            let mut fields = step.fields.clone();
            let interface = fields.remove_entry("interface_config");
            fields.insert("slug".to_owned(), json!(step.slug));
            fields.insert("workspace_id".to_owned(), json!(server.workspace_id()?));
            let created = match server.post(&["workloads"], &Value::Object(fields)) {
                // Another client has created the workload concurrently. The code below sets fields that still differ.
                Err(refused) if refused.is_refusal("duplicate_slug") => {
                    let list = server.list(&["workloads"], &[("workspace_id", server.workspace_id()?)])?;
                    list.into_iter().find(|listed| string_or_empty(listed, "slug") == step.slug).ok_or(refused)?
                }
                created => created?,
            };
            eprint(&format!("created workload {}", step.slug));
            let Some(interface) = interface else { return accept_if_equal(desired, step, &created) };
            // A second request sets the interface, because the API accepts one only for an existing workload. After an
            // interruption between the requests, the next plan contains the missing interface.
            let step =
                WorkloadStep { updated_at: Some(required_string(&created, "updated_at")?.to_owned()), ..step.clone() };
            change_workload(
                server,
                desired,
                &step,
                required_string(&created, "workload_id")?,
                &Map::from_iter([interface]),
            )?;
            eprint(&format!("changed workload {}", step.slug));
        }
    }
    Ok(())
}

/// Changes fields of a workload; fails if the workload has changed since the plan.
fn change_workload(
    server: &ServerClient,
    desired: &WorkloadManifest,
    step: &WorkloadStep,
    id: &str,
    fields: &Map<String, Value>,
) -> Result<(), Failure> {
    let (tag, current) = server.get_with_etag(&["workloads", id])?;
    if current.get("updated_at").and_then(Value::as_str) != step.updated_at.as_deref() {
        return accept_if_equal(desired, step, &current);
    }
    match server.update_if_match(&Method::PATCH, tag.as_deref(), &["workloads", id], &Value::Object(fields.clone())) {
        Err(refused) if refused.is_refusal("precondition_failed") => {
            accept_if_equal(desired, step, &server.get(&["workloads", id], &[])?)
        }
        changed => changed.map(drop),
    }
}

/// Succeeds if a concurrent change has already made the workload equal to its manifest.
fn accept_if_equal(desired: &WorkloadManifest, step: &WorkloadStep, current: &Value) -> Result<(), Failure> {
    if differing_fields(desired, current).is_empty() {
        return Ok(());
    }
    Err(stale_plan(&format!("workload {}", step.slug), CONFLICT_OUTCOME))
}

fn missing() -> Failure {
    Failure::Failed("an asset or a version no longer exists".to_owned())
}
