//! Words, as searches compare them.
//!
//! A text and a question are broken into words by the same function, here and not in the database, so that neither the
//! database's locale nor its query syntax has a say: whatever is no letter and no digit only parts words.

use std::collections::{BTreeMap, BTreeSet};
use unicode_normalization::UnicodeNormalization as _;

/// Longest question, in characters.
pub const MAX_QUESTION: usize = 256;
/// Longest word that is told apart from longer ones with the same beginning, in characters.
const LONGEST_WORD: usize = 64;

/// Gives every word of a text, in lower case and in the compatibility form of Unicode (NFKC).
fn each_word(text: &str, mut give: impl FnMut(String)) {
    let plain: String = text.nfkc().flat_map(char::to_lowercase).nfkc().collect();
    let parts = plain.split(|character: char| !character.is_alphanumeric());
    parts.filter(|part| !part.is_empty()).for_each(|part| give(part.chars().take(LONGEST_WORD).collect()));
}

/// How often each word stands in some texts, by the same words.
#[must_use]
pub fn counted<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for text in texts {
        each_word(text, |word| {
            let count = counts.entry(word).or_default();
            *count = count.saturating_add(1);
        });
    }
    counts
}

/// The distinct words of some texts, in lower case and in the compatibility form of Unicode (NFKC), so that both
/// spellings of an accented letter are one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words(BTreeSet<String>);

impl Words {
    /// The words of these texts.
    #[must_use]
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut words = BTreeSet::new();
        for text in texts {
            each_word(text, |word| words.extend([word]));
        }
        Self(words)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words. Each consists of letters and digits alone.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<String> {
        Words::of([text]).iter().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_what_lies_between() {
        assert_eq!(words("Ticket-Classifier, tickets (v2)!"), ["classifier", "ticket", "tickets", "v2"]);
        assert_eq!(words("caf\u{e9} cafe\u{301} CAF\u{c9}"), ["caf\u{e9}"]);
        // One for one: folding letters into others is a matter of language.
        assert_eq!(words("Stra\u{df}e strasse \u{dc}ber"), ["strasse", "stra\u{df}e", "\u{fc}ber"]);
        assert_eq!(words("\u{ff41}\u{ff22}\u{ff11}"), ["ab1"]);
        for nothing in ["", "%", "_%_", "'; --", ":*&|!<->()\\"] {
            assert!(Words::of([nothing]).is_empty(), "{nothing}");
        }
        assert_eq!(words(&"x".repeat(1_000)), ["x".repeat(64)]);
    }

    #[test]
    fn words_are_counted() {
        let counts = counted(["A rose is a rose.", "ROSE"]);
        assert_eq!(counts, [("a".to_owned(), 2), ("is".to_owned(), 1), ("rose".to_owned(), 3)].into());
    }

    proptest! {
        #[test]
        fn a_word_holds_nothing_that_a_query_language_could_read(text in ".{0,200}") {
            for word in Words::of([text.as_str()]).iter() {
                prop_assert!(!word.is_empty() && word.chars().all(char::is_alphanumeric), "{word:?}");
            }
        }
    }
}
