//! The likely cause of a YAML syntax error. The parser reports only a position, and a message that does not explain the
//! cause.

/// The likely cause of a syntax error, with its position. Lines and columns start at 1; columns count characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyntaxCause {
    /// The line of the cause, which can follow the line that the parser reports.
    pub line: u32,
    /// The column of the cause, in characters from 1.
    pub column: u32,
    /// The message for people. It contains no part of the text.
    pub message: &'static str,
}

const TAB: &str = "not valid YAML: a tab indents the line, and YAML indents with spaces only";
const COLON: &str = "not valid YAML: the value contains a colon before a space or the end, so it must be in quotes";
const FIRST_CHARACTER: &str = "not valid YAML: a value that begins with `@`, `%` or a backtick must be in quotes";
const INDENTATION: &str = "not valid YAML: the indentation of the line fits no line above";

/// The likely cause of a syntax error that the parser reports in a line; `None` if no line shows a cause.
#[must_use]
pub fn likely_cause(text: &str, line: u32) -> Option<SyntaxCause> {
    let failed_line = usize::try_from(line).ok()?.checked_sub(1)?;
    let lines: Vec<&str> = text.lines().collect();
    let content = lines.get(failed_line)?;
    if let Some(column) = tab_column(content) {
        return cause(failed_line, column, TAB);
    }
    if let Some(column) = colon_column(content) {
        return cause(failed_line, column, COLON);
    }
    if let Some(column) = special_character_column(content) {
        return cause(failed_line, column, FIRST_CHARACTER);
    }
    if !fits_previous_lines(lines.get(..failed_line)?, content) {
        return cause(failed_line, indentation(content), INDENTATION);
    }
    // The parser reports the beginning of a value, although a tab in the next line is the cause.
    let (next, content) = lines.iter().enumerate().skip(failed_line + 1).find(|(_, line)| !line.trim().is_empty())?;
    cause(next, tab_column(content)?, TAB)
}

/// The cause at a line and a column, both counted from 0.
fn cause(line: usize, column: usize, message: &'static str) -> Option<SyntaxCause> {
    let number = |number: usize| u32::try_from(number).ok()?.checked_add(1);
    Some(SyntaxCause { line: number(line)?, column: number(column)?, message })
}

/// The column of the first tab in the indentation of a line; `None` without a tab.
fn tab_column(line: &str) -> Option<usize> {
    line.chars().take_while(|character| matches!(character, ' ' | '\t')).position(|character| character == '\t')
}

/// The column of a colon inside an unquoted value. The parser interprets such a colon as the end of another key.
fn colon_column(line: &str) -> Option<usize> {
    let (_, value) = after_dashes(line).split_once(": ")?;
    let value = value.trim_start();
    let is_plain = |character: char| !matches!(character, '"' | '\'' | '[' | '{' | '|' | '>' | '&' | '*' | '!' | '#');
    if !after_dashes(line).starts_with(is_plain) || !value.starts_with(is_plain) {
        return None;
    }
    let text = without_comment(value);
    let offset = text.find(": ").or_else(|| text.ends_with(':').then_some(text.len().saturating_sub(1)))?;
    column(line, line.len() - value.len() + offset)
}

/// The column of a value whose first character YAML reserves.
fn special_character_column(line: &str) -> Option<usize> {
    let item = after_dashes(line);
    let value = item.split_once(": ").map_or(item, |(_, value)| value).trim_start();
    if value.starts_with(['@', '`', '%']) { column(line, line.len() - value.len()) } else { None }
}

/// The number of characters before a byte offset.
fn column(line: &str, offset: usize) -> Option<usize> {
    Some(line.get(..offset)?.chars().count())
}

/// A line without its indentation and the dashes of list items.
fn after_dashes(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some(item) = rest.strip_prefix("- ") {
        rest = item.trim_start();
    }
    rest
}

fn without_comment(text: &str) -> &str {
    text.split_once(" #").map_or(text, |(before, _)| before).trim_end()
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Whether a line continues a block of the previous lines, or begins a block that the last of these lines opens.
fn fits_previous_lines(previous_lines: &[&str], line: &str) -> bool {
    let target_indentation = indentation(line);
    let is_content = |line: &&&str| !matches!(line.trim_start().chars().next(), None | Some('#'));
    let mut is_first = true;
    for line in previous_lines.iter().rev().filter(is_content) {
        if block_indentations(line).contains(&target_indentation) {
            return true;
        }
        if indentation(line) < target_indentation {
            return is_first && without_comment(line).ends_with([':', '|', '>', '-', '+', '[', '{', ',']);
        }
        is_first = false;
    }
    is_first
}

/// The indentations of the blocks to which a line belongs: that of the line, and those of the list items that it
/// begins.
fn block_indentations(line: &str) -> Vec<usize> {
    let mut rest = line.trim_start_matches(' ');
    let mut indentations = vec![line.len() - rest.len()];
    while let Some(item) = rest.strip_prefix("- ") {
        rest = item.trim_start_matches(' ');
        indentations.push(line.len() - rest.len());
    }
    indentations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_likely_cause_with_its_position() {
        for (text, line, expected) in [
            ("a: 1\nb:\n\tc: 2\n", 3, Some((3, 1, TAB))),
            ("a: 1\n  \tb: 2\n", 2, Some((2, 3, TAB))),
            ("a: 1\n\n\tb: 2\n", 1, Some((3, 1, TAB))),
            ("about: Answers: a question\n", 1, Some((1, 15, COLON))),
            ("- about: é: a\n", 1, Some((1, 11, COLON))),
            ("about: Answers:\n", 1, Some((1, 15, COLON))),
            ("about: @asset\n", 1, Some((1, 8, FIRST_CHARACTER))),
            ("- `x`\n", 1, Some((1, 3, FIRST_CHARACTER))),
            ("a:\n  b: 1\n c: 2\n", 3, Some((3, 2, INDENTATION))),
            ("a:\n  b: 1\n    c: 2\n", 3, Some((3, 5, INDENTATION))),
            ("a:\n  - b: 1\n   c: 2\n", 3, Some((3, 4, INDENTATION))),
            (" a: 1\nb: 2\n", 2, Some((2, 1, INDENTATION))),
            ("a:\n  - b: 1\n    c: 2\n", 3, None),
            ("a:\n  # comment\n  b: 1\n", 3, None),
            ("a: [1,\n   {b: \"x: y\"}\n", 2, None),
            ("a: \"x: y\"\nb: 'x: y'\nc: {d: e, f: g}\n", 1, None),
            ("a: [1\nb: 2\n", 2, None),
            ("a: [1\n", 2, None),
            ("", 1, None),
        ] {
            let expected = expected.map(|(line, column, message)| SyntaxCause { line, column, message });
            assert_eq!(likely_cause(text, line), expected, "{text:?}");
        }
    }
}
