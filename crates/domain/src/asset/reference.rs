//! References from content to other assets.

use super::{VersionLabel, kind::AssetKind};
use crate::slug::Slug;
use serde_json::Value;

/// A reference from a version's content to another asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetReference {
    /// The asset's slug.
    pub slug: Slug,
    /// The version, where one is pinned.
    pub version: Option<VersionLabel>,
    /// Where it stands, as a JSON pointer.
    pub pointer: String,
}

/// Every reference of a content to other assets.
#[must_use]
pub fn references(_kind: AssetKind, content: &Value) -> Vec<AssetReference> {
    let mut found = Vec::new();
    collect(content, String::new(), &mut found);
    found
}

fn collect(value: &Value, pointer: String, found: &mut Vec<AssetReference>) {
    match value {
        Value::Object(members) => {
            let version = members.get("version").and_then(Value::as_str).and_then(VersionLabel::parse);
            if let Some(Ok(slug)) = members.get("slug").and_then(Value::as_str).map(Slug::parse) {
                found.push(AssetReference { slug, version, pointer: pointer.clone() });
            }
            for (key, member) in members {
                collect(member, format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{pointer}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
