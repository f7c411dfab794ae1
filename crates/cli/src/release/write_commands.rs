//! Commands that write releases: create, bind, submit, review, activate.

use crate::{
    asset,
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    terminal_text::sanitize,
    workload,
};
use fairway_domain::{
    asset::{Lifecycle, kind::AssetKind},
    release::{StateName, review},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Drafts a release and binds versions to it.
pub(super) fn create(
    server: &ServerClient,
    workload: &str,
    environment: &str,
    target_lane: &str,
    policy: Option<&str>,
    bind: &[String],
) -> Result<Value, Failure> {
    // Resolves all names before the first write, so that an unknown name leaves no incomplete draft.
    let workload = workload::find_workload(server, workload)?;
    let versions = bind.iter().map(|version| asset::resolve_version(server, version)).collect::<Result<Vec<_>, _>>()?;
    for (asset, _) in &versions {
        refuse_inactive(asset)?;
    }
    let is_bundle = |asset: &&Value| string_or_empty(asset, "asset_kind") == AssetKind::PolicyBundle.as_str();
    let policy = match policy {
        Some(slug) => Some(asset::find_asset(server, slug)?),
        None => versions.iter().map(|(asset, _)| asset).find(is_bundle).cloned(),
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
    for (asset, version) in &versions {
        let (role, version) = (required_string(asset, "asset_kind")?, required_string(version, "asset_version_id")?);
        bind_version(server, id, role, version).map_err(|failure| incomplete_draft(failure, id, role))?;
    }
    server.get(&["releases", id], &[])
}

/// Binds versions, given as `SLUG[@LABEL]`, to a draft, and returns the draft. Resolves all names
/// before the first write.
///
/// # Errors
/// When a role permits only one version and is bound already, unless `replaces` is set.
pub(super) fn bind(
    server: &ServerClient,
    release: &str,
    versions: &[String],
    replaces: bool,
) -> Result<Value, Failure> {
    let resolved = versions.iter().map(|version| asset::resolve_version(server, version));
    for (asset, version) in &resolved.collect::<Result<Vec<_>, _>>()? {
        let role = required_string(asset, "asset_kind")?;
        let version = required_string(version, "asset_version_id")?;
        if replaces && AssetKind::parse(role).is_some_and(AssetKind::allows_many_bindings) {
            replace_version(server, release, asset, version)?;
            continue;
        }
        match bind_version(server, release, role, version) {
            Err(failure) if failure.is_refusal("duplicate_role") && !replaces => {
                return Err(bound_role(failure, release, role));
            }
            Err(failure) if failure.is_refusal("duplicate_role") => replace_role(server, release, role, version)?,
            result => result.map_err(|failure| inactive_asset(failure, asset))?,
        }
    }
    server.get(&["releases", release], &[])
}

/// Replaces the bound version of a role that permits only one version.
fn replace_role(server: &ServerClient, release: &str, role: &str, version: &str) -> Result<(), Failure> {
    for binding in bindings_of(server, release)?.iter().filter(|binding| string_or_empty(binding, "role") == role) {
        unbind_one(server, release, binding)?;
    }
    bind_version(server, release, role, version).map_err(|failure| {
        let role = sanitize(role);
        failure.with_next(format!(
            "the previous version of `{role}` was removed: `fairway releases bind {release} VERSION`"
        ))
    })
}

/// Binds a version of an asset whose role permits several versions, and removes the bindings of the
/// asset's other versions.
fn replace_version(server: &ServerClient, release: &str, asset: &Value, version: &str) -> Result<(), Failure> {
    let bindings = bindings_of(server, release)?;
    let is_same = |binding: &&&Value| string_or_empty(binding, "asset_version_id") == version;
    let asset_bindings = bindings_of_asset(server, asset, &bindings)?;
    if asset_bindings.iter().find(is_same).is_none() {
        let role = required_string(asset, "asset_kind")?;
        bind_version(server, release, role, version).map_err(|failure| inactive_asset(failure, asset))?;
    }
    for binding in asset_bindings.iter().filter(|binding| !is_same(binding)) {
        unbind_one(server, release, binding)?;
    }
    Ok(())
}

/// Adds to a failure that the draft exists, but without the refused version.
fn incomplete_draft(failure: Failure, release: &str, role: &str) -> Failure {
    let failure = if failure.is_refusal("duplicate_role") { bound_role(failure, release, role) } else { failure };
    if let Failure::WithNextStep { failure, next } = failure {
        return failure.with_next(format!("the draft {release} exists; {next}"));
    }
    failure.with_next(format!("the draft {release} exists: `fairway releases bind {release} VERSION`"))
}

/// Adds the role, which the server's refusal does not contain, and the command that replaces the bound version.
fn bound_role(failure: Failure, release: &str, role: &str) -> Failure {
    let Failure::Refused(mut refusal) = failure else { return failure };
    refusal.message = format!("the draft already binds a version in the role `{}`", sanitize(role));
    let next = format!("`fairway releases bind {release} VERSION --replace` binds another version instead");
    Failure::Refused(refusal).with_next(next)
}

/// Refuses an asset that accepts no new bindings, before a draft exists.
fn refuse_inactive(asset: &Value) -> Result<(), Failure> {
    let slug = sanitize(string_or_empty(asset, "slug"));
    match Lifecycle::parse(string_or_empty(asset, "lifecycle_state")) {
        Some(state @ (Lifecycle::Retired | Lifecycle::Archived)) => {
            let refused = Failure::Failed(format!("`{slug}` is {} and accepts no new bindings", state.as_str()));
            Err(refused.with_next(next_for_inactive(Some(state), &slug)))
        }
        Some(Lifecycle::Draft | Lifecycle::Active) | None => Ok(()),
    }
}

fn next_for_inactive(state: Option<Lifecycle>, slug: &str) -> String {
    match state {
        Some(Lifecycle::Archived) => "bind another asset, because an archived one stays archived".to_owned(),
        Some(Lifecycle::Draft | Lifecycle::Active | Lifecycle::Retired) | None => {
            format!("fairway assets activate {slug}")
        }
    }
}

/// Adds the asset and its state to the server's refusal of an inactive asset.
fn inactive_asset(failure: Failure, asset: &Value) -> Failure {
    failure.map_refusal("asset_not_active", |mut refusal| {
        let slug = sanitize(string_or_empty(asset, "slug"));
        let state = string_or_empty(asset, "lifecycle_state");
        refusal.message = format!("`{slug}` is {}: {}", sanitize(state), refusal.message);
        Failure::Refused(refusal).with_next(next_for_inactive(Lifecycle::parse(state), &slug))
    })
}

fn bindings_of(server: &ServerClient, release: &str) -> Result<Vec<Value>, Failure> {
    let found = server.get(&["releases", release], &[])?;
    Ok(found.get("bindings").and_then(Value::as_array).cloned().unwrap_or_default())
}

/// The bindings whose version belongs to this asset.
fn bindings_of_asset<'b>(
    server: &ServerClient,
    asset: &Value,
    bindings: &'b [Value],
) -> Result<Vec<&'b Value>, Failure> {
    let versions = asset::list_versions(server, asset)?;
    let is_version = |binding: &&Value| {
        let id = string_or_empty(binding, "asset_version_id");
        versions.iter().any(|version| string_or_empty(version, "asset_version_id") == id)
    };
    Ok(bindings.iter().filter(is_version).collect())
}

