//! Removes the files of archived assets, because an apply with them always fails. `pull` removes only files that it
//! wrote itself and that were not edited.

use super::{
    super::{
        directory::DesiredAsset,
        manifest_files::ReleaseManifest,
        remote_state::{RemoteState, string_or_empty},
    },
    OutputFile, asset_files,
    local_state::LocalState,
    with_flow_text,
};
use crate::{failure::Failure, http_client::ServerClient, untrusted_file::Source};
use fairway_domain::asset::Lifecycle;
use serde_json::Map;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files of archived assets. Also files of releases that bind an archived asset, in environments
/// where no release serves.
#[derive(Default)]
pub(super) struct ArchivedAssetFiles {
    /// Files that equal the output of `pull` byte for byte. They can be deleted, because the server has their content.
    pub(super) generated: Vec<PathBuf>,
    /// Files that a user edited.
    pub(super) edited: Vec<PathBuf>,
}

impl ArchivedAssetFiles {
    /// Finds these files in a directory, given the files that `pull` writes.
    pub(super) fn find(
        server: &ServerClient,
        local_state: &LocalState<'_>,
        remote_state: &RemoteState,
        output_files: &[OutputFile],
    ) -> Result<Self, Failure> {
        let mut archived = Self::default();
        for asset in local_state.directory.assets.iter().filter(|asset| is_archived(remote_state, &asset.slug)) {
            let files = generated_files(server, local_state, remote_state, asset)?;
            let path = PathBuf::from(&asset.located.name);
            match files {
                Some(files) => archived.generated.extend(files),
                None => archived.edited.push(path),
            }
        }
        for (release, located) in &local_state.directory.releases {
            let path = PathBuf::from(&located.name);
            let binds_archived_asset = release.bindings.iter().any(|binding| is_archived(remote_state, &binding.asset));
            if !binds_archived_asset || output_files.iter().any(|file| file.path == path) {
                continue;
            }
            if is_unedited(&release_file(path.clone(), release)?) {
                &mut archived.generated
            } else {
                &mut archived.edited
            }
            .push(path);
        }
        Ok(archived)
    }

    /// Removes the generated files.
    pub(super) fn delete_generated(&self) -> Result<(), Failure> {
        let failed = |path: &Path, cause| Failure::Io { path: path.to_owned(), cause };
        self.generated.iter().try_for_each(|path| fs::remove_file(path).map_err(|cause| failed(path, cause)))
    }
}

fn is_archived(remote_state: &RemoteState, slug: &str) -> bool {
    let state = remote_state.assets.get(slug).map(|remote_asset| string_or_empty(remote_asset, "lifecycle_state"));
    state.and_then(Lifecycle::parse) == Some(Lifecycle::Archived)
}

/// The files of an asset, if `pull` would write each of them for one of its versions.
fn generated_files(
    server: &ServerClient,
    local_state: &LocalState<'_>,
    remote_state: &RemoteState,
    asset: &DesiredAsset,
) -> Result<Option<Vec<PathBuf>>, Failure> {
    let Some(remote_asset) = remote_state.assets.get(&asset.slug) else { return Ok(None) };
    for version in remote_state.versions_with_checksum(&asset.slug, &asset.checksum) {
        let output_files =
            asset_files(local_state, remote_asset, &with_flow_text(server, remote_asset, version.clone())?)?;
        let is_named = output_files.iter().any(|file| file.path == Path::new(&asset.located.name));
        if is_named && output_files.iter().all(is_unedited) {
            return Ok(Some(output_files.into_iter().map(|file| file.path).collect()));
        }
    }
    Ok(None)
}

/// The file of a release as `pull` writes it. It has no example inputs, because the server does not store them.
fn release_file(path: PathBuf, release: &ReleaseManifest) -> Result<OutputFile, Failure> {
    let mut bindings = release.bindings.clone();
    bindings.sort();
    let (workload, environment) = (release.workload.clone(), release.environment.clone());
    let target_lane = release.target_lane.clone();
    OutputFile::serialize(
        path,
        &ReleaseManifest { workload, environment, target_lane, bindings, example_inputs: Map::new() },
    )
}

/// Whether a regular file with exactly this content exists.
fn is_unedited(file: &OutputFile) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| metadata.is_file())
        && Source::read_file(&file.path).is_ok_and(|existing| existing.text == file.text)
}
