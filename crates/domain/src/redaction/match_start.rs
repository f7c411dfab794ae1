//! Positions in a text, and whether a match may start or end there.

/// Whether a character belongs to a word. Ideographs, kana and Hangul do not, because their scripts use no spaces
/// between words. Source: Unicode 16, `Scripts.txt`.
fn is_word_char(character: char) -> bool {
    let is_unspaced = matches!(character,
        '\u{1100}'..='\u{11ff}'
        | '\u{3005}'..='\u{3007}'
        | '\u{3021}'..='\u{3029}'
        | '\u{3031}'..='\u{303c}'
        | '\u{3040}'..='\u{318f}'
        | '\u{31a0}'..='\u{31bf}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}'
        | '\u{1aff0}'..='\u{1b16f}'
        | '\u{20000}'..='\u{323af}');
    character.is_alphanumeric() && !is_unspaced
}

/// A position between two characters of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position<'t> {
    text: &'t str,
    offset: usize,
    previous: Option<char>,
}

impl<'t> Position<'t> {
    pub(super) const fn start(text: &'t str) -> Self {
        Self { text, offset: 0, previous: None }
    }

    pub(super) const fn offset(self) -> usize {
        self.offset
    }

    /// The character before the position; `None` at the start of the text.
    pub(super) const fn previous_char(self) -> Option<char> {
        self.previous
    }

    pub(super) fn rest(self) -> &'t str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    pub(super) fn next_char(self) -> Option<char> {
        self.rest().chars().next()
    }

    /// The position after the next character; unchanged at the end of the text.
    pub(super) fn advance(self) -> Self {
        match self.next_char() {
            Some(next) => Self { offset: self.offset + next.len_utf8(), previous: Some(next), ..self },
            None => self,
        }
    }

    /// The position at a later offset of the same text.
    pub(super) fn advance_to(self, offset: usize) -> Self {
        let previous = self.text.get(..offset).and_then(|text| text.chars().next_back());
        Self { offset, previous, ..self }
    }

    /// The position after a match. Its previous character is the closing bracket of the mask that replaces the match.
    pub(super) const fn after_mask(self, end: usize) -> Self {
        Self { offset: end, previous: Some(']'), ..self }
    }

    /// Whether a match may start here: at the start of a word, or at a character with which some patterns start.
    pub(super) fn may_start_match(self) -> bool {
        match self.next_char() {
            Some('+' | '(' | ':') => true,
            Some(next) => next.is_ascii_alphanumeric() && self.starts_word(),
            None => false,
        }
    }

    /// Whether no word character precedes the position.
    pub(super) fn starts_word(self) -> bool {
        !self.previous.is_some_and(is_word_char)
    }

    /// The text from an offset on; `None` for an offset outside of the text.
    pub(super) fn rest_at(self, offset: usize) -> Option<&'t str> {
        self.text.get(offset..)
    }

    /// The character at an offset; `None` at the end of the text.
    pub(super) fn char_at(self, offset: usize) -> Option<char> {
        self.rest_at(offset).and_then(|rest| rest.chars().next())
    }

    /// Whether no word character follows at the offset.
    pub(super) fn ends_word(self, end: usize) -> bool {
        !self.char_at(end).is_some_and(is_word_char)
    }

    /// Whether a sentence may end before the offset: the text ends there, or a space or closing punctuation follows.
    /// The opening bracket of a mask is no closing punctuation.
    pub(super) fn ends_sentence(self, end: usize) -> bool {
        let may_follow = |next: char| matches!(next, '"' | '\'' | ')' | ']' | '}' | '>' | '/' | ',' | ';' | '%');
        self.char_at(end).is_none_or(|next| next.is_whitespace() || may_follow(next))
    }
}
