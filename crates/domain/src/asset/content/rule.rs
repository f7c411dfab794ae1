//! Content rules that a JSON Schema cannot express: unique names, fields that require or exclude each other, and values
//! that are schemas or patterns themselves.
//!
//! The rules read raw JSON, so they find problems even in content that the schema refuses. Their messages never
//! contain values.

mod agent;
mod connector;
mod evaluation_suite;
mod extension_keywords;
mod guardrail;
mod harness;
mod hook;
mod http_url;
mod knowledge_base;
mod mcp_server;
mod memory;
mod model_policy;
mod sandbox_profile;
mod skill;
mod tool;
mod violation;

use super::{ContentProblem, content_walk, problem::MAX_PROBLEMS, schema};
use crate::asset::kind::AssetKind;
use extension_keywords::ExtensionKeywordRules;
use serde_json::Value;
use violation::Violation;

/// Whether the rules compile the patterns and schemas in the content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompileMode {
    /// The rules count patterns and schemas, but do not compile them.
    No,
    Yes,
}

/// The violations of the rules for this kind. Patterns and schemas can take seconds to compile, so they are compiled
/// only if the content is within all bounds. `is_within_bounds` says whether it is within the bounds of the schema. A
/// first pass without compilation checks the bounds of the rules.
pub(super) fn find_violations(kind: AssetKind, content: &Value, is_within_bounds: bool) -> Vec<ContentProblem> {
    let violations = check_rules(kind, content, CompileMode::No);
    let is_over_limit = |problem: &ContentProblem| problem.code == Violation::TooManyEmbedded.code();
    if !is_within_bounds || violations.len() >= MAX_PROBLEMS || violations.iter().any(is_over_limit) {
        return violations;
    }
    check_rules(kind, content, CompileMode::Yes)
}

fn check_rules(kind: AssetKind, content: &Value, compile: CompileMode) -> Vec<ContentProblem> {
    let mut findings = Violations::default();
    if let Some(root) = schema::schema_value(kind) {
        let mut extension_keyword_rules = ExtensionKeywordRules::new(compile);
        content_walk::visit(root, content, &mut |visited| {
            extension_keyword_rules.check_extension_keywords(visited, &mut findings)
        });
    }
    match kind {
        AssetKind::ModelPolicy => model_policy::check(content, &mut findings),
        AssetKind::KnowledgeBase => knowledge_base::check(content, &mut findings),
        AssetKind::ToolDefinition => tool::check(content, &mut findings),
        AssetKind::HookDefinition => hook::check(content, &mut findings),
        AssetKind::McpServer => mcp_server::check(content, &mut findings),
        AssetKind::ConnectorDefinition => connector::check(content, &mut findings),
        AssetKind::Skill => skill::check(content, &mut findings),
        AssetKind::Agent => agent::check(content, &mut findings),
        AssetKind::Memory => memory::check(content, &mut findings),
        AssetKind::WorkloadHarness => harness::check(content, &mut findings),
        AssetKind::GuardrailConfig => guardrail::check(content, compile, &mut findings),
        AssetKind::EvaluationSuite => evaluation_suite::check(content, compile, &mut findings),
        AssetKind::SandboxProfile => sandbox_profile::check(content, &mut findings),
        // For these kinds, the schema, its extension keywords or the parser check every rule.
        AssetKind::PromptTemplate
        | AssetKind::ModelConfig
        | AssetKind::PolicyBundle
        | AssetKind::OrchestrationFlow
        | AssetKind::SovereigntyProfile
        | AssetKind::WorkloadProfile => {}
    }
    findings.problems
}

/// The violations that the rules have found so far.
#[derive(Default)]
struct Violations {
    problems: Vec<ContentProblem>,
}

impl Violations {
    fn add(&mut self, pointer: impl Into<String>, violation: Violation) {
        self.add_problem(pointer, violation.code(), violation.message());
    }

    fn add_problem(&mut self, pointer: impl Into<String>, code: &'static str, message: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(ContentProblem::new(pointer, code, message));
        }
    }

    /// Adds a violation if the object lacks the field.
    fn require(&mut self, object: &Value, pointer: &str, field: &str) {
        if object.get(field).is_none() {
            self.add(format!("{pointer}/{field}"), Violation::MissingField);
        }
    }

    /// Adds a violation if the object has the field.
    fn forbid(&mut self, object: &Value, pointer: &str, field: &str) {
        if object.get(field).is_some() {
            self.add(format!("{pointer}/{field}"), Violation::NotAllowedHere);
        }
    }

    /// Adds a violation unless the object has exactly one of the two fields.
    fn require_one_of(&mut self, object: &Value, pointer: &str, first: &str, second: &str) {
        match (object.get(first).is_some(), object.get(second).is_some()) {
            (true, true) => self.add(format!("{pointer}/{second}"), Violation::NotAllowedHere),
            (false, false) => self.add(format!("{pointer}/{first}"), Violation::MissingField),
            (true, false) | (false, true) => {}
        }
    }
}

/// The value of a field, if it is a string.
fn text_field<'c>(object: &'c Value, field: &str) -> Option<&'c str> {
    object.get(field)?.as_str()
}

/// Whether the value of a field is `true`. An absent field counts as `false`.
fn is_true(object: &Value, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of a list field, with their indexes.
fn list_items<'c>(object: &'c Value, field: &str) -> impl Iterator<Item = (usize, &'c Value)> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().enumerate()
}
