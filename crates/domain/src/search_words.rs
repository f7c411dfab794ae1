//! The words of texts and queries, in the form in which text search compares them.
//!
//! This module splits texts and queries into words, not the database. Results therefore do not depend on the locale or
//! the query syntax of the database. All characters except letters and digits separate words.

use std::collections::{BTreeMap, BTreeSet};
use unicode_normalization::UnicodeNormalization as _;

/// The maximum length of a query, in characters.
pub const MAX_QUERY_CHARS: usize = 256;
/// The maximum length of a word, in characters. Longer words are truncated.
const MAX_WORD_CHARS: usize = 64;

/// Passes each word of a text to `visit`, in lower case and in Unicode compatibility form (NFKC).
fn for_each_word(text: &str, mut visit: impl FnMut(String)) {
    let normalized: String = text.nfkc().flat_map(char::to_lowercase).nfkc().collect();
    let parts = normalized.split(|character: char| !character.is_alphanumeric());
    parts.filter(|word| !word.is_empty()).for_each(|word| visit(word.chars().take(MAX_WORD_CHARS).collect()));
}

/// The number of occurrences of each word in the texts.
#[must_use]
pub fn count_term_frequencies<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for text in texts {
        for_each_word(text, |word| {
            let count = counts.entry(word).or_default();
            *count = count.saturating_add(1);
        });
    }
    counts
}

/// The distinct words of texts, in lower case and in Unicode compatibility form (NFKC). In this form, both encodings of
/// an accented letter are equal.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WordSet(BTreeSet<String>);

impl WordSet {
    /// Collects the distinct words of the texts.
    #[must_use]
    pub fn from_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut words = BTreeSet::new();
        for text in texts {
            for_each_word(text, |word| words.extend([word]));
        }
        Self(words)
    }

    /// Whether the texts contained no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words, each of which consists only of letters and digits.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        WordSet::from_texts([text]).iter().map(str::to_owned).collect()
    }

    #[test]
    fn splits_words_at_non_alphanumerics() {
        assert_eq!(words("Ticket-Classifier, tickets (v2)!"), ["classifier", "ticket", "tickets", "v2"]);
        assert_eq!(words("caf\u{e9} cafe\u{301} CAF\u{c9}"), ["caf\u{e9}"]);
        // Lower case maps each letter to one letter; expansions such as ß to ss depend on the language and are not
        // applied.
        assert_eq!(words("Stra\u{df}e strasse \u{dc}ber"), ["strasse", "stra\u{df}e", "\u{fc}ber"]);
        assert_eq!(words("\u{ff41}\u{ff22}\u{ff11}"), ["ab1"]);
        for text in ["", "%", "_%_", "'; --", ":*&|!<->()\\"] {
            assert!(WordSet::from_texts([text]).is_empty(), "{text}");
        }
        assert_eq!(words(&"x".repeat(1_000)), ["x".repeat(64)]);
    }

    #[test]
    fn counts_words() {
        let counts = count_term_frequencies(["A rose is a rose.", "ROSE"]);
        assert_eq!(counts, [("a".to_owned(), 2), ("is".to_owned(), 1), ("rose".to_owned(), 3)].into());
    }

    proptest! {
        #[test]
        fn words_contain_only_alphanumerics(text in ".{0,200}") {
            for word in WordSet::from_texts([text.as_str()]).iter() {
                prop_assert!(!word.is_empty() && word.chars().all(char::is_alphanumeric), "{word:?}");
            }
        }
    }
}
