//! Warnings about content that is valid.

use super::{legacy_kind, recorded_fields};
use crate::asset::kind::AssetKind;
use serde::Serialize;
use serde_json::Value;

/// A warning about valid content, for the author of the version.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContentWarning {
    /// The JSON pointer to the field (RFC 6901); empty for the whole content.
    pub pointer: String,
    /// The stable code of the warning.
    pub code: &'static str,
    /// The text that explains the warning to people.
    pub message: String,
    /// The content of an equivalent asset of the newer kind, if this kind is a legacy one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Value>,
}

/// The warnings about content that passed the validation: first for a legacy kind, then for each recorded field.
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
