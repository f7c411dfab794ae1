//! Our canonical JSON beside an outside oracle: what a JavaScript engine made of generated documents.
//!
//! The oracle's answers are recorded beside the program that gave them (`canonical/oracle.mjs`), so that the test needs no
//! other language and cannot be skipped for want of one.

use fairway_domain::asset::canonical::{Canonical, CanonicalRefusal};
use serde::Deserialize;

/// One line of the corpus.
#[derive(Deserialize)]
struct Recorded {
    /// A document, spelled in some way.
    source: String,
    /// Its canonical form; none where an integer in it would be rounded somewhere.
    canonical: Option<String>,
}

#[test]
fn every_document_has_the_bytes_that_the_oracle_gives_it() {
    let (mut written, mut refused) = (0, 0);
    for line in include_str!("canonical/corpus.jsonl").lines() {
        let recorded: Recorded = serde_json::from_str(line).unwrap();
        let document = serde_json::from_str(&recorded.source).unwrap();
        match (Canonical::of(&document), recorded.canonical) {
            (Ok(ours), Some(theirs)) => {
                assert_eq!(ours.text(), theirs, "{}", recorded.source);
                written += 1;
            }
            (Err(CanonicalRefusal::IntegerOutOfRange { .. }), None) => refused += 1,
            (ours, theirs) => panic!("{}: {ours:?} beside {theirs:?}", recorded.source),
        }
    }
    assert!(written > 1_000 && refused > 100, "{written} written, {refused} refused");
}
