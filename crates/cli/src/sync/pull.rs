//! Writes the server's state into files. Equal states produce equal bytes, and files with equivalent content keep
//! their comments and order.

mod gone;
mod page;
mod there;

use super::{
    estate::{RemoteState, at_once, word},
    manifest::{AssetManifest, BindingManifest, FlowMetadata, ReleaseManifest, WorkloadManifest},
};
use crate::{
    failure::Failure,
    output::{Output, say, tell},
    server::{Server, text},
    text::plain,
};
use fairway_domain::{asset::kind::AssetKind, slug::Slug};
use gone::RemovedFiles;
use page::Page;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use there::LocalState;

pub(super) fn pull(server: &Server, output: Output, directory: &Path) -> Result<(), Failure> {
    let mut there = LocalState::look(directory)?;
    let estate = RemoteState::read(server, &there.wanted)?;
    there.compare(server, &estate)?;
    let workspace = server.workspace()?;
    let mut pages = Vec::new();
    let is_ours = |asset: &&Value| {
        word(asset, "ownership_tier") == "workspace"
            && word(asset, "workspace_id") == workspace
            && matches!(word(asset, "lifecycle_state"), "active" | "draft")
    };
    let assets: Vec<&Value> = estate.assets.values().filter(is_ours).collect();
    let newest = at_once(&assets, |asset| newest_version(server, asset))?;
    let mut labels = BTreeMap::new();
    for (asset, version) in assets.iter().zip(newest) {
        // An asset without a version has no content to write.
        let Some(version) = version else { continue };
        labels.insert(word(&version, "asset_version_id").to_owned(), word(asset, "slug").to_owned());
        pages.extend(asset_pages(&there, asset, &version)?);
    }
    for workload in estate.workloads.values() {
        if workload.get("management_source").is_some_and(|source| !source.is_null())
            || word(workload, "status") == "retired"
        {
            continue;
        }
        pages.push(workload_file(&there, workload)?);
        pages.extend(release_files(server, &there, (workload, &estate), &labels)?);
    }
    let gone = RemovedFiles::look(server, &there, &estate, &pages)?;
    let (kept, changed): (Vec<Page>, Vec<Page>) =
        pages.into_iter().partition(|page| there.is_kept(&page.path) || page.is_there());
    // All obstacles are found before the first write.
    changed.iter().try_for_each(Page::check_writable)?;
    for page in &changed {
        page.write()?;
        tell(&format!("wrote {}", page.path.display()));
    }
    gone.remove()?;
    for path in &gone.ours {
        tell(&format!("removed {}: its assets are archived on the server", plain(&path.display().to_string())));
    }
    for path in &gone.theirs {
        let path = plain(&path.display().to_string());
        tell(&format!("{path} refers to an archived asset and was kept: remove it or use another slug"));
    }
    if output.is_for_people() {
        let removed = if gone.ours.is_empty() { String::new() } else { format!(", {} removed", gone.ours.len()) };
        return say(&format!("{} files written, {} unchanged{removed}", changed.len(), kept.len()));
    }
    output.value(&json!({ "written": changed.len(), "unchanged": kept.len(), "removed": gone.ours.len() }))
}

/// The newest version of an asset.
fn newest_version(server: &Server, asset: &Value) -> Result<Option<Value>, Failure> {
    let (asset_id, query) = (text(asset, "asset_id")?, [("workspace_id", server.workspace()?)]);
    let Some(newest) = server.list_first(&["assets", asset_id, "versions"], &query, 1)?.into_iter().next() else {
        return Ok(None);
    };
    with_text(server, asset, newest).map(Some)
}

/// Completes a listed version. Lists omit the text of a flow.
fn with_text(server: &Server, asset: &Value, listed: Value) -> Result<Value, Failure> {
    if word(asset, "asset_kind") != AssetKind::OrchestrationFlow.as_str() {
        return Ok(listed);
    }
    let (asset_id, version) = (text(asset, "asset_id")?, text(&listed, "asset_version_id")?);
    server.get(&["assets", asset_id, "versions", version], &[("workspace_id", server.workspace()?)])
}

/// A slug that becomes part of a path. Validation keeps a hostile server's names inside the directory.
fn name<'v>(value: &'v Value, member: &str) -> Result<&'v str, Failure> {
    let found = text(value, member)?;
    let refused =
        |_| Failure::Unfit(format!("invalid_slug: the server sent an invalid `{member}`; nothing was written"));
    Slug::parse(found).map(|_| found).map_err(refused)
}

