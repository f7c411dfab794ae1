//! Stop signals for this process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Stop signals from Ctrl-C or other processes. While this exists, they do not terminate the process.
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

    /// The next signal within a timeout, if any.
    pub(crate) fn recv_timeout(&self, time: Duration) -> Option<Signal> {
        match self.received.recv_timeout(time) {
            Ok(signal) => Some(signal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // The signal thread cannot end before its receiver; the sleep prevents a busy loop in any case.
                thread::sleep(time);
                None
            }
        }
    }
}
