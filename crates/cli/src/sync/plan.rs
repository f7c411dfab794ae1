//! What would have to be done so that a server is as a directory says.

use super::{
    Rest,
    directory::{Directory, WantedAsset},
    estate::{Estate, at_once, word},
    manifest::{BindingManifest, ReleaseManifest, WorkloadManifest},
};
use crate::{
    failure::{Failure, Finding},
    file::Located,
    server::{Server, text},
};
use fairway_domain::{asset::kind::AssetKind, release::StateName, workload::interface::InterfaceConfig};
use serde::Serialize;
use serde_json::{Map, Value, json};
use similar::TextDiff;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that would be done. Two plans that are equal do the same to the same things.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) workspace_id: String,
    pub(super) assets: Vec<AssetStep>,
    pub(super) workloads: Vec<WorkloadStep>,
    pub(super) releases: Vec<ReleaseStep>,
    pub(super) unmanaged: Vec<Unmanaged>,
}

/// What would be done with an asset.
#[derive(Debug, Serialize)]
pub(super) struct AssetStep {
    pub(super) slug: String,
    pub(super) kind: AssetKind,
    pub(super) action: AssetAction,
    pub(super) checksum: String,
    /// The version that is used as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The newest version that the server has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) newest: Option<String>,
    /// How the content would change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diff: Option<String>,
    /// What stays different, because nothing changes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AssetAction {
    Create,
    Version,
    Reuse,
}

/// What would be done with a workload.
#[derive(Debug, Serialize)]
pub(super) struct WorkloadStep {
    pub(super) slug: String,
    pub(super) action: WorkloadAction,
    /// What would be sent.
    pub(super) fields: Map<String, Value>,
    /// The state of the server that this was decided on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkloadAction {
    Create,
    Change,
    Keep,
}

/// What would be done for a release.
#[derive(Debug, Serialize)]
pub(super) struct ReleaseStep {
    pub(super) workload: String,
    pub(super) environment: String,
    pub(super) action: ReleaseAction,
    /// The release that is used or carried on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) release_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<String>,
    pub(super) bindings: Vec<BindingManifest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ReleaseAction {
    /// A release is drafted.
    Draft,
    /// A draft gets what it lacks.
    Complete,
    /// A release with these versions is there.
    Keep,
}

/// An asset that the directory does not name.
#[derive(Debug, Serialize)]
pub(super) struct Unmanaged {
    pub(super) slug: String,
    pub(super) asset_id: String,
    pub(super) action: RestAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RestAction {
    Leave,
    Archive,
    /// It should be archived and cannot be: something stands on it.
    InUse,
}

impl Plan {
    /// Whether there is nothing to do.
    pub(super) fn is_done(&self) -> bool {
        self.assets.iter().all(|step| step.action == AssetAction::Reuse)
            && self.workloads.iter().all(|step| step.action == WorkloadAction::Keep)
            && self.releases.iter().all(|step| step.action == ReleaseAction::Keep)
            && self.unmanaged.iter().all(|rest| rest.action == RestAction::Leave)
    }

