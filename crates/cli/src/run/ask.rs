//! Asking for a run until the server says which one it is. Under the same key the same run is found again, wherever the answer
//! was lost.

use super::wait::Wait;
use crate::{failure::Failure, output::tell, text::plain};
use std::{cell::Cell, thread, time::Duration};

/// Between the first tries.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Between tries, however many there were.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// A request for a run under a key, and whether an answer to it was lost: then there may be a run that nobody knows.
pub(super) struct Asking<'a, F> {
    key: &'a str,
    ask: F,
    is_lost: Cell<bool>,
}

impl<'a, T, F: Fn() -> Result<T, Failure>> Asking<'a, F> {
    pub(super) fn under(key: &'a str, ask: F) -> Self {
        Self { key, ask, is_lost: Cell::new(false) }
    }

    /// Asks until somebody answers or the wait is over. Only what passes is waited out, and that is told once.
    ///
    /// # Errors
    /// What the last try came to.
    pub(super) fn until(&self, wait: &Wait, server: &str) -> Result<T, Failure> {
        let mut pause = FIRST_PAUSE;
        let mut is_told = false;
        loop {
            let unseen = match self.attempt() {
                Err(failure) => failure.passing(server).map_err(|settled| self.left(settled))?,
                answered => return answered,
            };
            self.is_lost.set(true);
            if wait.is_over() {
                return Err(self.left(unseen));
            }
            if !std::mem::replace(&mut is_told, true) {
                tell(&format!("{unseen}; asking again under the same key, as the run may have begun"));
            }
            thread::sleep(pause.min(wait.left()));
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    /// Asks a second time where nobody answers.
    pub(super) fn twice(&self) -> Result<T, Failure> {
        match self.attempt() {
            Err(Failure::Unreachable { .. }) => self.once(),
            answered => answered.map_err(|failure| self.left(failure)),
        }
    }

    /// Asks what asks again by itself.
    pub(super) fn once(&self) -> Result<T, Failure> {
        self.attempt().map_err(|failure| self.left(failure))
    }

    fn attempt(&self) -> Result<T, Failure> {
        let answered = (self.ask)();
        if let Err(Failure::Unreachable { .. }) = &answered {
            self.is_lost.set(true);
        }
        answered
    }

    /// Names the key to whoever leaves without knowing whether there is a run.
    fn left(&self, failure: Failure) -> Failure {
        if self.is_lost.get() {
            let key = plain(self.key);
            tell(&format!(
                "the run may have begun; the same command with `--idempotency-key {key}` begins it no second time"
            ));
        }
        failure
    }
}
