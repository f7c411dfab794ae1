//! A place in a text where something may begin.

/// Spaces, hyphens and dots that part the digits of one number, those that do not break a line included.
pub(super) const SEPARATORS: [char; 14] = [
    ' ', '\u{a0}', '\u{202f}', '-', '\u{2010}', '\u{2011}', '\u{2013}', '.', '\u{b7}', '\u{2022}', '\u{2219}',
    '\u{22c5}', '\u{30fb}', '\u{ff65}',
];

/// A place in a text, between two characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'t> {
    text: &'t str,
    at: usize,
    before: Option<char>,
}

/// Digits that stand together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'t> {
    /// The digits.
    pub(super) digits: &'t str,
    /// Where they end in the text.
    pub(super) end: usize,
}

impl<'t> Place<'t> {
    pub(super) const fn first(text: &'t str) -> Self {
        Self { text, at: 0, before: None }
    }

    pub(super) const fn at(self) -> usize {
        self.at
    }

    /// The character in front.
    pub(super) const fn before(self) -> Option<char> {
        self.before
    }

    pub(super) fn rest(self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn next(self) -> Option<char> {
        self.rest().chars().next()
    }

    /// One character further; the end stays where it is.
    pub(super) fn forward(self) -> Self {
        match self.next() {
            Some(next) => Self { at: self.at + next.len_utf8(), before: Some(next), ..self },
            None => self,
        }
    }

    /// Further on in the same text, behind the character that ends there.
    pub(super) fn to(self, at: usize) -> Self {
        let before = self.text.get(..at).and_then(|text| text.chars().next_back());
        Self { at, before, ..self }
    }

    /// Behind what ends there and was masked.
    pub(super) const fn after_mask(self, end: usize) -> Self {
        Self { at: end, before: Some(']'), ..self }
    }

    /// Whether anything that is masked may begin here: a word, or one of the signs that forms begin with.
    pub(super) fn may_begin(self) -> bool {
        match self.next() {
            Some('+' | '(' | ':') => true,
            Some(next) => next.is_ascii_alphanumeric() && self.begins_word(),
            None => false,
        }
    }

    /// Whether no letter and no digit stands in front.
    pub(super) fn begins_word(self) -> bool {
        !self.before.is_some_and(char::is_alphanumeric)
    }

    /// The character at an offset.
    pub(super) fn character(self, at: usize) -> Option<char> {
        self.text.get(at..).and_then(|rest| rest.chars().next())
    }

    /// Whether neither a letter nor a digit follows there.
    pub(super) fn ends_word(self, end: usize) -> bool {
        !self.character(end).is_some_and(char::is_alphanumeric)
    }

    /// Whether a sentence may go on behind a sign that ends there: nothing, a space, or a sign of such a kind follows.
    /// The opening bracket of a mask is none of these.
    pub(super) fn ends_sentence(self, end: usize) -> bool {
        let goes_on = |next: char| matches!(next, '"' | '\'' | ')' | ']' | '}' | '>' | '/' | ',' | ';' | '%');
        self.character(end).is_none_or(|next| next.is_whitespace() || goes_on(next))
    }

    /// The digits that stand there, at most so many and one more.
    pub(super) fn digits(self, from: usize, most: usize) -> Option<Group<'t>> {
        let rest = self.text.get(from..)?;
        let count = rest.bytes().take(most + 1).take_while(u8::is_ascii_digit).count();
        let digits = rest.get(..count).filter(|digits| !digits.is_empty())?;
        Some(Group { digits, end: from + count })
    }
}
