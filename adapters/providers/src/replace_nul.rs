//! Replaces NUL characters in model output by U+FFFD, because PostgreSQL cannot store a NUL in a text.

use fairway_domain::execution::provider::ToolCall;

/// The text with each NUL replaced by U+FFFD.
pub(crate) fn replace_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The tool call with each NUL in its texts replaced by U+FFFD.
pub(crate) fn replace_nul_in_call(call: ToolCall) -> ToolCall {
    ToolCall { id: replace_nul(call.id), name: replace_nul(call.name), arguments: replace_nul(call.arguments) }
}
