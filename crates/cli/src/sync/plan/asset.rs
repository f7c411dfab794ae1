//! Plans the step for an asset.

use super::{
    super::{
        directory::{DesiredAsset, Directory},
        remote_state::{RemoteState, string_or_empty},
    },
    AssetAction, AssetStep, unusable_reference,
};
use crate::failure::Finding;
use fairway_domain::{
    asset::{Lifecycle, canonical::Checksum, kind::AssetKind},
    prompt::{MAX_RENDERED_BYTES, PromptRefusal, PromptTemplate, composition::IncludedBody},
};
use serde_json::Value;
use similar::TextDiff;

/// Maximum number of lines to compare in both texts together, without the common start and end. The limit bounds the
/// time, which grows with the square of the number of lines.
const MAX_DIFF_LINES: usize = 4_000;

/// Collects the conflicts between an asset and the server's state.
pub(super) fn find_conflicts(
    asset: &DesiredAsset,
    desired: &Directory,
    remote_state: &RemoteState,
    steps: &[AssetStep],
    findings: &mut Vec<Finding>,
) {
    if let Some(remote_asset) = remote_state.assets.get(&asset.slug) {
        if string_or_empty(remote_asset, "asset_kind") != asset.kind.as_str() {
            let message = "the server has an asset with this slug and another kind";
            findings.push(asset.located.finding("/kind", "kind_mismatch", message));
        }
        let advice = match Lifecycle::parse(string_or_empty(remote_asset, "lifecycle_state")) {
            Some(Lifecycle::Active | Lifecycle::Draft) | None => None,
            Some(Lifecycle::Retired) => {
                Some("the asset is retired on the server: activate it there or use another slug")
            }
            Some(Lifecycle::Archived) => {
                Some("the asset is permanently archived on the server: remove this file or use another slug")
            }
        };
        if let Some(message) = advice {
            findings.push(asset.located.finding("/slug", "asset_not_active", message));
        }
    }
    let earlier_count = findings.len();
    let errors = asset.references.iter().filter_map(|reference| {
        unusable_reference::find_permanent_error(asset, reference, desired, remote_state, steps)
    });
    findings.extend(errors);
    if asset.kind == AssetKind::PromptTemplate && findings.len() == earlier_count {
        findings.extend(check_inclusions(asset, desired, remote_state));
    }
}

/// Predicts whether the server would refuse the inclusions of a prompt at version creation.
fn check_inclusions(asset: &DesiredAsset, desired: &Directory, remote_state: &RemoteState) -> Option<Finding> {
    let to_finding = |refusal: PromptRefusal| {
        let finding = asset.located.finding("/content/system_prompt", refusal.code(), refusal.to_string());
        finding.with_path("content.system_prompt").with_offset(refusal.offset())
    };
    let prompt = PromptTemplate::parse(&asset.content).ok()?;
    let mut bytes = 0_usize;
    for (reference, offset) in prompt.distinct_references() {
        let slug = reference.slug.as_str();
        let body = match (desired.assets.iter().find(|other| other.slug == slug), &reference.label) {
            (Some(other), None) => IncludedBody::of(other.kind, &other.content),
            (_, label) => {
                let version = remote_state.version_labelled(slug, label.as_deref());
                let kind = remote_state
                    .assets
                    .get(slug)
                    .and_then(|remote_asset| AssetKind::parse(string_or_empty(remote_asset, "asset_kind")));
                let Some((version, kind)) = version.zip(kind) else {
                    return Some(to_finding(PromptRefusal::UnknownAsset { offset }));
                };
                IncludedBody::of(kind, version.get("content").unwrap_or(&Value::Null))
            }
        };
        match body {
            Ok(body) => bytes = bytes.saturating_add(body.bytes()),
            Err(refusal) => return Some(to_finding(refusal.to_prompt_refusal(offset))),
        }
        if bytes > MAX_RENDERED_BYTES {
            return Some(to_finding(PromptRefusal::TooLarge { offset }));
        }
    }
    None
}

