//! The model request in the form that hooks receive and modify.

use super::model_call::parse_message;
use crate::execution::{
    provider::Message,
    routing::{ModelRequest, RequestKind},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Converts a request into its hook payload.
pub(super) fn to_hook_payload(question: &ModelRequest) -> Value {
    match &question.kind {
        RequestKind::Embedding(text) => json!({ "text": text }),
        RequestKind::Completion => {
            let messages = question.conversation.messages.iter();
            let messages: Vec<Value> =
                messages.map(|message| json!({ "role": message.role.as_str(), "content": message.content })).collect();
            json!({ "system_prompt": question.conversation.system_prompt, "messages": messages })
        }
    }
}

/// Applies a modified hook payload to a request; `None` when the payload is malformed.
pub(super) fn apply_hook_payload(question: &ModelRequest, words: &Value) -> Option<ModelRequest> {
    let mut restated = question.clone();
    match &mut restated.kind {
        RequestKind::Embedding(text) => words.get("text")?.as_str()?.clone_into(text),
        RequestKind::Completion => {
            let mut conversation = question.conversation.as_ref().clone();
            words.get("system_prompt")?.as_str()?.clone_into(&mut conversation.system_prompt);
            let messages = words.get("messages")?.as_array()?;
            let mut new_messages = Vec::with_capacity(messages.len());
            for (place, entry) in messages.iter().enumerate() {
                let original = conversation.messages.get(place);
                let same = original
                    .filter(|original| entry.get("role").and_then(Value::as_str) == Some(original.role.as_str()));
                new_messages.push(match same {
                    // A hook cannot change tool calls or tool call ids.
                    Some(original) => {
                        Message { content: entry.get("content")?.as_str()?.to_owned(), ..original.clone() }
                    }
                    None => parse_message(entry)?,
                });
            }
            conversation.messages = new_messages;
            restated.conversation = Arc::new(conversation);
        }
    }
    Some(restated)
}
