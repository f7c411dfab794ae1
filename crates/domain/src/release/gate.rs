//! Gates: the requirements of each transition of a release. They use the functions that also decide about the
//! transition.

use super::{
    Release, ReleaseRefusal, StateName,
    activate::{ActivationReport, UnmetRequirement, unmet},
    deployment::Deployment,
    frozen_reference::UnresolvedReference,
    lane::{Lane, TargetLane},
    review::ApprovalRule,
};
use crate::{field_path, knowledge::ports::IndexPin};

/// Whether the requirement of a gate is met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GateResult {
    /// The requirement is met.
    Pass,
    /// The requirement is met, but people should read the warning.
    Warn,
    /// The requirement is unmet.
    Blocked,
}

impl GateResult {
    /// The wire form, such as `pass`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Blocked => "blocked",
        }
    }
}

/// One requirement of a transition, with its result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gate {
    /// The state to which the transition leads.
    pub to: StateName,
    /// The lane that the gate concerns; `None` if it concerns the whole transition.
    pub lane: Option<Lane>,
    /// The name of the gate, such as `flow`.
    pub name: &'static str,
    /// Whether the requirement is met.
    pub verdict: GateResult,
    /// The name of the gate if it passes; otherwise the stable code of the problem.
    pub code: &'static str,
    /// The text that explains the result to people.
    pub message: String,
}

/// The data that gates read in addition to the release.
#[derive(Clone, Debug)]
pub struct GateContext<'a> {
    /// The deployment with the current lane holders.
    pub deployment: &'a Deployment,
    /// The approval requirements of the environment.
    pub approval_rule: ApprovalRule,
    /// The facts about the bound contents.
    pub activation_report: &'a ActivationReport,
    /// The references that cannot be resolved. Only the gates of a draft read them.
    pub unresolved_references: &'a [UnresolvedReference],
}

/// The gates of an activation except those for approvals and lanes. Each name has the message of a passed gate.
pub(super) const ACTIVATION_GATES: [(&str, &str); 9] = [
    ("policy_bundle", "a policy bundle is bound"),
    ("flow", "the bound flow is executable, or none is bound"),
    ("model_policy", "steps that call a provider have an approved route"),
    ("provider_account", "every approved route of the model policy has an account on this server"),
    ("obligations", "this server can fulfil the policy's obligations"),
    ("memory", "this server supports the bound memory"),
    ("controls", "every fail-closed control is enforced"),
    ("references", "all roles that the flow references are bound"),
    ("use_case", "the workload came from no use case, or from an active one"),
];

impl Release {
    /// All gates of all transitions that are possible now, in the order of the target states.
    #[must_use]
    pub fn gates(&self, context: &GateContext<'_>) -> Vec<Gate> {
        let mut gates = Vec::new();
        for to in self.valid_transitions(context.deployment) {
            match to {
                StateName::ReviewReady => {
                    gates.push(self.bindings_gate(to));
                    gates.extend(reference_gates(to, context.unresolved_references));
                    gates.extend(self.early_activation_warnings(to, context.activation_report));
                }
                StateName::Approved => {
                    gates.push(self.approvals_gate(to, context.approval_rule));
                    gates.extend(self.early_activation_warnings(to, context.activation_report));
                }
                StateName::Active => {
                    gates.push(self.approvals_gate(to, context.approval_rule));
                    gates.extend(Lane::ALL.map(|lane| self.lane_gate(lane, context.deployment)));
                    gates.push(workload_gate(context.activation_report));
                    gates.extend(self.activation_gates(context.activation_report));
                }
                // The transitions to these states have no gates.
                StateName::Draft | StateName::Superseded | StateName::Retired => {}
            }
        }
        gates
    }

    /// The gate that warns of a release without bindings, because reviewers have nothing to review and no activation
    /// can follow.
    fn bindings_gate(&self, to: StateName) -> Gate {
        if !self.bindings.is_empty() {
            return passed(to, "bindings", "the release binds versions");
        }
        let message = "the release binds no version, so there is nothing to review".to_owned();
        Gate { to, lane: None, name: "bindings", verdict: GateResult::Warn, code: "no_bindings", message }
    }

    fn approvals_gate(&self, to: StateName, rule: ApprovalRule) -> Gate {
        let approval_check = match self.state.digest() {
            Some(digest) => self.check_approvals(digest, rule),
            None => Ok(()),
        };
        match approval_check {
            Ok(()) => passed(to, "approvals", "enough people approved the bindings"),
            Err(refusal) => blocked(to, "approvals", refusal.code(), refusal.to_string()),
        }
    }

    fn lane_gate(&self, lane: Lane, deployment: &Deployment) -> Gate {
        let gate = match self.target_lane {
            TargetLane::One(target) if target != lane => {
                let refusal = ReleaseRefusal::LaneNotTargeted;
                blocked(StateName::Active, "lane", refusal.code(), refusal.to_string())
            }
            TargetLane::All | TargetLane::One(_) if deployment.holder(lane) == Some(self.release_id) => blocked(
                StateName::Active,
                "lane",
                "invalid_transition",
                "the release holds this lane already".to_owned(),
            ),
            TargetLane::All | TargetLane::One(_) => passed(StateName::Active, "lane", "the release may take this lane"),
        };
        Gate { lane: Some(lane), ..gate }
    }

