//! Phone numbers, where the way they are written says so: with the sign or zeros of an international call, with the zero
//! of a trunk call, or as the North American plan writes them.

use super::{
    card,
    disguise::undisguised,
    place::{Place, SEPARATORS},
};
use std::ops::RangeInclusive;

/// Digits of an international number, the country's included (ITU-T E.164). Shorter ones than these exist and are left: a
/// signed number is more likely.
const INTERNATIONAL: RangeInclusive<usize> = 8..=15;
/// Digits of a national number with its zero.
const NATIONAL: RangeInclusive<usize> = 9..=12;
/// The same in one piece: shorter and longer ones are more likely the numbers of things.
const NATIONAL_SOLID: RangeInclusive<usize> = 10..=11;
/// Digits of a value whose name says that it is a phone number.
const NAMED: RangeInclusive<usize> = 6..=15;
/// Longest value of that kind, in bytes.
const LONGEST_NAMED: usize = 60;
/// Most groups of digits in one number.
const MOST_GROUPS: usize = 8;

/// Where a phone number that begins here ends.
pub(super) fn begins(place: Place<'_>) -> Option<usize> {
    match place.next()? {
        '+' => international(place, place.at() + 1),
        '(' => national(place, place.at()),
        // Behind these stand fractions, parts of dates and pieces of longer numbers.
        _ if !place.begins_word() || matches!(place.before(), Some('-' | '.' | '/' | ',')) => None,
        '0' if place.rest().starts_with("00") => international(place, place.at() + 2),
        // Most numbers of a text are told by their first group, before any other is read.
        '0'..='9' => match place.digits(place.at(), *NATIONAL_SOLID.end())?.digits {
            "0" => None,
            "1" => national(place, place.at()),
            digits if digits.len() == 3 || digits.starts_with('0') => national(place, place.at()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the name of a member says that its value is a phone number.
pub(super) fn is_named(key: &str) -> bool {
    let letters: String = key.chars().filter(|letter| letter.is_alphabetic()).flat_map(char::to_lowercase).collect();
    matches!(letters.as_str(), "tel" | "cell" | "fax")
        || ["phone", "mobile", "telefon"].iter().any(|word| letters.contains(word))
}

/// Whether a text is nothing but the digits of a number, and signs between them.
pub(super) fn is_bare(text: &str) -> bool {
    let is_sign = |sign: char| SEPARATORS.contains(&sign) || matches!(sign, '+' | '.' | '/' | '(' | ')');
    let text = undisguised(text);
    text.len() <= LONGEST_NAMED
        && NAMED.contains(&text.bytes().filter(u8::is_ascii_digit).count())
        && text.chars().all(|sign| sign.is_ascii_digit() || is_sign(sign))
}

fn international(place: Place<'_>, from: usize) -> Option<usize> {
    latest(place, from, |number| !number.digits.starts_with('0') && INTERNATIONAL.contains(&number.digits.len()))
}

fn national(place: Place<'_>, from: usize) -> Option<usize> {
    latest(place, from, |number| {
        if number.parted_anew {
            return false;
        }
        match number.lengths.as_slice() {
            [3, 3, 4] => number.digits.starts_with(|first| first > '1') || is_trunk(number),
            [1, 3, 3, 4] => number.digits.starts_with('1') && !number.digits.starts_with("10"),
            [_] => is_trunk(number) && NATIONAL_SOLID.contains(&number.digits.len()),
            [1, ..] => false,
            _ => is_trunk(number) && NATIONAL.contains(&number.digits.len()),
        }
    })
}

fn is_trunk(number: &Written) -> bool {
    number.digits.starts_with('0') && !number.digits.starts_with("00")
}

/// Groups of digits as far as they are read.
#[derive(Default)]
struct Written {
    digits: String,
    lengths: Vec<usize>,
    /// How the groups are parted, but for the first time.
    parted: Option<Gap>,
    parts: usize,
    /// Whether they are parted in several ways: `01-02-2024 10` is a date and an hour.
    parted_anew: bool,
}

/// Where the longest number ends that begins here. Groups are read while they are parted as those of one number are and
/// no card begins, so that nothing of a card is left over.
fn latest(place: Place<'_>, from: usize, is_number: impl Fn(&Written) -> bool) -> Option<usize> {
    let (mut written, mut latest) = (Written::default(), None);
    let mut is_open = place.character(from) == Some('(');
    let mut at = if is_open { from + 1 } else { from };
    while let Some(group) = place.digits(at, *INTERNATIONAL.end()) {
        let begins_card = !written.lengths.is_empty() && card::begins(place.to(at)).is_some();
        if begins_card || written.digits.len() + group.digits.len() > *INTERNATIONAL.end() {
            break;
        }
        written.digits.push_str(group.digits);
        written.lengths.push(group.digits.len());
        // A single digit at the end is more likely a number of its own.
        let is_tail = written.lengths.len() > 2 && group.digits.len() == 1;
        if !is_open && !is_tail && place.ends_word(group.end) && is_number(&written) {
            latest = Some(group.end);
        }
        let Some((gap, end)) = gap(place, group.end) else { break };
        match gap {
            Gap::Opens if !is_open => is_open = true,
            Gap::Closes if is_open => is_open = false,
            Gap::Opens | Gap::Closes => break,
            Gap::Parts(_) => written.part(gap),
        }
        if written.lengths.len() == MOST_GROUPS {
            break;
        }
        at = end;
    }
    latest
}

impl Written {
    fn part(&mut self, gap: Gap) {
        self.parts += 1;
        if self.parts == 2 {
            self.parted = Some(gap);
        }
        self.parted_anew |= self.parts > 2 && self.parted != Some(gap);
    }
}

/// What stands between two groups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gap {
    /// A bracket that opens.
    Opens,
    /// A bracket that closes.
    Closes,
    /// Such a sign.
    Parts(char),
}

/// The signs between a group that ends there and the next, and where that begins.
fn gap(place: Place<'_>, from: usize) -> Option<(Gap, usize)> {
    let sign = |at: usize| {
        let next = place.character(at)?;
        let plain = match next {
            ' ' | '\u{a0}' | '\u{202f}' => ' ',
            '.' | '/' | '(' | ')' => next,
            _ if SEPARATORS.contains(&next) => '-',
            _ => return None,
        };
        Some((plain, at + next.len_utf8()))
    };
    let (first, end) = sign(from)?;
    let second = sign(end);
    Some(match (first, second) {
        ('(', _) => (Gap::Opens, end),
        (' ', Some(('(', end))) => (Gap::Opens, end),
        (')', Some((' ' | '-' | '/', end))) => (Gap::Closes, end),
        (')', _) => (Gap::Closes, end),
        ('/', Some((' ', end))) => (Gap::Parts('/'), end),
        (' ', Some((parts @ ('/' | '-'), end))) => {
            let (_, end) = sign(end).filter(|(sign, _)| *sign == ' ')?;
            (Gap::Parts(parts), end)
        }
        (parts, _) => (Gap::Parts(parts), end),
    })
}
