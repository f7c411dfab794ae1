//! Names of request fields that code mode refuses, because such fields would select the identity or mode of a run.

use std::sync::LazyLock;
use unicode_normalization::UnicodeNormalization as _;
use unicode_security::skeleton;

/// Texts with which no word of a name may start: `my-actor-ref` and `context.actor` are forbidden, `reactor` is not.
const FORBIDDEN_PREFIXES: [&str; 5] = ["actor", "user", "subject", "caller", "identity"];
/// Texts that may not occur anywhere in a name, because no legitimate name contains them.
const FORBIDDEN_SUBSTRINGS: [&str; 8] =
    ["tenant", "principal", "delegat", "behalf", "impersonat", "executionmode", "organization", "organisation"];
/// Words that may not occur in a name, such as `runas` and the token claims `sub` and `act`.
const FORBIDDEN_WORDS: [&str; 8] = ["as", "runas", "actas", "sub", "act", "obo", "org", "mode"];
/// The number of letters that are compared at the start of a word. It exceeds the length of every forbidden prefix
/// after a few leading `x`.
const MAX_PREFIX_WINDOW: usize = 16;
/// The maximum length of a name that is compared. Longer names are always forbidden, which bounds the work.
const MAX_NAME_BYTES: usize = 256;

static PATTERNS: LazyLock<ForbiddenPatterns> = LazyLock::new(|| ForbiddenPatterns {
    prefixes: FORBIDDEN_PREFIXES.map(skeleton_of),
    substrings: FORBIDDEN_SUBSTRINGS.map(skeleton_of),
    words: FORBIDDEN_WORDS.map(skeleton_of),
    ascii_skeletons: (0..=127_u8).map(|byte| skeleton_of(char::from(byte).encode_utf8(&mut [0; 4]))).collect(),
});

struct ForbiddenPatterns {
    prefixes: [String; FORBIDDEN_PREFIXES.len()],
    substrings: [String; FORBIDDEN_SUBSTRINGS.len()],
    words: [String; FORBIDDEN_WORDS.len()],
    /// The UTS 39 skeletons of the ASCII characters, by character code. The table is a fast path for ASCII names,
    /// because the skeleton of an ASCII character does not depend on its neighbours.
    ascii_skeletons: Vec<String>,
}

/// Whether a request field with this name, in any spelling, would select the identity or mode of a script run. Such
/// fields are refused, because the request authenticates the caller and the release determines the mode.
///
/// Names are compared by their UTS 39 skeletons, which map confusable letters to one letter. The comparison ignores
/// compatibility forms (NFKD), marks, case and separators. A word starts after a non-letter and at a capital. A name of
/// more than 256 bytes is always forbidden. The cost is linear in the length.
#[must_use]
pub fn is_forbidden_request_field(name: &str) -> bool {
    name.len() > MAX_NAME_BYTES || NormalizedName::new(name).is_forbidden()
}

/// The UTS 39 skeleton of a name, without separators.
#[derive(Default, PartialEq, Eq, Debug)]
struct NormalizedName {
    letters: String,
    /// The positions of the word starts and of the end, in ascending order.
    bounds: Vec<usize>,
}

impl NormalizedName {
    fn new(name: &str) -> Self {
        if name.is_ascii() {
            return Self::split_words(name.chars(), |word, letters| {
                letters.extend(
                    word.bytes().filter_map(|byte| PATTERNS.ascii_skeletons.get(usize::from(byte))).map(String::as_str),
                );
            });
        }
        Self::from_unicode(name)
    }

    /// Normalizes a name with non-ASCII characters, whose skeletons can depend on neighbouring characters.
    fn from_unicode(name: &str) -> Self {
        Self::split_words(name.nfkd(), |word, letters| letters.extend(skeleton(word)))
    }

    fn split_words(name: impl Iterator<Item = char>, append_skeleton: impl Fn(&str, &mut String)) -> Self {
        let mut normalized = Self::default();
        let mut word = String::new();
        let mut name = name.peekable();
        let mut previous = None;
        while let Some(letter) = name.next() {
            let next = name.peek().copied();
            if !letter.is_alphanumeric() || previous.is_some_and(|previous| is_word_start(previous, letter, next)) {
                normalized.push_word(&mut word, &append_skeleton);
            }
            if letter.is_alphanumeric() {
                word.extend(letter.to_lowercase());
            }
            previous = Some(letter);
        }
        normalized.push_word(&mut word, &append_skeleton);
        normalized.bounds.push(normalized.letters.len());
        normalized
    }

    /// Appends the skeleton of a word to the name. A word with an empty skeleton is dropped.
    fn push_word(&mut self, word: &mut String, append_skeleton: impl Fn(&str, &mut String)) {
        let start = self.letters.len();
        append_skeleton(word, &mut self.letters);
        if self.letters.len() > start {
            self.bounds.push(start);
        }
        word.clear();
    }

    fn is_forbidden(&self) -> bool {
        PATTERNS.substrings.iter().any(|substring| self.letters.contains(substring.as_str()))
            || self.bounds.iter().any(|start| self.has_prefix_at(*start) || self.has_word_at(*start))
    }

    /// The letters of the name from this position to its end.
    fn tail(&self, start: usize) -> &[u8] {
        self.letters.as_bytes().get(start..).unwrap_or_default()
    }

    /// Whether a forbidden prefix starts at this position, after any number of `x`. The prefix may span several words
    /// of the name.
    fn has_prefix_at(&self, start: usize) -> bool {
        let tail = self.tail(start);
        let window = tail.get(..MAX_PREFIX_WINDOW).unwrap_or(tail);
        let leading_x = window.iter().take_while(|letter| **letter == b'x').count();
        window
            .get(leading_x..)
            .is_some_and(|window| PATTERNS.prefixes.iter().any(|prefix| window.starts_with(prefix.as_bytes())))
    }

    /// Whether a forbidden word starts at this position and ends at a word boundary. It may span several words of the
    /// name.
    fn has_word_at(&self, start: usize) -> bool {
        let tail = self.tail(start);
        PATTERNS.words.iter().any(|word| {
            tail.starts_with(word.as_bytes()) && self.bounds.binary_search(&start.saturating_add(word.len())).is_ok()
        })
    }
}

/// Whether `letter` starts a word, such as `R` in `actorRef`, `A` in `XActor` and `a` in `2actor`.
fn is_word_start(previous: char, letter: char, next: Option<char>) -> bool {
    let capital = letter.is_uppercase();
    (capital && previous.is_lowercase())
        || (capital && previous.is_uppercase() && next.is_some_and(char::is_lowercase))
        || (letter.is_alphabetic() && previous.is_numeric())
}

/// The UTS 39 skeleton of a word: its letters with confusable ones mapped to one letter.
fn skeleton_of(word: &str) -> String {
    skeleton(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ascii_fast_path_matches_unicode_normalization(name in "[ -~]{0,64}|[01a-cmxA-CMX._]{0,32}|\\PC{0,32}") {
            prop_assert_eq!(NormalizedName::new(&name), NormalizedName::from_unicode(&name));
        }
    }
}
