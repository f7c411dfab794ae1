//! Groups of digits in a text, with the separators between them.

use super::match_start::Position;
use crate::text::is_hidden;

/// The spaces, hyphens and dots that separate the digits of a number, including non-breaking variants.
pub(super) const SEPARATORS: [char; 14] = [
    ' ', '\u{a0}', '\u{202f}', '-', '\u{2010}', '\u{2011}', '\u{2013}', '.', '\u{b7}', '\u{2022}', '\u{2219}',
    '\u{22c5}', '\u{30fb}', '\u{ff65}',
];

/// The maximum number of characters between two groups of a number. Eight characters suffice for a line break with
/// indentation and direction marks. The limit bounds the lookahead.
const MAX_GAP_CHARS: usize = 8;

/// Whether a character may separate the groups of a card number or an IBAN, in any mixture: a space, line break, tab,
/// hyphen, dot, or an invisible character. Invisible characters are those of the Unicode category Cf, and the blank
/// Braille pattern.
fn is_separator(character: char) -> bool {
    SEPARATORS.contains(&character)
        || character.is_whitespace()
        || matches!(character, '\u{2800}' | '\u{2012}' | '\u{2014}' | '\u{2015}' | '\u{2024}' | '\u{2212}')
        || matches!(character, '\u{600}'..='\u{605}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}')
        || matches!(character, '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}')
        || (!character.is_ascii() && is_hidden(character))
}

/// A run of digits in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct DigitGroup<'t> {
    /// The digits of the run.
    pub(super) digits: &'t str,
    /// The byte offset of the run's end in the text.
    pub(super) end: usize,
}

impl<'t> Position<'t> {
    /// The end of the separators that start at an offset; `None` unless there are 1 to [`MAX_GAP_CHARS`] separators.
    pub(super) fn skip_separators(self, offset: usize) -> Option<usize> {
        let rest = self.rest_at(offset)?;
        let separators = || rest.chars().take_while(|character| is_separator(*character));
        let bytes: usize = separators().take(MAX_GAP_CHARS).map(char::len_utf8).sum();
        let is_short = separators().nth(MAX_GAP_CHARS).is_none();
        (bytes > 0 && is_short).then_some(offset + bytes)
    }

    /// The digits that start at an offset. The run is cut after `limit + 1` digits, so that callers can recognize a run
    /// that is too long.
    pub(super) fn digits(self, offset: usize, limit: usize) -> Option<DigitGroup<'t>> {
        let rest = self.rest_at(offset)?;
        let count = rest.bytes().take(limit + 1).take_while(u8::is_ascii_digit).count();
        let digits = rest.get(..count).filter(|digits| !digits.is_empty())?;
        Some(DigitGroup { digits, end: offset + count })
    }
}
