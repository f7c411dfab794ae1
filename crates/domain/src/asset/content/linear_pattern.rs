//! The compilation of regular expressions that run in linear time, with limits on their memory.

use super::schema;
use regex::{Regex, RegexBuilder};
use serde_json::json;

/// The maximum memory of one compiled pattern, and of its match cache, in bytes. A full cache is cleared, so a smaller
/// cache costs time but never changes a result.
pub(crate) const MAX_COMPILED_PATTERN_BYTES: usize = 256 << 10;
pub(crate) const MAX_MATCH_CACHE_BYTES: usize = 256 << 10;
/// The maximum memory of a compiled pattern together with its match cache, in bytes.
pub(crate) const MAX_PATTERN_MEMORY_BYTES: u64 = (MAX_COMPILED_PATTERN_BYTES + MAX_MATCH_CACHE_BYTES) as u64;

/// The maximum memory of a guardrail's pattern, in bytes. Its states are stored twice, because a second copy counts the
/// steps of a search.
pub(crate) const MAX_GUARDRAIL_PATTERN_BYTES: usize = 2 * MAX_COMPILED_PATTERN_BYTES + MAX_MATCH_CACHE_BYTES;

/// Whether a text is a regular expression that runs in linear time and bounded memory.
pub(super) fn is_linear_pattern(pattern: &str) -> bool {
    schema::compile(&json!({ "pattern": pattern })).is_ok()
}

/// Compiles a pattern that runs in linear time and in the memory [`MAX_PATTERN_MEMORY_BYTES`]; `None` if the pattern is
/// invalid or too large.
pub(crate) fn compile_linear_pattern(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED_PATTERN_BYTES).dfa_size_limit(MAX_MATCH_CACHE_BYTES).build().ok()
}
