//! What the author of a version should know although it is allowed.

use super::{enforcement, legacy};
use crate::asset::kind::AssetKind;
use serde::Serialize;
use serde_json::Value;

/// Something that the author of a version should know.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ContentWarning {
    /// JSON pointer to what it is about (RFC 6901), empty for the whole.
    pub pointer: String,
    /// The stable code.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// Of a legacy kind: content of its successor that says the same as far as it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversion: Option<Value>,
}

/// Everything to be told about content that has passed the checks of its kind: first that the kind is a legacy, then
/// each field that is kept and not acted on.
#[must_use]
pub fn warnings(kind: AssetKind, content: &Value) -> Vec<ContentWarning> {
    let mut warnings: Vec<ContentWarning> = legacy::successor(kind, content)
        .map(|conversion| ContentWarning {
            pointer: String::new(),
            code: "legacy_kind",
            message: "this kind is superseded by `model_policy`; `conversion` is content for one, its route pending \
                      until somebody approves it and the account slot fits a configured one"
                .to_owned(),
            conversion: Some(conversion),
        })
        .into_iter()
        .collect();
    warnings.extend(enforcement::recorded_only(kind, content).into_iter().map(|field| ContentWarning {
        pointer: field.pointer,
        code: "recorded_only",
        message: "this field is recorded; nothing reads it yet".to_owned(),
        conversion: None,
    }));
    warnings
}