    /// The problems that would refuse a later activation, and the warnings of an activation, as warnings before the
    /// approval. They do not prevent the transition to `to`, because an operator can still solve most of them after the
    /// bindings are frozen.
    fn early_activation_warnings(&self, to: StateName, report: &ActivationReport) -> Vec<Gate> {
        let retired_workload = report.is_workload_retired.then(|| {
            let refusal = ReleaseRefusal::WorkloadRetired;
            unmet("workload", refusal.code(), refusal.to_string())
        });
        let activation_refusals = retired_workload.into_iter().chain(self.unmet_requirements(report));
        let activation_refusals = activation_refusals.map(|requirement| {
            let message = format!("an activation would be refused: {}", requirement.message);
            UnmetRequirement { message, ..requirement }
        });
        let warning = |UnmetRequirement { gate, code, message }: UnmetRequirement| Gate {
            to,
            lane: None,
            name: gate,
            verdict: GateResult::Warn,
            code,
            message,
        };
        activation_refusals.chain(self.activation_warnings(report)).map(warning).collect()
    }

    fn activation_gates(&self, report: &ActivationReport) -> Vec<Gate> {
        let (missing, warnings) = (self.unmet_requirements(report), self.activation_warnings(report));
        let mut gates = Vec::new();
        for (name, message) in ACTIVATION_GATES {
            let count_before = gates.len();
            let gates_of = |missing: &[UnmetRequirement], verdict| -> Vec<Gate> {
                let of_gate = missing.iter().filter(|requirement| requirement.gate == name);
                of_gate
                    .map(|requirement| Gate {
                        verdict,
                        ..blocked(StateName::Active, name, requirement.code, requirement.message.clone())
                    })
                    .collect()
            };
            gates.extend(gates_of(&missing, GateResult::Blocked));
            gates.extend(gates_of(&warnings, GateResult::Warn));
            if gates.len() == count_before {
                gates.push(passed(StateName::Active, name, message));
            }
        }
        gates
    }
}

/// The gate that compares the documents of the bound knowledge bases with the documents at the approval. `None` without
/// a bound knowledge base or without an approval. Documents that were added later only cause a warning.
#[must_use]
pub fn documents_gate(pins: &[IndexPin]) -> Option<Gate> {
    let drifted = pins.iter().filter(|pin| pin.latest != pin.pinned).count();
    let gate = passed(StateName::Active, "documents", "the documents are unchanged since the approval");
    match (pins.is_empty(), drifted) {
        (true, _) => None,
        (false, 0) => Some(gate),
        (false, _) => {
            let message = format!("documents were added to {drifted} knowledge bases since the release was approved");
            Some(Gate { verdict: GateResult::Warn, code: "documents_drifted", message, ..gate })
        }
    }
}

fn workload_gate(report: &ActivationReport) -> Gate {
    if report.is_workload_retired {
        let refusal = ReleaseRefusal::WorkloadRetired;
        return blocked(StateName::Active, "workload", refusal.code(), refusal.to_string());
    }
    passed(StateName::Active, "workload", "the workload accepts releases")
}

fn reference_gates(to: StateName, unresolved: &[UnresolvedReference]) -> Vec<Gate> {
    if unresolved.is_empty() {
        return vec![passed(to, "references", "every reference is resolved")];
    }
    let blocked = |reference: &UnresolvedReference| {
        let path = field_path::from_pointer("content", &reference.pointer);
        let message = format!("`{path}` of `{}`: {}", reference.asset_slug, reference.message);
        blocked(to, "references", reference.code, message)
    };
    unresolved.iter().map(blocked).collect()
}

fn passed(to: StateName, name: &'static str, message: &str) -> Gate {
    Gate { to, lane: None, name, verdict: GateResult::Pass, code: name, message: message.to_owned() }
}

fn blocked(to: StateName, name: &'static str, code: &'static str, message: String) -> Gate {
    Gate { to, lane: None, name, verdict: GateResult::Blocked, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::IndexRevision;
    use uuid::Uuid;

    #[test]
    fn later_documents_only_warn() {
        let pin = |pinned, latest| IndexPin {
            asset: Uuid::nil().into(),
            pinned: IndexRevision::new(pinned),
            latest: IndexRevision::new(latest),
        };
        assert_eq!(documents_gate(&[]), None);
        let gate = documents_gate(&[pin(0, 0), pin(3, 3)]).unwrap();
        assert_eq!((gate.verdict, gate.code), (GateResult::Pass, "documents"));
        let gate = documents_gate(&[pin(3, 3), pin(3, 4)]).unwrap();
        assert_eq!((gate.verdict, gate.code, gate.name), (GateResult::Warn, "documents_drifted", "documents"));
    }
}
