//! Converts a model request to the JSON value that hooks receive and can modify.

use super::model_call::parse_message;
use crate::execution::{
    provider::Message,
    routing::{ModelRequest, RequestKind},
};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn to_hook_payload(request: &ModelRequest) -> Value {
    match &request.kind {
        RequestKind::Embedding(text) => json!({ "text": text }),
        RequestKind::Completion => {
            let messages = request.conversation.messages.iter();
            let messages: Vec<Value> =
                messages.map(|message| json!({ "role": message.role.as_str(), "content": message.content })).collect();
            json!({ "system_prompt": request.conversation.system_prompt, "messages": messages })
        }
    }
}

/// Applies the payload that a hook modified to a request; `None` if the payload is malformed.
pub(super) fn apply_hook_payload(request: &ModelRequest, payload: &Value) -> Option<ModelRequest> {
    let mut modified = request.clone();
    match &mut modified.kind {
        RequestKind::Embedding(text) => payload.get("text")?.as_str()?.clone_into(text),
        RequestKind::Completion => {
            let mut conversation = request.conversation.as_ref().clone();
            payload.get("system_prompt")?.as_str()?.clone_into(&mut conversation.system_prompt);
            let messages = payload.get("messages")?.as_array()?;
            let mut new_messages = Vec::with_capacity(messages.len());
            for (index, entry) in messages.iter().enumerate() {
                let original = conversation.messages.get(index);
                let matching_original = original
                    .filter(|original| entry.get("role").and_then(Value::as_str) == Some(original.role.as_str()));
                new_messages.push(match matching_original {
                    // A hook can change the text of a message, but not its tool calls and their identifiers.
                    Some(original) => {
                        Message { content: entry.get("content")?.as_str()?.to_owned(), ..original.clone() }
                    }
                    None => parse_message(entry)?,
                });
            }
            conversation.messages = new_messages;
            modified.conversation = Arc::new(conversation);
        }
    }
    Some(modified)
}
