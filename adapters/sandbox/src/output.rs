//! Captures the output of a script, up to a limit.

use std::cell::{Cell, RefCell};

/// Maximum size of an interpreter error that is not truncated, in bytes.
const MAX_ERROR: usize = 4 << 10;
/// The text that marks the end of a truncated error.
const TRUNCATION_MARK: &str = " […]\n";

/// The captured output of one script.
pub(crate) struct Output {
    text: RefCell<String>,
    /// Maximum size of the output, in bytes.
    max_bytes: usize,
    is_exceeded: Cell<bool>,
}

/// The longest prefix of a text with at most `max_bytes` bytes.
fn prefix(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// Error: the output exceeds its limit.
pub(crate) struct OutputExceeded;

impl Output {
    /// Empty output with a limit in bytes.
    pub(crate) const fn with_limit(max_bytes: usize) -> Self {
        Self { text: RefCell::new(String::new()), max_bytes, is_exceeded: Cell::new(false) }
    }

    /// Appends a line. If the line exceeds the limit, appends the prefix that fits and fails.
    pub(crate) fn append_line(&self, line: &str) -> Result<(), OutputExceeded> {
        let mut text = self.text.borrow_mut();
        let remaining_bytes = self.max_bytes.saturating_sub(text.len());
        if line.len() < remaining_bytes {
            text.push_str(line);
            text.push('\n');
            return Ok(());
        }
        text.push_str(prefix(line, remaining_bytes));
        self.is_exceeded.set(true);
        Err(OutputExceeded)
    }

    /// Appends the error that ended a script. The error may quote the script and so be long, so it is truncated. A
    /// truncated error does not count as exceeded output.
    pub(crate) fn append_error(&self, error: &str) {
        let mut text = self.text.borrow_mut();
        let remaining_bytes = self.max_bytes.saturating_sub(text.len()).min(MAX_ERROR);
        if error.len() < remaining_bytes {
            text.push_str(error);
            text.push('\n');
        } else if let Some(remaining_bytes) = remaining_bytes.checked_sub(TRUNCATION_MARK.len()) {
            text.push_str(prefix(error, remaining_bytes));
            text.push_str(TRUNCATION_MARK);
        }
    }

    /// Whether the output exceeded its limit.
    pub(crate) const fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// Returns the captured text, and leaves the output empty.
    pub(crate) fn take(&self) -> String {
        self.text.take()
    }
}
