//! Payment card numbers (ISO/IEC 7812): 13 to 19 digits in a range that is issued, with a Luhn check digit.

use super::match_start::Position;

const MIN_DIGITS: usize = 13;
const MAX_DIGITS: usize = 19;
/// The lengths of the digit groups in which card numbers are printed or commonly written.
const LAYOUTS: [&[usize]; 7] =
    [&[4, 4, 5], &[4, 4, 4, 4], &[4, 4, 4, 4, 1], &[4, 4, 4, 4, 2], &[4, 4, 4, 4, 3], &[4, 6, 4], &[4, 6, 5]];

/// The end of the card number that starts at this position, if any.
pub(super) fn match_end(position: Position<'_>) -> Option<usize> {
    // Digits after a full stop are the fraction of a decimal number, not a card number.
    if !position.starts_word() || position.previous_char() == Some('.') {
        return None;
    }
    let first = position.digits(position.offset(), MAX_DIGITS)?;
    if first.digits.len() >= MIN_DIGITS {
        return (is_card(first.digits) && position.ends_word(first.end)).then_some(first.end);
    }
    let is_printed = LAYOUTS.iter().any(|layout| layout.starts_with(&[first.digits.len()]));
    if !is_printed || !is_issued(first.digits) || position.skip_separators(first.end).is_none() {
        return None;
    }
    let (mut digits, mut lengths, mut end) = (first.digits.to_owned(), vec![first.digits.len()], first.end);
    let mut latest_end = None;
    while LAYOUTS.iter().any(|layout| layout.starts_with(&lengths)) {
        if LAYOUTS.contains(&lengths.as_slice()) && is_card(&digits) && position.ends_word(end) {
            latest_end = Some(end);
        }
        let Some(group) = position.skip_separators(end).and_then(|next| position.digits(next, MAX_DIGITS)) else {
            break;
        };
        digits.push_str(group.digits);
        lengths.push(group.digits.len());
        end = group.end;
    }
    latest_end
}

fn is_card(digits: &str) -> bool {
    (MIN_DIGITS..=MAX_DIGITS).contains(&digits.len()) && is_issued(digits) && luhn3::valid(digits.as_bytes())
}

/// Whether cards are issued in the range of this number. The ranges exclude years and timestamps in milliseconds,
/// because one in ten numbers passes the Luhn check by chance.
fn is_issued(digits: &str) -> bool {
    match digits.as_bytes() {
        [b'4' | b'5' | b'6', ..] | [b'3', b'0' | b'4'..=b'9', ..] | [b'8', b'1' | b'2', ..] => true,
        [b'2', ..] => digits.get(..4).is_some_and(|range| ("2200"..="2720").contains(&range)),
        _ => false,
    }
}