    /// # Errors
    /// When something would have to be put away that is in use.
    pub(super) fn refuse_if_blocked(&self) -> Result<(), Failure> {
        let blocked: Vec<&str> = self
            .unmanaged
            .iter()
            .filter(|rest| rest.action == RestAction::InUse)
            .map(|rest| rest.slug.as_str())
            .collect();
        if blocked.is_empty() {
            return Ok(());
        }
        Err(Failure::Unfit(format!("asset_in_use: releases stand on {}; nothing was done", blocked.join(", "))))
    }
}

/// Compares a directory with a server.
///
/// # Errors
/// With everything of the directory that the server's state rules out.
pub(super) fn plan(server: &Server, wanted: &Directory, estate: &Estate, rest: Rest) -> Result<Plan, Failure> {
    let mut findings = Vec::new();
    for asset in &wanted.assets {
        ruled_out(asset, wanted, estate, &mut findings);
    }
    let assets: Vec<AssetStep> = wanted.assets.iter().map(|asset| asset_step(asset, estate)).collect();
    let workloads = wanted.workloads.iter().map(|workload| workload_step(workload, estate)).collect();
    let mut releases = Vec::new();
    for (release, located) in &wanted.releases {
        let is_named = wanted.workloads.iter().any(|workload| workload.slug == release.workload);
        if !is_named && !estate.workloads.contains_key(&release.workload) {
            findings.push(located.finding(
                "/workload",
                "unknown_workload",
                "neither the directory nor the server has it",
            ));
            continue;
        }
        releases.push(release_step(server, (release, located), estate, (&assets, &mut findings))?);
    }
    if !findings.is_empty() {
        return Err(Failure::Files(findings));
    }
    let unmanaged = unmanaged(server, wanted, estate, rest)?;
    Ok(Plan { workspace_id: server.workspace()?.to_owned(), assets, workloads, releases, unmanaged })
}

/// What of an asset cannot come true on this server.
fn ruled_out(asset: &WantedAsset, wanted: &Directory, estate: &Estate, findings: &mut Vec<Finding>) {
    if let Some(live) = estate.assets.get(&asset.slug) {
        if word(live, "asset_kind") != asset.kind.as_str() {
            let message = "the server has an asset of this slug and of another kind";
            findings.push(asset.located.finding("/kind", "kind_mismatch", message));
        }
        if !matches!(word(live, "lifecycle_state"), "active" | "draft") {
            let message = "the asset is retired or archived on the server: activate it there, or take another slug";
            findings.push(asset.located.finding("/slug", "asset_not_active", message));
        }
    }
    for reference in &asset.references {
        let slug = reference.slug.as_str();
        let here = wanted.assets.iter().find(|other| other.slug == slug).map(|other| other.kind);
        let there = || estate.assets.get(slug).and_then(|live| AssetKind::parse(word(live, "asset_kind")));
        if here.or_else(there).is_none() {
            let pointer = format!("/content{}", reference.pointer);
            let message = "neither the directory nor the server has the asset that is referred to";
            findings.push(asset.located.finding(&pointer, "unknown_asset", message));
        }
    }
}

fn asset_step(asset: &WantedAsset, estate: &Estate) -> AssetStep {
    let live = estate.assets.get(&asset.slug);
    let newest = estate.versions.get(&asset.slug).and_then(|versions| versions.first());
    let same = estate.version_of(&asset.slug, &asset.checksum);
    let action = match (live, same) {
        (None, _) => AssetAction::Create,
        (Some(_), None) => AssetAction::Version,
        (Some(_), Some(_)) => AssetAction::Reuse,
    };
    let label = |version: &Value| word(version, "version_label").to_owned();
    let before = newest.and_then(|version| version.get("content"));
    let note = live.filter(|live| word(live, "owner_ref") != asset.owner_ref);
    AssetStep {
        slug: asset.slug.clone(),
        kind: asset.kind,
        action,
        checksum: asset.checksum.clone(),
        version: same.map(label),
        newest: newest.map(label),
        diff: (action == AssetAction::Version).then(|| difference(before.unwrap_or(&Value::Null), &asset.content)),
        note: note.map(|_| "the owner is another one on the server, and stays"),
    }
}

/// How content changes, as YAML line by line.
fn difference(before: &Value, after: &Value) -> String {
    let written = |value: &Value| serde_yaml::to_string(value).unwrap_or_else(|_| value.to_string());
    let (before, after) = (written(before), written(after));
    TextDiff::from_lines(&before, &after).unified_diff().context_radius(2).to_string()
}

fn workload_step(wanted: &WorkloadManifest, estate: &Estate) -> WorkloadStep {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            fields.insert(name.to_owned(), json!(value));
        }
    };
    set("owner_ref", Some(&wanted.owner_ref));
    set("invocation_mode", Some(&wanted.invocation_mode));
    set("name", wanted.name.as_deref());
    set("description", wanted.description.as_deref());
    if let Some(interface) = &wanted.interface_config {
        fields.insert("interface_config".to_owned(), interface.clone());
    }
    let live = estate.workloads.get(&wanted.slug);
    let action = match live {
        None => WorkloadAction::Create,
        Some(live) => {
            fields.retain(|name, value| !is_the_same(name, value, live.get(name)));
            if fields.is_empty() { WorkloadAction::Keep } else { WorkloadAction::Change }
        }
    };
    let updated_at = live.map(|live| word(live, "updated_at").to_owned());
    WorkloadStep { slug: wanted.slug.clone(), action, fields, updated_at }
}

/// Whether a field says the same already; an interface is compared as what it means, with all its defaults.
fn is_the_same(name: &str, wanted: &Value, live: Option<&Value>) -> bool {
    let Some(live) = live else { return false };
    if name != "interface_config" {
        return live == wanted;
    }
    let meant = |document: &Value| InterfaceConfig::read(document).ok().map(|read| read.in_full().to_document());
    live == wanted || meant(live).is_some_and(|live| meant(wanted) == Some(live))
}

fn release_step(
    server: &Server,
    (release, located): (&ReleaseManifest, &Located),
    estate: &Estate,
    (assets, findings): (&[AssetStep], &mut Vec<Finding>),
) -> Result<ReleaseStep, Failure> {
    // The versions that are there already; none stands for one that would have to be made.
    let mut versions: BTreeSet<Option<String>> = BTreeSet::new();
    let mut policy = None;
    for (index, binding) in release.bindings.iter().enumerate() {
        let version = match &binding.version {
            None => {
                let step = assets.iter().find(|step| step.slug == binding.asset);
                step.and_then(|step| estate.version_of(&step.slug, &step.checksum)).cloned()
            }
            Some(label) => {
                let found = pinned(server, estate, &binding.asset, label)?;
                if found.is_none() {
                    let message = "the server has no such version of this asset";
                    findings.push(located.finding(&format!("/bindings/{index}/version"), "unknown_version", message));
                }
                found
            }
        };
        if binding.role == AssetKind::PolicyBundle {
            policy = estate.assets.get(&binding.asset).map(|asset| word(asset, "asset_id"));
        }
        versions.insert(version.map(|version| word(&version, "asset_version_id").to_owned()));
    }
    let mut step = ReleaseStep {
        workload: release.workload.clone(),
        environment: release.environment.clone(),
        action: ReleaseAction::Draft,
        release_id: None,
        state: None,
        bindings: release.bindings.clone(),
    };
    let Some(workload) = estate.workloads.get(&release.workload) else { return Ok(step) };
    if let Some((action, found)) = standing(server, release, text(workload, "workload_id")?, (&versions, policy))? {
        step.action = action;
        step.release_id = Some(text(&found, "release_id")?.to_owned());
        step.state = Some(text(&found, "state")?.to_owned());
    }
    Ok(step)
}

