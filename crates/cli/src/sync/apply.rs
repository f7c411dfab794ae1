//! Doing what a plan says, step by step, each safe to be done again.

use super::{
    directory::{Directory, WantedAsset},
    estate::Estate,
    plan::{
        AssetAction, AssetStep, Plan, ReleaseAction, ReleaseStep, RestAction, WorkloadAction, WorkloadStep, bound_in,
        stale,
    },
};
use crate::{
    failure::Failure,
    output::{Output, tell},
    release,
    server::{Server, text},
    text::plain,
};
use fairway_domain::{asset::kind::AssetKind, release::StateName};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What stays when something has changed under an attempt.
const GONE_ON_WITH: &str = "what was done stays, and applying again plans anew";

/// A version that releases bind.
struct Version {
    asset_id: String,
    asset_version_id: String,
    label: String,
}

/// Does what the plan says, and answers with what is there then.
pub(super) fn apply(
    server: &Server,
    output: Output,
    (wanted, estate): (&Directory, &Estate),
    plan: &Plan,
) -> Result<(), Failure> {
    let mut versions = BTreeMap::new();
    for (asset, step) in wanted.assets.iter().zip(&plan.assets) {
        versions.insert(asset.slug.as_str(), ensure(server, estate, (asset, step))?);
    }
    for step in &plan.workloads {
        workload(server, estate, step)?;
    }
    let mut releases = Vec::new();
    for ((manifest, _), step) in wanted.releases.iter().zip(&plan.releases) {
        let mut release = draft(server, estate, step, &versions)?;
        if let Some(members) = release.as_object_mut() {
            members.insert("example_inputs".to_owned(), json!(manifest.example_inputs));
        }
        releases.push(release);
    }
    for rest in plan.unmanaged.iter().filter(|rest| rest.action == RestAction::Archive) {
        server.post(&["assets", &rest.asset_id, "archive"], &json!({ "workspace_id": server.workspace()? }))?;
        tell(&format!("archived {}", rest.slug));
    }
    let assets: Vec<Value> = plan
        .assets
        .iter()
        .filter_map(|step| {
            let version = versions.get(step.slug.as_str())?;
            Some(json!({
                "slug": step.slug,
                "action": step.action,
                "asset_id": version.asset_id,
                "asset_version_id": version.asset_version_id,
                "version_label": version.label,
            }))
        })
        .collect();
    let answer = json!({ "assets": assets, "releases": releases });
    if !output.is_for_people() {
        return output.value(&answer);
    }
    output.list(
        &releases,
        &[("WORKLOAD", "/workload"), ("ENVIRONMENT", "/environment"), ("RELEASE", "/release_id"), ("STATE", "/state")],
    )
}

fn ensure(server: &Server, estate: &Estate, (asset, step): (&WantedAsset, &AssetStep)) -> Result<Version, Failure> {
    match step.action {
        AssetAction::Create => create(server, asset, &step.owner_ref),
        AssetAction::Version => {
            let found = estate.assets.get(&asset.slug).ok_or_else(gone)?;
            add_version(server, asset, text(found, "asset_id")?)
        }
        AssetAction::Reuse => Version::of(estate.version_of(&asset.slug, &asset.checksum).ok_or_else(gone)?),
    }
}

fn create(server: &Server, asset: &WantedAsset, owner_ref: &str) -> Result<Version, Failure> {
    let workspace = server.workspace()?;
    let version = match &asset.flow_yaml {
        Some(yaml) => {
            let body = json!({
                "slug": asset.slug, "owner_ref": owner_ref, "content_yaml": yaml, "workspace_id": workspace,
            });
            let flow = server.post(&["flows"], &body)?;
            Version::of(flow.get("version").unwrap_or(&Value::Null))?
        }
        None => {
            let body = json!({
                "slug": asset.slug, "asset_kind": asset.kind, "owner_ref": owner_ref, "workspace_id": workspace,
            });
            let made = server.post(&["assets"], &body)?;
            return add_version(server, asset, text(&made, "asset_id")?);
        }
    };
    tell(&format!("made {} {} {}", asset.kind, asset.slug, version.label));
    Ok(version)
}

fn add_version(server: &Server, asset: &WantedAsset, asset_id: &str) -> Result<Version, Failure> {
    let workspace = server.workspace()?;
    let version = match &asset.flow_yaml {
        Some(yaml) => server
            .post(&["flows", asset_id, "versions"], &json!({ "content_yaml": yaml, "workspace_id": workspace }))?,
        None => {
            let body = json!({ "content": asset.content, "workspace_id": workspace });
            server.post(&["assets", asset_id, "versions"], &body)?
        }
    };
    let version = Version::of(&version)?;
    tell(&format!("made {} {} {}", asset.kind, asset.slug, version.label));
    Ok(version)
}

impl Version {
    fn of(version: &Value) -> Result<Self, Failure> {
        Ok(Self {
            asset_id: text(version, "asset_id")?.to_owned(),
            asset_version_id: text(version, "asset_version_id")?.to_owned(),
            label: text(version, "version_label")?.to_owned(),
        })
    }
}

