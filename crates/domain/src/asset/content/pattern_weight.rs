//! The weight of a regular expression: the maximum number of evaluations for one byte of text.
//!
//! Patterns run in linear time, but the time for one byte depends on the pattern. The lazy DFA of the regex engine
//! takes one step for each byte while its states fit into its cache ([`MAX_MATCH_CACHE_BYTES`]). Otherwise each byte
//! visits every state of the expanded pattern, which takes 20 µs for `1[01]{0,2000}[2-9a-z]`. One evaluation is the
//! unit of cost: about 10 ns, in which a search visits two states.

use super::{MAX_COMPILED_PATTERN_BYTES, MAX_MATCH_CACHE_BYTES};
use regex_automata::{
    dfa::onepass,
    nfa::thompson::{self, WhichCaptures},
};
use regex_syntax::hir::{Hir, HirKind};

/// The maximum number of states in a pattern whose combinations all fit into the cache of the DFA.
const MAX_CACHED_STATES: u64 = 8;
/// The maximum number of states in a one-pass pattern that fits into the cache of the DFA.
const MAX_ONE_PASS_STATES: u64 = 256;
/// The number of states that a search visits in the time of one evaluation.
const STATES_PER_EVALUATION: u64 = 2;
/// The maximum weight, which the largest pattern that compiles has. Patterns that the parser rejects get the same
/// weight.
const MAX_WEIGHT: u64 = 4_096;

/// The number of evaluations that a search with this pattern takes for one byte of text, at least 1.
pub(crate) fn weight(pattern: &str) -> u64 {
    let Ok(parsed) = regex_syntax::parse(pattern) else { return MAX_WEIGHT };
    let states = count_states(&parsed);
    if states <= MAX_CACHED_STATES || (states <= MAX_ONE_PASS_STATES && is_one_pass(pattern)) {
        return 1;
    }
    states.div_ceil(STATES_PER_EVALUATION).min(MAX_WEIGHT)
}

/// The maximum length of a match in bytes; `None` if it is unbounded or the pattern is invalid.
pub(crate) fn max_match_len(pattern: &str) -> Option<usize> {
    regex_syntax::parse(pattern).ok()?.properties().maximum_len()
}

/// The number of states of a pattern with its repetitions expanded. A character class counts as one state, because at
/// most one of its bytes matches at a time.
fn count_states(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => u64::try_from(literal.0.len()).unwrap_or(u64::MAX),
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.max(1));
            count_states(&repetition.sub).saturating_add(1).saturating_mul(u64::from(copies))
        }
        HirKind::Capture(capture) => count_states(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(count_states).fold(0, u64::saturating_add),
        HirKind::Alternation(branches) => {
            branches.iter().map(|branch| count_states(branch).saturating_add(1)).fold(0, u64::saturating_add)
        }
    }
}

/// Whether the pattern is anchored at its start and each byte leads to at most one next state.
fn is_one_pass(pattern: &str) -> bool {
    let limits = thompson::Config::new()
        .nfa_size_limit(Some(MAX_COMPILED_PATTERN_BYTES))
        .which_captures(WhichCaptures::Implicit);
    let Ok(states) = thompson::Compiler::new().configure(limits).build(pattern) else { return false };
    // A search with a pattern that is not anchored starts anew at each byte, so it is not one-pass.
    states.is_always_start_anchored()
        && onepass::Builder::new()
            .configure(onepass::Config::new().size_limit(Some(MAX_MATCH_CACHE_BYTES)))
            .build_from_nfa(states)
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weighs_patterns_by_states_visited_per_byte() {
        for (pattern, expected) in [
            ("x$", 1),
            (r"\w+@\w+", 1),
            ("^[a-z0-9-]{1,64}$", 1),
            (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", 1),
            ("[a-z0-9-]{1,64}", 64),
            ("1[01]{0,400}[2-9a-z]", 401),
            ("1[01]{0,2000}[2-9a-z]", 2_001),
            ("^(1|[01]{0,2000})*[2-9a-z]", 2_003),
            (r"\cA", MAX_WEIGHT),
        ] {
            assert_eq!(weight(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn reports_max_match_len_of_bounded_patterns_only() {
        assert_eq!(max_match_len("a{2,5}"), Some(5));
        assert_eq!(max_match_len("[äb]"), Some(2));
        assert_eq!(max_match_len("a+"), None);
    }
}
