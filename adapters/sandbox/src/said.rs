//! What a script says while it runs, up to what it may say.

use fairway_domain::execution::code::MOST_OUTPUT;
use std::cell::{Cell, RefCell};

/// What was said.
#[derive(Default)]
pub(crate) struct Said {
    text: RefCell<String>,
    too_much: Cell<bool>,
}

/// More was said than may be.
pub(crate) struct TooMuch;

impl Said {
    /// Takes a line; beyond the bound, its beginning.
    pub(crate) fn line(&self, line: &str) -> Result<(), TooMuch> {
        let mut text = self.text.borrow_mut();
        let room = MOST_OUTPUT.saturating_sub(text.len());
        if line.len() < room {
            text.push_str(line);
            text.push('\n');
            return Ok(());
        }
        let mut end = room.min(line.len());
        while !line.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        text.push_str(line.get(..end).unwrap_or_default());
        self.too_much.set(true);
        Err(TooMuch)
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
