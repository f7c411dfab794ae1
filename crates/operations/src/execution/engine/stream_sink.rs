//! Streaming of model output while the model generates it.

use fairway_domain::execution::provider::DeltaListener;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// A part of a streamed answer.
pub(super) enum StreamPart {
    /// The next text.
    Text(String),
    /// The text so far is void: another route starts over.
    Restart,
}

/// Forwards the output of a model while it is generated.
pub(super) struct StreamSink {
    say: mpsc::UnboundedSender<StreamPart>,
    /// Whether the current route produced output.
    pub(super) said: AtomicBool,
    /// Whether the first output of this route voids that of an earlier one.
    void: AtomicBool,
}

impl StreamSink {
    pub(super) const fn new(say: mpsc::UnboundedSender<StreamPart>) -> Self {
        Self { say, said: AtomicBool::new(false), void: AtomicBool::new(false) }
    }

    /// Marks the current route as failed. Its output becomes void.
    pub(super) fn route_failed(&self) {
        if self.said.swap(false, Ordering::Relaxed) {
            self.void.store(true, Ordering::Relaxed);
        }
    }
}

impl DeltaListener for StreamSink {
    fn on_delta(&self, part: &str) {
        if part.is_empty() {
            return;
        }
        // A closed receiver means that the run was stopped.
        if self.void.swap(false, Ordering::Relaxed) {
            let _gone = self.say.send(StreamPart::Restart);
        }
        self.said.store(true, Ordering::Relaxed);
        let _gone = self.say.send(StreamPart::Text(part.to_owned()));
    }
}
