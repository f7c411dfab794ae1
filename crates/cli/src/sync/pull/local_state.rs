//! The local state: the sync directory before `pull` writes to it.

use super::super::{
    directory::{Directory, ManifestFiles},
    plan::{AssetAction, ReleaseAction, WorkloadAction, asset_step, release_step, workload_step},
    remote_state::{RemoteState, string_or_empty},
};
use crate::{
    failure::Failure, http_client::ServerClient, output::eprint, terminal_text::sanitize, untrusted_file::Source,
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io, mem,
    path::{Path, PathBuf},
};

/// The sync directory before `pull` writes to it.
pub(super) struct LocalState<'d> {
    root: &'d Path,
    files: ManifestFiles,
    /// The valid manifests. `pull` replaces invalid files by the server's state.
    pub(super) directory: Directory,
    /// Paths of the files that match the server.
    unchanged: BTreeSet<String>,
}

impl<'d> LocalState<'d> {
    /// Reads the manifests of the directory; a missing directory counts as empty.
    ///
    /// # Errors
    /// When the path is not a directory, exceeds the limits, or contains a link to a target outside it.
    pub(super) fn read(root: &'d Path) -> Result<Self, Failure> {
        let is_missing = fs::symlink_metadata(root).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let files = if is_missing { ManifestFiles::empty() } else { ManifestFiles::list(root)? };
        let desired = Directory::read_valid(root, &files);
        Ok(Self { root, files, directory: desired, unchanged: BTreeSet::new() })
    }

    /// Finds the files that match the server and therefore stay unchanged.
    pub(super) fn find_unchanged(&mut self, server: &ServerClient, remote_state: &RemoteState) -> Result<(), Failure> {
        let mut unchanged = BTreeSet::new();
        let steps: Vec<_> = self.directory.assets.iter().map(|asset| asset_step(asset, remote_state)).collect();
        for (asset, step) in self.directory.assets.iter().zip(&steps) {
            let remote_asset = remote_state.assets.get(&asset.slug);
            if step.action != AssetAction::Reuse
                || remote_asset
                    .is_none_or(|remote_asset| string_or_empty(remote_asset, "asset_kind") != asset.kind.as_str())
            {
                continue;
            }
            if let (Some(version), Some(newest)) = (&step.version, &step.newest)
                && version != newest
            {
                let (file, version, newest) = (sanitize(&asset.located.name), sanitize(version), sanitize(newest));
                eprint(&format!("{file} has the content of {version} and was kept; without it, pull writes {newest}"));
            }
            unchanged.insert(asset.located.name.clone());
            if asset.flow_yaml.is_some() {
                let metadata = format!("{}.meta", asset.slug);
                unchanged
                    .extend(self.files.manifests_with_stem("flows", &metadata).map(|path| path.display().to_string()));
            }
        }
        for (workload, located) in &self.directory.workloads {
            if workload_step(workload, remote_state).action == WorkloadAction::Keep {
                unchanged.insert(located.name.clone());
            }
        }
        for (release, located) in &self.directory.releases {
            if release_step(server, release, remote_state, &steps)?.action == ReleaseAction::Keep {
                unchanged.insert(located.name.clone());
            }
        }
        self.unchanged = unchanged;
        Ok(())
    }

    pub(super) fn is_unchanged(&self, path: &Path) -> bool {
        self.unchanged.contains(&path.display().to_string())
    }

    /// The path of a manifest: the existing file with any extension, else a new YAML file.
    pub(super) fn manifest_path(&self, folder: &str, name: &str) -> PathBuf {
        let existing: Vec<&PathBuf> = self.files.manifests_with_stem(folder, name).collect();
        let found = existing.iter().find(|path| self.is_unchanged(path)).or_else(|| existing.first());
        found.map_or_else(|| self.root.join(folder).join(format!("{name}.yaml")), |path| (*path).clone())
    }

    /// Splits content into the manifest's content and sidecar texts, in the same way as the existing manifest.
    pub(super) fn split_texts(
        &self,
        path: &Path,
        content: Value,
    ) -> (Value, BTreeMap<String, String>, BTreeMap<String, String>) {
        let name = path.display().to_string();
        let existing_asset = self.directory.assets.iter().find(|asset| asset.located.name == name);
        let texts = existing_asset.filter(|_| !self.is_unchanged(path)).map(|asset| &asset.texts);
        match texts.and_then(|texts| Some((remove_texts(content.clone(), texts)?, texts.clone()))) {
            Some(((content, sidecar_texts), texts)) => (content, texts, sidecar_texts),
            None => (content, BTreeMap::new(), BTreeMap::new()),
        }
    }

    /// The example inputs of an existing release file, which the server does not store.
    pub(super) fn example_inputs(path: &Path) -> Option<Map<String, Value>> {
        let mut file = Source::read_file(path).ok()?.try_value().ok()?.value;
        file.get_mut("example_inputs")?.as_object_mut().map(mem::take)
    }
}

/// Removes the sidecar texts from content. Returns `None` when a text is missing, or when one file
/// would need two texts.
fn remove_texts(mut content: Value, texts: &BTreeMap<String, String>) -> Option<(Value, BTreeMap<String, String>)> {
    let mut sidecar_texts = BTreeMap::new();
    for (pointer, file) in texts {
        let text = content.pointer(pointer)?.as_str()?.to_owned();
        let (parent, member) = pointer.rsplit_once('/')?;
        content.pointer_mut(parent)?.as_object_mut()?.remove(&member.replace("~1", "/").replace("~0", "~"));
        if sidecar_texts.insert(file.clone(), text.clone()).is_some_and(|other| other != text) {
            return None;
        }
    }
    Some((content, sidecar_texts))
}
