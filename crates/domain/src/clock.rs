//! The port for the current time.

use crate::time::Timestamp;

/// The source of the current time. The domain itself never reads a clock.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}
