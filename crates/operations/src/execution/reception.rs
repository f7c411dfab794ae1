//! Writing a run down, and what follows from that, as one piece of work that goes on without whoever asked for it.
//!
//! A client that goes away takes what waits for it along. Between the commit and the first step nobody but that request knows
//! of the run: it would be written down, and nobody would run it until its lease lapses.

use super::{
    code::Work,
    live::AtWork,
    run::{Running, UnderWay, as_accepted},
};
use crate::Failure;
use fairway_domain::{
    execution::{
        Acceptance, Admission, Execution, Outcome, Status,
        ports::{Accepted, AcceptedOn},
    },
    idempotency::RequestKey,
    signal::Signal,
    store::{CommitError, StoreError, StoreFault},
};
use tracing::Instrument as _;

/// A run that is to be written down, if what it was decided on still holds.
pub(super) struct Reception {
    /// What it is, and would be here.
    pub(super) running: Running,
    /// What it does.
    pub(super) work: Work,
    /// Its place among those that this process runs, where it is to run here.
    pub(super) at_work: Option<AtWork>,
    /// What must still be true.
    pub(super) on: AcceptedOn,
    /// The key that it is known by from then on.
    pub(super) key: Option<RequestKey>,
}

/// What became of it.
pub(super) enum Received {
    /// Nothing was written down: something that it was decided on has moved.
    Moved,
    /// Nothing: its key is known already.
    KeyTaken,
    /// Nothing: too many wait.
    LineFull,
    /// Nothing: its share link starts no run any more.
    LinkClosed,
    /// It is not allowed, and that is written down.
    Denied(Execution),
    /// It stands in line.
    InLine(Execution),
    /// It runs here.
    Here(UnderWay),
}

impl Reception {
    /// Does it in a task of its own.
    ///
    /// # Errors
    /// When the store does not answer, or nobody knows whether the run is written down.
    pub(super) async fn received(self) -> Result<Received, Failure> {
        let receiving = tokio::spawn(self.receive().in_current_span());
        receiving.await.map_err(|_| Failure::Corrupt("a run was not received to the end"))?
    }

    async fn receive(self) -> Result<Received, Failure> {
        let Self { running, work, at_work, on, key } = self;
        let (services, scope) = (running.services.clone(), running.scope);
        let acceptance = &running.acceptance;
        let accepted = match services.stores.executions.accept(scope, acceptance, on, key.as_ref()).await {
            // The statement may have been committed although no answer came: look before saying anything.
            Err(CommitError::Store(error)) => {
                let found = services.look_for(scope, acceptance.execution_id, error).await;
                found.map_err(|failure| unwritten(&acceptance.admission, failure))?
            }
            accepted => accepted?,
        };
        match accepted {
            Accepted::Moved => return Ok(Received::Moved),
            Accepted::KeyTaken => return Ok(Received::KeyTaken),
            Accepted::LineFull => return Ok(Received::LineFull),
            Accepted::LinkClosed => return Ok(Received::LinkClosed),
            Accepted::Yes => {}
        }
        Ok(match (&acceptance.admission, at_work) {
            (Admission::Deny(_), _) => {
                services.wake.facts();
                Received::Denied(denied(acceptance))
            }
            (Admission::Queue { .. } | Admission::Run { .. } | Admission::Script { .. }, None) => {
                services.signal(Signal::Work);
                Received::InLine(as_accepted(acceptance, Status::Queued, None))
            }
            (Admission::Queue { .. } | Admission::Run { .. } | Admission::Script { .. }, Some(at_work)) => {
                Received::Here(running.begin(work, at_work))
            }
        })
    }
}

/// Why nothing was written down. A script that the log does not take, for whatever reason, is one that cannot be run now.
fn unwritten(admission: &Admission, failure: Failure) -> Failure {
    match (admission, failure) {
        (Admission::Script { .. }, Failure::Store(error)) if error.fault == StoreFault::Broken => {
            tracing::error!(error = &error as &dyn std::error::Error, "a script could not be written down");
            Failure::Store(StoreError { fault: StoreFault::Unavailable, ..error })
        }
        (_, failure) => failure,
    }
}

fn denied(acceptance: &Acceptance) -> Execution {
    as_accepted(acceptance, Status::Denied, Some((Outcome::Denied, acceptance.started_at)))
}
