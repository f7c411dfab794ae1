//! The remote state: the part of a server's state that a sync directory can describe.

use super::{directory::Directory, reachable_assets::ReachableAssets};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;

/// The assets, versions and workloads of a server's workspace.
pub(super) struct RemoteState {
    /// Assets that are visible from the workspace, including archived assets, whose slugs stay reserved.
    pub(super) assets: BTreeMap<String, Value>,
    /// The versions of the requested assets, newest first.
    pub(super) versions: BTreeMap<String, Vec<Value>>,
    pub(super) workloads: BTreeMap<String, Value>,
    /// Assets that contents reference by slug alone, which resolves to the newest version.
    pub(super) by_slug: BTreeSet<String>,
}

impl RemoteState {
    /// Reads all assets and workloads, and the versions of all assets that the directory contains or references.
    pub(super) fn read(server: &ServerClient, desired: &Directory) -> Result<Self, Failure> {
        let workspace = [("workspace_id", server.workspace_id()?)];
        let assets = index_by_slug(server.list(&["assets"], &workspace)?);
        let workloads = index_by_slug(server.list(&["workloads"], &workspace)?);
        let (versions, by_slug) = (BTreeMap::new(), BTreeSet::new());
        let mut remote_state = Self { assets, versions, workloads, by_slug };
        remote_state.read_versions(server, &desired.relevant_slugs())?;
        loop {
            let ReachableAssets { by_slug, unknown } = ReachableAssets::from(desired, &remote_state);
            if unknown.is_empty() {
                remote_state.by_slug = by_slug;
                return Ok(remote_state);
            }
            remote_state.read_versions(server, &unknown.iter().map(String::as_str).collect())?;
        }
    }

    fn read_versions(&mut self, server: &ServerClient, slugs: &BTreeSet<&str>) -> Result<(), Failure> {
        let workspace = [("workspace_id", server.workspace_id()?)];
        let assets: Vec<(&str, &Value)> =
            slugs.iter().filter_map(|slug| Some((*slug, self.assets.get(*slug)?))).collect();
        let versions = map_concurrently(&assets, |(slug, asset)| {
            let path = ["assets", required_string(asset, "asset_id")?, "versions"];
            Ok(((*slug).to_owned(), server.list(&path, &workspace)?))
        })?;
        self.versions.extend(versions);
        Ok(())
    }

    /// The versions of an asset with this checksum, newest first.
    pub(super) fn versions_with_checksum(&self, slug: &str, checksum: &str) -> impl Iterator<Item = &Value> {
        let versions = self.versions.get(slug).into_iter().flatten();
        versions.filter(move |version| string_or_empty(version, "checksum") == checksum)
    }

    /// The newest version of an asset with this checksum. If contents reference the asset by slug alone, only the
    /// asset's newest version qualifies.
    pub(super) fn reusable_version(&self, slug: &str, checksum: &str) -> Option<&Value> {
        let newest = self.version_labelled(slug, None);
        let is_newest = |version: &&Value| newest.is_some_and(|newest| std::ptr::eq(newest, *version));
        self.versions_with_checksum(slug, checksum)
            .next()
            .filter(|found| !self.by_slug.contains(slug) || is_newest(found))
    }

    /// The slug of the asset to which a version belongs, among the assets whose versions were read.
    pub(super) fn slug_of_version(&self, version_id: &str) -> Option<&str> {
        let has_id = |version: &Value| string_or_empty(version, "asset_version_id") == version_id;
        let found = self.versions.iter().find(|(_, versions)| versions.iter().any(has_id));
        found.map(|(slug, _)| slug.as_str())
    }

    /// The version of an asset with this label; without a label, the newest version.
    pub(super) fn version_labelled(&self, slug: &str, label: Option<&str>) -> Option<&Value> {
        let matches_label =
            |version: &&Value| label.is_none_or(|label| string_or_empty(version, "version_label") == label);
        self.versions.get(slug)?.iter().find(matches_label)
    }
}

/// Applies a function to all items with bounded parallelism. The results have the order of the items.
pub(super) fn map_concurrently<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let chunk_size = items.len().div_ceil(MAX_CONCURRENT_REQUESTS).max(1);
    let work = &work;
    thread::scope(|scope| {
        let handles: Vec<_> = items
            .chunks(chunk_size)
            .map(|chunk| scope.spawn(move || chunk.iter().map(work).collect::<Result<Vec<T>, Failure>>()))
            .collect();
        let mut results = Vec::with_capacity(items.len());
        for handle in handles {
            results.extend(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(results)
    })
}

fn index_by_slug(items: Vec<Value>) -> BTreeMap<String, Value> {
    let with_slug = |item: Value| Some((item.get("slug")?.as_str()?.to_owned(), item));
    items.into_iter().filter_map(with_slug).collect()
}

/// A string member of a JSON object, or an empty string.
pub(super) fn string_or_empty<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
