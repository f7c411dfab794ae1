//! What the requests of an attack came to: an attack that is refused before it reaches what it attacks shows nothing.

use super::client::{Received, Sent};
use std::{collections::BTreeMap, fmt};

/// How a client knows that its request reached what it is aimed at: the server accepted it, or refused it by the defence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aim {
    /// What the request attacks.
    pub(super) name: &'static str,
    /// Text that the answer to an accepted request begins with or holds soon; any answer counts where it is empty.
    proof: &'static str,
    /// Status and error code of the defence.
    defence: Option<(u16, &'static str)>,
}

impl Aim {
    /// An aim that any 2xx shows.
    pub(super) const fn at(name: &'static str) -> Self {
        Self { name, proof: "", defence: None }
    }

    /// A 2xx counts where its answer holds this text.
    pub(super) const fn proved_by(self, proof: &'static str) -> Self {
        Self { proof, ..self }
    }

    /// The defence refuses with this status and error code.
    pub(super) const fn refused_as(self, status: u16, code: &'static str) -> Self {
        Self { defence: Some((status, code)), ..self }
    }
}

/// Requests of one aim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counts {
    accepted: usize,
    /// Refused by the defence.
    refused: usize,
    /// All others, by status; 0 stands for a closed connection. Each has the beginning of its first answer.
    missed: BTreeMap<u16, (usize, String)>,
}

/// Counts by aim.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Tally(BTreeMap<&'static str, Counts>);

impl Tally {
    pub(super) fn count(&mut self, sent: &Sent, received: &Received) {
        let counts = self.0.entry(sent.aim.name).or_default();
        let is_coded = |code: &str| received.beginning.contains(&format!("\"error\":\"{code}\""));
        match sent.aim.defence {
            _ if (200..300).contains(&received.status) && received.beginning.contains(sent.aim.proof) => {
                counts.accepted += 1;
            }
            Some((status, code)) if received.status == status && is_coded(code) => counts.refused += 1,
            Some(_) | None => {
                let missed = counts.missed.entry(received.status).or_default();
                if missed.0 == 0 {
                    missed.1.clone_from(&received.beginning);
                }
                missed.0 += 1;
            }
        }
    }

    /// A connection that a server holds, or that the defence closed: there is no answer to tell them by.
    pub(super) fn count_connection(&mut self, name: &'static str, accepted: bool) {
        let counts = self.0.entry(name).or_default();
        *(if accepted { &mut counts.accepted } else { &mut counts.refused }) += 1;
    }

    pub(super) fn add(&mut self, other: Self) {
        for (name, counts) in other.0 {
            let sum = self.0.entry(name).or_default();
            sum.accepted += counts.accepted;
            sum.refused += counts.refused;
            for (status, (count, beginning)) in counts.missed {
                let missed = sum.missed.entry(status).or_insert((0, beginning));
                missed.0 += count;
            }
        }
    }

    /// Aims that no request reached.
    pub(super) fn unreached(&self) -> Vec<&'static str> {
        let unreached = self.0.iter().filter(|(_, counts)| counts.accepted + counts.refused == 0);
        unreached.map(|(name, _)| *name).collect()
    }

    /// Requests that reached their aim, of the aim that the fewest reached.
    pub(super) fn least_reached(&self) -> usize {
        self.0.values().map(|counts| counts.accepted + counts.refused).min().unwrap_or_default()
    }

    /// Whether every aim was reached, and there is one.
    pub(super) fn is_complete(&self) -> bool {
        !self.0.is_empty() && self.unreached().is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, counts)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(out, "{separator}{name}: {} accepted, {} refused", counts.accepted, counts.refused)?;
            for (status, (count, _)) in &counts.missed {
                write!(out, ", {count}x {status}")?;
            }
        }
        Ok(())
    }
}

/// With how the first request of each kind that missed its aim was answered.
impl fmt::Debug for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{self}")?;
        for (name, counts) in &self.0 {
            for (status, (_, beginning)) in &counts.missed {
                let answer: String = beginning.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
                writeln!(out, "{name}, {status}: …{answer}")?;
            }
        }
        Ok(())
    }
}
