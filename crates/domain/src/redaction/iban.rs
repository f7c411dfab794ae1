//! International bank account numbers (ISO 13616), validated by the SWIFT registry.

use super::match_start::Position;
use iban::Iban;

const MAX_LEN: usize = 34;
/// The number of characters in a printed group; the last group may be shorter.
const GROUP_LEN: usize = 4;

/// The end of an IBAN that starts at this position, if any. The IBAN may be written in groups of four.
pub(super) fn match_end(place: Position<'_>) -> Option<usize> {
    let head = place.rest().as_bytes();
    let [country, letter, check, digit, ..] = head else { return None };
    let is_head = country.is_ascii_alphabetic() && letter.is_ascii_alphabetic();
    if !is_head || !check.is_ascii_digit() || !digit.is_ascii_digit() || !place.starts_word() {
        return None;
    }
    let (mut written, mut end, mut longest) = (String::with_capacity(MAX_LEN), place.offset(), None);
    loop {
        let group = alphanumerics(place, end, MAX_LEN - written.len())?;
        written.push_str(&group.to_ascii_uppercase());
        end += group.len();
        if place.ends_word(end) && written.parse::<Iban>().is_ok() {
            longest = Some(end);
        }
        let whole = written.len() % GROUP_LEN == 0 && group.len() == GROUP_LEN && written.len() < MAX_LEN;
        let next = place.skip_separators(end).filter(|next| whole && alphanumerics(place, *next, 1).is_some());
        let Some(next) = next else { return longest };
        end = next;
    }
}

/// The letters and digits that start at an offset, at most `limit`.
fn alphanumerics(place: Position<'_>, from: usize, limit: usize) -> Option<&str> {
    let rest = place.advance_to(from).rest();
    let length = rest.bytes().take(limit).take_while(u8::is_ascii_alphanumeric).count();
    rest.get(..length).filter(|word| !word.is_empty())
}
