//! One thing that is wrong with content.

use serde::Serialize;

/// One thing that is wrong with the content of a version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ContentProblem {
    /// JSON pointer to the culprit (RFC 6901), empty for the whole.
    pub pointer: String,
    /// The stable code.
    pub code: &'static str,
    /// What is wrong, for people; never repeats values of the content.
    pub message: String,
}

impl ContentProblem {
    /// A problem at a place.
    #[must_use]
    pub fn new(pointer: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into() }
    }
}
