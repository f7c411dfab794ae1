//! Suggestions for unknown names.

use crate::{
    failure::{Candidate, Failure},
    terminal_text::{sanitize, shorten},
};

/// Minimum similarity of a suggested name, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.75;
/// Maximum number of suggested names.
pub(crate) const MAX_CANDIDATES: usize = 5;
/// Minimum length of a text that may be a part of a suggested name.
const MIN_PART: usize = 4;

/// The known names that are similar to `name`, most similar first.
pub(crate) fn similar_names<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let lowercase = name.to_lowercase();
    let similarity = |known: &str| {
        let contains = lowercase.len() >= MIN_PART && known.contains(&lowercase);
        if contains { 1.0 } else { strsim::jaro_winkler(&lowercase, &known.to_lowercase()) }
    };
    let mut found: Vec<(f64, &str)> = known.map(|known| (similarity(known), known)).collect();
    found.retain(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    // If one name is clearly the most similar, returns only this name.
    let best = found.first().map_or(0.0, |(similarity, _)| *similarity);
    found
        .into_iter()
        .filter(|(similarity, _)| best - similarity < 0.1)
        .map(|(_, name)| name)
        .take(MAX_CANDIDATES)
        .collect()
}

/// The failure for a name without a visible resource in the workspace, with similar names as candidates.
pub(crate) fn unknown_name<'n>(noun: &str, name: &str, known: impl Iterator<Item = &'n str>) -> Failure {
    let candidates = similar_names(name, known).into_iter().map(Candidate::named).collect();
    let name = shorten(&sanitize(name)).into_owned();
    let message = format!("this workspace has no visible {noun} `{name}`; `fairway {noun}s list` lists all");
    Failure::Unknown { message, candidates }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_names() {
        let known = ["ticket-classifier", "ticket-policy", "letters", "knowledge-assistant-default"];
        for (name, expected) in [
            ("ticket-clasifier", vec!["ticket-classifier"]),
            ("Letter", vec!["letters"]),
            ("knowledge-assistant", vec!["knowledge-assistant-default"]),
            ("assistant", vec!["knowledge-assistant-default"]),
            ("ticket-", vec!["ticket-classifier", "ticket-policy"]),
            ("xyz", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(similar_names(name, known.into_iter()), expected, "{name}");
        }
    }

    #[test]
    fn names_candidates_with_their_notes() {
        let failure = unknown_name("asset", "leters", ["letters"].into_iter());
        assert_eq!(
            failure.to_string(),
            "this workspace has no visible asset `leters`; `fairway assets list` lists all; did you mean `letters`?"
        );
        let candidates = ["a", "b"].map(|name| Candidate { name: name.to_owned(), note: Some("dev".to_owned()) });
        let several = Failure::Unknown { message: "x".to_owned(), candidates: candidates.to_vec() };
        assert_eq!(several.to_string(), "x; did you mean one of these?\n  `a` (dev)\n  `b` (dev)");
    }
}
