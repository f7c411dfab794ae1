//! Plans the treatment of assets that the directory does not contain.

use super::{
    super::{
        directory::Directory,
        remote_state::{RemoteState, map_concurrently, string_or_empty},
    },
    AssetAction, AssetStep, UnmanagedAction, UnmanagedAsset,
};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
};
use fairway_domain::{asset::Lifecycle, release::StateName};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Lists the assets that the directory does not contain, without a planned change.
pub(super) fn list_kept(
    desired: &Directory,
    remote_state: &RemoteState,
    workspace: &str,
) -> Result<Vec<UnmanagedAsset>, Failure> {
    let assets = unmanaged_assets(desired, remote_state, workspace);
    assets.into_iter().map(|asset| to_unmanaged(asset, UnmanagedAction::Leave)).collect()
}

/// Plans to archive the assets that the directory does not contain, except those in use.
pub(super) fn list_pruned(
    server: &ServerClient,
    desired: &Directory,
    steps: &[AssetStep],
    remote_state: &RemoteState,
) -> Result<Vec<UnmanagedAsset>, Failure> {
    let workspace = server.workspace_id()?;
    let candidates = unmanaged_assets(desired, remote_state, workspace);
    let remaining_state = RemainingState {
        server,
        remote_state,
        steps,
        archived: candidates.iter().map(|asset| string_or_empty(asset, "slug")).collect(),
        pinned: pinned_versions(desired),
    };
    map_concurrently(&candidates, |asset| {
        let slug = string_or_empty(asset, "slug");
        let is_referenced = remaining_state.pinned.iter().any(|(pinned_slug, _)| *pinned_slug == slug)
            || desired
                .assets
                .iter()
                .flat_map(|asset| &asset.references)
                .any(|reference| reference.slug.as_str() == slug);
        let is_in_use = is_referenced || {
            let path = ["assets", required_string(asset, "asset_id")?, "blast-radius"];
            remaining_state.depends_on(&server.get(&path, &[("workspace_id", workspace)])?)?
        };
        to_unmanaged(asset, if is_in_use { UnmanagedAction::InUse } else { UnmanagedAction::Archive })
    })
}

fn to_unmanaged(asset: &Value, action: UnmanagedAction) -> Result<UnmanagedAsset, Failure> {
    let asset_id = required_string(asset, "asset_id")?.to_owned();
    Ok(UnmanagedAsset { slug: string_or_empty(asset, "slug").to_owned(), asset_id, action })
}

/// The assets of the workspace that the directory does not contain.
fn unmanaged_assets<'e>(desired: &Directory, remote_state: &'e RemoteState, workspace: &str) -> Vec<&'e Value> {
    let directory_slugs: BTreeSet<&str> = desired.assets.iter().map(|asset| asset.slug.as_str()).collect();
    let is_unmanaged = |asset: &&Value| {
        string_or_empty(asset, "ownership_tier") == "workspace"
            && string_or_empty(asset, "workspace_id") == workspace
            && string_or_empty(asset, "lifecycle_state") != Lifecycle::Archived.as_str()
            && !directory_slugs.contains(string_or_empty(asset, "slug"))
    };
    remote_state.assets.values().filter(is_unmanaged).collect()
}

/// Slugs and labels of versions that the directory pins by label, in bindings and in references.
fn pinned_versions(desired: &Directory) -> BTreeSet<(&str, &str)> {
    let bindings = desired.releases.iter().flat_map(|(release, _)| &release.bindings);
    let bound = bindings.filter_map(|binding| Some((binding.asset.as_str(), binding.version.as_deref()?)));
    let references = desired.assets.iter().flat_map(|asset| &asset.references);
    bound
        .chain(references.filter_map(|reference| Some((reference.slug.as_str(), reference.version.as_ref()?.as_str()))))
        .collect()
}

/// The state of the server after the plan is applied.
struct RemainingState<'p> {
    server: &'p ServerClient,
    remote_state: &'p RemoteState,
    steps: &'p [AssetStep],
    archived: BTreeSet<&'p str>,
    pinned: BTreeSet<(&'p str, &'p str)>,
}

impl RemainingState<'_> {
    /// Whether a remaining release or content depends on the asset with this blast radius (the server's impact report).
    fn depends_on(&self, impact: &Value) -> Result<bool, Failure> {
        let list = |name: &str| impact.get(name).and_then(Value::as_array).into_iter().flatten();
        let is_over = |release: &Value| match StateName::parse(string_or_empty(release, "state")) {
            Some(StateName::Superseded | StateName::Retired) => true,
            Some(StateName::Draft | StateName::ReviewReady | StateName::Approved | StateName::Active) | None => false,
        };
        // A truncated response counts as a dependency, because the omitted part may contain one.
        let is_truncated = impact.get("truncated").and_then(Value::as_bool) != Some(false);
        if is_truncated || list("releases").any(|release| !is_over(release)) {
            return Ok(true);
        }
        // The hops of the response are sorted by distance, so the target of each hop has been visited before.
        // The map stores for each visited version whether its references lead to the asset.
        let mut effective_by_version: BTreeMap<&str, bool> = BTreeMap::new();
        for hop in list("via") {
            let id = required_string(hop, "asset_version_id")?;
            let is_current = self.is_current(hop)?;
            let names_version = hop.pointer("/references/version").is_some_and(Value::is_string);
            let is_effective = match hop.get("towards").and_then(Value::as_str) {
                None => true,
                // A reference without a label resolves to the newest version, so older versions do not count.
                Some(towards) => {
                    effective_by_version.get(towards).is_none_or(|is_effective| *is_effective && names_version)
                }
            };
            if is_current && is_effective {
                return Ok(true);
            }
            effective_by_version.insert(id, is_effective);
        }
        Ok(false)
    }

    /// Whether a version is pinned, or is its asset's newest version after the plan is applied.
    fn is_current(&self, version: &Value) -> Result<bool, Failure> {
        let (slug, label) = (required_string(version, "asset_slug")?, required_string(version, "version_label")?);
        if self.pinned.contains(&(slug, label)) {
            return Ok(true);
        }
        if let Some(step) = self.steps.iter().find(|step| step.slug == slug) {
            // The references of this asset's new or reused version are those of the directory,
            // which are checked already.
            return Ok(step.action == AssetAction::Reuse && step.newest.as_deref() == Some(label));
        }
        let Some(remote_asset) = self.remote_state.assets.get(slug) else { return Ok(true) };
        if self.archived.contains(slug)
            || string_or_empty(remote_asset, "lifecycle_state") == Lifecycle::Archived.as_str()
        {
            return Ok(false);
        }
        let (path, query) = (
            ["assets", required_string(remote_asset, "asset_id")?, "versions"],
            [("workspace_id", self.server.workspace_id()?)],
        );
        let newest = self.server.list_first(&path, &query, 1)?;
        Ok(newest.first().is_some_and(|newest| string_or_empty(newest, "version_label") == label))
    }
}
