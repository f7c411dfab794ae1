//! Writes transcripts of policy decisions.

use crate::scenario_file::Scenario;
use fairway_domain::{
    policy::{CompiledPolicy, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// The content of `run.json`: one run, or a list of runs.
#[derive(Deserialize)]
#[serde(untagged)]
enum Runs {
    One(Box<RunRequest>),
    Many(Vec<RunRequest>),
}

/// The request of a run. [`Default`] provides the members that the file omits.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunRequest {
    pub(crate) actor: String,
    pub(crate) groups: Vec<String>,
    pub(crate) roles: Vec<String>,
    pub(crate) workload: String,
    pub(crate) owner: String,
    pub(crate) environment: String,
    pub(crate) lane: String,
    pub(crate) inputs: Map<String, Value>,
    pub(crate) now: Timestamp,
}

impl Default for RunRequest {
    fn default() -> Self {
        Self {
            actor: "user:ada".to_owned(),
            groups: Vec::new(),
            roles: vec!["runtime_user".to_owned()],
            workload: "desk".to_owned(),
            owner: "team:desk".to_owned(),
            environment: "production".to_owned(),
            lane: "standard".to_owned(),
            inputs: Map::new(),
            now: serde_json::from_str("\"2026-03-02T09:30:00Z\"").unwrap(),
        }
    }
}

impl RunRequest {
    /// The kind of the actor, which precedes the colon in its reference.
    pub(crate) fn actor_kind(&self) -> &str {
        self.actor.split(':').next().unwrap()
    }

    fn decide(&self, policy: &CompiledPolicy) -> PolicyDecision {
        policy.decide(&PolicyInput {
            actor: PolicyActor {
                reference: &self.actor,
                kind: self.actor_kind(),
                groups: &self.groups,
                roles: &self.roles,
            },
            workload: PolicyWorkload { slug: &self.workload, owner_ref: &self.owner, workload_id: "w-1" },
            release: PolicyRelease { release_id: "r-1", state: "active", environment: &self.environment },
            inputs: &self.inputs,
            environment: &self.environment,
            lane: &self.lane,
            now: self.now,
        })
    }
}

/// The runs of a scenario. Without the section `run.json`, there is one run with default values.
pub(crate) fn runs(scenario: &Scenario) -> Vec<RunRequest> {
    match scenario.json("run.json") {
        None => vec![RunRequest::default()],
        Some(Runs::One(run)) => vec![*run],
        Some(Runs::Many(runs)) => runs,
    }
}

/// Compiles the policy of a scenario.
///
/// # Errors
/// Returns the transcript of the problems.
pub(crate) fn compile_policy(scenario: &Scenario) -> Result<CompiledPolicy, String> {
    let content: Value = scenario.json("policy.json").unwrap();
    let compiled = CompiledPolicy::compile(&content);
    let problems = match &compiled {
        Ok(policy) => policy.new_version_problems(&content),
        Err(problems) => problems.clone(),
    };
    let mut out = String::new();
    for problem in &problems {
        writeln!(out, "refused: {} at {}: {}", problem.code, problem.pointer, problem.message).unwrap();
    }
    match compiled {
        Ok(policy) if problems.is_empty() => Ok(policy),
        Ok(_) | Err(_) => Err(out),
    }
}

/// Writes a decision with its matched rules and obligations.
pub(crate) fn write_decision(label: &str, decision: &PolicyDecision, out: &mut String) {
    writeln!(out, "{label}: {}, {}", decision.outcome.as_str(), decision.reason_code).unwrap();
    if !decision.matched_rules.is_empty() {
        writeln!(out, "  matched: {}", decision.matched_rules.join(", ")).unwrap();
    }
    if !decision.obligations.is_empty() {
        let names: Vec<&str> = decision.obligations.iter().map(|obligation| obligation.as_str()).collect();
        writeln!(out, "  owes: {}", names.join(", ")).unwrap();
    }
}

/// Writes the decision of the policy for each run.
pub(crate) fn policy_transcript(scenario: &Scenario) -> String {
    let policy = match compile_policy(scenario) {
        Ok(policy) => policy,
        Err(refusals) => return refusals,
    };
    let (runs, mut out) = (runs(scenario), String::new());
    for (index, run) in runs.iter().enumerate() {
        if runs.len() > 1 {
            writeln!(out, "run {}", index + 1).unwrap();
        }
        write_decision("decided", &run.decide(&policy), &mut out);
    }
    out
}
