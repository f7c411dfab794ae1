//! Notes and reasons: free texts in which people explain a decision.

use crate::text::is_blank_or_prose;

/// The maximum length of a note or reason, in characters.
pub const MAX_NOTE_CHARS: usize = 2_000;

/// The explanation of a version, a verdict or a resolution. The store keeps the text apart from the record that it
/// explains, because free text may have to be erased.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note(String);

impl Note {
    /// Parses a text of at most [`MAX_NOTE_CHARS`] characters. It may contain line breaks and tabs, but no other
    /// control characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_blank_or_prose(text, MAX_NOTE_CHARS).then(|| Self(text.to_owned()))
    }

    /// Restores a stored note without validation, because the rules may have changed since it was accepted.
    #[must_use]
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text of the note.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts the note to its text.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_length_counts_characters() {
        assert!(Note::parse(&"ä".repeat(MAX_NOTE_CHARS)).is_some());
        assert!(Note::parse(&"a".repeat(MAX_NOTE_CHARS + 1)).is_none());
        assert!(Note::parse("a\0").is_none());
    }
}
