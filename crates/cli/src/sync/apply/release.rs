//! Ensures that a release with the desired bindings exists; creates a draft if no release matches.

mod create_draft;

use super::{
    super::{
        directory::Directory,
        manifest_files::BindingManifest,
        plan::{ReleaseAction, ReleaseStep, bound_versions, stale_plan},
        remote_state::{RemoteState, string_or_empty},
    },
    CONFLICT_OUTCOME,
    asset::Version,
    missing,
};
use crate::{
    failure::Failure,
    http_client::{Method, ServerClient, required_string},
    release,
    terminal_text::sanitize,
};
use create_draft::DraftCreation;
use fairway_domain::release::StateName;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of attempts for a request that the server refuses because of concurrent changes.
const MAX_ATTEMPTS: u32 = 5;

/// The version that a binding uses, and the versions with equal content.
struct ChosenVersion<'c> {
    role: &'static str,
    asset_id: &'c str,
    version: &'c str,
    equivalent: BTreeSet<&'c str>,
}

/// Ensures that a release with these versions exists; creates a draft if no release matches.
pub(super) fn ensure_release(
    server: &ServerClient,
    desired: &Directory,
    remote_state: &RemoteState,
    step: &ReleaseStep,
    versions: &BTreeMap<&str, Version>,
) -> Result<Value, Failure> {
    let to_json = |release: &Value| {
        Ok(json!({
            "workload": step.workload,
            "environment": step.environment,
            "action": step.action,
            "release_id": required_string(release, "release_id")?,
            "state": required_string(release, "state")?,
        }))
    };
    let conflict = |id: &str| stale_plan(&format!("the draft {}", sanitize(id)), CONFLICT_OUTCOME);
    let is_draft = |found: &Value| string_or_empty(found, "state") == StateName::Draft.as_str();
    let chosen = step
        .bindings
        .iter()
        .map(|binding| choose_version(binding, desired, remote_state, versions).ok_or_else(missing))
        .collect::<Result<Vec<_>, _>>()?;
    let mut draft_creation = None;
    let release = match (&step.release_id, step.action) {
        (Some(id), ReleaseAction::Keep) => return to_json(&server.get(&["releases", id], &[])?),
        (Some(id), ReleaseAction::Complete | ReleaseAction::Draft) => {
            let found = server.get(&["releases", id], &[])?;
            // The plan is stale if a concurrent binding or submission has changed the draft.
            if found.get("updated_at").and_then(Value::as_str) != step.updated_at.as_deref() || !is_draft(&found) {
                return Err(conflict(id));
            }
            found
        }
        (None, ReleaseAction::Keep | ReleaseAction::Complete | ReleaseAction::Draft) => {
            let creation = DraftCreation::new(server, step, &chosen)?;
            let found = creation.find_or_create()?;
            draft_creation = Some(creation);
            found
        }
    };
    let (id, bound) = (required_string(&release, "release_id")?, bound_versions(&release));
    let is_unbound = |choice: &&ChosenVersion<'_>| !choice.equivalent.iter().any(|version| bound.contains(*version));
    if !is_draft(&release) {
        return Err(conflict(id));
    }
    for choice in chosen.iter().filter(is_unbound) {
        match bind(server, id, choice) {
            // Another client has submitted or retired the release.
            Err(refused) if refused.is_refusal("release_not_editable") => return Err(conflict(id)),
            result => result?,
        }
    }
    // Reads the release again to detect concurrent changes, because the API has no preconditions for bindings.
    let mut current = server.get(&["releases", id], &[])?;
    let duplicates = duplicate_bindings(&current);
    unbind(server, id, &duplicates)?;
    if !duplicates.is_empty() {
        current = server.get(&["releases", id], &[])?;
    }
    if let Some(creation) = draft_creation {
        creation.verify_priority(&current)?;
    }
    if !is_complete(&bound_versions(&current), &chosen) {
        return Err(conflict(id));
    }
    to_json(&current)
}

