//! `fairway sync pull`: writes the server's state into manifests. Equal states produce equal bytes. Files with
//! equivalent content are not rewritten, so their comments and order stay.

mod archived_files;
mod local_state;
mod output_file;

use super::{
    manifest_files::{AssetManifest, BindingManifest, FlowMetadata, ReleaseManifest, WorkloadManifest},
    remote_state::{RemoteState, map_concurrently, string_or_empty},
};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::{Output, eprint, print},
    terminal_text::sanitize,
};
use archived_files::ArchivedAssetFiles;
use fairway_domain::{asset::kind::AssetKind, slug::Slug};
use local_state::LocalState;
use output_file::OutputFile;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

pub(super) fn pull(server: &ServerClient, output: Output, directory: &Path) -> Result<(), Failure> {
    let mut local_state = LocalState::read(directory)?;
    let remote_state = RemoteState::read(server, &local_state.directory)?;
    local_state.find_unchanged(server, &remote_state)?;
    let workspace = server.workspace_id()?;
    let mut output_files = Vec::new();
    let is_pulled = |asset: &&Value| {
        string_or_empty(asset, "ownership_tier") == "workspace"
            && string_or_empty(asset, "workspace_id") == workspace
            && matches!(string_or_empty(asset, "lifecycle_state"), "active" | "draft")
    };
    let assets: Vec<&Value> = remote_state.assets.values().filter(is_pulled).collect();
    let newest = map_concurrently(&assets, |asset| newest_version(server, asset))?;
    let mut labels = BTreeMap::new();
    for (asset, version) in assets.iter().zip(newest) {
        // Skips an asset without a version, because it has no content to write.
        let Some(version) = version else { continue };
        labels.insert(
            string_or_empty(&version, "asset_version_id").to_owned(),
            string_or_empty(asset, "slug").to_owned(),
        );
        output_files.extend(asset_files(&local_state, asset, &version)?);
    }
    for workload in remote_state.workloads.values() {
        if workload.get("management_source").is_some_and(|source| !source.is_null())
            || string_or_empty(workload, "status") == "retired"
        {
            continue;
        }
        output_files.push(workload_file(&local_state, workload)?);
        output_files.extend(release_files(server, &local_state, workload, &remote_state, &labels)?);
    }
    let archived_files = ArchivedAssetFiles::find(server, &local_state, &remote_state, &output_files)?;
    let (unchanged, changed): (Vec<OutputFile>, Vec<OutputFile>) =
        output_files.into_iter().partition(|file| local_state.is_unchanged(&file.path) || file.matches_existing());
    // Checks that all files are writable before the first write.
    changed.iter().try_for_each(OutputFile::check_writable)?;
    for file in &changed {
        file.write()?;
        eprint(&format!("wrote {}", file.path.display()));
    }
    archived_files.delete_generated()?;
    for path in &archived_files.generated {
        eprint(&format!("removed {}: its assets are archived on the server", sanitize(&path.display().to_string())));
    }
    for path in &archived_files.edited {
        let path = sanitize(&path.display().to_string());
        eprint(&format!("{path} refers to an archived asset and was kept: remove it or use another slug"));
    }
    if output.is_for_people() {
        let removed = if archived_files.generated.is_empty() {
            String::new()
        } else {
            format!(", {} removed", archived_files.generated.len())
        };
        return print(&format!("{} files written, {} unchanged{removed}", changed.len(), unchanged.len()));
    }
    output.value(
        &json!({ "written": changed.len(), "unchanged": unchanged.len(), "removed": archived_files.generated.len() }),
    )
}

/// The newest version of an asset, with the text of a flow; `None` without a version.
fn newest_version(server: &ServerClient, asset: &Value) -> Result<Option<Value>, Failure> {
    let (asset_id, query) = (required_string(asset, "asset_id")?, [("workspace_id", server.workspace_id()?)]);
    let Some(newest) = server.list_first(&["assets", asset_id, "versions"], &query, 1)?.into_iter().next() else {
        return Ok(None);
    };
    with_flow_text(server, asset, newest).map(Some)
}

/// Adds the text of a flow to a version from a list, because lists omit the text.
fn with_flow_text(server: &ServerClient, asset: &Value, listed: Value) -> Result<Value, Failure> {
    if string_or_empty(asset, "asset_kind") != AssetKind::OrchestrationFlow.as_str() {
        return Ok(listed);
    }
    let (asset_id, version) = (required_string(asset, "asset_id")?, required_string(&listed, "asset_version_id")?);
    server.get(&["assets", asset_id, "versions", version], &[("workspace_id", server.workspace_id()?)])
}

/// A slug that becomes part of a path. It is validated, so that a hostile server cannot write outside the directory.
fn slug_member<'v>(value: &'v Value, member: &str) -> Result<&'v str, Failure> {
    let found = required_string(value, member)?;
    let to_failure =
        |_| Failure::Failed(format!("invalid_slug: the server sent an invalid `{member}`; nothing was written"));
    Slug::parse(found).map(|_| found).map_err(to_failure)
}

