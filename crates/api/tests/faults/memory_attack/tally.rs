//! Outcomes of the requests of an attack. A refusal before the target of the attack proves nothing.

use super::client::{AttackRequest, AttackResponse};
use std::{collections::BTreeMap, fmt};

/// The target of a request. A request reached it if the server accepted the request, or refused it by the defence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aim {
    /// Name of the target, for reports.
    pub(super) name: &'static str,
    /// Text that the first bytes of an accepted response must contain; empty for any response.
    proof: &'static str,
    /// Status and error code of a refusal by the defence.
    expected_refusal: Option<(u16, &'static str)>,
}

impl Aim {
    /// Creates an aim that any 2xx reaches.
    pub(super) const fn at(name: &'static str) -> Self {
        Self { name, proof: "", expected_refusal: None }
    }

    /// Requires this text in a 2xx response.
    pub(super) const fn proved_by(self, proof: &'static str) -> Self {
        Self { proof, ..self }
    }

    /// Sets the status and error code of a refusal by the defence.
    pub(super) const fn refused_as(self, status: u16, code: &'static str) -> Self {
        Self { expected_refusal: Some((status, code)), ..self }
    }
}

/// Outcomes of the requests of one aim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Outcomes {
    accepted: usize,
    /// Refused by the defence.
    refused: usize,
    /// Other responses by status, with their number and the start of the first one. 0 is a closed connection.
    other: BTreeMap<u16, (usize, String)>,
}

/// Outcomes by aim.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Tally(BTreeMap<&'static str, Outcomes>);

impl Tally {
    pub(super) fn count(&mut self, sent: &AttackRequest, received: &AttackResponse) {
        let counts = self.0.entry(sent.aim.name).or_default();
        let is_coded = |code: &str| received.prefix.contains(&format!("\"error\":\"{code}\""));
        match sent.aim.expected_refusal {
            _ if (200..300).contains(&received.status) && received.prefix.contains(sent.aim.proof) => {
                counts.accepted += 1;
            }
            Some((status, code)) if received.status == status && is_coded(code) => counts.refused += 1,
            Some(_) | None => {
                let missed = counts.other.entry(received.status).or_default();
                if missed.0 == 0 {
                    missed.1.clone_from(&received.prefix);
                }
                missed.0 += 1;
            }
        }
    }

    /// Counts a connection without a response: held by the server, or closed by the defence.
    pub(super) fn count_connection(&mut self, name: &'static str, accepted: bool) {
        let counts = self.0.entry(name).or_default();
        *(if accepted { &mut counts.accepted } else { &mut counts.refused }) += 1;
    }

    pub(super) fn add(&mut self, other: Self) {
        for (name, counts) in other.0 {
            let sum = self.0.entry(name).or_default();
            sum.accepted += counts.accepted;
            sum.refused += counts.refused;
            for (status, (count, beginning)) in counts.other {
                let missed = sum.other.entry(status).or_insert((0, beginning));
                missed.0 += count;
            }
        }
    }

    /// Names of the aims that no request reached.
    pub(super) fn unreached(&self) -> Vec<&'static str> {
        let unreached = self.0.iter().filter(|(_, counts)| counts.accepted + counts.refused == 0);
        unreached.map(|(name, _)| *name).collect()
    }

    /// The minimum over all aims of the requests that reached them.
    pub(super) fn min_reached(&self) -> usize {
        self.0.values().map(|counts| counts.accepted + counts.refused).min().unwrap_or_default()
    }

    /// Whether at least one aim exists and every aim was reached.
    pub(super) fn is_complete(&self) -> bool {
        !self.0.is_empty() && self.unreached().is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, counts)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(out, "{separator}{name}: {} accepted, {} refused", counts.accepted, counts.refused)?;
            for (status, (count, _)) in &counts.other {
                write!(out, ", {count}x {status}")?;
            }
        }
        Ok(())
    }
}

/// Adds the end of the first other response of each aim and status.
impl fmt::Debug for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{self}")?;
        for (name, counts) in &self.0 {
            for (status, (_, beginning)) in &counts.other {
                let answer: String = beginning.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
                writeln!(out, "{name}, {status}: …{answer}")?;
            }
        }
        Ok(())
    }
}