fn unbind_one(server: &ServerClient, release: &str, binding: &Value) -> Result<(), Failure> {
    server.delete(&["releases", release, "bindings", required_string(binding, "binding_id")?])
}

/// Removes all bindings of these assets from a draft, and returns the draft.
///
/// # Errors
/// When the draft binds no version of an asset.
pub(super) fn unbind(server: &ServerClient, release: &str, slugs: &[String]) -> Result<Value, Failure> {
    let bindings = bindings_of(server, release)?;
    let mut removed = Vec::new();
    for slug in BTreeSet::from_iter(slugs) {
        let asset_bindings = bindings_of_asset(server, &asset::find_asset(server, slug)?, &bindings)?;
        if asset_bindings.is_empty() {
            let message = format!("the release binds no version of `{}`", sanitize(slug));
            return Err(Failure::Unknown { message, candidates: Vec::new() });
        }
        removed.extend(asset_bindings);
    }
    for binding in removed {
        unbind_one(server, release, binding)?;
    }
    server.get(&["releases", release], &[])
}

/// Binds a version to a draft, in the role of its kind.
pub(crate) fn bind_version(server: &ServerClient, release: &str, role: &str, version: &str) -> Result<(), Failure> {
    let body = json!({ "asset_version_id": version, "role": role });
    server.post(&["releases", release, "bindings"], &body).map(drop)
}

/// Submits a draft for review.
///
/// # Errors
/// When the draft has no bindings. The server would accept the submission, but a release without bindings can be
/// neither reviewed nor activated.
pub(super) fn submit(server: &ServerClient, release: &str) -> Result<Value, Failure> {
    let found = server.get(&["releases", release], &[])?;
    let is_empty = found.get("bindings").and_then(Value::as_array).is_some_and(Vec::is_empty);
    if is_empty && string_or_empty(&found, "state") == StateName::Draft.as_str() {
        let failure = Failure::Failed("the draft binds no version, so there is nothing to review".to_owned());
        return Err(failure.with_next(format!("fairway releases bind {release} VERSION")));
    }
    transition(server, release, StateName::ReviewReady)
}

/// Requests the transition of a release to a state.
pub(crate) fn transition(server: &ServerClient, release: &str, to: StateName) -> Result<Value, Failure> {
    server.post(&["releases", release, "transition"], &json!({ "to_state": to.as_str() }))
}

/// Activates a release. Requests the transition from review to `approved` first, if needed.
pub(super) fn activate(
    server: &ServerClient,
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
    server: &ServerClient,
    release: &str,
    outcome: review::ReleaseVerdict,
    note: Option<&str>,
) -> Result<Value, Failure> {
    let body = json!({ "outcome": outcome.as_str(), "subject_kind": "release", "subject_ref": release, "note": note });
    server.post(&["releases", release, "approvals"], &body)
}