fn asset_files(local_state: &LocalState<'_>, asset: &Value, version: &Value) -> Result<Vec<OutputFile>, Failure> {
    let (slug, owner_ref) = (slug_member(asset, "slug")?.to_owned(), required_string(asset, "owner_ref")?.to_owned());
    let content = version.get("content").cloned().unwrap_or_default();
    let kind = AssetKind::parse(required_string(asset, "asset_kind")?);
    let kind = kind.ok_or_else(|| Failure::Failed("the server has an unknown asset kind".to_owned()))?;
    if kind != AssetKind::OrchestrationFlow {
        let path = local_state.manifest_path("assets", &slug);
        let (content, texts, sidecar_texts) = local_state.split_texts(&path, content);
        let sidecar_files =
            sidecar_texts.into_iter().map(|(name, text)| OutputFile { path: path.with_file_name(name), text });
        let mut output_files: Vec<OutputFile> = sidecar_files.collect();
        output_files.push(OutputFile::serialize(path, &AssetManifest { kind, slug, owner_ref, content, texts })?);
        return Ok(output_files);
    }
    let path = local_state.manifest_path("flows", &slug);
    let flow_text = version.get("content_yaml").and_then(Value::as_str).map(str::to_owned);
    let flow = match flow_text {
        Some(text) if !output_file::is_json(&path) => OutputFile { path, text },
        Some(_) | None => OutputFile::serialize(path, &content)?,
    };
    Ok(vec![
        flow,
        OutputFile::serialize(
            local_state.manifest_path("flows", &format!("{slug}.meta")),
            &FlowMetadata { owner_ref },
        )?,
    ])
}

fn workload_file(local_state: &LocalState<'_>, workload: &Value) -> Result<OutputFile, Failure> {
    let member =
        |name: &str| workload.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let manifest = WorkloadManifest {
        slug: slug_member(workload, "slug")?.to_owned(),
        owner_ref: required_string(workload, "owner_ref")?.to_owned(),
        invocation_mode: required_string(workload, "invocation_mode")?.to_owned(),
        name: member("name"),
        description: member("description"),
        interface_config: workload.get("interface_config").filter(|interface| !interface.is_null()).cloned(),
    };
    OutputFile::serialize(local_state.manifest_path("workloads", &manifest.slug), &manifest)
}

/// Creates a release file for each environment in which a release of the workload serves.
fn release_files(
    server: &ServerClient,
    local_state: &LocalState<'_>,
    workload: &Value,
    remote_state: &RemoteState,
    newest: &BTreeMap<String, String>,
) -> Result<Vec<OutputFile>, Failure> {
    let workload_id = required_string(workload, "workload_id")?;
    let releases = server.list(&["releases"], &[("workload_id", workload_id), ("state", "active")])?;
    let environments =
        releases.iter().map(|release| slug_member(release, "environment")).collect::<Result<BTreeSet<_>, _>>()?;
    let mut output_files = Vec::new();
    for environment in environments {
        let active = server.find(&["workloads", workload_id, "active-release"], &[("environment", environment)])?;
        let Some(active) = active else { continue };
        let mut bindings = Vec::new();
        for binding in active.get("bindings").and_then(Value::as_array).into_iter().flatten() {
            let Some(role) = AssetKind::parse(required_string(binding, "role")?) else { continue };
            let version = required_string(binding, "asset_version_id")?;
            bindings.push(match newest.get(version) {
                Some(asset) => BindingManifest { role, asset: asset.clone(), version: None },
                None => older_binding(server, remote_state, role, version)?,
            });
        }
        bindings.sort();
        let slug = slug_member(workload, "slug")?.to_owned();
        let path = local_state.manifest_path("releases", &format!("{slug}.{environment}"));
        let manifest = ReleaseManifest {
            workload: slug,
            environment: environment.to_owned(),
            target_lane: required_string(&active, "target_lane")?.to_owned(),
            bindings,
            example_inputs: LocalState::example_inputs(&path).unwrap_or_default(),
        };
        output_files.push(OutputFile::serialize(path, &manifest)?);
    }
    Ok(output_files)
}

/// Creates the manifest entry for a bound version that is not the newest version of its asset.
fn older_binding(
    server: &ServerClient,
    remote_state: &RemoteState,
    role: AssetKind,
    version: &str,
) -> Result<BindingManifest, Failure> {
    let of_kind = remote_state.assets.values().filter(|asset| string_or_empty(asset, "asset_kind") == role.as_str());
    for asset in of_kind {
        let path = ["assets", required_string(asset, "asset_id")?, "versions"];
        let versions = server.list(&path, &[("workspace_id", server.workspace_id()?)])?;
        if let Some(found) = versions.iter().find(|listed| string_or_empty(listed, "asset_version_id") == version) {
            let label = required_string(found, "version_label")?.to_owned();
            return Ok(BindingManifest {
                role,
                asset: required_string(asset, "slug")?.to_owned(),
                version: Some(label),
            });
        }
    }
    Err(Failure::Failed("a release binds a version that is not visible from this workspace".to_owned()))
}
