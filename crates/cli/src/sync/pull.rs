//! Writing what a server has as files. The same estate is always the same bytes, and a file that says the same already is
//! left alone, with its comments and its order.

use super::{
    estate::{Estate, at_once, word},
    manifest::{AssetManifest, BindingManifest, FlowMetadata, ReleaseManifest, WorkloadManifest},
};
use crate::{
    failure::Failure,
    file::Source,
    output::{Output, say, tell},
    server::{Server, text},
};
use fairway_domain::{asset::kind::AssetKind, flow::parse_yaml};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

/// A file that should be there.
struct Page {
    path: PathBuf,
    text: String,
}

pub(super) fn pull(server: &Server, output: Output, directory: &Path) -> Result<(), Failure> {
    let estate = Estate::read(server, std::iter::empty())?;
    let workspace = server.workspace()?;
    let mut pages = Vec::new();
    let is_ours = |asset: &&Value| {
        word(asset, "ownership_tier") == "workspace"
            && word(asset, "workspace_id") == workspace
            && matches!(word(asset, "lifecycle_state"), "active" | "draft")
    };
    let assets: Vec<&Value> = estate.assets.values().filter(is_ours).collect();
    let newest = at_once(&assets, |asset| {
        let path = ["assets", text(asset, "asset_id")?, "versions"];
        Ok(server.list_some(&path, &[("workspace_id", workspace)], 1)?.into_iter().next())
    })?;
    let mut labels = BTreeMap::new();
    for (asset, version) in assets.iter().zip(newest) {
        // An asset without a version has nothing that a file could say.
        let Some(version) = version else { continue };
        labels.insert(word(&version, "asset_version_id").to_owned(), word(asset, "slug").to_owned());
        pages.extend(asset_pages(directory, asset, &version)?);
    }
    for workload in estate.workloads.values() {
        if workload.get("management_source").is_some_and(|source| !source.is_null())
            || word(workload, "status") == "retired"
        {
            continue;
        }
        pages.push(workload_page(directory, workload)?);
        pages.extend(release_pages(server, directory, (workload, &estate), &labels)?);
    }
    let mut written = 0_usize;
    for page in &pages {
        if page.write()? {
            written += 1;
            tell(&format!("wrote {}", page.path.display()));
        }
    }
    if output.is_for_people() {
        return say(&format!("{written} files written, {} left as they were", pages.len() - written));
    }
    output.value(&json!({ "written": written, "unchanged": pages.len() - written }))
}

fn asset_pages(directory: &Path, asset: &Value, version: &Value) -> Result<Vec<Page>, Failure> {
    let (slug, owner_ref) = (text(asset, "slug")?.to_owned(), text(asset, "owner_ref")?.to_owned());
    let content = version.get("content").cloned().unwrap_or_default();
    let kind = AssetKind::parse(text(asset, "asset_kind")?);
    let kind = kind.ok_or_else(|| Failure::Unfit("the server knows a kind that this command does not".to_owned()))?;
    if kind != AssetKind::OrchestrationFlow {
        let path = directory.join("assets").join(format!("{slug}.yaml"));
        let manifest = AssetManifest { kind, slug, owner_ref, content, texts: BTreeMap::new() };
        return Ok(vec![Page { path, text: yaml(&manifest)? }]);
    }
    let folder = directory.join("flows");
    let as_given = version.get("content_yaml").and_then(Value::as_str).map(str::to_owned);
    let text = as_given.map_or_else(|| yaml(&content), Ok)?;
    Ok(vec![
        Page { path: folder.join(format!("{slug}.yaml")), text },
        Page { path: folder.join(format!("{slug}.meta.yaml")), text: yaml(&FlowMetadata { owner_ref })? },
    ])
}

fn workload_page(directory: &Path, workload: &Value) -> Result<Page, Failure> {
    let member =
        |name: &str| workload.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let manifest = WorkloadManifest {
        slug: text(workload, "slug")?.to_owned(),
        owner_ref: text(workload, "owner_ref")?.to_owned(),
        invocation_mode: text(workload, "invocation_mode")?.to_owned(),
        name: member("name"),
        description: member("description"),
        interface_config: workload.get("interface_config").filter(|interface| !interface.is_null()).cloned(),
    };
    let path = directory.join("workloads").join(format!("{}.yaml", manifest.slug));
    Ok(Page { path, text: yaml(&manifest)? })
}

