//! IP addresses, validated by the parser of the standard library.

use super::match_start::Position;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAX_V4_LEN: usize = "255.255.255.255".len();
const MAX_V6_LEN: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

/// The end of an IP address that starts at this position, if any.
pub(super) fn match_end(place: Position<'_>) -> Option<usize> {
    match_v6(place).or_else(|| match_v4(place))
}

fn match_v4(place: Position<'_>) -> Option<usize> {
    // Digits after a full stop are a part of a longer token, such as a version number.
    if !place.starts_word() || place.previous_char() == Some('.') {
        return None;
    }
    let end = address_end(place, MAX_V4_LEN, |byte| byte.is_ascii_digit() || byte == b'.')?;
    text(place, end).parse::<Ipv4Addr>().ok().map(|_| end)
}

fn match_v6(place: Position<'_>) -> Option<usize> {
    let apart = match place.next_char() {
        // Paths in programming languages also contain double colons, and some of their names consist of
        // hexadecimal digits.
        Some(':') => place.previous_char().is_none_or(|before| {
            before.is_whitespace() || matches!(before, '"' | '\'' | '(' | '[' | '{' | '<' | '=' | ',' | '/')
        }),
        _ => place.starts_word() && place.previous_char() != Some(':'),
    };
    if !apart {
        return None;
    }
    let end = address_end(place, MAX_V6_LEN, |byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))?;
    let written = text(place, end);
    // `::` alone is a valid address, but does not identify anyone.
    let is_somebodys = written.bytes().any(|byte| byte.is_ascii_hexdigit());
    (is_somebodys && written.parse::<Ipv6Addr>().is_ok()).then_some(end)
}

fn text(place: Position<'_>, end: usize) -> &str {
    place.rest().get(..end.saturating_sub(place.offset())).unwrap_or_default()
}

/// The end of a run of matching characters, without a punctuation character that ends the sentence. Returns `None`
/// if the run is too long, continues with letters, or ends in a character that ends no sentence.
fn address_end(place: Position<'_>, longest: usize, fits: impl Fn(u8) -> bool) -> Option<usize> {
    let length = place.rest().bytes().take(longest + 2).take_while(|byte| fits(*byte)).count();
    let end = place.offset() + length;
    let run = text(place, end);
    if !place.ends_word(end) || (run.ends_with(['.', ':']) && !place.ends_sentence(end)) {
        return None;
    }
    // Two colons at the end are a part of the address.
    let trimmed = match run.strip_suffix('.').or_else(|| run.strip_suffix(':')) {
        Some(trimmed) if !trimmed.ends_with(':') => trimmed,
        Some(_) | None => run,
    };
    (trimmed.len() <= longest).then(|| place.offset() + trimmed.len())
}
