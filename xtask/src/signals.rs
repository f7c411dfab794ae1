//! Receives stop signals of this process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Receiver of stop signals from Ctrl-C or other processes. While the value exists, these signals do not terminate
/// this process.
pub(crate) struct Signals {
    received: Receiver<Signal>,
}

impl Signals {
    pub(crate) fn catch() -> Result<Signals> {
        let mut caught = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("catching signals")?;
        let (sender, received) = channel();
        thread::spawn(move || {
            for signal in caught.forever().filter_map(|number| Signal::try_from(number).ok()) {
                if sender.send(signal).is_err() {
                    return;
                }
            }
        });
        Ok(Signals { received })
    }

    /// Waits for the next signal; `None` after the timeout.
    pub(crate) fn recv_timeout(&self, timeout: Duration) -> Option<Signal> {
        match self.received.recv_timeout(timeout) {
            Ok(signal) => Some(signal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // Unreachable, because the signal thread ends after its receiver. The sleep prevents a busy loop of
                // the caller in any case.
                thread::sleep(timeout);
                None
            }
        }
    }
}
