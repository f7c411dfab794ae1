//! The regular expressions of `matches`: compiled with the bundle, linear in time, bounded in room. A search counts the
//! weight of its pattern for each byte ([0080](../../../../docs/decisions/0080-evaluations-count-pattern-states.md)).
//!
//! The pattern of a call is a literal, so that nothing that a caller sends is ever compiled, and a decision never
//! compiles anything.

use super::condition::ConditionRefusal;
use crate::asset::content::pattern;
use cel::{Context, ExecutionError, extractors::This};
use regex::{Regex, RegexBuilder};
use std::{collections::BTreeMap, sync::Arc};

/// Longest pattern, in bytes.
pub(super) const MAX_PATTERN: usize = 256;
/// Most different patterns of a bundle.
pub(super) const MAX_PATTERNS: usize = 50;
/// Room of one compiled pattern, and of its cache while it runs, in bytes.
const SIZE: usize = 64 << 10;
const CACHE: usize = 256 << 10;

/// The compiled patterns of a bundle, by their text.
#[derive(Clone, Default, Debug)]
pub(super) struct Patterns(Arc<BTreeMap<String, Pattern>>);

/// A compiled pattern, and the steps that it takes for each byte of a text.
#[derive(Clone, Debug)]
struct Pattern {
    regex: Regex,
    weight: u64,
}

/// Two bundles with the same patterns have the same compiled ones.
impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}

impl Patterns {
    /// Compiles one more pattern; of one that is there already, nothing.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), ConditionRefusal> {
        if self.0.contains_key(pattern) {
            return Ok(());
        }
        if pattern.len() > MAX_PATTERN || self.0.len() >= MAX_PATTERNS {
            return Err(ConditionRefusal::Pattern);
        }
        let regex = RegexBuilder::new(pattern).size_limit(SIZE).dfa_size_limit(CACHE).build();
        let regex = regex.map_err(|_| ConditionRefusal::Pattern)?;
        let compiled = Pattern { regex, weight: pattern::weight(pattern) };
        Arc::make_mut(&mut self.0).insert(pattern.to_owned(), compiled);
        Ok(())
    }

    /// Steps that a search with this pattern takes for one byte of text, at least 1. A pattern that is not of the bundle
    /// searches nothing.
    pub(super) fn weight(&self, pattern: &str) -> u64 {
        self.0.get(pattern).map_or(1, |compiled| compiled.weight)
    }

    /// How much memory they may take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len().saturating_mul(SIZE + CACHE)
    }

    /// Makes `text.matches(pattern)` known to an evaluation, if any rule asks for it.
    pub(super) fn offer(&self, context: &mut Context<'_, '_>) {
        if self.0.is_empty() {
            return;
        }
        let patterns = Arc::clone(&self.0);
        let matches = move |This(text): This<Arc<String>>, pattern: Arc<String>| match patterns.get(pattern.as_str()) {
            Some(compiled) => Ok(compiled.regex.is_match(&text)),
            None => Err(ExecutionError::function_error("matches", "this pattern was not compiled with the bundle")),
        };
        // Without the function every condition that calls it fails, and a failing condition denies.
        let _ = context.add_function("matches", matches);
    }
}
