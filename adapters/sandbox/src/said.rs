//! What a script says while it runs, up to what it may say.

use std::cell::{Cell, RefCell};

/// Longest error of an interpreter that is told whole, in bytes.
const MOST_ERROR: usize = 4 << 10;
/// What stands for the rest of a longer one.
const CUT: &str = " […]\n";

/// What was said.
pub(crate) struct Said {
    text: RefCell<String>,
    /// How much may be said, in bytes.
    most: usize,
    too_much: Cell<bool>,
}

/// The beginning of a text that has so many bytes at most.
fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

/// More was said than may be.
pub(crate) struct TooMuch;

impl Said {
    /// Nothing yet, and at most so many bytes.
    pub(crate) const fn within(most: usize) -> Self {
        Self { text: RefCell::new(String::new()), most, too_much: Cell::new(false) }
    }

    /// Takes a line; beyond the bound, its beginning.
    pub(crate) fn line(&self, line: &str) -> Result<(), TooMuch> {
        let mut text = self.text.borrow_mut();
        let room = self.most.saturating_sub(text.len());
        if line.len() < room {
            text.push_str(line);
            text.push('\n');
            return Ok(());
        }
        text.push_str(beginning(line, room));
        self.too_much.set(true);
        Err(TooMuch)
    }

    /// Takes the error that a script ended with. Interpreters repeat the script in it, however long that is: where there is no
    /// room for all of it, its beginning does, and it is not the script that said too much.
    pub(crate) fn end(&self, error: &str) {
        let mut text = self.text.borrow_mut();
        let room = self.most.saturating_sub(text.len()).min(MOST_ERROR);
        if error.len() < room {
            text.push_str(error);
            text.push('\n');
        } else if let Some(room) = room.checked_sub(CUT.len()) {
            text.push_str(beginning(error, room));
            text.push_str(CUT);
        }
    }

    /// Whether more was said than may be.
    pub(crate) const fn is_too_much(&self) -> bool {
        self.too_much.get()
    }

    /// All of it.
    pub(crate) fn take(&self) -> String {
        self.text.take()
    }
}
