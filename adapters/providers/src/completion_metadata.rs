//! The metadata of a completion, truncated to the limits for evidence.

use serde_json::{Map, Value, json};

/// Maximum length of a metadata value, in characters.
const MAX_VALUE: usize = 200;

/// The metadata of a completion: provider, model and finish reason. It contains no headers, so it cannot contain
/// the API key.
pub(crate) fn of(provider: &str, model: Option<String>, finish_reason: Option<String>) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("provider".to_owned(), json!(provider));
    for (name, value) in [("model", model), ("finish_reason", finish_reason)] {
        if let Some(value) = value {
            metadata.insert(name.to_owned(), json!(value.chars().take(MAX_VALUE).collect::<String>()));
        }
    }
    metadata
}
