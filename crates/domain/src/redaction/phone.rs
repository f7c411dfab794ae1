//! Phone numbers in a distinctive notation: with an international prefix, with a trunk prefix, or in the format of the
//! North American Numbering Plan.

use super::{card, digit_group::SEPARATORS, match_start::Position, normalization::normalize};
use std::ops::RangeInclusive;

/// The number of digits of an international number with its country code (ITU-T E.164). Shorter numbers exist, but a
/// sign with fewer digits is more likely an integer.
const INTERNATIONAL_DIGITS: RangeInclusive<usize> = 8..=15;
/// The number of digits of a national number with its trunk prefix.
const NATIONAL_DIGITS: RangeInclusive<usize> = 9..=12;
/// The number of digits of a national number without separators. Numbers of other lengths are more likely to be
/// identifiers.
const UNSEPARATED_DIGITS: RangeInclusive<usize> = 10..=11;
/// The number of digits of a value whose key indicates a phone number.
const NAMED_DIGITS: RangeInclusive<usize> = 6..=15;
/// The maximum length of a value whose key indicates a phone number, in bytes.
const MAX_NAMED_BYTES: usize = 60;
/// The maximum number of digit groups in a phone number.
const MAX_GROUPS: usize = 8;

/// The end of the phone number that starts at this position, if any.
pub(super) fn match_end(position: Position<'_>) -> Option<usize> {
    match position.next_char()? {
        '+' => match_international(position, position.offset() + 1),
        '(' => match_national(position, position.offset()),
        // After these characters, digits belong to fractions, dates or longer numbers.
        _ if !position.starts_word() || matches!(position.previous_char(), Some('-' | '.' | '/' | ',')) => None,
        '0' if position.rest().starts_with("00") => match_international(position, position.offset() + 2),
        // Reading the first group suffices to exclude most numbers in a text.
        '0'..='9' => match position.digits(position.offset(), *UNSEPARATED_DIGITS.end())?.digits {
            "0" => None,
            "1" => match_national(position, position.offset()),
            digits if digits.len() == 3 || digits.starts_with('0') => match_national(position, position.offset()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the key of an object member indicates that its value is a phone number.
pub(super) fn names_phone(key: &str) -> bool {
    let letters: String = key.chars().filter(|letter| letter.is_alphabetic()).flat_map(char::to_lowercase).collect();
    matches!(letters.as_str(), "tel" | "cell" | "fax")
        || ["phone", "mobile", "telefon"].iter().any(|name| letters.contains(name))
}

/// Whether a text consists only of the digits and separators of a phone number.
pub(super) fn is_bare_number(text: &str) -> bool {
    let is_sign = |sign: char| SEPARATORS.contains(&sign) || matches!(sign, '+' | '.' | '/' | '(' | ')');
    let text = normalize(text);
    text.len() <= MAX_NAMED_BYTES
        && NAMED_DIGITS.contains(&text.bytes().filter(u8::is_ascii_digit).count())
        && text.chars().all(|sign| sign.is_ascii_digit() || is_sign(sign))
}

fn match_international(position: Position<'_>, start: usize) -> Option<usize> {
    longest_match(position, start, |number| {
        !number.digits.starts_with('0') && INTERNATIONAL_DIGITS.contains(&number.digits.len())
    })
}

fn match_national(position: Position<'_>, start: usize) -> Option<usize> {
    longest_match(position, start, |number| {
        if number.is_inconsistent {
            return false;
        }
        match number.lengths.as_slice() {
            [3, 3, 4] => number.digits.starts_with(|first| first > '1') || is_trunk(number),
            [1, 3, 3, 4] => number.digits.starts_with('1') && !number.digits.starts_with("10"),
            [_] => is_trunk(number) && UNSEPARATED_DIGITS.contains(&number.digits.len()),
            [1, ..] => false,
            _ => is_trunk(number) && NATIONAL_DIGITS.contains(&number.digits.len()),
        }
    })
}

fn is_trunk(number: &DigitGroups) -> bool {
    number.digits.starts_with('0') && !number.digits.starts_with("00")
}

/// The digit groups of a number, as far as they were read.
#[derive(Default)]
struct DigitGroups {
    digits: String,
    lengths: Vec<usize>,
    /// The separator after the second group, which all later groups must use too.
    separator: Option<Separator>,
    separators: usize,
    /// Whether the groups use different separators, as in `01-02-2024 10`, which is a date and an hour.
    is_inconsistent: bool,
}

/// The end of the longest phone number that starts at this position, if any. Reading stops where the separators become
/// inconsistent. It also stops before a card number, so that no part of a card number remains unmasked.
fn longest_match(position: Position<'_>, start: usize, is_number: impl Fn(&DigitGroups) -> bool) -> Option<usize> {
    let (mut groups, mut latest) = (DigitGroups::default(), None);
    let mut is_open = position.char_at(start) == Some('(');
    let mut offset = if is_open { start + 1 } else { start };
    while let Some(group) = position.digits(offset, *INTERNATIONAL_DIGITS.end()) {
        let begins_card = !groups.lengths.is_empty() && card::match_end(position.advance_to(offset)).is_some();
        if begins_card || groups.digits.len() + group.digits.len() > *INTERNATIONAL_DIGITS.end() {
            break;
        }
        groups.digits.push_str(group.digits);
        groups.lengths.push(group.digits.len());
        // A single digit at the end is more likely a separate number.
        let is_tail = groups.lengths.len() > 2 && group.digits.len() == 1;
        if !is_open && !is_tail && position.ends_word(group.end) && is_number(&groups) {
            latest = Some(group.end);
        }
        let Some((separator, end)) = read_separator(position, group.end) else { break };
        match separator {
            Separator::Opening if !is_open => is_open = true,
            Separator::Closing if is_open => is_open = false,
            Separator::Opening | Separator::Closing => break,
            Separator::Sign(_) => groups.add_separator(separator),
        }
        if groups.lengths.len() == MAX_GROUPS {
            break;
        }
        offset = end;
    }
    latest
}

impl DigitGroups {
    fn add_separator(&mut self, separator: Separator) {
        self.separators += 1;
        if self.separators == 2 {
            self.separator = Some(separator);
        }
        self.is_inconsistent |= self.separators > 2 && self.separator != Some(separator);
    }
}

/// The separator between two digit groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Separator {
    /// An opening parenthesis.
    Opening,
    /// A closing parenthesis.
    Closing,
    /// This space, hyphen, dot or slash.
    Sign(char),
}

/// The separator after a digit group, with the start of the next group.
fn read_separator(position: Position<'_>, start: usize) -> Option<(Separator, usize)> {
    let sign = |offset: usize| {
        let next = position.char_at(offset)?;
        let normalized = match next {
            ' ' | '\u{a0}' | '\u{202f}' => ' ',
            '.' | '/' | '(' | ')' => next,
            _ if SEPARATORS.contains(&next) => '-',
            _ => return None,
        };
        Some((normalized, offset + next.len_utf8()))
    };
    let (first, end) = sign(start)?;
    let second = sign(end);
    Some(match (first, second) {
        ('(', _) => (Separator::Opening, end),
        (' ', Some(('(', end))) => (Separator::Opening, end),
        (')', Some((' ' | '-' | '/', end))) => (Separator::Closing, end),
        (')', _) => (Separator::Closing, end),
        ('/', Some((' ', end))) => (Separator::Sign('/'), end),
        (' ', Some((separator @ ('/' | '-'), end))) => {
            let (_, end) = sign(end).filter(|(sign, _)| *sign == ' ')?;
            (Separator::Sign(separator), end)
        }
        (separator, _) => (Separator::Sign(separator), end),
    })
}
