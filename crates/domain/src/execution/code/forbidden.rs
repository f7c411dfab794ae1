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

static LOOKS: LazyLock<Looks> =
    LazyLock::new(|| Looks { stems: STEMS.map(look), anywhere: ANYWHERE.map(look), words: WORDS.map(look) });

struct Looks {
    stems: [String; STEMS.len()],
    anywhere: [String; ANYWHERE.len()],
    words: [String; WORDS.len()],
}

/// Whether the name of a member of a request, however it is spelled, says in whose name or by which way a script is run.
/// Nobody may send such a member: who asks is told by the request, and the rest is settled by the release.
///
/// Names are compared as they look: compatibility forms (NFKD), marks, case and letters of other scripts that are drawn alike
/// make no difference, and neither does what stands between letters. Words begin behind what is no letter, and at capitals. A
/// name of more than 256 bytes is forbidden whatever it says.
#[must_use]
pub fn is_forbidden(name: &str) -> bool {
    if name.len() > MOST {
        return true;
    }
    let words = words(name);
    let whole = words.concat();
    if LOOKS.anywhere.iter().any(|stem| whole.contains(stem.as_str())) {
        return true;
    }
    let mut rest = words.as_slice();
    while let Some((_, behind)) = rest.split_first() {
        if begins(rest) || is_word(rest) {
            return true;
        }
        rest = behind;
    }
    false
}

/// Whether a stem begins here, `x` in front of it or not. It may be torn apart into several words.
fn begins(words: &[String]) -> bool {
    let here: String = words.iter().flat_map(|word| word.chars()).take(LONGEST).collect();
    let here = here.trim_start_matches('x');
    LOOKS.stems.iter().any(|stem| here.starts_with(stem.as_str()))
}

/// Whether the first words are together one that stands alone.
fn is_word(words: &[String]) -> bool {
    let mut together = String::new();
    for word in words.iter().take(LONGEST) {
        together.push_str(word);
        if LOOKS.words.contains(&together) {
            return true;
        }
    }
    false
}

/// The words of a name, as they look.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.nfkd().collect();
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = None;
    for (at, letter) in letters.iter().copied().enumerate() {
        let next = letters.get(at.saturating_add(1)).copied();
        if !letter.is_alphanumeric() || before.is_some_and(|before| is_beginning(before, letter, next)) {
            end(&mut words, &mut word);
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        before = Some(letter);
    }
    end(&mut words, &mut word);
    words
}

fn end(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(look(word));
        word.clear();
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
