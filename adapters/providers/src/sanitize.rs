//! Sanitizing of model output: a NUL, which PostgreSQL cannot store in a text, becomes the replacement character.

use fairway_domain::execution::provider::ToolCall;

/// The text without NUL characters.
pub(crate) fn sanitize(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The tool call without NUL characters.
pub(crate) fn sanitize_call(call: ToolCall) -> ToolCall {
    ToolCall { id: sanitize(call.id), name: sanitize(call.name), arguments: sanitize(call.arguments) }
}