/// Repeats a request that the server refuses because of concurrent changes, at most [`MAX_ATTEMPTS`] times.
fn retry_contended<T>(mut send: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    for _ in 1..MAX_ATTEMPTS {
        match send() {
            Err(refused) if refused.is_refusal("concurrent_change") => {}
            result => return result,
        }
    }
    send()
}

/// Removes bindings from a draft.
fn unbind(server: &ServerClient, release: &str, bindings: &[String]) -> Result<(), Failure> {
    for binding in bindings {
        let path = ["releases", release, "bindings", binding.as_str()];
        match retry_contended(|| server.update(&Method::DELETE, &path, &Value::Null)) {
            // A concurrent client has removed the same duplicate.
            Err(refused) if refused.is_refusal("not_found") => {}
            result => drop(result?),
        }
    }
    Ok(())
}

/// The ids of bindings whose version an earlier binding of the release already binds.
fn duplicate_bindings(release: &Value) -> Vec<String> {
    let bindings = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    let mut bindings: Vec<&Value> = bindings.collect();
    bindings.sort_by_key(|binding| string_or_empty(binding, "binding_id"));
    let mut seen = BTreeSet::new();
    bindings.retain(|binding| !seen.insert(string_or_empty(binding, "asset_version_id")));
    bindings.into_iter().map(|binding| string_or_empty(binding, "binding_id").to_owned()).collect()
}

/// Whether all desired versions are bound, and no others.
fn is_complete(bound: &BTreeSet<String>, chosen: &[ChosenVersion<'_>]) -> bool {
    let is_bound = |choice: &ChosenVersion<'_>| choice.equivalent.iter().any(|version| bound.contains(*version));
    chosen.iter().all(is_bound) && has_only(bound, chosen)
}

/// Whether only desired versions are bound.
fn has_only(bound: &BTreeSet<String>, chosen: &[ChosenVersion<'_>]) -> bool {
    bound.iter().all(|version| chosen.iter().any(|choice| choice.equivalent.contains(version.as_str())))
}

fn choose_version<'c>(
    binding: &'c BindingManifest,
    desired: &'c Directory,
    remote_state: &'c RemoteState,
    versions: &'c BTreeMap<&str, Version>,
) -> Option<ChosenVersion<'c>> {
    let role = binding.role.as_str();
    if let Some(label) = &binding.version {
        let found = remote_state.version_labelled(&binding.asset, Some(label))?;
        let version = string_or_empty(found, "asset_version_id");
        return Some(ChosenVersion {
            role,
            asset_id: string_or_empty(found, "asset_id"),
            version,
            equivalent: BTreeSet::from([version]),
        });
    }
    let ensured = versions.get(binding.asset.as_str())?;
    let asset = desired.assets.iter().find(|asset| asset.slug == binding.asset)?;
    let equal_versions = remote_state
        .versions_with_checksum(&asset.slug, &asset.checksum)
        .map(|version| string_or_empty(version, "asset_version_id"));
    let version = ensured.asset_version_id.as_str();
    Some(ChosenVersion {
        role,
        asset_id: &ensured.asset_id,
        version,
        equivalent: equal_versions.chain([version]).collect(),
    })
}

/// Binds a version under an idempotency key, so that repeated attempts of one actor create one binding.
fn bind(server: &ServerClient, release: &str, choice: &ChosenVersion<'_>) -> Result<(), Failure> {
    let body = json!({ "asset_version_id": choice.version, "role": choice.role });
    let key = format!("fairway-sync-{}-{}", choice.role, choice.version);
    match retry_contended(|| server.post_with_key(&["releases", release, "bindings"], &body, &key)) {
        // The key returns a binding that another client has removed since, so the binding is created without the key.
        Err(refused) if refused.is_refusal("not_found") => {
            release::bind_version(server, release, choice.role, choice.version)
        }
        // The role is bound already. The check after all bindings verifies which version is bound.
        Err(refused) if refused.is_refusal("duplicate_role") => Ok(()),
        result => result.map(drop),
    }
}
