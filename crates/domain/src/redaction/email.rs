//! Email addresses, matched in both directions from the `@` sign.

use std::ops::Range;

/// Reports the addresses of a text in order. Each character is read at most twice, because no address extends across
/// another `@` sign.
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

/// Start of the local part that ends this text.
fn local_part_start(text: &str) -> Option<usize> {
    let outside = |character: char| !is_local(character);
    let local = text.rsplit(outside).next()?;
    let begun = local.trim_start_matches(|character: char| !character.is_alphanumeric());
    (!begun.is_empty()).then(|| text.len() - begun.len())
}

/// The common characters of a local part; the standard permits more.
fn is_local(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '+' | '%' | '\'' | '&' | '~')
}

/// End of the domain that starts this text: the last label of letters after a full stop.
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

/// A domain label being read.
#[derive(Default)]
struct Label {
    length: usize,
    non_letters: usize,
    /// Number of matched characters of the prefix `xn--`, which marks letters beyond ASCII.
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
