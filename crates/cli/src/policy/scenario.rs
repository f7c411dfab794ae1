//! Tests: what a policy is asked, and what it should answer.

use fairway_domain::{
    asset::canonical::Canonical,
    policy::{
        CompiledPolicy, Obligation, Outcome, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload,
    },
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use time::OffsetDateTime;

/// One test, as a bundle carries it and as files of scenarios hold it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    #[serde(default)]
    input: Input,
    expect: Expectation,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    outcome: Outcome,
    reason_code: Option<String>,
    /// Those and no others, in any order.
    obligations: Option<BTreeSet<Obligation>>,
    /// The ids of exactly the rules that match, in any order.
    matched_rules: Option<BTreeSet<String>>,
}

/// The variables of a test; what it leaves out is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Input {
    actor: Actor,
    workload: Workload,
    release: Release,
    inputs: Map<String, Value>,
    environment: String,
    lane: String,
    now: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Actor {
    #[serde(rename = "ref")]
    reference: String,
    #[serde(rename = "type")]
    kind: String,
    groups: Vec<String>,
    roles: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Workload {
    slug: String,
    owner_ref: String,
    workload_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Release {
    release_id: String,
    state: String,
    environment: String,
}

impl Scenario {
    /// Reads one. `5` and `5.0` are one input and to a condition two types, so numbers are taken in the one spelling that
    /// canonical JSON has for them, as the server takes them.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let canonical = Canonical::of(value).ok()?;
        serde_json::from_str(canonical.text()).ok()
    }

    pub(super) fn decide(&self, policy: &CompiledPolicy) -> PolicyDecision {
        let input = &self.input;
        policy.decide(&PolicyInput {
            actor: PolicyActor {
                reference: &input.actor.reference,
                kind: &input.actor.kind,
                groups: &input.actor.groups,
                roles: &input.actor.roles,
            },
            workload: PolicyWorkload {
                slug: &input.workload.slug,
                owner_ref: &input.workload.owner_ref,
                workload_id: &input.workload.workload_id,
            },
            release: PolicyRelease {
                release_id: &input.release.release_id,
                state: &input.release.state,
                environment: &input.release.environment,
            },
            inputs: &input.inputs,
            environment: &input.environment,
            lane: &input.lane,
            now: input.now.unwrap_or_else(|| Timestamp::new(OffsetDateTime::UNIX_EPOCH)),
        })
    }

    /// What was expected and is not so.
    pub(super) fn difference(&self, decision: &PolicyDecision) -> Option<String> {
        let Expectation { outcome, reason_code, obligations, matched_rules } = &self.expect;
        let mut differences = Vec::new();
        let mut compare = |what: &str, expected: String, decided: String| {
            if expected != decided {
                differences.push(format!("{what}: expected {expected}, decided {decided}"));
            }
        };
        compare("outcome", outcome.as_str().to_owned(), decision.outcome.as_str().to_owned());
        if let Some(reason) = reason_code {
            compare("reason_code", reason.clone(), decision.reason_code.clone());
        }
        if let Some(obligations) = obligations {
            let decided: BTreeSet<Obligation> = decision.obligations.iter().copied().collect();
            compare(
                "obligations",
                listed(obligations.iter().map(|one| one.as_str())),
                listed(decided.iter().map(|one| one.as_str())),
            );
        }
        if let Some(rules) = matched_rules {
            let decided: BTreeSet<&str> = decision.matched_rules.iter().map(String::as_str).collect();
            compare("matched_rules", listed(rules.iter().map(String::as_str)), listed(decided.into_iter()));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }
}

fn listed<'t>(items: impl Iterator<Item = &'t str>) -> String {
    let items: Vec<&str> = items.collect();
    format!("[{}]", items.join(", "))
}