/// A page for each environment in which a release of the workload serves.
fn release_pages(
    server: &Server,
    directory: &Path,
    (workload, estate): (&Value, &Estate),
    newest: &BTreeMap<String, String>,
) -> Result<Vec<Page>, Failure> {
    let workload_id = text(workload, "workload_id")?;
    let mut pages = BTreeMap::new();
    for listed in server.list(&["releases"], &[("workload_id", workload_id), ("state", "active")])? {
        let environment = text(&listed, "environment")?.to_owned();
        let active = server.find(&["workloads", workload_id, "active-release"], &[("environment", &environment)])?;
        let Some(active) = active else { continue };
        let mut bindings = Vec::new();
        for binding in active.get("bindings").and_then(Value::as_array).into_iter().flatten() {
            let Some(role) = AssetKind::parse(text(binding, "role")?) else { continue };
            let version = text(binding, "asset_version_id")?;
            bindings.push(match newest.get(version) {
                Some(asset) => BindingManifest { role, asset: asset.clone(), version: None },
                None => older(server, estate, role, version)?,
            });
        }
        bindings.sort();
        let slug = text(workload, "slug")?.to_owned();
        let path = directory.join("releases").join(format!("{slug}.{environment}.yaml"));
        let target_lane = text(&active, "target_lane")?.to_owned();
        let manifest = ReleaseManifest {
            workload: slug,
            environment: environment.clone(),
            target_lane,
            bindings,
            example_inputs: Map::new(),
        };
        pages.insert(environment, Page { path, text: yaml(&manifest)? });
    }
    Ok(pages.into_values().collect())
}

/// The binding of a version that is not the newest of its asset.
fn older(server: &Server, estate: &Estate, role: AssetKind, version: &str) -> Result<BindingManifest, Failure> {
    let of_kind = estate.assets.values().filter(|asset| word(asset, "asset_kind") == role.as_str());
    for asset in of_kind {
        let path = ["assets", text(asset, "asset_id")?, "versions"];
        let versions = server.list(&path, &[("workspace_id", server.workspace()?)])?;
        if let Some(found) = versions.iter().find(|listed| word(listed, "asset_version_id") == version) {
            let label = text(found, "version_label")?.to_owned();
            return Ok(BindingManifest { role, asset: text(asset, "slug")?.to_owned(), version: Some(label) });
        }
    }
    Err(Failure::Unfit("a release binds a version that is not seen from this workspace".to_owned()))
}

fn yaml<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_yaml::to_string(value).map_err(|error| Failure::Unfit(error.to_string()))
}

impl Page {
    /// Writes the file, whole or not at all; says whether it had to.
    fn write(&self) -> Result<bool, Failure> {
        if self.is_there() {
            return Ok(false);
        }
        let failed = |cause| Failure::Io { path: self.path.clone(), cause };
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| !found.is_file()) {
            return Err(failed(io::Error::other("what is there is no file, and is left alone")));
        }
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(self.text.as_bytes()).map_err(failed)?;
        readable(&file).map_err(failed)?;
        file.persist(&self.path).map_err(|error| failed(error.error))?;
        Ok(true)
    }

    /// Whether a file says the same already, in its own way.
    fn is_there(&self) -> bool {
        let Ok(there) = Source::found(&self.path) else { return false };
        if there.text == self.text {
            return true;
        }
        let ours = Source { name: there.name.clone(), text: self.text.clone() };
        let means = |source: &Source| source.parsed().ok().map(|located| meaning(located.value));
        let flow = |source: &Source| parse_yaml(&source.text).ok().map(|flow| flow.to_content());
        let same = means(&there).is_some_and(|there| means(&ours) == Some(there));
        same || flow(&there).is_some_and(|there| flow(&ours) == Some(there))
    }
}

/// What of a manifest the server knows: examples are for readers, bindings have no order, and `all` lanes need not be said.
fn meaning(mut value: Value) -> Value {
    if let Some(members) = value.as_object_mut() {
        members.remove("example_inputs");
        if members.contains_key("bindings") {
            members.entry("target_lane").or_insert_with(|| json!("all"));
        }
        if let Some(Value::Array(bindings)) = members.get_mut("bindings") {
            bindings.sort_by_key(Value::to_string);
        }
    }
    value
}

/// Files of a directory are for everybody who works in it; a temporary file is for its owner alone.
fn readable(file: &tempfile::NamedTempFile) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}
