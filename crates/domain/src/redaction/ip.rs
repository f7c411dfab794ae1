//! IP addresses, which the parser of the standard library validates.

use super::match_start::Position;
use std::net::{Ipv4Addr, Ipv6Addr};

const MAX_V4_LEN: usize = "255.255.255.255".len();
const MAX_V6_LEN: usize = "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255".len();

/// The end of the IP address that starts at this position, if any.
pub(super) fn match_end(position: Position<'_>) -> Option<usize> {
    match_v6(position).or_else(|| match_v4(position))
}

fn match_v4(position: Position<'_>) -> Option<usize> {
    // Digits after a full stop belong to a longer token, such as a version number.
    if !position.starts_word() || position.previous_char() == Some('.') {
        return None;
    }
    let end = address_end(position, MAX_V4_LEN, |byte| byte.is_ascii_digit() || byte == b'.')?;
    text(position, end).parse::<Ipv4Addr>().ok().map(|_| end)
}

fn match_v6(position: Position<'_>) -> Option<usize> {
    let is_separate = match position.next_char() {
        // Paths in programming languages also contain double colons, and some names in them consist of hexadecimal
        // digits. An address may therefore start with a colon only after white space or certain punctuation.
        Some(':') => position.previous_char().is_none_or(|previous| {
            previous.is_whitespace() || matches!(previous, '"' | '\'' | '(' | '[' | '{' | '<' | '=' | ',' | '/')
        }),
        _ => position.starts_word() && position.previous_char() != Some(':'),
    };
    if !is_separate {
        return None;
    }
    let end = address_end(position, MAX_V6_LEN, |byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))?;
    let address = text(position, end);
    // `::` alone is a valid address, but it belongs to no host and identifies no person.
    let has_digits = address.bytes().any(|byte| byte.is_ascii_hexdigit());
    (has_digits && address.parse::<Ipv6Addr>().is_ok()).then_some(end)
}

fn text(position: Position<'_>, end: usize) -> &str {
    position.rest().get(..end.saturating_sub(position.offset())).unwrap_or_default()
}

/// Finds the end of the address that starts at this position, without a final `.` or `:` that ends the sentence. `None`
/// if the address is too long or continues with letters, or if its final `.` or `:` does not end a sentence.
fn address_end(position: Position<'_>, max_length: usize, is_address_byte: impl Fn(u8) -> bool) -> Option<usize> {
    let length = position.rest().bytes().take(max_length + 2).take_while(|byte| is_address_byte(*byte)).count();
    let end = position.offset() + length;
    let run = text(position, end);
    if !position.ends_word(end) || (run.ends_with(['.', ':']) && !position.ends_sentence(end)) {
        return None;
    }
    // Two colons at the end belong to the address.
    let trimmed = match run.strip_suffix('.').or_else(|| run.strip_suffix(':')) {
        Some(trimmed) if !trimmed.ends_with(':') => trimmed,
        Some(_) | None => run,
    };
    (trimmed.len() <= max_length).then(|| position.offset() + trimmed.len())
}
