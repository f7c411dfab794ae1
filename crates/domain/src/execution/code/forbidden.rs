//! Names of members that say in whose name a script is run, or in which way.

use std::sync::LazyLock;
use unicode_normalization::UnicodeNormalization as _;
use unicode_security::skeleton;

/// What says it wherever a word begins: `my-actor-ref` and `context.actor` do, `reactor` does not.
const STEMS: [&str; 5] = ["actor", "user", "subject", "caller", "identity"];
/// What says it wherever it stands, because no other name has these letters in a row.
const ANYWHERE: [&str; 8] =
    ["tenant", "principal", "delegat", "behalf", "impersonat", "executionmode", "organization", "organisation"];
/// What says it as a word of its own: `run_as`, and the `sub` and `act` of tokens.
const WORDS: [&str; 8] = ["as", "runas", "actas", "sub", "act", "obo", "org", "mode"];
/// More letters than a stem or a word has, and a few `x` in front of them.
const LONGEST: usize = 16;
/// Bytes of a name beyond which nobody looks: whoever sends one hides something, or makes work.
const MOST: usize = 256;

static LOOKS: LazyLock<Looks> = LazyLock::new(|| Looks {
    stems: STEMS.map(look),
    anywhere: ANYWHERE.map(look),
    words: WORDS.map(look),
    plain: (0..=127_u8).map(|byte| look(char::from(byte).encode_utf8(&mut [0; 4]))).collect(),
});

struct Looks {
    stems: [String; STEMS.len()],
    anywhere: [String; ANYWHERE.len()],
    words: [String; WORDS.len()],
    /// Of ASCII, by its codes: most names hold nothing else, and it looks the same wherever it stands.
    plain: Vec<String>,
}

/// Whether the name of a member of a request, however it is spelled, says in whose name or by which way a script is run.
/// Nobody may send such a member: who asks is told by the request, and the rest is settled by the release.
///
/// Names are compared as they look: compatibility forms (NFKD), marks, case and letters of other scripts that are drawn alike
/// make no difference, and neither does what stands between letters. Words begin behind what is no letter, and at capitals. A
/// name of more than 256 bytes is forbidden whatever it says. The work grows with the length of the name and no faster.
#[must_use]
pub fn is_forbidden(name: &str) -> bool {
    name.len() > MOST || Spelling::of(name).is_forbidden()
}

/// The letters of a name as they look, with nothing between them.
#[derive(Default, PartialEq, Eq, Debug)]
struct Spelling {
    letters: String,
    /// Where words begin, and where the last one ends; in order.
    bounds: Vec<usize>,
}

impl Spelling {
    fn of(name: &str) -> Self {
        if name.is_ascii() {
            return Self::read(name.chars(), |word, letters| {
                letters.extend(word.bytes().filter_map(|byte| LOOKS.plain.get(usize::from(byte))).map(String::as_str));
            });
        }
        Self::of_any(name)
    }

    /// The same for letters of every script, which may become others and look different beside each other.
    fn of_any(name: &str) -> Self {
        Self::read(name.nfkd(), |word, letters| letters.extend(skeleton(word)))
    }

    fn read(name: impl Iterator<Item = char>, look: impl Fn(&str, &mut String)) -> Self {
        let mut spelling = Self::default();
        let mut word = String::new();
        let mut name = name.peekable();
        let mut before = None;
        while let Some(letter) = name.next() {
            let next = name.peek().copied();
            if !letter.is_alphanumeric() || before.is_some_and(|before| is_beginning(before, letter, next)) {
                spelling.end(&mut word, &look);
            }
            if letter.is_alphanumeric() {
                word.extend(letter.to_lowercase());
            }
            before = Some(letter);
        }
        spelling.end(&mut word, &look);
        spelling.bounds.push(spelling.letters.len());
        spelling
    }

    /// Takes a word over. One that cannot be seen is none.
    fn end(&mut self, word: &mut String, look: impl Fn(&str, &mut String)) {
        let begin = self.letters.len();
        look(word, &mut self.letters);
        if self.letters.len() > begin {
            self.bounds.push(begin);
        }
        word.clear();
    }

    fn is_forbidden(&self) -> bool {
        LOOKS.anywhere.iter().any(|stem| self.letters.contains(stem.as_str()))
            || self.bounds.iter().any(|begin| self.begins(*begin) || self.is_word(*begin))
    }

    /// What is left of the letters.
    fn behind(&self, begin: usize) -> &[u8] {
        self.letters.as_bytes().get(begin..).unwrap_or_default()
    }

    /// Whether a stem begins here, `x` in front of it or not. It may be torn apart into several words.
    fn begins(&self, begin: usize) -> bool {
        let behind = self.behind(begin);
        let here = behind.get(..LONGEST).unwrap_or(behind);
        let crosses = here.iter().take_while(|letter| **letter == b'x').count();
        here.get(crosses..).is_some_and(|here| LOOKS.stems.iter().any(|stem| here.starts_with(stem.as_bytes())))
    }

    /// Whether the words from here on begin with some that are together one that stands alone.
    fn is_word(&self, begin: usize) -> bool {
        let behind = self.behind(begin);
        LOOKS.words.iter().any(|word| {
            behind.starts_with(word.as_bytes()) && self.bounds.binary_search(&begin.saturating_add(word.len())).is_ok()
        })
    }
}

/// Whether a word begins with a letter: `actorRef`, `XActor`, `2actor`.
fn is_beginning(before: char, letter: char, next: Option<char>) -> bool {
    let capital = letter.is_uppercase();
    (capital && before.is_lowercase())
        || (capital && before.is_uppercase() && next.is_some_and(char::is_lowercase))
        || (letter.is_alphabetic() && before.is_numeric())
}

/// What a word looks like, whichever scripts its letters are of (UTS 39).
fn look(word: &str) -> String {
    skeleton(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_short_way_reads_as_the_long_one_does(name in "[ -~]{0,64}|[01a-cmxA-CMX._]{0,32}|\\PC{0,32}") {
            prop_assert_eq!(Spelling::of(&name), Spelling::of_any(&name));
        }
    }
}
