//! International bank account numbers (ISO 13616), as the registry of SWIFT has them.

use super::place::Place;
use iban::Iban;

const LONGEST: usize = 34;
/// The digits of a group on paper; the last may have fewer.
const GROUP: usize = 4;

/// Where an IBAN that begins here ends: in one piece, or in groups of four.
pub(super) fn begins(place: Place<'_>) -> Option<usize> {
    let head = place.rest().as_bytes();
    let [country, letter, check, digit, ..] = head else { return None };
    let is_head = country.is_ascii_alphabetic() && letter.is_ascii_alphabetic();
    if !is_head || !check.is_ascii_digit() || !digit.is_ascii_digit() || !place.begins_word() {
        return None;
    }
    let (mut written, mut end, mut longest) = (String::with_capacity(LONGEST), place.at(), None);
    loop {
        let group = word(place, end, LONGEST - written.len())?;
        written.push_str(&group.to_ascii_uppercase());
        end += group.len();
        if place.ends_word(end) && written.parse::<Iban>().is_ok() {
            longest = Some(end);
        }
        let whole = written.len() % GROUP == 0 && group.len() == GROUP && written.len() < LONGEST;
        let next = place.gap(end).filter(|next| whole && word(place, *next, 1).is_some());
        let Some(next) = next else { return longest };
        end = next;
    }
}

/// The letters and digits that stand there, at most so many.
fn word(place: Place<'_>, from: usize, most: usize) -> Option<&str> {
    let rest = place.to(from).rest();
    let length = rest.bytes().take(most).take_while(u8::is_ascii_alphanumeric).count();
    rest.get(..length).filter(|word| !word.is_empty())
}
