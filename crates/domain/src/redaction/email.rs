//! Email addresses. A match is extended in both directions from an `@` sign.

use std::ops::Range;

/// Reports the addresses in a text, in text order. Each character is read at most twice, because an address ends before
/// the next `@` sign.
pub(super) fn find(text: &str, mut report: impl FnMut(Range<usize>)) {
    let mut searched_end = 0;
    for (sign, _) in text.match_indices('@') {
        let local = text.get(searched_end..sign).and_then(local_part_start).map(|start| searched_end + start);
        let domain = text.get(sign + 1..).and_then(domain_end).map(|end| sign + 1 + end);
        let (Some(start), Some(end)) = (local, domain) else { continue };
        report(start..end);
        searched_end = end;
    }
}

/// The start of the local part (before the `@`) that ends this text, if any.
fn local_part_start(text: &str) -> Option<usize> {
    let is_outside = |character: char| !is_local(character);
    let local = text.rsplit(is_outside).next()?;
    let trimmed = local.trim_start_matches(|character: char| !character.is_alphanumeric());
    (!trimmed.is_empty()).then(|| text.len() - trimmed.len())
}

/// Whether a character commonly occurs in a local part. The standard permits more characters.
fn is_local(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '+' | '%' | '\'' | '&' | '~')
}

/// The end of the domain that starts this text, if any. Its last label must have the form of a top-level domain.
fn domain_end(text: &str) -> Option<usize> {
    let mut latest = None;
    let mut label = Label::default();
    let mut labels = 0_usize;
    let mut characters = text.char_indices().peekable();
    while let Some((offset, character)) = characters.next() {
        match character {
            '.' if label.length > 0 => {
                labels += 1;
                label = Label::default();
            }
            '-' if label.length > 0 => label.push(character),
            _ if character.is_alphanumeric() => label.push(character),
            _ => break,
        }
        let word_ends = !characters.peek().is_some_and(|(_, next)| next.is_alphanumeric());
        if labels > 0 && word_ends && label.is_top_level() {
            latest = Some(offset + character.len_utf8());
        }
    }
    latest
}

/// The label of a domain that is being read.
#[derive(Default)]
struct Label {
    length: usize,
    non_letters: usize,
    /// How many characters match the prefix `xn--` so far. This prefix marks a label with non-ASCII letters.
    punycode_prefix: usize,
}

impl Label {
    fn push(&mut self, character: char) {
        if "xn--".chars().nth(self.length).is_some_and(|expected| expected == character.to_ascii_lowercase()) {
            self.punycode_prefix += 1;
        }
        self.length += 1;
        if !character.is_alphabetic() {
            self.non_letters += 1;
        }
    }

    fn is_top_level(&self) -> bool {
        self.length >= 2 && (self.non_letters == 0 || (self.punycode_prefix == 4 && self.length > 4))
    }
}
