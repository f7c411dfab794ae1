//! International bank account numbers (ISO 13616), validated with the country formats of the SWIFT registry.

use super::match_start::Position;
use iban::Iban;

const MAX_LEN: usize = 34;
/// The number of characters in a printed group; the last group may be shorter.
const GROUP_LEN: usize = 4;

/// The end of the IBAN that starts at this position, if any. The IBAN may be written in groups of four.
pub(super) fn match_end(position: Position<'_>) -> Option<usize> {
    let head = position.rest().as_bytes();
    let [country, letter, check, digit, ..] = head else { return None };
    let is_head = country.is_ascii_alphabetic() && letter.is_ascii_alphabetic();
    if !is_head || !check.is_ascii_digit() || !digit.is_ascii_digit() || !position.starts_word() {
        return None;
    }
    let (mut characters, mut end, mut latest_end) = (String::with_capacity(MAX_LEN), position.offset(), None);
    loop {
        let group = alphanumerics(position, end, MAX_LEN - characters.len())?;
        characters.push_str(&group.to_ascii_uppercase());
        end += group.len();
        if position.ends_word(end) && characters.parse::<Iban>().is_ok() {
            latest_end = Some(end);
        }
        let is_full_group = characters.len() % GROUP_LEN == 0 && group.len() == GROUP_LEN && characters.len() < MAX_LEN;
        let next =
            position.skip_separators(end).filter(|next| is_full_group && alphanumerics(position, *next, 1).is_some());
        let Some(next) = next else { return latest_end };
        end = next;
    }
}

/// The letters and digits that start at an offset, but at most `limit`.
fn alphanumerics(position: Position<'_>, offset: usize, limit: usize) -> Option<&str> {
    let rest = position.advance_to(offset).rest();
    let length = rest.bytes().take(limit).take_while(u8::is_ascii_alphanumeric).count();
    rest.get(..length).filter(|run| !run.is_empty())
}
