//! The announcement of the process shutdown.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Shared shutdown flag. After the announcement, every response closes its connection. Clients then reconnect to
/// another server between two requests, so that no request is lost.
#[derive(Clone, Debug, Default)]
pub struct ShutdownFlag(Arc<AtomicBool>);

impl ShutdownFlag {
    /// Announces the shutdown to the holders of all clones.
    pub fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the shutdown is announced.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Response extension with the shutdown state that the body reports. It keeps the `Connection` header consistent
/// with the body if the shutdown is announced in between.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownStateInBody(pub bool);
