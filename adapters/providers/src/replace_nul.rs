//! Sanitizing of model output: a NUL, which PostgreSQL cannot store in a text, becomes the replacement character.

use fairway_domain::execution::provider::ToolCall;

/// The text without NUL characters.
pub(crate) fn replace_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The tool call without NUL characters.
pub(crate) fn replace_nul_in_call(call: ToolCall) -> ToolCall {
    ToolCall { id: replace_nul(call.id), name: replace_nul(call.name), arguments: replace_nul(call.arguments) }
}
