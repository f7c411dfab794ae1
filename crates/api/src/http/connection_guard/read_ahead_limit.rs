//! Limit on the bytes that a connection reads ahead of the consumer of a request.
//!
//! The framework parses 16 KiB of pipelined bytes into hundreds of requests at once, and each request occupies some
//! KiB. The connection therefore reads nothing after a request until its response exists. It reads at most about
//! [`MAX_BYTES`] bytes of a body ahead.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Waker},
};

/// Approximate read-ahead of a body that a consumer awaits, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Approximate read-ahead of a body before a consumer awaits it, in bytes. A request that is refused before that
/// buffers no more.
const MAX_UNAWAITED_BYTES: usize = 4 << 10;

/// Counts the bytes that were read since the consumer last waited, and stores the reader that waits for a reset.
#[derive(Debug, Default)]
pub(super) struct ReadAheadLimit {
    bytes: Cell<usize>,
    /// Whether a consumer has awaited the current body.
    is_awaited: Cell<bool>,
    /// Number of requests with a response.
    responses: Cell<u64>,
    reader: RefCell<Option<Waker>>,
}

impl ReadAheadLimit {
    /// Records bytes that were read.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Whether the connection must stop reading; `messages` counts the messages that were read completely.
    /// `context` is woken when the consumer awaits the body, or when the response exists. While a head arrives,
    /// `context` is woken at once, so that the framework consumes the buffered bytes first.
    pub(super) fn is_reached(&self, messages: u64, is_serving: bool, context: &mut Context<'_>) -> bool {
        let awaits_response = messages > self.responses.get();
        let limit = if self.is_awaited.get() { MAX_BYTES } else { MAX_UNAWAITED_BYTES };
        if !awaits_response && self.bytes.get() < limit {
            return false;
        }
        if awaits_response || is_serving {
            *self.reader.borrow_mut() = Some(context.waker().clone());
        } else {
            self.bytes.set(0);
            context.waker().wake_by_ref();
        }
        true
    }

    /// Records that a response exists, and resets the count.
    pub(super) fn response_ready(&self) {
        self.responses.set(self.responses.get().wrapping_add(1));
        self.reset();
        self.is_awaited.set(false);
    }

    /// Resets the count, because the body is awaited, and wakes the reader.
    pub(super) fn reset(&self) {
        self.is_awaited.set(true);
        self.bytes.set(0);
        if let Some(reader) = self.reader.borrow_mut().take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        task::Wake,
    };

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn limits_read_ahead_until_body_is_awaited() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let limit = ReadAheadLimit::default();
        limit.add(MAX_UNAWAITED_BYTES - 1);
        assert!(!limit.is_reached(0, true, &mut context));
        limit.add(1);
        assert!(limit.is_reached(0, true, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        limit.reset();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!limit.is_reached(0, true, &mut context));
        limit.add(MAX_BYTES - 1);
        assert!(!limit.is_reached(0, true, &mut context));
        limit.add(1);
        // While a head arrives, no consumer waits for bytes, so the reader is woken at once.
        assert!(limit.is_reached(0, false, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert!(!limit.is_reached(0, false, &mut context));
        // The next request waits for the response to the current request.
        assert!(limit.is_reached(1, false, &mut context));
        limit.reset();
        assert!(limit.is_reached(1, true, &mut context));
        limit.response_ready();
        assert!(!limit.is_reached(1, false, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4);
    }
}
