//! A regular expression that finds all matches in a bounded number of steps.
//!
//! A single search needs linear time, but each match is followed by a new search. If every search reads to the end of
//! the text, all searches together need quadratic time. For example, `.*[^A-Z]|[A-Z]` reads 64 KiB of capitals 64 Ki
//! times. The steps of each search are therefore subtracted from a budget.

use super::detector::{Budget, DetectorError};
use crate::asset::content::{
    MAX_COMPILED_PATTERN_BYTES, MAX_MATCH_CACHE_BYTES, compile_linear_pattern, pattern_weight,
};
use regex::Regex;
use regex_automata::{
    Input,
    hybrid::dfa::{Cache, DFA},
    nfa::thompson,
};

/// A pattern whose search steps are counted.
#[derive(Clone, Debug)]
pub(super) struct BoundedPattern {
    regex: Regex,
    /// The number of evaluations that one byte of a search costs.
    weight: u64,
    lookahead: Lookahead,
}

/// How many bytes a search may read beyond its match.
#[derive(Clone, Debug)]
enum Lookahead {
    /// At most this number of bytes: the maximum length of a match.
    Bounded(usize),
    /// Until this automaton reaches its dead state, from which no match is possible.
    Automaton(Box<DFA>),
    /// Unknown; in the worst case the search reads the rest of the text.
    Unknown,
}

impl BoundedPattern {
    /// Compiles a pattern that searches in linear time and bounded memory; `None` for an invalid pattern.
    pub(super) fn compile(text: &str) -> Option<Self> {
        let regex = compile_linear_pattern(text)?;
        let lookahead = match pattern_weight::max_match_len(text) {
            Some(max_length) => Lookahead::Bounded(max_length),
            None => {
                build_automaton(text).map_or(Lookahead::Unknown, |automaton| Lookahead::Automaton(Box::new(automaton)))
            }
        };
        Some(Self { regex, weight: pattern_weight::weight(text), lookahead })
    }

    /// Prepares searches for matches that charge this budget.
    pub(super) fn search<'s>(&'s self, budget: &'s mut Budget) -> Search<'s> {
        let cache = match &self.lookahead {
            Lookahead::Automaton(automaton) => Some(automaton.create_cache()),
            Lookahead::Bounded(_) | Lookahead::Unknown => None,
        };
        Search { pattern: self, budget, cache }
    }
}

/// Builds a lazy DFA. When its cache is full, the DFA clears the cache instead of failing.
fn build_automaton(text: &str) -> Option<DFA> {
    DFA::builder()
        .configure(
            DFA::config()
                .cache_capacity(MAX_MATCH_CACHE_BYTES)
                .skip_cache_capacity_check(true)
                // The automaton supports Unicode word boundaries only in ASCII text, and quits at any other byte.
                .unicode_word_boundary(true),
        )
        .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_COMPILED_PATTERN_BYTES)))
        .build(text)
        .ok()
}

/// All searches for the matches of one pattern within one check.
pub(super) struct Search<'s> {
    pattern: &'s BoundedPattern,
    budget: &'s mut Budget,
    cache: Option<Cache>,
}

impl Search<'_> {
    /// Replaces the matches by the mask and counts them. Fails if the result would exceed `max_bytes`.
    pub(super) fn replace(&mut self, text: &str, mask: &str, max_bytes: usize) -> Result<(u64, String), DetectorError> {
        let (mut masked, mut copied_end, mut count, mut position) = (String::new(), 0_usize, 0_u64, 0_usize);
        if let Lookahead::Bounded(_) = self.pattern.lookahead {
            // Together, the searches read the text once. The bytes beyond each match are charged separately.
            self.charge(text.len())?;
        }
        while position <= text.len() {
            self.charge_search(text, position)?;
            let Some(found) = self.pattern.regex.find_at(text, position) else { break };
            // An empty match has no text to mask, so the search continues after the next character.
            if found.is_empty() {
                let next = text.get(found.end()..).and_then(|rest| rest.chars().next());
                position = found.end().saturating_add(next.map_or(1, char::len_utf8));
                continue;
            }
            masked.push_str(text.get(copied_end..found.start()).unwrap_or_default());
            masked.push_str(mask);
            (copied_end, position) = (found.end(), found.end());
            count = count.saturating_add(1);
            if masked.len() > max_bytes {
                return Err(DetectorError::OutOfMemory);
            }
        }
        masked.push_str(text.get(copied_end..).unwrap_or_default());
        if masked.len() > max_bytes { Err(DetectorError::OutOfMemory) } else { Ok((count, masked)) }
    }

    /// Charges the bytes that the search from `position` reads.
    fn charge_search(&mut self, text: &str, position: usize) -> Result<(), DetectorError> {
        let remaining_bytes = text.len().saturating_sub(position);
        let bytes = match (&self.pattern.lookahead, &mut self.cache) {
            (Lookahead::Bounded(max_length), _) => remaining_bytes.min(*max_length),
            (Lookahead::Automaton(automaton), Some(cache)) => {
                let limit = self.budget.0 / self.pattern.weight;
                count_steps(automaton, cache, text, position, limit).unwrap_or(remaining_bytes)
            }
            (Lookahead::Automaton(_) | Lookahead::Unknown, _) => remaining_bytes,
        };
        self.charge(bytes)
    }

    fn charge(&mut self, bytes: usize) -> Result<(), DetectorError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.budget.spend(bytes.saturating_mul(self.pattern.weight))
    }
}

