//! Streaming of model output during generation.

use fairway_domain::execution::provider::DeltaListener;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// A part of a streamed answer.
pub(super) enum StreamPart {
    /// The next part of the text.
    Text(String),
    /// The earlier text is void, because another route starts a new answer.
    Restart,
}

/// Forwards the output of a model to the progress recorder during generation.
pub(super) struct StreamSink {
    parts: mpsc::UnboundedSender<StreamPart>,
    /// Whether the current route has produced output.
    pub(super) has_output: AtomicBool,
    /// Whether the next output must be preceded by a restart, because the output of an earlier route is void.
    is_restart_due: AtomicBool,
}

impl StreamSink {
    pub(super) const fn new(parts: mpsc::UnboundedSender<StreamPart>) -> Self {
        Self { parts, has_output: AtomicBool::new(false), is_restart_due: AtomicBool::new(false) }
    }

    /// Records the failure of the current route, which makes its output void.
    pub(super) fn record_route_failure(&self) {
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
        // Sending fails only after the run was stopped, so the failure is ignored.
        if self.is_restart_due.swap(false, Ordering::Relaxed) {
            let _ignored = self.parts.send(StreamPart::Restart);
        }
        self.has_output.store(true, Ordering::Relaxed);
        let _ignored = self.parts.send(StreamPart::Text(part.to_owned()));
    }
}