/// A version that a binding names by its label.
fn pinned(server: &Server, estate: &Estate, slug: &str, label: &str) -> Result<Option<Value>, Failure> {
    let Some(asset) = estate.assets.get(slug) else { return Ok(None) };
    let labelled = |version: &&Value| word(version, "version_label") == label;
    if let Some(versions) = estate.versions.get(slug) {
        return Ok(versions.iter().find(labelled).cloned());
    }
    let path = ["assets", text(asset, "asset_id")?, "versions"];
    let versions = server.list(&path, &[("workspace_id", server.workspace()?)])?;
    Ok(versions.iter().find(labelled).cloned())
}

/// The release that serves with exactly these versions, or is on its way, or a draft that can become one.
fn standing(
    server: &Server,
    wanted: &ReleaseManifest,
    workload: &str,
    (versions, policy): (&BTreeSet<Option<String>>, Option<&str>),
) -> Result<Option<(ReleaseAction, Value)>, Failure> {
    let mut query = vec![("environment", wanted.environment.as_str())];
    if wanted.target_lane != "all" {
        query.push(("lane", &wanted.target_lane));
    }
    let exactly = |bound: &BTreeSet<Option<String>>| bound == versions && !versions.contains(&None);
    let active = server.find(&["workloads", workload, "active-release"], &query)?;
    if let Some(active) = active.filter(|active| exactly(&bound_in(active))) {
        return Ok(Some((ReleaseAction::Keep, active)));
    }
    let mut draft = None;
    for listed in server.list(&["releases"], &[("workload_id", workload), ("environment", &wanted.environment)])? {
        let on_its_way = match StateName::parse(word(&listed, "state")) {
            Some(StateName::Draft | StateName::ReviewReady | StateName::Approved) => true,
            Some(StateName::Active | StateName::Superseded | StateName::Retired) | None => false,
        };
        if !on_its_way || word(&listed, "target_lane") != wanted.target_lane {
            continue;
        }
        let found = server.get(&["releases", text(&listed, "release_id")?], &[])?;
        let bound = bound_in(&found);
        if exactly(&bound) {
            return Ok(Some((ReleaseAction::Keep, found)));
        }
        let same_policy = found.get("policy_bundle_id").and_then(Value::as_str) == policy;
        if draft.is_none()
            && same_policy
            && word(&found, "state") == StateName::Draft.as_str()
            && bound.is_subset(versions)
        {
            draft = Some((ReleaseAction::Complete, found));
        }
    }
    Ok(draft)
}

/// The versions that a release binds.
pub(super) fn bound_in(release: &Value) -> BTreeSet<Option<String>> {
    let bindings = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    bindings.map(|binding| binding.get("asset_version_id").and_then(Value::as_str).map(str::to_owned)).collect()
}

fn unmanaged(server: &Server, wanted: &Directory, estate: &Estate, rest: Rest) -> Result<Vec<Unmanaged>, Failure> {
    let named: BTreeMap<&str, ()> = wanted.assets.iter().map(|asset| (asset.slug.as_str(), ())).collect();
    let workspace = server.workspace()?;
    let is_ours = |asset: &&Value| {
        word(asset, "ownership_tier") == "workspace"
            && word(asset, "workspace_id") == workspace
            && word(asset, "lifecycle_state") != "archived"
            && !named.contains_key(word(asset, "slug"))
    };
    let left: Vec<&Value> = estate.assets.values().filter(is_ours).collect();
    at_once(&left, |asset| {
        let asset_id = text(asset, "asset_id")?;
        let action = match rest {
            Rest::Left => RestAction::Leave,
            Rest::Pruned => {
                let impact = server.get(&["assets", asset_id, "blast-radius"], &[("workspace_id", workspace)])?;
                let stands = |release: &Value| !matches!(word(release, "state"), "retired" | "superseded");
                let releases = impact.get("releases").and_then(Value::as_array).into_iter().flatten();
                if releases.into_iter().any(stands) { RestAction::InUse } else { RestAction::Archive }
            }
        };
        Ok(Unmanaged { slug: word(asset, "slug").to_owned(), asset_id: asset_id.to_owned(), action })
    })
}
