//! Renders tables with one line for each item. On a terminal, tables fit the width, and states have colours.

use super::{Column, has_colors, is_stdout_terminal, relative_time};
use crate::terminal_text::sanitize;
use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, Table};
use rustix::termios::tcgetwinsize;
use serde_json::Value;
use std::io;
use time::OffsetDateTime;

/// The width that is assumed for a terminal that reports no width.
const DEFAULT_WIDTH: u16 = 80;
/// The minimum width for which tables are laid out.
const MIN_WIDTH: u16 = 40;
/// Maximum width of a first column that is never shortened: an identifier.
const MAX_KEY_WIDTH: usize = 40;

/// Zero-width characters that mark the beginning of a styled cell. They are replaced by styles after the layout, which
/// would count the characters of a style.
const MARKERS: [(char, Style); 3] = [
    ('\u{2061}', AnsiColor::Green.on_default()),
    ('\u{2062}', AnsiColor::Yellow.on_default()),
    ('\u{2063}', AnsiColor::Red.on_default()),
];
/// The zero-width character that marks the end of a styled cell.
const END_MARKER: char = '\u{2064}';

/// States, verdicts and outcomes that are shown in green. Those of [`PENDING`] are yellow, those of [`BAD`] are red.
const GOOD: [&str; 7] = ["active", "completed", "registered", "pass", "success", "approved", "yes"];
const PENDING: [&str; 10] = [
    "draft",
    "review_ready",
    "queued",
    "running",
    "awaiting_review",
    "warn",
    "in_progress",
    "suspended",
    "unknown",
    "pending",
];
const BAD: [&str; 9] =
    ["failed", "denied", "blocked", "rejected", "failure", "timeout", "cancelled", "revoked", "rolled_back"];

/// How a table is displayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Display {
    /// The maximum width of a line; `None` if standard output is not a terminal.
    width: Option<u16>,
    has_colors: bool,
    now: OffsetDateTime,
}

impl Display {
    /// The display of standard output.
    pub(super) fn of_stdout() -> Self {
        let columns = || tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
        let width = is_stdout_terminal().then(|| columns().unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH));
        Self { width, has_colors: has_colors(), now: OffsetDateTime::now_utc() }
    }
}

/// Renders the items, one line for each.
pub(super) fn render(items: &[Value], columns: &[Column]) -> Vec<String> {
    let columns: Vec<(String, &str)> = columns.iter().map(|(head, pointer)| ((*head).to_owned(), *pointer)).collect();
    render_for(Display::of_stdout(), items, &columns)
}

/// Renders the items for a display.
pub(super) fn render_for(display: Display, items: &[Value], columns: &[(String, &str)]) -> Vec<String> {
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| columns.iter().map(|(_, pointer)| cell(item.pointer(pointer), display.now)).collect())
        .collect();
    let head = columns.iter().map(|(head, _)| head.clone()).collect();
    let mut lines = lay_out(display, Some(head), &rows);
    if let (true, Some(first)) = (display.has_colors, lines.first_mut()) {
        let bold = Style::new().bold();
        *first = format!("{bold}{first}{bold:#}");
    }
    lines
}

/// Lays out rows of cells below an optional heading.
pub(super) fn lay_out(display: Display, head: Option<Vec<String>>, rows: &[Vec<String>]) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    match display.width {
        None => table.set_content_arrangement(ContentArrangement::Disabled),
        // Adds two characters for the outer padding, which is trimmed below.
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_add(2)),
    };
    table.set_truncation_indicator("…");
    let key_width = rows.iter().filter_map(|row| row.first()).map(|key| key.chars().count()).max().unwrap_or_default();
    let is_record = head.is_none();
    if let Some(head) = head {
        table.set_header(row(head.into_iter().map(Cell::new), true));
    }
    for texts in rows {
        let text = |text: &String| if display.has_colors { add_markers(text) } else { text.clone() };
        // A record wraps long values instead of shortening them, because a record shows values in full.
        table.add_row(row(texts.iter().map(|cell| Cell::new(text(cell))), !is_record));
    }
    if let (true, Some(key)) = (key_width <= MAX_KEY_WIDTH, table.column_mut(0)) {
        key.set_constraint(ColumnConstraint::ContentWidth);
    }
    let lines = table.lines().map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned());
    lines.map(|line| if display.has_colors { apply_styles(&line) } else { line }).collect()
}

fn row(cells: impl Iterator<Item = Cell>, is_one_line: bool) -> Row {
    let mut row: Row = cells.collect::<Vec<_>>().into();
    if is_one_line {
        row.max_height(1);
    }
    row
}

