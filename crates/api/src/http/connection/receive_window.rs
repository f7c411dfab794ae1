//! How far a connection reads ahead of whoever consumes the request.
//!
//! The framework turns all bytes that it has into requests at once, 16 KiB into hundreds, and each of them takes some KiB. So
//! nothing behind a request is read before its answer is made. Of one body, no more is read ahead than [`WINDOW`].

use std::{
    cell::{Cell, RefCell},
    task::{Context, Waker},
};

/// Bytes that are read ahead of somebody who awaits the body, about.
const WINDOW: usize = 16 << 10;
/// Bytes that are read of a body that nobody has awaited yet, about. A request that is refused before holds no more.
const UNAWAITED: usize = 4 << 10;

/// The bytes that were read since somebody waited for more, and the connection that waits to read on.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    bytes: Cell<usize>,
    /// Whether somebody awaited the present body.
    is_awaited: Cell<bool>,
    /// Requests whose answers are made.
    answered: Cell<u64>,
    reader: RefCell<Option<Waker>>,
}

impl ReceiveWindow {
    /// Notes that bytes were read.
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Whether the connection must not read now, `messages` of its messages being read to their end. `context` is woken when it
    /// may: when the body of the present request is awaited, or its answer is made. While a head arrives it is woken at once, so
    /// that the framework consumes what it has first.
    pub(super) fn is_closed(&self, (messages, is_serving): (u64, bool), context: &mut Context<'_>) -> bool {
        let waits_for_answer = messages > self.answered.get();
        let window = if self.is_awaited.get() { WINDOW } else { UNAWAITED };
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

    /// Notes that the answer to a request is made, and lets the connection read on.
    pub(super) fn answer(&self) {
        self.answered.set(self.answered.get().wrapping_add(1));
        self.open();
        self.is_awaited.set(false);
    }

    /// Lets the connection read on, because the body is awaited.
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
    fn closes_while_nobody_awaits_the_body() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut context = Context::from_waker(&waker);
        let window = ReceiveWindow::default();
        window.add(UNAWAITED - 1);
        assert!(!window.is_closed((0, true), &mut context));
        window.add(1);
        assert!(window.is_closed((0, true), &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        window.open();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(!window.is_closed((0, true), &mut context));
        window.add(WINDOW - 1);
        assert!(!window.is_closed((0, true), &mut context));
        window.add(1);
        // A head has no consumer that could ask for more.
        assert!(window.is_closed((0, false), &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
        assert!(!window.is_closed((0, false), &mut context));
        // The next request waits for the answer to this one.
        assert!(window.is_closed((1, false), &mut context));
        window.open();
        assert!(window.is_closed((1, true), &mut context));
        window.answer();
        assert!(!window.is_closed((1, false), &mut context));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 4);
    }
}
