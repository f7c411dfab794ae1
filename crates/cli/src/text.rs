//! Texts of others on a terminal.

/// The text in one line and without anything that a terminal would obey: what servers and files say is not ours.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|letter| if obeyed(letter) { ' ' } else { letter }).collect()
}

/// The same with the lines that it has.
pub(crate) fn plain_lines(text: &str) -> String {
    text.chars().map(|letter| if obeyed(letter) && letter != '\n' && letter != '\t' { ' ' } else { letter }).collect()
}

/// Control characters, and those that turn the direction of what follows: a name could pose as another one.
fn obeyed(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_but_text() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
        assert_eq!(plain_lines("a\n\tb\u{7}"), "a\n\tb ");
    }
}
