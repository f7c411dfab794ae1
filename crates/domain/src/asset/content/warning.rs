//! Warnings about valid content.

use super::{legacy_kind, recorded_fields};
use crate::asset::kind::AssetKind;
use serde::Serialize;
use serde_json::Value;

/// A warning for the author of a version.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContentWarning {
    /// JSON pointer to the field (RFC 6901); empty for the whole content.
    pub pointer: String,
    /// Stable code.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
    /// For a legacy kind: the content of an equivalent asset of the succeeding kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Value>,
}

/// Warnings about content that passed validation: first the legacy kind, then each field that is only recorded.
#[must_use]
pub fn warnings(kind: AssetKind, content: &Value) -> Vec<ContentWarning> {
    let mut warnings: Vec<ContentWarning> = legacy_kind::convert(kind, content)
        .map(|conversion| ContentWarning {
            pointer: String::new(),
            code: "legacy_kind",
            message: "`model_policy` supersedes this kind; `conversion` is equivalent content, whose route stays \
                      pending until it is approved and its account slot names a configured account"
                .to_owned(),
            conversion: Some(conversion),
        })
        .into_iter()
        .collect();
    warnings.extend(recorded_fields(kind, content).into_iter().map(|field| ContentWarning {
        pointer: field.pointer,
        code: "recorded_only",
        message: "this field is recorded but not enforced yet".to_owned(),
        conversion: None,
    }));
    warnings
}
