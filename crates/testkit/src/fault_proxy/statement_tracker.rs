//! Tracks the statements of a connection from its frames.

use std::collections::HashMap;

/// Tracks the current statement of a connection and the statements that were prepared under a name.
#[derive(Default)]
pub(super) struct StatementTracker {
    prepared: HashMap<Vec<u8>, String>,
    statement: String,
    is_executed: bool,
}

impl StatementTracker {
    /// Records a frame. Returns whether the frame ends a request.
    pub(super) fn record(&mut self, frame: &[u8]) -> bool {
        let mut texts = frame.get(5..).unwrap_or_default().split(|byte| *byte == 0);
        let mut text = || texts.next().unwrap_or_default();
        match frame.first() {
            // A Parse message contains the statement's name and its text.
            Some(b'P') => {
                let (name, text) = (text().to_vec(), String::from_utf8_lossy(text()).into_owned());
                self.statement.clone_from(&text);
                self.is_executed = false;
                self.prepared.insert(name, text);
                false
            }
            // A Bind message contains the names of a portal and of a prepared statement.
            Some(b'B') => {
                let _portal = text();
                self.statement = self.prepared.get(text()).cloned().unwrap_or_default();
                self.is_executed = true;
                false
            }
            // After a Close message, the connection has no current statement.
            Some(b'C') => {
                self.statement.clear();
                false
            }
            // A Query message contains the statement's text, and is a complete request.
            Some(b'Q') => {
                self.statement = String::from_utf8_lossy(text()).into_owned();
                self.is_executed = true;
                true
            }
            // A Sync message ends a request.
            Some(b'S') => true,
            Some(_) | None => false,
        }
    }

    /// Whether the request executes the statement, instead of only preparing it.
    pub(super) fn is_executed(&self) -> bool {
        self.is_executed
    }

    pub(super) fn statement(&self) -> &str {
        &self.statement
    }
}
