//! `fairway policy try`: evaluates a policy for one input, and shows the result of each rule.

use super::suite;
use crate::{
    asset::content_problems,
    command_context::CommandContext,
    dynamic_completion,
    failure::Failure,
    output::{Output, print},
    terminal_text::sanitize,
    untrusted_file::{LocatedValue, Source},
};
use clap::Args;
use fairway_domain::{
    asset::kind::AssetKind,
    policy::{
        ClauseExplanation, CompiledPolicy, ConditionResult, DecisionExplanation, ExplanationRefusal, RuleExplanation,
    },
};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `policy try`.
#[derive(Args)]
#[command(
    after_help = "The input has the form of a test's `input`: `environment`, `lane`, `inputs`, `actor`, `workload`, \
    `release`, `now`. A file with `input`, such as a test, is accepted too. Exits with 0 whatever the \
    decision.\n\nExamples:\n  fairway policy try demo/assets/ticket-policy.yaml --input examples/cli/ticket-input.yaml\n  \
    fairway policy try demo/assets/ticket-policy.yaml --env dev --set ticket='I was charged twice'"
)]
pub(crate) struct Arguments {
    /// A manifest or plain content of a policy bundle, or a directory whose bundles are all tried
    #[arg(default_value = ".")]
    bundle: PathBuf,
    /// A JSON or YAML file with the input; `-` means standard input
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// The environment of the input
    #[arg(long, short, value_name = "ENVIRONMENT", add = dynamic_completion::environments())]
    env: Option<String>,
    /// One of the run's inputs: NAME=TEXT or NAME:=JSON
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

pub(super) fn run(arguments: &Arguments, context: &CommandContext) -> Result<(), Failure> {
    let output = context.offline_output();
    let input = arguments.read_input()?;
    if !arguments.bundle.is_dir() {
        let (located, pointer) = read_bundle(&arguments.bundle)?;
        return print_explanation(output, &explain(&located, pointer, &input)?);
    }
    let bundles = suite::read_bundles(&arguments.bundle)?;
    let mut explanations = Vec::new();
    for bundle in &bundles {
        explanations.push((bundle.slug.as_str(), explain(&bundle.located, bundle.pointer, &input)?));
    }
    if !output.is_for_people() {
        let to_json = |(slug, explanation): &(&str, DecisionExplanation)| json!({ "bundle": slug, "decision": explanation.decision, "rules": explanation.rules });
        return output.value(&Value::Array(explanations.iter().map(to_json).collect()));
    }
    for (index, (slug, explanation)) in explanations.iter().enumerate() {
        if index > 0 {
            print("")?;
        }
        print(&format!("# {}", sanitize(slug)))?;
        print_explanation(output, explanation)?;
    }
    Ok(())
}

fn explain(located: &LocatedValue, pointer: &str, input: &Value) -> Result<DecisionExplanation, Failure> {
    let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
    CompiledPolicy::explain(content, input).map_err(|refusal| match refusal {
        ExplanationRefusal::Input => {
            let message = "the input is invalid: it takes `environment`, `lane`, `inputs`, `actor`, `workload`, `release` \
                           and `now`, as in a test of a bundle";
            Failure::Usage(message.to_owned())
        }
        ExplanationRefusal::Bundle(problems) => Failure::Files(
            problems
                .iter()
                .map(|problem| {
                    located.finding(&format!("{pointer}{}", problem.pointer), problem.code, problem.message.as_str())
                })
                .collect(),
        ),
    })
}

/// Reads a bundle, and returns it with the JSON pointer to its content. Ignores failed tests of the bundle, which do
/// not affect the decision.
fn read_bundle(path: &Path) -> Result<(LocatedValue, &'static str), Failure> {
    let located = Source::open(path)?.value()?;
    let is_manifest = located.value.get("content").is_some();
    let located = if is_manifest { located.with_texts(path).map_err(Failure::from_finding)? } else { located };
    let pointer = if is_manifest { "/content" } else { "" };
    let mut problems = content_problems(AssetKind::PolicyBundle, &located, pointer);
    problems.retain(|problem| problem.code != "policy_test_failed");
    if problems.is_empty() { Ok((located, pointer)) } else { Err(Failure::Files(problems)) }
}

impl Arguments {
    fn read_input(&self) -> Result<Value, Failure> {
        let read = self.input.as_deref().map(|path| Source::open(path)?.value()).transpose()?;
        let mut value = read.map_or_else(|| json!({}), |located| located.value);
        if let Some(inner) = value.get_mut("input") {
            value = inner.take();
        }
        let Some(members) = value.as_object_mut() else {
            return Err(Failure::Usage("an input file must be a mapping".to_owned()));
        };
        if let Some(environment) = &self.env {
            members.insert("environment".to_owned(), json!(environment));
        }
        if !self.set.is_empty() {
            let inputs = members.entry("inputs").or_insert_with(|| Value::Object(Map::new()));
            let Some(inputs) = inputs.as_object_mut() else {
                return Err(Failure::Usage("`inputs` must be a mapping".to_owned()));
            };
            for text in &self.set {
                let (name, value) = parse_input(text)?;
                inputs.insert(name, value);
            }
        }
        Ok(value)
    }
}

fn parse_input(text: &str) -> Result<(String, Value), Failure> {
    let malformed = || Failure::Usage("an input must be NAME=TEXT or NAME:=JSON".to_owned());
    let (name, value) = text.split_once('=').ok_or_else(malformed)?;
    match name.strip_suffix(':') {
        Some(name) => Ok((name.to_owned(), serde_json::from_str(value).map_err(|_| malformed())?)),
        None => Ok((name.to_owned(), json!(value))),
    }
}

fn print_explanation(output: Output, explanation: &DecisionExplanation) -> Result<(), Failure> {
    if !output.is_for_people() {
        let value = serde_json::to_value(explanation).map_err(|error| Failure::Failed(error.to_string()))?;
        return output.value(&value);
    }
    let decision = &explanation.decision;
    let mut line = format!("{} ({})", decision.outcome.as_str(), decision.reason_code);
    if !decision.obligations.is_empty() {
        let names: Vec<&str> = decision.obligations.iter().map(|obligation| obligation.as_str()).collect();
        line.push_str(&format!(", with {}", names.join(", ")));
    }
    print(&sanitize(&line))?;
    for rule in &explanation.rules {
        print_rule(rule)?;
    }
    Ok(())
}

fn print_rule(rule: &RuleExplanation) -> Result<(), Failure> {
    let effect = format!("{} ({})", rule.outcome.as_str(), rule.reason_code);
    print("")?;
    print(&sanitize(&format!("{} {}: {}, {effect}", sign(rule.holds), rule.rule, verb(rule.holds))))?;
    for (index, clause) in rule.clauses.iter().enumerate() {
        let operator = rule.operator.filter(|_| index > 0).unwrap_or("  ");
        print(&sanitize(&format!(
            "    {} {operator} {}{}",
            sign(clause.holds),
            one_line(&clause.source),
            failure_reason(clause)
        )))?;
    }
    Ok(())
}

const fn sign(holds: ConditionResult) -> char {
    match holds {
        ConditionResult::Yes => '+',
        ConditionResult::No => '-',
        ConditionResult::Failed => '!',
    }
}

const fn verb(holds: ConditionResult) -> &'static str {
    match holds {
        ConditionResult::Yes => "holds",
        ConditionResult::No => "does not hold",
        ConditionResult::Failed => "cannot be evaluated, so the decision is deny",
    }
}

fn failure_reason(clause: &ClauseExplanation) -> String {
    match (&clause.missing_field, clause.holds) {
        (Some(name), _) => format!("  <- the input has no `{name}`"),
        (None, ConditionResult::Failed) => "  <- a type does not fit".to_owned(),
        (None, ConditionResult::No) => "  <- false".to_owned(),
        (None, ConditionResult::Yes) => String::new(),
    }
}

/// Joins the lines of a condition's source for display on one line.
fn one_line(source: &str) -> String {
    source.split_whitespace().collect::<Vec<_>>().join(" ")
}