fn asset_pages(there: &LocalState<'_>, asset: &Value, version: &Value) -> Result<Vec<Page>, Failure> {
    let (slug, owner_ref) = (name(asset, "slug")?.to_owned(), text(asset, "owner_ref")?.to_owned());
    let content = version.get("content").cloned().unwrap_or_default();
    let kind = AssetKind::parse(text(asset, "asset_kind")?);
    let kind = kind.ok_or_else(|| Failure::Unfit("the server has an unknown asset kind".to_owned()))?;
    if kind != AssetKind::OrchestrationFlow {
        let path = there.path("assets", &slug);
        let (content, texts, beside) = there.apart(&path, content);
        let beside = beside.into_iter().map(|(name, text)| Page { path: path.with_file_name(name), text });
        let mut pages: Vec<Page> = beside.collect();
        pages.push(Page::of(path, &AssetManifest { kind, slug, owner_ref, content, texts })?);
        return Ok(pages);
    }
    let path = there.path("flows", &slug);
    let as_given = version.get("content_yaml").and_then(Value::as_str).map(str::to_owned);
    let flow = match as_given {
        Some(text) if !page::is_json(&path) => Page { path, text },
        Some(_) | None => Page::of(path, &content)?,
    };
    Ok(vec![flow, Page::of(there.path("flows", &format!("{slug}.meta")), &FlowMetadata { owner_ref })?])
}

fn workload_file(there: &LocalState<'_>, workload: &Value) -> Result<Page, Failure> {
    let member =
        |name: &str| workload.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let manifest = WorkloadManifest {
        slug: name(workload, "slug")?.to_owned(),
        owner_ref: text(workload, "owner_ref")?.to_owned(),
        invocation_mode: text(workload, "invocation_mode")?.to_owned(),
        name: member("name"),
        description: member("description"),
        interface_config: workload.get("interface_config").filter(|interface| !interface.is_null()).cloned(),
    };
    Page::of(there.path("workloads", &manifest.slug), &manifest)
}

/// A file for each environment in which a release of the workload serves.
fn release_files(
    server: &Server,
    there: &LocalState<'_>,
    (workload, estate): (&Value, &RemoteState),
    newest: &BTreeMap<String, String>,
) -> Result<Vec<Page>, Failure> {
    let workload_id = text(workload, "workload_id")?;
    let listed = server.list(&["releases"], &[("workload_id", workload_id), ("state", "active")])?;
    let environments = listed.iter().map(|listed| name(listed, "environment")).collect::<Result<BTreeSet<_>, _>>()?;
    let mut pages = Vec::new();
    for environment in environments {
        let active = server.find(&["workloads", workload_id, "active-release"], &[("environment", environment)])?;
        let Some(active) = active else { continue };
        let mut bindings = Vec::new();
        for binding in active.get("bindings").and_then(Value::as_array).into_iter().flatten() {
            let Some(role) = AssetKind::parse(text(binding, "role")?) else { continue };
            let version = text(binding, "asset_version_id")?;
            bindings.push(match newest.get(version) {
                Some(asset) => BindingManifest { role, asset: asset.clone(), version: None },
                None => older_binding(server, estate, role, version)?,
            });
        }
        bindings.sort();
        let slug = name(workload, "slug")?.to_owned();
        let path = there.path("releases", &format!("{slug}.{environment}"));
        let manifest = ReleaseManifest {
            workload: slug,
            environment: environment.to_owned(),
            target_lane: text(&active, "target_lane")?.to_owned(),
            bindings,
            example_inputs: LocalState::example_inputs(&path).unwrap_or_default(),
        };
        pages.push(Page::of(path, &manifest)?);
    }
    Ok(pages)
}

/// The binding of a version that is not its asset's newest.
fn older_binding(server: &Server, estate: &RemoteState, role: AssetKind, version: &str) -> Result<BindingManifest, Failure> {
    let of_kind = estate.assets.values().filter(|asset| word(asset, "asset_kind") == role.as_str());
    for asset in of_kind {
        let path = ["assets", text(asset, "asset_id")?, "versions"];
        let versions = server.list(&path, &[("workspace_id", server.workspace()?)])?;
        if let Some(found) = versions.iter().find(|listed| word(listed, "asset_version_id") == version) {
            let label = text(found, "version_label")?.to_owned();
            return Ok(BindingManifest { role, asset: text(asset, "slug")?.to_owned(), version: Some(label) });
        }
    }
    Err(Failure::Unfit("a release binds a version that is not visible from this workspace".to_owned()))
}