fn workload(server: &Server, estate: &Estate, step: &WorkloadStep) -> Result<(), Failure> {
    match step.action {
        WorkloadAction::Keep => return Ok(()),
        WorkloadAction::Change => {
            let live = estate.workloads.get(&step.slug).unwrap_or(&Value::Null);
            change(server, text(live, "workload_id")?, step, &step.fields)?;
        }
        WorkloadAction::Create => {
            let mut fields = step.fields.clone();
            let interface = fields.remove_entry("interface_config");
            fields.insert("slug".to_owned(), json!(step.slug));
            fields.insert("workspace_id".to_owned(), json!(server.workspace()?));
            let made = server.post(&["workloads"], &Value::Object(fields))?;
            tell(&format!("made workload {}", step.slug));
            let Some(interface) = interface else { return Ok(()) };
            // An interface is given to a workload that is there; where this is cut off, the next plan shows it missing.
            let step = WorkloadStep { updated_at: Some(text(&made, "updated_at")?.to_owned()), ..step.clone() };
            change(server, text(&made, "workload_id")?, &step, &Map::from_iter([interface]))?;
        }
    }
    tell(&format!("changed workload {}", step.slug));
    Ok(())
}

/// Changes fields of a workload that is as it was when that was decided.
fn change(server: &Server, id: &str, step: &WorkloadStep, fields: &Map<String, Value>) -> Result<(), Failure> {
    let moved = || stale(&format!("workload {}", step.slug), GONE_ON_WITH);
    let (tag, live) = server.tagged(&["workloads", id])?;
    if live.get("updated_at").and_then(Value::as_str) != step.updated_at.as_deref() {
        return Err(moved());
    }
    match server.change_at(&tag, &["workloads", id], &Value::Object(fields.clone())) {
        Err(Failure::Refused(refusal)) if refusal.code == "precondition_failed" => Err(moved()),
        changed => changed.map(drop),
    }
}

/// Sees to it that there is a release with these versions: a draft, unless there is more already.
fn draft(
    server: &Server,
    estate: &Estate,
    step: &ReleaseStep,
    versions: &BTreeMap<&str, Version>,
) -> Result<Value, Failure> {
    let answer = |release: &Value| {
        Ok(json!({
            "workload": step.workload,
            "environment": step.environment,
            "action": step.action,
            "release_id": text(release, "release_id")?,
            "state": text(release, "state")?,
        }))
    };
    let release = match (&step.release_id, step.action) {
        (Some(id), ReleaseAction::Keep) => return answer(&server.get(&["releases", id], &[])?),
        (Some(id), ReleaseAction::Complete | ReleaseAction::Draft) => {
            let found = server.get(&["releases", id], &[])?;
            let member = |name: &str| found.get(name).and_then(Value::as_str);
            // Somebody who binds or submits meanwhile means another release than the one that was looked at.
            if member("updated_at") != step.updated_at.as_deref() || member("state") != Some(StateName::Draft.as_str())
            {
                return Err(stale(&format!("the draft {}", plain(id)), GONE_ON_WITH));
            }
            found
        }
        (None, ReleaseAction::Keep | ReleaseAction::Complete | ReleaseAction::Draft) => Value::Null,
    };
    let mut wanted = BTreeSet::new();
    let mut policy = None;
    for binding in &step.bindings {
        let version = match &binding.version {
            None => {
                versions.get(binding.asset.as_str()).map(|made| (made.asset_id.clone(), made.asset_version_id.clone()))
            }
            Some(label) => estate
                .labelled(&binding.asset, Some(label))
                .map(Version::of)
                .transpose()?
                .map(|there| (there.asset_id, there.asset_version_id)),
        };
        let (asset_id, version) = version.ok_or_else(gone)?;
        if binding.role == AssetKind::PolicyBundle {
            policy = Some(asset_id);
        }
        wanted.insert((binding.role.as_str(), version));
    }
    let release = if release.is_null() {
        let workload = crate::workload::named(server, &step.workload)?;
        let body = json!({
            "workload_id": text(&workload, "workload_id")?,
            "environment": step.environment,
            "target_lane": step.target_lane,
            "policy_bundle_id": policy,
        });
        let made = server.post(&["releases"], &body)?;
        let id = text(&made, "release_id")?;
        tell(&format!("drafted release {id} of {} for {}", step.workload, step.environment));
        made
    } else {
        release
    };
    let (id, bound) = (text(&release, "release_id")?, bound_in(&release));
    for (role, version) in wanted.iter().filter(|(_, version)| !bound.contains(&Some(version.clone()))) {
        release::bind_version(server, id, role, version)?;
    }
    // A binding has no precondition: what somebody else bound or took away at the same time is seen here.
    let made = server.get(&["releases", id], &[])?;
    if bound_in(&made) != wanted.into_iter().map(|(_, version)| Some(version)).collect() {
        return Err(stale(&format!("the draft {}", plain(id)), GONE_ON_WITH));
    }
    answer(&made)
}

fn gone() -> Failure {
    Failure::Unfit("an asset or a version that was there is gone".to_owned())
}
