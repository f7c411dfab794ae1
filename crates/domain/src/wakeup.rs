//! Wakeups between processes: best-effort notifications. A wakeup can be lost, so receivers also poll.

use crate::{id::ExecutionId, store::StoreError};
use async_trait::async_trait;
use uuid::Uuid;

/// An event for which other processes wait. The variants are ordered by urgency, because under overload only the most
/// urgent wakeups are sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wakeup {
    /// All workers should check their leases now.
    RecheckAll,
    /// The worker that holds the lease of this run should check it now.
    Recheck(ExecutionId),
    /// A run is queued for a worker.
    RunQueued,
    /// The end of a run was stored.
    RunEnded(ExecutionId),
    /// The progress of a run was stored.
    RunProgress(ExecutionId),
}

impl Wakeup {
    /// The wire form, which has at most 37 characters, such as `w`.
    #[must_use]
    pub fn as_wire(self) -> String {
        match self {
            Self::RunQueued => "w".to_owned(),
            Self::RunEnded(id) => format!("e{id}"),
            Self::RunProgress(id) => format!("p{id}"),
            Self::Recheck(id) => format!("l{id}"),
            Self::RecheckAll => "a".to_owned(),
        }
    }

    /// Parses the wire form; `None` for an unknown form, which another version of the server may send.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let run = |text: &str| text.parse::<Uuid>().ok().map(ExecutionId::from);
        match text.split_at_checked(1)? {
            ("w", "") => Some(Self::RunQueued),
            ("a", "") => Some(Self::RecheckAll),
            ("e", id) => run(id).map(Self::RunEnded),
            ("p", id) => run(id).map(Self::RunProgress),
            ("l", id) => run(id).map(Self::Recheck),
            _ => None,
        }
    }
}

/// The channel for wakeups between the processes of an installation.
#[async_trait]
pub trait WakeupBus: Send + Sync {
    /// Sends wakeups to all processes, including this one.
    async fn publish(&self, wakeups: &[Wakeup]) -> Result<(), StoreError>;
    /// Waits for wakeups. After an error, the channel reconnects; wakeups that were sent in the meantime are lost.
    async fn receive(&self) -> Result<Vec<Wakeup>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_round_trip_and_unknown_ones_are_ignored() {
        let id = ExecutionId::from(Uuid::from_u128(7));
        for wakeup in
            [Wakeup::RecheckAll, Wakeup::Recheck(id), Wakeup::RunQueued, Wakeup::RunEnded(id), Wakeup::RunProgress(id)]
        {
            assert!(wakeup.as_wire().len() <= 37);
            assert_eq!(Wakeup::parse(&wakeup.as_wire()), Some(wakeup));
        }
        for text in ["", "x", "w1", "p", "pp", "e", "a ", "\u{e9}"] {
            assert_eq!(Wakeup::parse(text), None, "{text:?}");
        }
    }
}
