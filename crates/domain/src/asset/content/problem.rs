//! A problem in the content of a version, and the maximum number of reported problems.

use serde::Serialize;

/// The maximum number of problems that a refusal contains.
pub(super) const MAX_PROBLEMS: usize = 100;

/// One problem in the content of a version, which prevents its creation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ContentProblem {
    /// The JSON pointer to the invalid value (RFC 6901); empty for the whole content.
    pub pointer: String,
    /// The stable code of the problem, such as `missing_field`.
    pub code: &'static str,
    /// The text for people. It never contains values of the content.
    pub message: String,
    /// The names that would be valid, if the problem is an unknown name; otherwise empty.
    #[serde(skip)]
    pub valid_names: Vec<String>,
}

impl ContentProblem {
    /// Creates a problem without valid names.
    #[must_use]
    pub fn new(pointer: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), code, message: message.into(), valid_names: Vec::new() }
    }

    /// Adds the names that would be valid in place of an unknown name.
    #[must_use]
    pub(crate) fn with_valid_names(mut self, names: impl Iterator<Item = impl Into<String>>) -> Self {
        self.valid_names = names.map(Into::into).collect();
        self
    }
}
