//! What models say, as texts that can be kept: a NUL, which PostgreSQL takes in no text, becomes the sign for what cannot be
//! shown.

use fairway_domain::execution::provider::ToolCall;

/// A text without NUL.
pub(crate) fn readable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// The same of a call.
pub(crate) fn readable_call(call: ToolCall) -> ToolCall {
    ToolCall { id: readable(call.id), name: readable(call.name), arguments: readable(call.arguments) }
}
