//! Email addresses, which are matched in both directions from the `@` sign.

use std::ops::Range;

/// Reports the addresses in a text, in order. Each character is read at most twice, because an address never
/// extends across a second `@` sign.
pub(super) fn find(text: &str, mut found: impl FnMut(Range<usize>)) {
    let mut done = 0;
    for (sign, _) in text.match_indices('@') {
        let local = text.get(done..sign).and_then(local_part_start).map(|begin| done + begin);
        let domain = text.get(sign + 1..).and_then(domain_end).map(|end| sign + 1 + end);
        let (Some(begin), Some(end)) = (local, domain) else { continue };
        found(begin..end);
        done = end;
    }
}

/// The start of the local part with which this text ends, if any.
fn local_part_start(text: &str) -> Option<usize> {
    let outside = |character: char| !is_local(character);
    let local = text.rsplit(outside).next()?;
    let begun = local.trim_start_matches(|character: char| !character.is_alphanumeric());
    (!begun.is_empty()).then(|| text.len() - begun.len())
}

/// Whether a character commonly occurs in a local part. The standard permits further characters.
fn is_local(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '+' | '%' | '\'' | '&' | '~')
}

/// The end of the domain with which this text starts, if any. The last label must have the form of a top-level
/// domain.
fn domain_end(text: &str) -> Option<usize> {
    let mut latest = None;
    let mut label = Label::default();
    let mut labels = 0_usize;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
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
            latest = Some(at + character.len_utf8());
        }
    }
    latest
}

/// The domain label that is currently read.
#[derive(Default)]
struct Label {
    length: usize,
    non_letters: usize,
    /// The number of characters that match the prefix `xn--`, which marks a label with non-ASCII letters.
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
