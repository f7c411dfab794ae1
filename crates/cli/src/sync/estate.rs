//! What a server has, as far as a directory can say it.

use super::{directory::Directory, reference::Reached};
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
    /// Assets that contents name by their slug alone, and so mean the newest version of.
    pub(super) by_slug: BTreeSet<String>,
}

impl Estate {
    /// Reads everything, and the versions of the assets that a directory names or leads to.
    pub(super) fn read(server: &Server, wanted: &Directory) -> Result<Self, Failure> {
        let workspace = [("workspace_id", server.workspace()?)];
        let assets = by_slug(server.list(&["assets"], &workspace)?);
        let workloads = by_slug(server.list(&["workloads"], &workspace)?);
        let (versions, by_slug) = (BTreeMap::new(), BTreeSet::new());
        let mut estate = Self { assets, versions, workloads, by_slug };
        estate.read_versions(server, &wanted.slugs())?;
        loop {
            let Reached { by_slug, unknown } = Reached::from(wanted, &estate);
            if unknown.is_empty() {
                estate.by_slug = by_slug;
                return Ok(estate);
            }
            estate.read_versions(server, &unknown.iter().map(String::as_str).collect())?;
        }
    }

    fn read_versions(&mut self, server: &Server, slugs: &BTreeSet<&str>) -> Result<(), Failure> {
        let workspace = [("workspace_id", server.workspace()?)];
        let asked: Vec<(&str, &Value)> =
            slugs.iter().filter_map(|slug| Some((*slug, self.assets.get(*slug)?))).collect();
        let versions = at_once(&asked, |(slug, asset)| {
            let path = ["assets", text(asset, "asset_id")?, "versions"];
            Ok(((*slug).to_owned(), server.list(&path, &workspace)?))
        })?;
        self.versions.extend(versions);
        Ok(())
    }

    /// The versions of an asset with this checksum, newest first.
    pub(super) fn versions_of(&self, slug: &str, checksum: &str) -> impl Iterator<Item = &Value> {
        let versions = self.versions.get(slug).into_iter().flatten();
        versions.filter(move |version| word(version, "checksum") == checksum)
    }

    /// The version of an asset that is used for this checksum: the newest that has it. Where contents name the asset by
    /// its slug alone they mean the newest version, so no other one will do.
    pub(super) fn usable(&self, slug: &str, checksum: &str) -> Option<&Value> {
        let newest = self.labelled(slug, None);
        let is_newest = |version: &&Value| newest.is_some_and(|newest| std::ptr::eq(newest, *version));
        self.versions_of(slug, checksum).next().filter(|found| !self.by_slug.contains(slug) || is_newest(found))
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
