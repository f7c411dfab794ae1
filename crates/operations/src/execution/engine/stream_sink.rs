//! What a model says, said on while it says it.

use fairway_domain::execution::provider::Listener;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// A part of what a model says.
pub(super) enum Part {
    /// The next one.
    Said(String),
    /// What was said is void: another route begins anew.
    Again,
}

/// Says on what a model says, while it says it.
pub(super) struct Aloud {
    say: mpsc::UnboundedSender<Part>,
    /// Whether the present route said anything.
    pub(super) said: AtomicBool,
    /// Whether what an earlier one said is void as soon as this one says something.
    void: AtomicBool,
}

impl Aloud {
    pub(super) const fn over(say: mpsc::UnboundedSender<Part>) -> Self {
        Self { say, said: AtomicBool::new(false), void: AtomicBool::new(false) }
    }

    /// The route failed. Whether it had said anything.
    pub(super) fn broke_off(&self) {
        if self.said.swap(false, Ordering::Relaxed) {
            self.void.store(true, Ordering::Relaxed);
        }
    }
}

impl Listener for Aloud {
    fn said(&self, part: &str) {
        if part.is_empty() {
            return;
        }
        // Whoever does not listen any more has stopped the run.
        if self.void.swap(false, Ordering::Relaxed) {
            let _gone = self.say.send(Part::Again);
        }
        self.said.store(true, Ordering::Relaxed);
        let _gone = self.say.send(Part::Said(part.to_owned()));
    }
}