/// The text of a value in a table. Times are relative to now. Nested values are counted or joined
/// instead of shown as JSON.
pub(super) fn cell(value: Option<&Value>, now: OffsetDateTime) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(true)) => "yes".to_owned(),
        Some(Value::Bool(false)) => "no".to_owned(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::String(text)) => match relative_time::parse(text) {
            Some(time) => relative_time::describe(time, now),
            None => sanitize(text),
        },
        Some(Value::Array(items)) if items.is_empty() => "-".to_owned(),
        Some(Value::Array(items)) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            format!("{} items", items.len())
        }
        Some(Value::Array(items)) => join(items.iter().map(|item| cell(Some(item), now))),
        Some(Value::Object(members)) if members.is_empty() => "-".to_owned(),
        Some(Value::Object(members)) => {
            join(members.iter().map(|(name, value)| format!("{} {}", sanitize(name), cell(Some(value), now))))
        }
    }
}

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

/// Adds style markers to a cell whose text is a known state. Removes markers that the text itself contains.
fn add_markers(text: &str) -> String {
    let index = [&GOOD[..], &PENDING, &BAD].iter().position(|states| states.contains(&text));
    let text =
        text.replace(|character| character == END_MARKER || MARKERS.iter().any(|(marker, _)| *marker == character), "");
    match index.and_then(|index| MARKERS.get(index)) {
        Some((marker, _)) => format!("{marker}{text}{END_MARKER}"),
        None => text,
    }
}

/// Replaces markers by styles. Each line ends with a reset, because the end marker of a shortened cell may be missing.
fn apply_styles(line: &str) -> String {
    let bold = Style::new().bold();
    let mut painted = String::with_capacity(line.len());
    let mut is_styled = false;
    for character in line.chars() {
        if let Some((_, style)) = MARKERS.iter().find(|(marker, _)| *marker == character) {
            painted.push_str(&style.to_string());
            is_styled = true;
        } else if character == END_MARKER {
            painted.push_str(&format!("{bold:#}"));
            is_styled = false;
        } else {
            painted.push(character);
        }
    }
    if is_styled {
        painted.push_str(&format!("{bold:#}"));
    }
    painted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn display(width: Option<u16>, has_colors: bool) -> Display {
        Display { width, has_colors, now: relative_time::parse("2026-03-31T12:00:00Z").unwrap() }
    }

    fn lines(display: Display) -> Vec<String> {
        let items = [
            json!({ "id": "019a0000-0000-7000-8000-000000000001", "state": "active", "at": "2026-03-31T11:00:00Z",
                    "note": "a very long note of many words that no terminal of eighty columns can show", "tags": ["a", "b"] }),
            json!({ "id": "019a0000-0000-7000-8000-000000000002", "state": "odd\u{2061}", "at": null,
                    "note": "short", "tags": [{ "n": 1 }] }),
        ];
        let columns = [("ID", "/id"), ("STATE", "/state"), ("AT", "/at"), ("NOTE", "/note"), ("TAGS", "/tags")];
        let columns: Vec<_> = columns.map(|(head, pointer)| (head.to_owned(), pointer)).to_vec();
        render_for(display, &items, &columns)
    }

    #[test]
    fn fits_the_terminal_and_shortens_with_an_ellipsis() {
        for width in [60, 80, 100] {
            let rendered = lines(display(Some(width), false));
            assert_eq!(rendered.len(), 3, "{rendered:#?}");
            for line in &rendered {
                let visible = line.chars().filter(|character| *character != '\u{2061}').count();
                assert!(visible <= usize::from(width), "{width}: {line}");
            }
            assert!(
                rendered[1].contains("019a0000-0000-7000-8000-000000000001") && rendered[1].contains('…'),
                "{rendered:#?}"
            );
        }
    }

    #[test]
    fn is_complete_without_a_terminal() {
        let rendered = lines(display(None, false));
        assert!(rendered[1].contains("columns can show") && !rendered.concat().contains('…'), "{rendered:#?}");
        assert!(
            rendered[1].contains("1 h ago") && rendered[1].contains("a, b") && rendered[2].contains("1 items"),
            "{rendered:#?}"
        );
        assert!(!rendered.concat().contains('\u{1b}'), "{rendered:#?}");
    }

    #[test]
    fn colours_known_states_without_changing_the_layout() {
        let (plain, painted) = (lines(display(Some(100), false)), lines(display(Some(100), true)));
        assert!(painted[1].contains("\u{1b}[32mactive\u{1b}[0m"), "{painted:#?}");
        assert!(!painted[2].contains('\u{1b}') && !painted[2].contains('\u{2061}'), "a marker in a text: {painted:#?}");
        let bare = painted[1].replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(bare, plain[1]);
        assert_eq!(apply_styles("\u{2063}fail…"), "\u{1b}[31mfail…\u{1b}[0m");
    }
}
