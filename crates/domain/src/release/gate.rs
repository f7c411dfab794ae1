//! Gates: what stands before each next state, told by the functions that decide.

use super::{
    Release, ReleaseRefusal, StateName,
    activate::{Missing, Standing},
    lane::{Deployment, Lane, TargetLane},
    reference::UnresolvedReference,
    review::ApprovalRule,
};
use crate::{field_path, knowledge::ports::Pin};

/// How a gate stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateVerdict {
    /// It is open.
    Pass,
    /// It is open, and somebody should know something.
    Warn,
    /// It is shut.
    Blocked,
}

impl GateVerdict {
    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Blocked => "blocked",
        }
    }
}

/// One thing that is looked at before a release moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gate {
    /// The state behind it.
    pub to: StateName,
    /// The lane behind it, where it guards one alone.
    pub lane: Option<Lane>,
    /// Its name.
    pub name: &'static str,
    /// How it stands.
    pub verdict: GateVerdict,
    /// Its name where it is open, else the stable code of what is wrong.
    pub code: &'static str,
    /// The same for people.
    pub message: String,
}

/// What the gates look at besides the release.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// Who holds the lanes.
    pub deployment: &'a Deployment,
    /// What the environment asks of approvals.
    pub rule: ApprovalRule,
    /// What is known of the bound contents.
    pub standing: &'a Standing,
    /// References that mean nothing; looked at in drafts, where they are still open.
    pub unresolved: &'a [UnresolvedReference],
}

/// The gates that an activation passes besides the approvals and the lane, with what is said where they are open.
pub(super) const ACTIVATION_GATES: [(&str, &str); 7] = [
    ("policy_bundle", "a policy bundle is bound"),
    ("flow", "the bound flow can be run, or none is bound"),
    ("model_policy", "what asks a provider has an approved route"),
    ("obligations", "this server can fulfil what the policy may oblige it to"),
    ("memory", "this server can remember what it is asked to"),
    ("controls", "no control promises more than is enforced"),
    ("references", "everything that the flow refers to is bound"),
];

impl Release {
    /// Every gate of every state that can follow, in the order of the states.
    #[must_use]
    pub fn gates(&self, around: &Surroundings<'_>) -> Vec<Gate> {
        let mut gates = Vec::new();
        for to in self.valid_transitions(around.deployment) {
            match to {
                StateName::ReviewReady => gates.extend(reference_gates(to, around.unresolved)),
                StateName::Approved => gates.push(self.approvals_gate(to, around.rule)),
                StateName::Active => {
                    gates.push(self.approvals_gate(to, around.rule));
                    gates.extend(Lane::ALL.map(|lane| self.lane_gate(lane, around.deployment)));
                    gates.push(workload_gate(around.standing));
                    gates.extend(self.activation_gates(around.standing));
                }
                // Nothing stands before these.
                StateName::Draft | StateName::Superseded | StateName::Retired => {}
            }
        }
        gates
    }

    fn approvals_gate(&self, to: StateName, rule: ApprovalRule) -> Gate {
        let checked = match self.state.digest() {
            Some(digest) => self.check_approvals(digest, rule),
            None => Ok(()),
        };
        match checked {
            Ok(()) => open(to, "approvals", "enough people approved what is bound"),
            Err(refusal) => shut(to, "approvals", refusal.code(), refusal.to_string()),
        }
    }

    fn lane_gate(&self, lane: Lane, deployment: &Deployment) -> Gate {
        let gate = match self.target_lane {
            TargetLane::Only(target) if target != lane => {
                let refusal = ReleaseRefusal::LaneNotTargeted;
                shut(StateName::Active, "lane", refusal.code(), refusal.to_string())
            }
            TargetLane::All | TargetLane::Only(_) if deployment.holder(lane) == Some(self.release_id) => {
                shut(StateName::Active, "lane", "invalid_transition", "the release holds this lane already".to_owned())
            }
            TargetLane::All | TargetLane::Only(_) => open(StateName::Active, "lane", "the release may take this lane"),
        };
        Gate { lane: Some(lane), ..gate }
    }

    fn activation_gates(&self, standing: &Standing) -> Vec<Gate> {
        let (gaps, warnings) = (self.activation_gaps(standing), self.activation_warnings(standing));
        let mut gates = Vec::new();
        for (name, message) in ACTIVATION_GATES {
            let said = gates.len();
            let found = |gaps: &[Missing], verdict| -> Vec<Gate> {
                let of_gate = gaps.iter().filter(|gap| gap.gate == name);
                of_gate
                    .map(|gap| Gate { verdict, ..shut(StateName::Active, name, gap.code, gap.message.clone()) })
                    .collect()
            };
            gates.extend(found(&gaps, GateVerdict::Blocked));
            gates.extend(found(&warnings, GateVerdict::Warn));
            if gates.len() == said {
                gates.push(open(StateName::Active, name, message));
            }
        }
        gates
    }
}

/// How the documents of bound knowledge bases stand against those that the release was approved with; `None` where it binds
/// no knowledge base, or was not approved. Documents that came later stop nothing.
#[must_use]
pub fn documents_gate(pins: &[Pin]) -> Option<Gate> {
    let drifted = pins.iter().filter(|pin| pin.present != pin.pinned).count();
    let gate = open(StateName::Active, "documents", "the documents are those that the release was approved with");
    match (pins.is_empty(), drifted) {
        (true, _) => None,
        (false, 0) => Some(gate),
        (false, _) => {
            let message = format!("documents were added to {drifted} knowledge bases since the release was approved");
            Some(Gate { verdict: GateVerdict::Warn, code: "documents_drifted", message, ..gate })
        }
    }
}

fn workload_gate(standing: &Standing) -> Gate {
    if standing.is_workload_retired {
        let refusal = ReleaseRefusal::WorkloadRetired;
        return shut(StateName::Active, "workload", refusal.code(), refusal.to_string());
    }
    open(StateName::Active, "workload", "the workload takes releases")
}

fn reference_gates(to: StateName, unresolved: &[UnresolvedReference]) -> Vec<Gate> {
    if unresolved.is_empty() {
        return vec![open(to, "references", "every reference means one version")];
    }
    let blocked = |reference: &UnresolvedReference| {
        let path = field_path::of_pointer("content", &reference.pointer);
        let message = format!("`{path}` of `{}`: {}", reference.asset_slug, reference.message);
        shut(to, "references", reference.code, message)
    };
    unresolved.iter().map(blocked).collect()
}

fn open(to: StateName, name: &'static str, message: &str) -> Gate {
    Gate { to, lane: None, name, verdict: GateVerdict::Pass, code: name, message: message.to_owned() }
}

fn shut(to: StateName, name: &'static str, code: &'static str, message: String) -> Gate {
    Gate { to, lane: None, name, verdict: GateVerdict::Blocked, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::IndexRevision;
    use uuid::Uuid;

    #[test]
    fn documents_that_came_later_are_told_and_stop_nothing() {
        let pin = |pinned, present| Pin {
            asset: Uuid::nil().into(),
            pinned: IndexRevision::new(pinned),
            present: IndexRevision::new(present),
        };
        assert_eq!(documents_gate(&[]), None);
        let gate = documents_gate(&[pin(0, 0), pin(3, 3)]).unwrap();
        assert_eq!((gate.verdict, gate.code), (GateVerdict::Pass, "documents"));
        let gate = documents_gate(&[pin(3, 3), pin(3, 4)]).unwrap();
        assert_eq!((gate.verdict, gate.code, gate.name), (GateVerdict::Warn, "documents_drifted", "documents"));
    }
}
