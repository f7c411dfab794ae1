//! Limit on the bytes that a connection reads ahead of the consumer of a request.
//!
//! The framework turns 16 KiB into hundreds of requests at once, and each of them takes some KiB. The connection
//! therefore reads nothing behind a request before its response exists, and at most about [`WINDOW`] bytes of a body
//! ahead.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Waker},
};

/// Approximate read-ahead of a body that a consumer awaits, in bytes.
const WINDOW: usize = 16 << 10;
/// Approximate read-ahead of a body before a consumer awaits it, in bytes. A request that is refused earlier holds no
/// more.
const UNAWAITED_WINDOW: usize = 4 << 10;

/// The bytes that were read since the consumer last waited, and the reader that waits for the window to open.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    bytes: Cell<usize>,
    /// Whether a consumer has awaited the current body.
    is_awaited: Cell<bool>,
    /// Number of requests with a response.
    responses: Cell<u64>,
    reader: RefCell<Option<Waker>>,
}

impl ReceiveWindow {
    /// Records bytes that were read.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Whether the connection must not read now; `messages` counts the messages that were read completely. `context` is
    /// woken when the consumer awaits the body, or when the response exists. While a head arrives it is woken at once,
    /// so that the framework consumes its bytes first.
    pub(super) fn is_closed(&self, messages: u64, is_serving: bool, context: &mut Context<'_>) -> bool {
        let waits_for_answer = messages > self.responses.get();
        let window = if self.is_awaited.get() { WINDOW } else { UNAWAITED_WINDOW };
        if !waits_for_answer && self.bytes.get() < window {
            return false;
        }
        if waits_for_answer || is_serving {
            *self.reader.borrow_mut() = Some(context.waker().clone());
        } else {
            self.bytes.set(0);
            context.waker().wake_by_ref();
        }
        true
    }

    /// Records that a response exists, and opens the window.
    pub(super) fn response_ready(&self) {
        self.responses.set(self.responses.get().wrapping_add(1));
        self.open();
        self.is_awaited.set(false);
    }

    /// Opens the window, because the body is awaited, and wakes the reader.
    pub(super) fn open(&self) {
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
    fn closes_window_until_body_is_awaited() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let window = ReceiveWindow::default();
        window.add(UNAWAITED_WINDOW - 1);
        assert!(!window.is_closed(0, true, &mut context));
        window.add(1);
        assert!(window.is_closed(0, true, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        window.open();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!window.is_closed(0, true, &mut context));
        window.add(WINDOW - 1);
        assert!(!window.is_closed(0, true, &mut context));
        window.add(1);
        // A head has no consumer that awaits more bytes.
        assert!(window.is_closed(0, false, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert!(!window.is_closed(0, false, &mut context));
        // The next request waits for the response to this one.
        assert!(window.is_closed(1, false, &mut context));
        window.open();
        assert!(window.is_closed(1, true, &mut context));
        window.response_ready();
        assert!(!window.is_closed(1, false, &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4);
    }
}
