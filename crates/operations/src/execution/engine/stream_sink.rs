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
    parts: mpsc::UnboundedSender<StreamPart>,
    /// Whether the current route produced output.
    pub(super) has_output: AtomicBool,
    /// Whether the first output of this route voids that of an earlier one.
    is_restart_due: AtomicBool,
}

impl StreamSink {
    pub(super) const fn new(parts: mpsc::UnboundedSender<StreamPart>) -> Self {
        Self { parts, has_output: AtomicBool::new(false), is_restart_due: AtomicBool::new(false) }
    }

    /// Marks the current route as failed. Its output becomes void.
    pub(super) fn route_failed(&self) {
        if self.has_output.swap(false, Ordering::Relaxed) {
            self.is_restart_due.store(true, Ordering::Relaxed);
        }
    }
}

impl DeltaListener for StreamSink {
    fn on_delta(&self, part: &str) {
        if part.is_empty() {
            return;
        }
        // A closed receiver means that the run was stopped.
        if self.is_restart_due.swap(false, Ordering::Relaxed) {
            let _gone = self.parts.send(StreamPart::Restart);
        }
        self.has_output.store(true, Ordering::Relaxed);
        let _gone = self.parts.send(StreamPart::Text(part.to_owned()));
    }
}
