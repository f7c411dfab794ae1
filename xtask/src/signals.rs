//! The requests to stop that reach this process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Requests to stop, from Ctrl-C or another process. While this exists none of them ends this process by itself.
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

    /// The next request, if one comes within this time.
    pub(crate) fn within(&self, time: Duration) -> Option<Signal> {
        match self.received.recv_timeout(time) {
            Ok(signal) => Some(signal),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                // The catching thread cannot end while its receiver lives; waiting keeps a loop from spinning even so.
                thread::sleep(time);
                None
            }
        }
    }
}
