//! The port for the current time.

use crate::time::Timestamp;

/// The source of the current time. The domain itself reads no clock; callers pass the time as an argument.
pub trait Clock: Send + Sync {
    /// The current time, truncated to the precision of the database.
    fn now(&self) -> Timestamp;
}
