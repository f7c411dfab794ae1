//! Counts the outcomes of an attack's requests. A request that is refused before it reaches the attacked code proves
//! nothing.

use super::client::{AttackRequest, AttackResponse};
use std::{collections::BTreeMap, fmt};

/// The aim of a request: the code that it attacks. A request reaches its aim if the server accepts the request, or
/// refuses it by the expected defence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aim {
    /// Name of the aim, for reports.
    pub(super) name: &'static str,
    /// Text that an accepted response must contain in its first bytes; empty to accept any response.
    proof: &'static str,
    /// Status and error code with which the defence refuses requests.
    expected_refusal: Option<(u16, &'static str)>,
}

impl Aim {
    /// Creates an aim that any 2xx response reaches.
    pub(super) const fn at(name: &'static str) -> Self {
        Self { name, proof: "", expected_refusal: None }
    }

    /// Requires this text in a 2xx response to reach the aim.
    pub(super) const fn proved_by(self, proof: &'static str) -> Self {
        Self { proof, ..self }
    }

    /// Sets the status and error code with which the defence refuses requests.
    pub(super) const fn refused_as(self, status: u16, code: &'static str) -> Self {
        Self { expected_refusal: Some((status, code)), ..self }
    }
}

/// Outcomes of all requests with one aim.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Outcomes {
    accepted: usize,
    /// Number of requests that the defence refused.
    refused: usize,
    /// Other responses by status: their number, and the start of the first response. Status 0 is a closed connection.
    other: BTreeMap<u16, (usize, String)>,
}

/// The outcomes of requests, by the name of their aim.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct OutcomeCounts(BTreeMap<&'static str, Outcomes>);

impl OutcomeCounts {
    pub(super) fn count(&mut self, request: &AttackRequest, received: &AttackResponse) {
        let counts = self.0.entry(request.aim.name).or_default();
        let is_coded = |code: &str| received.prefix.contains(&format!("\"error\":\"{code}\""));
        match request.aim.expected_refusal {
            _ if (200..300).contains(&received.status) && received.prefix.contains(request.aim.proof) => {
                counts.accepted += 1;
            }
            Some((status, code)) if received.status == status && is_coded(code) => counts.refused += 1,
            Some(_) | None => {
                let unexpected = counts.other.entry(received.status).or_default();
                if unexpected.0 == 0 {
                    unexpected.1.clone_from(&received.prefix);
                }
                unexpected.0 += 1;
            }
        }
    }

    /// Counts a connection without a response: `accepted` if the server keeps it open, otherwise closed by the defence.
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
                let unexpected = sum.other.entry(status).or_insert((0, beginning));
                unexpected.0 += count;
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

impl fmt::Display for OutcomeCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, counts)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{name}: {} accepted, {} refused", counts.accepted, counts.refused)?;
            for (status, (count, _)) in &counts.other {
                write!(formatter, ", {count}x {status}")?;
            }
        }
        Ok(())
    }
}

/// Includes the last stored characters of the first unexpected response for each aim and status.
impl fmt::Debug for OutcomeCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{self}")?;
        for (name, counts) in &self.0 {
            for (status, (_, beginning)) in &counts.other {
                let response_end: String =
                    beginning.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
                writeln!(formatter, "{name}, {status}: …{response_end}")?;
            }
        }
        Ok(())
    }
}
