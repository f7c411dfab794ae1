//! Sanitizes untrusted text for a terminal.

use std::{borrow::Cow, fmt::Write as _};

/// Replaces line breaks and every character that a terminal would interpret, in text from servers and files.
pub(crate) fn sanitize(text: &str) -> String {
    text.chars().map(|character| if is_terminal_control(character) { ' ' } else { character }).collect()
}

/// Maximum number of characters of a message.
const MAX_MESSAGE_CHARS: usize = 400;

/// Shortens a long text to its start and its end, because messages quote names from files, which can have any length.
pub(crate) fn shorten(text: &str) -> Cow<'_, str> {
    let offset_of = |number: usize| text.char_indices().nth(number).map_or(text.len(), |(offset, _)| offset);
    if offset_of(MAX_MESSAGE_CHARS) == text.len() {
        return Cow::Borrowed(text);
    }
    let last = text.char_indices().rev().nth(MAX_MESSAGE_CHARS / 2).map_or(0, |(offset, _)| offset);
    let (first, last) = (text.get(..offset_of(MAX_MESSAGE_CHARS / 2)), text.get(last..));
    Cow::Owned(format!("{} … {}", first.unwrap_or_default(), last.unwrap_or_default()))
}

/// Like [`sanitize`], but preserves line breaks and tabs.
pub(crate) fn sanitize_lines(text: &str) -> String {
    text.chars()
        .map(
            |character| {
                if is_terminal_control(character) && character != '\n' && character != '\t' { ' ' } else { character }
            },
        )
        .collect()
}

/// Escapes characters of a JSON document that a terminal would interpret, without a change of its value. Such
/// characters occur only in strings, except for line breaks, which stay.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_terminal_control(character) && character != '\n' {
            // Four digits suffice, because all such characters are below U+10000. Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Whether the text contains only characters that a terminal displays.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.chars().any(|character| is_terminal_control(character) && character != '\n')
}

/// Whether a character is a control character, or a bidirectional control, which could disguise a name.
fn is_terminal_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{206f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitize_removes_terminal_controls() {
        assert_eq!(sanitize("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
        assert_eq!(sanitize_lines("a\n\tb\u{7}"), "a\n\tb ");
        for control in
            ["\u{1b}", "\u{7f}", "\u{85}", "\u{9b}", "\u{61c}", "\u{200f}", "\u{2028}", "\u{202e}", "\u{2069}"]
        {
            assert_eq!((sanitize(control).as_str(), sanitize_lines(control).as_str()), (" ", " "), "{control:?}");
            assert!(!is_printable(control), "{control:?}");
        }
        assert!(is_printable("für آ 漢字 😀\n"));
    }

    #[test]
    fn shorten_keeps_start_and_end() {
        assert_eq!(shorten("für"), "für");
        assert_eq!(shorten(&"é".repeat(400)), "é".repeat(400));
        let short = shorten(&format!("unknown field `{}`, expected one of a, b", "é".repeat(900_000))).into_owned();
        assert!(short.starts_with("unknown field `é") && short.ends_with("é`, expected one of a, b"), "{short}");
        assert!(short.chars().count() < 420, "{short}");
    }

    #[test]
    fn escape_json_preserves_the_value() {
        let value = serde_json::json!({ "a\u{9b}\u{202e}": ["\u{1b}[31m\r\n\t", "😀 \u{7f}\\u{85}\u{61c}"] });
        let text = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(is_printable(&text) && text.contains("\\u009b\\u202e"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
