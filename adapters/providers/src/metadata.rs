//! What a provider tells about its answer, cut to what evidence has room for.

use serde_json::{Map, Value, json};

/// Longest word of metadata, in characters.
const LONGEST: usize = 200;

/// The metadata of an answer: who gave it, and what it tells about it. Never a header, so never a key.
pub(crate) fn of(provider: &str, model: Option<String>, finish_reason: Option<String>) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("provider".to_owned(), json!(provider));
    for (name, word) in [("model", model), ("finish_reason", finish_reason)] {
        if let Some(word) = word {
            metadata.insert(name.to_owned(), json!(word.chars().take(LONGEST).collect::<String>()));
        }
    }
    metadata
}
