//! Doing what a plan says, step by step, each safe to be done again.

use super::{
    directory::{Directory, WantedAsset},
    estate::Estate,
    plan::{AssetAction, AssetStep, Plan, ReleaseAction, ReleaseStep, RestAction, WorkloadAction, bound_in},
};
use crate::{
    failure::Failure,
    output::{Output, tell},
    release,
    server::{Method, Server, text},
};
use fairway_domain::asset::kind::AssetKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
        workload(server, step)?;
    }
    let mut releases = Vec::new();
    for ((manifest, _), step) in wanted.releases.iter().zip(&plan.releases) {
        let mut release = draft(server, &manifest.target_lane, step, &versions)?;
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
    let gone = || Failure::Unfit("an asset or a version that was there is gone".to_owned());
    match step.action {
        AssetAction::Create => create(server, asset),
        AssetAction::Version => {
            let found = estate.assets.get(&asset.slug).ok_or_else(gone)?;
            add_version(server, asset, text(found, "asset_id")?)
        }
        AssetAction::Reuse => Version::of(estate.version_of(&asset.slug, &asset.checksum).ok_or_else(gone)?),
    }
}

fn create(server: &Server, asset: &WantedAsset) -> Result<Version, Failure> {
    let workspace = server.workspace()?;
    let version = match &asset.flow_yaml {
        Some(yaml) => {
            let body = json!({
                "slug": asset.slug, "owner_ref": asset.owner_ref, "content_yaml": yaml, "workspace_id": workspace,
            });
            let flow = server.post(&["flows"], &body)?;
            Version::of(flow.get("version").unwrap_or(&Value::Null))?
        }
        None => {
            let body = json!({
                "slug": asset.slug, "asset_kind": asset.kind, "owner_ref": asset.owner_ref, "workspace_id": workspace,
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

fn workload(server: &Server, step: &super::plan::WorkloadStep) -> Result<(), Failure> {
    let mut fields = step.fields.clone();
    let id = match step.action {
        WorkloadAction::Keep => return Ok(()),
        WorkloadAction::Change => text(&crate::workload::named(server, &step.slug)?, "workload_id")?.to_owned(),
        WorkloadAction::Create => {
            let interface = fields.remove("interface_config");
            fields.insert("slug".to_owned(), json!(step.slug));
            fields.insert("workspace_id".to_owned(), json!(server.workspace()?));
            let made = server.post(&["workloads"], &Value::Object(std::mem::take(&mut fields)))?;
            tell(&format!("made workload {}", step.slug));
            // An interface is given to a workload that is there; where this is cut off, the next plan shows it missing.
            fields.extend(interface.map(|interface| ("interface_config".to_owned(), interface)));
            text(&made, "workload_id")?.to_owned()
        }
    };
    if !fields.is_empty() {
        server.change(&Method::PATCH, &["workloads", &id], &Value::Object(fields))?;
        tell(&format!("changed workload {}", step.slug));
    }
    Ok(())
}

/// Sees to it that there is a release with these versions: a draft, unless there is more already.
fn draft(
    server: &Server,
    target_lane: &str,
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
    let mut wanted = Vec::new();
    let mut policy = None;
    for binding in &step.bindings {
        let version = match (&binding.version, versions.get(binding.asset.as_str())) {
            (None, Some(version)) => (version.asset_id.clone(), version.asset_version_id.clone()),
            (label, _) => {
                let name =
                    label.as_ref().map_or_else(|| binding.asset.clone(), |label| format!("{}@{label}", binding.asset));
                let (asset, version) = crate::asset::version_named(server, &name)?;
                (text(&asset, "asset_id")?.to_owned(), text(&version, "asset_version_id")?.to_owned())
            }
        };
        if binding.role == AssetKind::PolicyBundle {
            policy = Some(version.0.clone());
        }
        wanted.push((binding.role, version.1));
    }
    let release = match (&step.release_id, step.action) {
        (Some(id), ReleaseAction::Keep | ReleaseAction::Complete | ReleaseAction::Draft) => {
            server.get(&["releases", id], &[])?
        }
        (None, _) => {
            let workload = crate::workload::named(server, &step.workload)?;
            let body = json!({
                "workload_id": text(&workload, "workload_id")?,
                "environment": step.environment,
                "target_lane": target_lane,
                "policy_bundle_id": policy,
            });
            let made = server.post(&["releases"], &body)?;
            tell(&format!(
                "drafted release {} of {} for {}",
                text(&made, "release_id")?,
                step.workload,
                step.environment
            ));
            made
        }
    };
    if step.action == ReleaseAction::Keep {
        return answer(&release);
    }
    let (id, bound) = (text(&release, "release_id")?, bound_in(&release));
    for (role, version) in wanted.iter().filter(|(_, version)| !bound.contains(&Some(version.clone()))) {
        release::bind_version(server, id, role.as_str(), version)?;
    }
    answer(&release)
}
