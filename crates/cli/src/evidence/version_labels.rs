//! Reads the labels (such as `v2`) of the versions that a run used, because evidence contains only their identifiers.

use crate::{
    asset,
    failure::Failure,
    http_client::{ServerClient, string_or_empty},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Labels by version identifier.
pub(super) type VersionLabels = BTreeMap<String, String>;

/// Maximum number of versions whose labels are read. Each label needs a request of its own, so the number is limited.
const MAX_LOOKUPS: usize = 100;

/// Reads the labels of the bound and referenced versions in evidence of format `flat`. The result omits versions that
/// are not visible to the caller.
pub(super) fn read(server: &ServerClient, flat: &Value) -> Result<VersionLabels, Failure> {
    let versions = ["bindings", "references"].into_iter().filter_map(|list| flat.get(list)?.as_array()).flatten();
    let mut ids_by_slug: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for version in versions.take(MAX_LOOKUPS) {
        let id = string_or_empty(version, "asset_version_id");
        ids_by_slug.entry(string_or_empty(version, "asset_slug")).or_default().push(id);
    }
    let mut labels = VersionLabels::new();
    for (slug, ids) in ids_by_slug {
        let asset = match asset::find_asset(server, slug) {
            Err(Failure::Refused(refusal)) if matches!(refusal.status, 403 | 404) => continue,
            // The asset is not visible from the caller's workspace, or the caller has no workspace.
            Err(Failure::Unknown { .. } | Failure::Usage(_)) => continue,
            asset => asset?,
        };
        let asset = string_or_empty(&asset, "asset_id");
        for id in ids {
            let query = [("workspace_id", server.workspace_id()?)];
            if let Some(version) = server.find(&["assets", asset, "versions", id], &query)? {
                labels.insert(id.to_owned(), string_or_empty(&version, "version_label").to_owned());
            }
        }
    }
    Ok(labels)
}
