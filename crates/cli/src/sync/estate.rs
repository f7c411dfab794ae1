//! What a server has, as far as a directory can say it.

use crate::{
    failure::Failure,
    server::{Server, text},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

/// How many questions are open at the same time.
const AT_ONCE: usize = 8;

/// What a server has.
pub(super) struct Estate {
    /// Assets that are seen from the workspace, archived ones too: their slugs are taken.
    pub(super) assets: BTreeMap<String, Value>,
    /// The versions of those that were asked for, newest first.
    pub(super) versions: BTreeMap<String, Vec<Value>>,
    pub(super) workloads: BTreeMap<String, Value>,
}

impl Estate {
    /// Reads everything, and the versions of the assets of these slugs.
    pub(super) fn read(server: &Server, slugs: &BTreeSet<&str>) -> Result<Self, Failure> {
        let workspace = [("workspace_id", server.workspace()?)];
        let assets = by_slug(server.list(&["assets"], &workspace)?);
        let workloads = by_slug(server.list(&["workloads"], &workspace)?);
        let asked: Vec<(&str, &Value)> = slugs.iter().filter_map(|slug| Some((*slug, assets.get(*slug)?))).collect();
        let versions = at_once(&asked, |(slug, asset)| {
            let path = ["assets", text(asset, "asset_id")?, "versions"];
            Ok(((*slug).to_owned(), server.list(&path, &workspace)?))
        })?;
        Ok(Self { versions: versions.into_iter().collect(), assets, workloads })
    }

    /// The newest version of an asset with this checksum.
    pub(super) fn version_of(&self, slug: &str, checksum: &str) -> Option<&Value> {
        let same = |version: &&Value| version.get("checksum").and_then(Value::as_str) == Some(checksum);
        self.versions.get(slug)?.iter().find(same)
    }

    /// The version of an asset with this label; without one the newest.
    pub(super) fn labelled(&self, slug: &str, label: Option<&str>) -> Option<&Value> {
        let fits = |version: &&Value| label.is_none_or(|label| word(version, "version_label") == label);
        self.versions.get(slug)?.iter().find(fits)
    }
}

/// Does the same with each item, several at a time; the answers are in the order of the items.
pub(super) fn at_once<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> Result<T, Failure> + Sync,
) -> Result<Vec<T>, Failure> {
    let share = items.len().div_ceil(AT_ONCE).max(1);
    let work = &work;
    thread::scope(|scope| {
        let working: Vec<_> = items
            .chunks(share)
            .map(|share| scope.spawn(move || share.iter().map(work).collect::<Result<Vec<T>, Failure>>()))
            .collect();
        let mut done = Vec::with_capacity(items.len());
        for thread in working {
            done.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(done)
    })
}

fn by_slug(items: Vec<Value>) -> BTreeMap<String, Value> {
    let keyed = |item: Value| Some((item.get("slug")?.as_str()?.to_owned(), item));
    items.into_iter().filter_map(keyed).collect()
}

/// A text of an item, empty where there is none.
pub(super) fn word<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
