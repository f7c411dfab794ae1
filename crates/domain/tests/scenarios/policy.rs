//! What a policy says to runs.

use crate::file::Scenario;
use fairway_domain::{
    policy::{CompiledPolicy, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// One run, or one after the other.
#[derive(Deserialize)]
#[serde(untagged)]
enum Runs {
    One(Box<RunAsked>),
    Several(Vec<RunAsked>),
}

/// Who asks for what; what is left out is as here.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunAsked {
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

impl Default for RunAsked {
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

impl RunAsked {
    /// What kind of actor it is.
    pub(crate) fn kind(&self) -> &str {
        self.actor.split(':').next().unwrap()
    }

    fn decision(&self, policy: &CompiledPolicy) -> PolicyDecision {
        policy.decide(&PolicyInput {
            actor: PolicyActor { reference: &self.actor, kind: self.kind(), groups: &self.groups, roles: &self.roles },
            workload: PolicyWorkload { slug: &self.workload, owner_ref: &self.owner, workload_id: "w-1" },
            release: PolicyRelease { release_id: "r-1", state: "active", environment: &self.environment },
            inputs: &self.inputs,
            environment: &self.environment,
            lane: &self.lane,
            now: self.now,
        })
    }
}

/// The runs of a scenario, each with its place where there are several.
pub(crate) fn runs(scenario: &Scenario) -> Vec<RunAsked> {
    match scenario.json("run.json") {
        None => vec![RunAsked::default()],
        Some(Runs::One(run)) => vec![*run],
        Some(Runs::Several(runs)) => runs,
    }
}

/// The policy of a scenario, or why it is refused when it is made.
pub(crate) fn policy(scenario: &Scenario) -> Result<CompiledPolicy, String> {
    let content: Value = scenario.json("policy.json").unwrap();
    let made = CompiledPolicy::compile(&content);
    let problems = match &made {
        Ok(policy) => policy.problems_when_made(&content),
        Err(problems) => problems.clone(),
    };
    let mut told = String::new();
    for problem in &problems {
        writeln!(told, "refused: {} at {}: {}", problem.code, problem.pointer, problem.message).unwrap();
    }
    match made {
        Ok(policy) if problems.is_empty() => Ok(policy),
        Ok(_) | Err(_) => Err(told),
    }
}

/// A decision, with the rules that led to it.
pub(crate) fn tell(which: &str, decision: &PolicyDecision, told: &mut String) {
    writeln!(told, "{which}: {}, {}", decision.outcome.as_str(), decision.reason_code).unwrap();
    if !decision.matched_rules.is_empty() {
        writeln!(told, "  matched: {}", decision.matched_rules.join(", ")).unwrap();
    }
    if !decision.obligations.is_empty() {
        let names: Vec<&str> = decision.obligations.iter().map(|obligation| obligation.as_str()).collect();
        writeln!(told, "  owes: {}", names.join(", ")).unwrap();
    }
}

/// What a policy says to each run.
pub(crate) fn told(scenario: &Scenario) -> String {
    let policy = match policy(scenario) {
        Ok(policy) => policy,
        Err(refused) => return refused,
    };
    let (runs, mut told) = (runs(scenario), String::new());
    for (index, run) in runs.iter().enumerate() {
        if runs.len() > 1 {
            writeln!(told, "run {}", index + 1).unwrap();
        }
        tell("decided", &run.decision(&policy), &mut told);
    }
    told
}
