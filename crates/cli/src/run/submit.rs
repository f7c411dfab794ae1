//! Submits a run under an idempotency key, so that a retry after a lost response returns the same run. With `--wait`,
//! transient failures are retried until the server responds or the wait is over. Without it, there is at most one
//! retry, and only if the server did not respond.

use super::wait::RunWait;
use crate::{failure::Failure, output::eprint, terminal_text::sanitize};
use std::{cell::Cell, thread, time::Duration};

/// Pause after the first attempt.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Maximum pause between attempts.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(4);

/// Sends a request that precedes the submission and starts no run. During a wait, retries transient failures until the
/// server responds or the wait is over. Prints the first failure.
///
/// # Errors
/// The failure of the last attempt.
pub(super) fn retry_preparation<T>(
    wait: Option<&RunWait>,
    send: impl Fn() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(wait) = wait else { return send() };
    let mut pause = FIRST_RETRY_PAUSE;
    let mut has_printed = false;
    loop {
        let failure = match send() {
            Err(failure) if failure.is_transient() && !wait.is_over() => failure,
            result => return result,
        };
        if !std::mem::replace(&mut has_printed, true) {
            eprint(&format!("{failure}; retrying until the wait is over"));
        }
        thread::sleep(pause.min(wait.remaining()));
        pause = pause.saturating_mul(2).min(MAX_RETRY_PAUSE);
    }
}

/// A submission under an idempotency key. After a lost response, a run may exist whose id is unknown to this process.
pub(super) struct Submission<'a, F> {
    key: &'a str,
    send: F,
    is_response_lost: Cell<bool>,
}

impl<'a, T, F: Fn() -> Result<T, Failure>> Submission<'a, F> {
    pub(super) fn with_key(key: &'a str, send: F) -> Self {
        Self { key, send, is_response_lost: Cell::new(false) }
    }

    /// Submits, and retries transient failures until the server responds or the wait is over. Prints the first failure.
    ///
    /// # Errors
    /// The failure of the last attempt.
    pub(super) fn retry_until(&self, wait: &RunWait, server: &str) -> Result<T, Failure> {
        let mut pause = FIRST_RETRY_PAUSE;
        let mut has_printed = false;
        loop {
            let unreachable = match self.attempt() {
                Err(failure) => failure.into_unreachable(server).map_err(|failure| self.report_key(failure))?,
                result => return result,
            };
            self.is_response_lost.set(true);
            if wait.is_over() {
                return Err(self.report_key(unreachable));
            }
            if !std::mem::replace(&mut has_printed, true) {
                eprint(&format!(
                    "{unreachable}; retrying with the same idempotency key, because the run may have started"
                ));
            }
            thread::sleep(pause.min(wait.remaining()));
            pause = pause.saturating_mul(2).min(MAX_RETRY_PAUSE);
        }
    }

    /// Submits, and retries once if the server does not respond.
    pub(super) fn submit_with_one_retry(&self) -> Result<T, Failure> {
        match self.attempt() {
            Err(Failure::Unreachable { .. }) => self.submit_once(),
            result => result.map_err(|failure| self.report_key(failure)),
        }
    }

    /// Submits once. Callers whose `send` retries itself use this function, and so does
    /// [`Self::submit_with_one_retry`] for its second attempt.
    pub(super) fn submit_once(&self) -> Result<T, Failure> {
        self.attempt().map_err(|failure| self.report_key(failure))
    }

    fn attempt(&self) -> Result<T, Failure> {
        let result = (self.send)();
        if let Err(Failure::Unreachable { .. }) = &result {
            self.is_response_lost.set(true);
        }
        result
    }

    /// Prints the idempotency key if the command fails after a lost response, so that the user can find the run.
    fn report_key(&self, failure: Failure) -> Failure {
        if self.is_response_lost.get() {
            let key = sanitize(self.key);
            eprint(&format!(
                "the run may have started; repeat the command with `--idempotency-key {key}` to start it at most once"
            ));
        }
        failure
    }
}
