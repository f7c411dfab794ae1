//! The weight of a regular expression: the evaluations that one byte of text takes at most.
//!
//! Patterns run in linear time, but the factor is theirs. A lazy automaton takes one step a byte while its states fit into its
//! cache ([`PATTERN_CACHE`]). Where they do not, each byte visits every state of the expanded pattern: 20 µs for
//! `1[01]{0,2000}[2-9a-z]`. An evaluation is some 10 ns, which is two states.

use super::{PATTERN_CACHE, PATTERN_SIZE};
use regex_automata::{
    dfa::onepass,
    nfa::thompson::{self, WhichCaptures},
};
use regex_syntax::hir::{Hir, HirKind};

/// States of which all combinations fit into the cache.
const FEW: u64 = 8;
/// States of a pattern with one way through each text that fit into the cache.
const ONE_WAY: u64 = 256;
/// States that one evaluation visits.
const STATES: u64 = 2;
/// The weight of a pattern that is written in another dialect: as much as the most states that a compiled pattern has room
/// for.
const HEAVIEST: u64 = 4_096;

/// Evaluations that a search with this pattern takes for one byte of text, at least 1.
pub(crate) fn weight(pattern: &str) -> u64 {
    let Ok(parsed) = regex_syntax::parse(pattern) else { return HEAVIEST };
    let states = states(&parsed);
    if states <= FEW || (states <= ONE_WAY && has_one_way(pattern)) {
        return 1;
    }
    states.div_ceil(STATES).min(HEAVIEST)
}

/// The most bytes that a match of this pattern has, where there is such a bound.
pub(crate) fn longest_match(pattern: &str) -> Option<usize> {
    regex_syntax::parse(pattern).ok()?.properties().maximum_len()
}

/// States of a pattern with its repetitions written out. A class counts once: of its bytes at most one is under way.
fn states(pattern: &Hir) -> u64 {
    match pattern.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => u64::try_from(literal.0.len()).unwrap_or(u64::MAX),
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Repetition(repetition) => {
            let copies = repetition.max.unwrap_or(repetition.min.max(1));
            states(&repetition.sub).saturating_add(1).saturating_mul(u64::from(copies))
        }
        HirKind::Capture(capture) => states(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(states).fold(0, u64::saturating_add),
        HirKind::Alternation(branches) => {
            branches.iter().map(|branch| states(branch).saturating_add(1)).fold(0, u64::saturating_add)
        }
    }
}

/// Whether the pattern is anchored and each byte leaves one way to go on.
fn has_one_way(pattern: &str) -> bool {
    let limits = thompson::Config::new().nfa_size_limit(Some(PATTERN_SIZE)).which_captures(WhichCaptures::Implicit);
    let Ok(states) = thompson::Compiler::new().configure(limits).build(pattern) else { return false };
    // A pattern without an anchor begins anew at each byte.
    states.is_always_start_anchored()
        && onepass::Builder::new()
            .configure(onepass::Config::new().size_limit(Some(PATTERN_CACHE)))
            .build_from_nfa(states)
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_weighs_the_states_that_a_byte_may_visit() {
        for (pattern, expected) in [
            ("x$", 1),
            (r"\w+@\w+", 1),
            ("^[a-z0-9-]{1,64}$", 1),
            (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", 1),
            ("[a-z0-9-]{1,64}", 64),
            ("1[01]{0,400}[2-9a-z]", 401),
            ("1[01]{0,2000}[2-9a-z]", 2_001),
            ("^(1|[01]{0,2000})*[2-9a-z]", 2_003),
            (r"\cA", HEAVIEST),
        ] {
            assert_eq!(weight(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn only_bounded_patterns_have_a_longest_match() {
        assert_eq!(longest_match("a{2,5}"), Some(5));
        assert_eq!(longest_match("[äb]"), Some(2));
        assert_eq!(longest_match("a+"), None);
    }
}
