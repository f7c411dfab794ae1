//! A problem in the content of a version, and the maximum number of problems.

use serde::Serialize;

/// Maximum number of problems reported at once.
pub(super) const MAX_PROBLEMS: usize = 100;

/// A problem in the content of a version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ContentProblem {
    /// JSON pointer to the invalid value (RFC 6901); empty for the whole content.
    pub pointer: String,
    /// Stable code.
    pub code: &'static str,
    /// Message for people. It never contains values of the content.
    pub message: String,
    /// The names that are valid instead of an unknown name; empty for other problems.
    #[serde(skip)]
    pub valid_names: Vec<String>,
}

impl ContentProblem {
    /// Builds a problem.
    #[must_use]
    pub fn new(pointer: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into(), valid_names: Vec::new() }
    }

    /// Adds the names that are valid instead of an unknown name.
    #[must_use]
    pub(crate) fn with_valid_names(mut self, names: impl Iterator<Item = impl Into<String>>) -> Self {
        self.valid_names = names.map(Into::into).collect();
        self
    }
}