/// The number of bytes that the search from `position` reads, counted up to `limit` plus one. `None` if the automaton
/// quits.
fn count_steps(automaton: &DFA, cache: &mut Cache, text: &str, position: usize, limit: u64) -> Option<usize> {
    let mut state = automaton.start_state_forward(cache, &Input::new(text).range(position..)).ok()?;
    let mut steps = 0_usize;
    for byte in text.as_bytes().get(position..)? {
        if u64::try_from(steps).unwrap_or(u64::MAX) > limit {
            break;
        }
        state = automaton.next_state(cache, state, *byte).ok()?;
        steps = steps.saturating_add(1);
        if state.is_dead() {
            break;
        }
        if state.is_quit() {
            return None;
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The masked text or the error, and the evaluations that the search charged to the budget.
    fn masked(pattern: &str, text: &str, budget: u64) -> (Result<(u64, String), DetectorError>, u64) {
        let (pattern, mut remaining) = (BoundedPattern::compile(pattern).unwrap(), Budget(budget));
        let result = pattern.search(&mut remaining).replace(text, "#", usize::MAX);
        (result, budget - remaining.0)
    }

    #[test]
    fn finds_the_same_matches_as_the_regex_iterator() {
        for pattern in
            ["a+", "x*", "a|ab", r"\b\w+@\w+\b", "^a|b$", "(?:a.*z)?", "a{2}", ".*[^A-Z]|[A-Z]", "ä*", "", r"\B"]
        {
            for text in ["", "a", "aab xx ab", "an ann@b.example und jörg@ä.example", "a..z a b", "ÄÖa", "ABC", "ääbä"]
            {
                let regex = Regex::new(pattern).unwrap();
                let expected =
                    regex.replace_all(
                        text,
                        |found: &regex::Captures<'_>| {
                            if found[0].is_empty() { String::new() } else { "#".to_owned() }
                        },
                    );
                let count = regex.find_iter(text).filter(|found| !found.is_empty()).count();
                let (result, _) = masked(pattern, text, 1 << 20);
                assert_eq!(result, Ok((u64::try_from(count).unwrap(), expected.into_owned())), "{pattern} in {text}");
            }
        }
    }

    #[test]
    fn charges_quadratically_for_unbounded_lookahead() {
        let capitals = "A".repeat(1_000);
        let (result, charged) = masked(".*[^A-Z]|[A-Z]", &capitals, 1_000_000);
        assert_eq!((result.unwrap().0, charged), (1_000, 500_500));
        assert_eq!(masked(".*[^A-Z]|[A-Z]", &capitals, 500_000).0, Err(DetectorError::BudgetExceeded));
        assert_eq!(masked("(?:A.*z)?", &capitals, 500_000).0, Err(DetectorError::BudgetExceeded));
        // A search that reads only a bounded number of bytes beyond its match is charged only for those bytes.
        let (result, charged) = masked("A{6}z|A", &capitals, 100_000);
        assert_eq!(result.unwrap().0, 1_000);
        assert!((1_000..=8_000 * 16).contains(&charged), "{charged}");
    }

    #[test]
    fn charges_linearly_for_bounded_lookahead() {
        let numbers = "12345 ".repeat(10_000);
        let (result, charged) = masked(r"\d+", &numbers, 1 << 20);
        assert_eq!(result.unwrap().0, 10_000);
        assert!((60_000..=90_000).contains(&charged), "{charged}");
    }

    #[test]
    fn charges_the_whole_rest_for_non_ascii_word_boundaries() {
        let text = "an@b ä ".repeat(10);
        let (result, charged) = masked(r"\b\w+@\w+\b", &text, 1 << 20);
        assert_eq!(result.unwrap().0, 10);
        assert!(charged > u64::try_from(text.len()).unwrap(), "{charged}");
    }
}
