//! Validation of names and texts that people read.
//!
//! Invisible characters and direction overrides can make one name look like another in lists and logs. Texts with such
//! characters are refused, not cleaned, so that the caller learns that its text would be displayed differently.

/// Whether a text is a valid name: one line of 1 to `max_chars` characters that is not blank and has no hidden
/// characters.
#[must_use]
pub fn is_name(text: &str, max_chars: usize) -> bool {
    let length = text.chars().count();
    (1..=max_chars).contains(&length) && !is_blank(text) && !text.chars().any(is_hidden)
}

/// Whether a text is valid prose: at most `max_chars` characters, with no hidden characters except line breaks and
/// tabs.
#[must_use]
pub fn is_blank_or_prose(text: &str, max_chars: usize) -> bool {
    let is_line_break_or_tab = |character: char| matches!(character, '\n' | '\r' | '\t');
    text.chars().count() <= max_chars
        && !text.chars().any(|character| is_hidden(character) && !is_line_break_or_tab(character))
}

/// Whether a text displays nothing: it is empty, or consists only of white space, hidden characters, variation
/// selectors and the blank Braille pattern.
#[must_use]
pub fn is_blank(text: &str) -> bool {
    let is_invisible = |character: char| {
        character.is_whitespace()
            || is_hidden(character)
            || matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' | '\u{2800}')
    };
    text.chars().all(is_invisible)
}

/// Whether a character is invisible. Invisible are control characters, line and paragraph separators, direction marks
/// and overrides, and the default-ignorable characters of Unicode 16 (`DerivedCoreProperties.txt`).
///
/// Variation selectors are not counted as invisible, because emoji use them.
pub(crate) const fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{1f}'
        | '\u{7f}'..='\u{9f}'
        | '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_without_hidden_characters() {
        for text in ["a", "Ticket classifier", "Überprüfung № 7", "分類", "مصنف", "❤\u{fe0f} heart", &"n".repeat(200)]
        {
            assert!(is_name(text, 200), "{text:?}");
            assert!(is_blank_or_prose(text, 200), "{text:?}");
        }
        let hidden_texts = [
            "a\u{202e}b",
            "a\u{2066}b",
            "a\u{200b}b",
            "a\u{200d}b",
            "\u{feff}a",
            "a\u{ad}b",
            "a\u{61c}",
            "a\u{2028}b",
            "\u{3164}",
            "a\u{7}",
            "a\u{1b}[2J",
            "a\u{0}",
            "a\u{85}",
            "a\u{e0041}",
        ];
        for text in hidden_texts {
            assert!(!is_name(text, 200), "{text:?}");
            assert!(!is_blank_or_prose(text, 200), "{text:?}");
        }
        for text in ["", " ", "\u{a0}\u{2003}", "a\nb", "a\tb", &"n".repeat(201)] {
            assert!(!is_name(text, 200), "{text:?}");
        }
    }

    #[test]
    fn detects_blank_texts() {
        for text in ["", " ", "\n\t\r", "\u{a0}\u{2003}\u{3000}", "\u{fe0f}", "\u{2800}", "\u{200b}", " \u{e0100} "] {
            assert!(is_blank(text), "{text:?}");
            assert!(!is_name(text, 200), "{text:?}");
        }
        for text in [".", " a ", "\u{2764}\u{fe0f}", "分"] {
            assert!(!is_blank(text), "{text:?}");
        }
    }

    #[test]
    fn prose_allows_line_breaks_and_tabs() {
        assert!(is_blank_or_prose("", 10));
        assert!(is_blank_or_prose("a\r\n\tb\n", 10));
        assert!(!is_blank_or_prose("more than ten", 10));
    }
}
