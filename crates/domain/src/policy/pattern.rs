//! The regular expressions of `matches` calls. They are compiled with the bundle, for linear time and bounded memory. A
//! search costs the weight of its pattern for each byte ([0080](../../../../docs/decisions/0080-pattern-cost.md)).
//!
//! Patterns must be literals. Text of callers is therefore never compiled as a pattern, and decisions compile no
//! patterns.

use super::condition::ConditionRefusal;
use crate::asset::content::pattern_weight;
use cel::{Context, ExecutionError, extractors::This};
use regex::{Regex, RegexBuilder};
use std::{collections::BTreeMap, sync::Arc};

/// The maximum length of a pattern, in bytes.
pub(super) const MAX_PATTERN: usize = 256;
/// The maximum number of distinct patterns of a bundle.
pub(super) const MAX_PATTERNS: usize = 50;
/// The maximum memory of a compiled pattern, in bytes; `MAX_CACHE_BYTES` limits its lazy DFA cache.
const MAX_COMPILED_BYTES: usize = 64 << 10;
const MAX_CACHE_BYTES: usize = 256 << 10;

/// The compiled patterns of a bundle, by source text.
#[derive(Clone, Default, Debug)]
pub(super) struct Patterns(Arc<BTreeMap<String, Pattern>>);

/// A compiled pattern, with its steps for each byte of text.
#[derive(Clone, Debug)]
struct Pattern {
    regex: Regex,
    weight: u64,
}

/// Compares only the sources, because equal sources compile to equal patterns.
impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        self.0.keys().eq(other.0.keys())
    }
}

impl Patterns {
    /// Compiles a pattern and adds it, unless the set already contains it.
    pub(super) fn add(&mut self, pattern: &str) -> Result<(), ConditionRefusal> {
        if self.0.contains_key(pattern) {
            return Ok(());
        }
        if pattern.len() > MAX_PATTERN || self.0.len() >= MAX_PATTERNS {
            return Err(ConditionRefusal::Pattern);
        }
        let regex = RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_CACHE_BYTES).build();
        let regex = regex.map_err(|_| ConditionRefusal::Pattern)?;
        let compiled = Pattern { regex, weight: pattern_weight::weight(pattern) };
        Arc::make_mut(&mut self.0).insert(pattern.to_owned(), compiled);
        Ok(())
    }

    /// The steps of a search with this pattern for each byte of text; 1 for a pattern that the bundle does not contain.
    pub(super) fn weight(&self, pattern: &str) -> u64 {
        self.0.get(pattern).map_or(1, |compiled| compiled.weight)
    }

    /// The maximum memory of the compiled patterns, in bytes.
    pub(super) fn max_bytes(&self) -> usize {
        self.0.len().saturating_mul(MAX_COMPILED_BYTES + MAX_CACHE_BYTES)
    }

    /// Makes the function `matches` available in an evaluation, if any rule uses patterns.
    pub(super) fn register(&self, context: &mut Context<'_, '_>) {
        if self.0.is_empty() {
            return;
        }
        let patterns = Arc::clone(&self.0);
        let matches = move |This(text): This<Arc<String>>, pattern: Arc<String>| match patterns.get(pattern.as_str()) {
            Some(compiled) => Ok(compiled.regex.is_match(&text)),
            None => Err(ExecutionError::function_error("matches", "this pattern was not compiled with the bundle")),
        };
        // The result can be ignored. Without the function, conditions that call it fail, and a failed condition denies.
        let _ = context.add_function("matches", matches);
    }
}
