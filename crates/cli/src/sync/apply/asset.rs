//! Ensures that planned versions exist, even if another client creates the same versions concurrently.

use super::{
    super::{
        directory::DesiredAsset,
        plan::{AssetAction, AssetStep, stale_plan},
        remote_state::{RemoteState, string_or_empty},
    },
    CONFLICT_OUTCOME, missing,
};
use crate::{
    failure::Failure,
    http_client::{ServerClient, required_string},
    output::eprint,
};
use serde_json::{Value, json};

/// A version that releases can bind.
pub(super) struct Version {
    pub(super) asset_id: String,
    pub(super) asset_version_id: String,
    pub(super) label: String,
}

impl Version {
    pub(super) fn of(version: &Value) -> Result<Self, Failure> {
        Ok(Self {
            asset_id: required_string(version, "asset_id")?.to_owned(),
            asset_version_id: required_string(version, "asset_version_id")?.to_owned(),
            label: required_string(version, "version_label")?.to_owned(),
        })
    }
}

pub(super) fn ensure_version(
    server: &ServerClient,
    remote_state: &RemoteState,
    asset: &DesiredAsset,
    step: &AssetStep,
) -> Result<Version, Failure> {
    match step.action {
        AssetAction::Create => create(server, asset, &step.owner_ref),
        AssetAction::Version => {
            let remote_asset = remote_state.assets.get(&asset.slug).ok_or_else(missing)?;
            let known_versions = remote_state.versions.get(&asset.slug).map_or(&[][..], Vec::as_slice);
            add_version(server, asset, required_string(remote_asset, "asset_id")?, known_versions)
        }
        AssetAction::Reuse => {
            Version::of(remote_state.reusable_version(&asset.slug, &asset.checksum).ok_or_else(missing)?)
        }
    }
}

fn create(server: &ServerClient, asset: &DesiredAsset, owner_ref: &str) -> Result<Version, Failure> {
    let workspace = server.workspace_id()?;
    let (path, body) = match &asset.flow_yaml {
        Some(yaml) => {
            let body = json!({
                "slug": asset.slug, "owner_ref": owner_ref, "content_yaml": yaml, "workspace_id": workspace,
            });
            (["flows"], body)
        }
        None => {
            let body = json!({
                "slug": asset.slug, "asset_kind": asset.kind, "owner_ref": owner_ref, "workspace_id": workspace,
            });
            (["assets"], body)
        }
    };
    let created = match server.post(&path, &body) {
        Err(refused) if refused.is_refusal("duplicate_slug") => return adopt_asset(server, asset, refused),
        created => created?,
    };
    if asset.flow_yaml.is_none() {
        return add_version(server, asset, required_string(&created, "asset_id")?, &[]);
    }
    let version = Version::of(created.get("version").unwrap_or(&Value::Null))?;
    eprint(&format!("created {} {} {}", asset.kind, asset.slug, version.label));
    Ok(version)
}

/// Uses an asset that another client created after the plan, if the asset has the planned kind.
fn adopt_asset(server: &ServerClient, asset: &DesiredAsset, refused: Failure) -> Result<Version, Failure> {
    let list = server.list(&["assets"], &[("workspace_id", server.workspace_id()?)])?;
    // If the asset is not visible, it belongs to another workspace, and the server's refusal is the error.
    let existing = list.into_iter().find(|listed| string_or_empty(listed, "slug") == asset.slug).ok_or(refused)?;
    if string_or_empty(&existing, "asset_kind") != asset.kind.as_str() {
        return Err(stale_plan(&format!("asset {}", asset.slug), CONFLICT_OUTCOME));
    }
    add_version(server, asset, required_string(&existing, "asset_id")?, &[])
}

/// Adds a version after the known versions, under the label that the server would assign. A concurrent client uses the
/// same label, so the server refuses the second of two equal versions. A concurrent version with a custom label does
/// not conflict; checks before and after the request detect such versions.
fn add_version(
    server: &ServerClient,
    asset: &DesiredAsset,
    asset_id: &str,
    known_versions: &[Value],
) -> Result<Version, Failure> {
    let (workspace, label) = (server.workspace_id()?, next_label(known_versions));
    let conflict = || stale_plan(&format!("asset {}", asset.slug), CONFLICT_OUTCOME);
    let list_newest =
        |limit| server.list_first(&["assets", asset_id, "versions"], &[("workspace_id", workspace)], limit);
    let reuse_if_equal = |found: Option<Value>| {
        let equal_version = found.filter(|found| string_or_empty(found, "checksum") == asset.checksum);
        Version::of(&equal_version.ok_or_else(conflict)?)
    };
    let version_id =
        |version: Option<&Value>| version.map(|version| string_or_empty(version, "asset_version_id").to_owned());
    let newest = list_newest(1)?.into_iter().next();
    if version_id(newest.as_ref()) != version_id(known_versions.first()) {
        return reuse_if_equal(newest);
    }
    let (path, body) = match &asset.flow_yaml {
        Some(yaml) => ("flows", json!({ "content_yaml": yaml, "version_label": label, "workspace_id": workspace })),
        None => ("assets", json!({ "content": asset.content, "version_label": label, "workspace_id": workspace })),
    };
    let created = match server.post(&[path, asset_id, "versions"], &body) {
        Err(refused) if refused.is_refusal("duplicate_version_label") => {
            return reuse_if_equal(list_newest(1)?.into_iter().next());
        }
        created => created?,
    };
    let version = Version::of(&created)?;
    eprint(&format!("created {} {} {}", asset.kind, asset.slug, version.label));
    let newest = list_newest(2)?;
    if version_id(newest.first()) != version_id(Some(&created))
        || version_id(newest.get(1)) != version_id(known_versions.first())
    {
        return Err(conflict());
    }
    Ok(version)
}

/// The label that the server assigns to the next version.
pub(in super::super) fn next_label(known_versions: &[Value]) -> String {
    let numbers = known_versions
        .iter()
        .filter_map(|version| string_or_empty(version, "version_label").strip_prefix('v')?.parse().ok());
    format!("v{}", numbers.max().unwrap_or(0_u64).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_label_follows_the_highest_numbered_label() {
        let next = |labels: &[&str]| {
            next_label(&labels.iter().map(|label| json!({ "version_label": label })).collect::<Vec<_>>())
        };
        assert_eq!(next(&[]), "v1");
        assert_eq!(next(&["v2", "v1"]), "v3");
        assert_eq!(next(&["second", "v10", "v9", "", "v", "vi"]), "v11");
    }
}
