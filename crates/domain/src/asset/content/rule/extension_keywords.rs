//! Rules of the extension keywords in the schemas: unique names, and values that are JSON Schemas or patterns.
//!
//! `x-unique` names the member in which the items of a list must differ. `x-json-schema` and `x-pattern` mark values
//! that are JSON Schemas or regular expressions. Their number is bounded, because their compilation is the most
//! expensive part of the validation.

use super::{CompileMode, Violation, Violations};
use crate::asset::content::{
    content_walk::{VisitFlow, VisitedValue},
    embedded_schema::EmbeddedSchema,
    linear_pattern::is_linear_pattern,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The maximum number of patterns in the content of one version, without those in embedded schemas.
const MAX_PATTERNS: usize = 50;
/// The maximum length of a pattern, in bytes.
const MAX_PATTERN: usize = 512;
/// The maximum number of embedded schemas in the content of one version.
const MAX_SCHEMAS: usize = 10;

/// Checks the annotated values in the content of one version, and counts its patterns and schemas.
pub(super) struct ExtensionKeywordRules {
    compile: CompileMode,
    patterns: usize,
    schemas: usize,
}

impl ExtensionKeywordRules {
    pub(super) const fn new(compile: CompileMode) -> Self {
        Self { compile, patterns: 0, schemas: 0 }
    }

    /// Checks a value against the extension keywords of its schema.
    pub(super) fn check_extension_keywords(
        &mut self,
        visited: &VisitedValue<'_, '_>,
        findings: &mut Violations,
    ) -> VisitFlow {
        if let Some(member) = visited.resolved.get("x-unique").and_then(Value::as_str) {
            check_unique(visited, member, findings);
        }
        if has_extension_keyword(visited, "x-pattern")
            && let Some(pattern) = visited.value.as_str()
        {
            self.check_pattern(pattern, visited.pointer, findings);
        }
        if has_extension_keyword(visited, "x-json-schema") {
            self.check_schema(visited.value, visited.pointer, findings);
            return VisitFlow::Skip;
        }
        VisitFlow::Descend
    }

    /// Checks a regular expression. An empty text and `*` match everything, so they are not compiled.
    pub(super) fn check_pattern(&mut self, pattern: &str, pointer: &str, findings: &mut Violations) {
        if matches!(pattern, "" | "*") {
            return;
        }
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            if self.patterns == MAX_PATTERNS + 1 {
                findings.add(pointer, Violation::TooManyEmbedded);
            }
        } else if self.compile == CompileMode::Yes && (pattern.len() > MAX_PATTERN || !is_linear_pattern(pattern)) {
            findings.add(pointer, Violation::PatternNotLinear);
        }
    }

    pub(super) fn check_schema(&mut self, schema: &Value, pointer: &str, findings: &mut Violations) {
        self.schemas += 1;
        if self.schemas > MAX_SCHEMAS {
            if self.schemas == MAX_SCHEMAS + 1 {
                findings.add(pointer, Violation::TooManyEmbedded);
            }
        } else if self.compile == CompileMode::Yes
            && let Err(refusal) = EmbeddedSchema::compile(schema)
        {
            findings.add_problem(pointer, refusal.code(), refusal.to_string());
        }
    }
}

fn has_extension_keyword(visited: &VisitedValue<'_, '_>, keyword: &str) -> bool {
    visited.resolved.get(keyword).and_then(Value::as_bool).unwrap_or_default()
}

fn check_unique(visited: &VisitedValue<'_, '_>, member: &str, findings: &mut Violations) {
    let mut seen_names = BTreeSet::new();
    for (index, item) in visited.value.as_array().into_iter().flatten().enumerate() {
        if let Some(name) = item.get(member).and_then(Value::as_str)
            && !seen_names.insert(name)
        {
            findings.add(format!("{}/{index}/{member}", visited.pointer), Violation::DuplicateName);
        }
    }
}
