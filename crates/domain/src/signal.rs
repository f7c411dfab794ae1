//! What processes tell each other so that nobody waits for the next look. A signal may be lost: whoever waits looks from
//! time to time besides.

use crate::{id::ExecutionId, store::StoreError};
use async_trait::async_trait;
use uuid::Uuid;

/// Something that others may wait for. What must not wait comes first: when there is too much to tell, the first are told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Signal {
    /// Everybody who works on runs should look how their leases stand.
    LookAtAll,
    /// Whoever works on a run should look how its lease stands.
    Look(ExecutionId),
    /// A run waits for a worker.
    Work,
    /// A run's end was stored.
    Ended(ExecutionId),
    /// Something of a run was stored before its end.
    Progress(ExecutionId),
}

impl Signal {
    /// The signal as it is sent, in at most 37 characters.
    #[must_use]
    pub fn spelled(self) -> String {
        match self {
            Self::Work => "w".to_owned(),
            Self::Ended(id) => format!("e{id}"),
            Self::Progress(id) => format!("p{id}"),
            Self::Look(id) => format!("l{id}"),
            Self::LookAtAll => "a".to_owned(),
        }
    }

    /// The signal of that spelling. Another version may know others.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let run = |text: &str| text.parse::<Uuid>().ok().map(ExecutionId::from);
        match text.split_at_checked(1)? {
            ("w", "") => Some(Self::Work),
            ("a", "") => Some(Self::LookAtAll),
            ("e", id) => run(id).map(Self::Ended),
            ("p", id) => run(id).map(Self::Progress),
            ("l", id) => run(id).map(Self::Look),
            _ => None,
        }
    }
}

/// The line between the processes of one installation.
#[async_trait]
pub trait SignalLine: Send + Sync {
    /// Tells everybody, this process included.
    async fn tell(&self, signals: &[Signal]) -> Result<(), StoreError>;
    /// Waits for what is told. After an error the line is a new one, and what was told in between is lost.
    async fn hear(&self) -> Result<Vec<Signal>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_they_were_spelled_and_others_are_none() {
        let id = ExecutionId::from(Uuid::from_u128(7));
        for signal in [Signal::LookAtAll, Signal::Look(id), Signal::Work, Signal::Ended(id), Signal::Progress(id)] {
            assert!(signal.spelled().len() <= 37);
            assert_eq!(Signal::parse(&signal.spelled()), Some(signal));
        }
        for text in ["", "x", "w1", "p", "pp", "e", "a ", "\u{e9}"] {
            assert_eq!(Signal::parse(text), None, "{text:?}");
        }
    }
}