pub(in super::super) fn asset_step(asset: &DesiredAsset, remote_state: &RemoteState) -> AssetStep {
    let remote_asset = remote_state.assets.get(&asset.slug);
    let newest = remote_state.version_labelled(&asset.slug, None);
    let reusable = remote_state.reusable_version(&asset.slug, &asset.checksum);
    let action = match (remote_asset, reusable) {
        (None, _) => AssetAction::Create,
        (Some(_), None) => AssetAction::Version,
        (Some(_), Some(_)) => AssetAction::Reuse,
    };
    let label = |version: &Value| string_or_empty(version, "version_label").to_owned();
    let note = remote_asset.filter(|remote_asset| string_or_empty(remote_asset, "owner_ref") != asset.owner_ref);
    let has_older_equal_version =
        reusable.is_none() && remote_state.versions_with_checksum(&asset.slug, &asset.checksum).next().is_some();
    let new_flow_text = asset.flow_yaml.as_ref().filter(|_| action != AssetAction::Reuse);
    AssetStep {
        slug: asset.slug.clone(),
        kind: asset.kind,
        action,
        owner_ref: asset.owner_ref.clone(),
        checksum: asset.checksum.clone(),
        text_checksum: new_flow_text.map(|text| Checksum::blake3_of(text.as_bytes()).as_str().to_owned()),
        version: reusable.map(label),
        newest: newest.map(label),
        because: has_older_equal_version
            .then_some("an earlier version has the same content, but references resolve to the newest"),
        diff: None,
        note: note.map(|_| "the server has another owner, which is not changed"),
    }
}

/// The diff between the newest version of an asset and its planned version.
pub(super) fn asset_diff(asset: &DesiredAsset, remote_state: &RemoteState) -> String {
    let before = remote_state.version_labelled(&asset.slug, None).and_then(|version| version.get("content"));
    content_diff(before.unwrap_or(&Value::Null), &asset.content)
}

/// The line diff of content as YAML, or the number of changed lines when a diff would take too long.
///
/// The limit is a number of lines instead of a timeout, because saved plans contain the result and
/// must be reproducible.
fn content_diff(before: &Value, after: &Value) -> String {
    // An asset without a version has no content, which would appear as the line `null`.
    let yaml = |value: &Value| serde_yaml::to_string(value).unwrap_or_else(|_| value.to_string());
    let yaml_or_empty = |value: &Value| if value.is_null() { String::new() } else { yaml(value) };
    let (before, after) = (yaml_or_empty(before), yaml_or_empty(after));
    let (removed, added) = changed_line_counts(&before, &after);
    if removed + added > MAX_DIFF_LINES {
        return format!("{removed} lines become {added} others, too many to be compared line by line\n");
    }
    TextDiff::from_lines(&before, &after).unified_diff().context_radius(2).to_string()
}

/// The number of lines of each text between their common start and their common end.
fn changed_line_counts(before: &str, after: &str) -> (usize, usize) {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let count_equal =
        |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(one, other)| one == other).count();
    let start = count_equal(&mut before.iter().zip(&after));
    let end = count_equal(&mut before.iter().skip(start).rev().zip(after.iter().skip(start).rev()));
    (before.len() - start - end, after.len() - start - end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(lines: impl Iterator<Item = usize>) -> Value {
        json!({ "text": lines.map(|line| format!("line {line}\n")).collect::<String>() })
    }

    #[test]
    fn diffs_few_changed_lines_of_a_long_text() {
        let diff = content_diff(&text(0..20_000), &text((0..20_000).filter(|line| *line != 10_000)));
        assert!(diff.contains("-  line 10000\n") && diff.lines().count() < 12, "{diff}");
        assert_eq!(content_diff(&json!({ "a": 1 }), &json!({ "a": 2 })), "@@ -1 +1 @@\n-a: 1\n+a: 2\n");
    }

    #[test]
    fn diff_of_new_content_has_only_added_lines() {
        assert_eq!(content_diff(&Value::Null, &json!({ "a": 2 })), "@@ -0,0 +1 @@\n+a: 2\n");
    }

    #[test]
    fn counts_changed_lines_beyond_the_diff_limit() {
        let diff = content_diff(&text(0..20_000), &text((0..20_001).map(|line| line + 50_000)));
        assert_eq!(diff, "20000 lines become 20001 others, too many to be compared line by line\n");
    }
}
