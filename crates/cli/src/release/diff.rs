//! Compares the bindings of a release with those of another release, by default the release that serves the lane.

use super::ReleaseArgument;
use crate::{
    asset, dynamic_completion,
    failure::Failure,
    http_client::{ServerClient, required_string, string_or_empty},
    output::{Column, Output, print},
    release_and_run_references::find_release,
};
use clap::{Args, builder::PossibleValuesParser};
use fairway_domain::release::lane::Lane;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: [Column; 5] =
    [("CHANGE", "/change"), ("ROLE", "/role"), ("ASSET", "/asset"), ("FROM", "/from"), ("TO", "/to")];

/// Arguments of `releases diff`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    release: ReleaseArgument,
    /// The release to compare with; else the one that serves
    #[arg(long, value_name = "RELEASE", add = dynamic_completion::releases(), conflicts_with = "lane")]
    with: Option<String>,
    /// The lane whose release to compare with; else the most general one that is served
    #[arg(long, value_parser = PossibleValuesParser::new(Lane::ALL.map(Lane::as_str)))]
    lane: Option<String>,
}

/// A version that a release binds, for the comparison.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct BoundVersion {
    role: String,
    asset: String,
    label: String,
}

pub(super) fn show(server: &ServerClient, output: Output, arguments: &Arguments) -> Result<(), Failure> {
    let release = server.get(&["releases", &arguments.release.find(server)?], &[])?;
    let base = base(server, &release, arguments)?;
    let versions = name_versions(server, &[&release, &base])?;
    let changes = compare(&bound_versions(&base, &versions), &bound_versions(&release, &versions));
    let id = |release: &Value| release.get("release_id").cloned().unwrap_or_default();
    if !output.is_for_people() {
        return output.record(&json!({ "release_id": id(&release), "base_release_id": id(&base), "changes": changes }));
    }
    let heading = if base.is_null() {
        "no release serves this environment".to_owned()
    } else {
        format!("compared with {} ({})", string_or_empty(&base, "release_id"), string_or_empty(&base, "state"))
    };
    print(&heading)?;
    if changes.is_empty() {
        return print("the same versions are bound");
    }
    output.list(&changes, &COLUMNS)?;
    let changed = changes.iter().find(|change| string_or_empty(change, "change") == "changed");
    if let Some(change) = changed {
        let text = |name| string_or_empty(change, name);
        output.hint(&format!("fairway assets diff {} {} {}", text("asset"), text("from"), text("to")));
    }
    Ok(())
}

/// The release to compare with; JSON `null` when no release serves the lane.
fn base(server: &ServerClient, release: &Value, arguments: &Arguments) -> Result<Value, Failure> {
    if let Some(reference) = &arguments.with {
        return server.get(&["releases", &find_release(server, reference)?], &[]);
    }
    let mut query = vec![("environment", required_string(release, "environment")?)];
    query.extend(arguments.lane.as_deref().map(|lane| ("lane", lane)));
    let path = ["workloads", required_string(release, "workload_id")?, "active-release"];
    Ok(server.find(&path, &query)?.unwrap_or_default())
}

fn bindings(release: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = release.get("bindings").and_then(Value::as_array).into_iter().flatten();
    all.map(|binding| (string_or_empty(binding, "role"), string_or_empty(binding, "asset_version_id")))
}

/// The asset slug and the label of each version that the releases bind, by version id. A binding contains only the id,
/// so this function searches the versions of all assets of the kind.
fn name_versions(server: &ServerClient, releases: &[&Value]) -> Result<BTreeMap<String, (String, String)>, Failure> {
    let mut versions_by_kind: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (role, version) in releases.iter().flat_map(|release| bindings(release)) {
        versions_by_kind.entry(role).or_default().insert(version);
    }
    let mut names = BTreeMap::new();
    for (kind, mut missing) in versions_by_kind {
        let query = [("workspace_id", server.workspace_id()?), ("asset_kind", kind)];
        for asset in server.list(&["assets"], &query)? {
            if missing.is_empty() {
                break;
            }
            for version in asset::list_versions(server, &asset)? {
                let id = string_or_empty(&version, "asset_version_id");
                if missing.remove(id) {
                    let label = string_or_empty(&version, "version_label").to_owned();
                    names.insert(id.to_owned(), (string_or_empty(&asset, "slug").to_owned(), label));
                }
            }
        }
    }
    Ok(names)
}

/// The bound versions in a stable order. The id replaces the name of a version that is not visible to the caller.
fn bound_versions(release: &Value, versions: &BTreeMap<String, (String, String)>) -> BTreeSet<BoundVersion> {
    let name = |(role, id): (&str, &str)| {
        let (asset, label) = versions.get(id).cloned().unwrap_or_else(|| (id.to_owned(), "-".to_owned()));
        BoundVersion { role: role.to_owned(), asset, label }
    };
    bindings(release).map(name).collect()
}

fn compare(base: &BTreeSet<BoundVersion>, release: &BTreeSet<BoundVersion>) -> Vec<Value> {
    let (removed, added): (Vec<_>, Vec<_>) = (base.difference(release).collect(), release.difference(base).collect());
    let counterpart = |version: &BoundVersion, others: &[&BoundVersion]| {
        others
            .iter()
            .find(|other| other.role == version.role && other.asset == version.asset)
            .map(|other| other.label.clone())
    };
    let row = |change: &str, version: &BoundVersion, from: Option<String>, to: Option<String>| json!({ "change": change, "role": version.role, "asset": version.asset, "from": from, "to": to });
    let mut changes = Vec::new();
    for version in &removed {
        let to = counterpart(version, &added);
        changes.push(row(if to.is_some() { "changed" } else { "removed" }, version, Some(version.label.clone()), to));
    }
    for version in added.iter().filter(|version| counterpart(version, &removed).is_none()) {
        changes.push(row("added", version, None, Some(version.label.clone())));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_bindings_by_asset() {
        let set = |tuples: &[(&str, &str, &str)]| {
            let to_version = |(role, asset, label): &(&str, &str, &str)| BoundVersion {
                role: (*role).to_owned(),
                asset: (*asset).to_owned(),
                label: (*label).to_owned(),
            };
            tuples.iter().map(to_version).collect::<BTreeSet<_>>()
        };
        let base = set(&[("prompt_template", "p", "v1"), ("skill", "a", "v1"), ("policy_bundle", "b", "v3")]);
        let release = set(&[("prompt_template", "p", "v2"), ("skill", "c", "v1"), ("policy_bundle", "b", "v3")]);
        assert_eq!(
            compare(&base, &release),
            [
                json!({ "change": "changed", "role": "prompt_template", "asset": "p", "from": "v1", "to": "v2" }),
                json!({ "change": "removed", "role": "skill", "asset": "a", "from": "v1", "to": null }),
                json!({ "change": "added", "role": "skill", "asset": "c", "from": null, "to": "v1" }),
            ]
        );
        assert_eq!(compare(&base, &base), Vec::<Value>::new());
    }
}
