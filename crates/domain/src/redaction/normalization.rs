//! Normalization of characters that disguise personal data from patterns, but not from people. Examples are zero-width
//! characters and soft hyphens between digits, control characters, full-width or non-Latin digits and punctuation, and
//! combining marks.
//!
//! Patterns are matched in the normalized text, and their matches are replaced in the original text.

use std::{borrow::Cow, ops::Range};

/// The digit zero of each supported script; the digits one to nine follow it in Unicode.
const SCRIPT_ZEROS: [char; 16] = [
    '\u{660}', '\u{6f0}', '\u{966}', '\u{9e6}', '\u{a66}', '\u{ae6}', '\u{b66}', '\u{be6}', '\u{c66}', '\u{ce6}',
    '\u{d66}', '\u{e50}', '\u{ed0}', '\u{f20}', '\u{1040}', '\u{17e0}',
];

/// The visible ASCII equivalent of a character, or the character itself if it has none; `None` for an invisible
/// character.
fn visible_char(character: char) -> Option<char> {
    if character.is_ascii() {
        return (!is_hidden(character)).then_some(character);
    }
    Some(match character {
        _ if is_hidden(character) => return None,
        // Full-width forms have the same order as ASCII.
        '\u{ff01}'..='\u{ff5e}' => ascii(u32::from(character) - 0xff01 + 0x21)?,
        // There are five styles of mathematical digits, with ten digits each.
        '\u{1d7ce}'..='\u{1d7ff}' => ascii((u32::from(character) - 0x1d7ce) % 10 + 0x30)?,
        '\u{2000}'..='\u{200a}' | '\u{205f}' | '\u{3000}' => ' ',
        '\u{2012}' | '\u{2014}' | '\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' => '-',
        '\u{2024}' | '\u{3002}' | '\u{fe52}' | '\u{ff61}' => '.',
        '\u{fe6b}' => '@',
        _ => ascii_digit(character).unwrap_or(character),
    })
}

/// Whether a character is invisible and does not separate the words beside it.
const fn is_hidden(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{20d0}'..='\u{20f0}' | '\u{fe00}'..='\u{fe0f}')
        || (crate::text::is_hidden(character)
            && !matches!(character, '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'))
}

fn ascii(code: u32) -> Option<char> {
    char::from_u32(code)
}

fn ascii_digit(character: char) -> Option<char> {
    let value = SCRIPT_ZEROS
        .iter()
        .find_map(|zero| u32::from(character).checked_sub(u32::from(*zero)).filter(|value| *value < 10))?;
    char::from_digit(value, 10)
}

/// Replaces disguised characters by their visible equivalents, and removes invisible characters. Text without such
/// characters is borrowed.
pub(super) fn normalize(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii() && !is_hidden(char::from(byte));
    if text.bytes().all(is_plain) || text.chars().all(|character| visible_char(character) == Some(character)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter_map(visible_char).collect())
}

/// Replaces parts of the original text that match a pattern in the normalized text.
pub(super) struct Replacer<'t> {
    text: &'t str,
    normalized: &'t str,
    /// The offset in the original text up to which the output is already written.
    position: usize,
    /// The offset in the normalized text that corresponds to `position`.
    normalized_position: usize,
    output: String,
}

impl<'t> Replacer<'t> {
    /// Starts with an empty output. `normalized` must be the same string as `text` if nothing is disguised.
    pub(super) fn new(text: &'t str, normalized: &'t str) -> Self {
        Self { text, normalized, position: 0, normalized_position: 0, output: String::with_capacity(text.len()) }
    }

    /// Writes the text before the range, and then the replacement; `None` writes the range itself. Returns whether the
    /// range is disguised, that is, differs in the original text.
    pub(super) fn replace(&mut self, range: Range<usize>, replacement: Option<&str>) -> bool {
        let start = self.original_offset(range.start, self.position, self.normalized_position, Edge::Start);
        let end = self.original_offset(range.end, start, range.start, Edge::End);
        let original = self.text.get(start..end).unwrap_or_default();
        self.output.push_str(self.text.get(self.position..start).unwrap_or_default());
        self.output.push_str(replacement.unwrap_or(original));
        (self.position, self.normalized_position) = (end, range.end);
        self.normalized.get(range).is_some_and(|normalized| normalized != original)
    }

    /// Writes the rest of the original text, and returns the output.
    pub(super) fn finish(mut self) -> String {
        self.output.push_str(self.text.get(self.position..).unwrap_or_default());
        self.output
    }

    /// Maps the offset `target` of the normalized text to the original text. `offset` and `normalized_offset` are a
    /// known pair of corresponding offsets before it.
    fn original_offset(&self, target: usize, mut offset: usize, mut normalized_offset: usize, edge: Edge) -> usize {
        if self.text.len() == self.normalized.len() && self.text.as_ptr() == self.normalized.as_ptr() {
            return target;
        }
        for character in self.text.get(offset..).unwrap_or_default().chars() {
            let visible_bytes = visible_char(character).map_or(0, char::len_utf8);
            // Invisible characters belong to the visible character before them.
            if normalized_offset >= target && (edge == Edge::End || visible_bytes > 0) {
                break;
            }
            offset += character.len_utf8();
            normalized_offset += visible_bytes;
        }
        offset
    }
}

/// Which end of a range an offset belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Start,
    End,
}
