//! Compares canonical JSON with an external oracle: the output of a JavaScript engine for generated documents.
//!
//! The output is stored beside the program that produced it (`canonical/oracle.mjs`). The test therefore needs no
//! JavaScript engine and is never skipped.

use fairway_domain::asset::canonical::{Canonical, CanonicalRefusal};
use serde::Deserialize;

/// An entry of the corpus: one line of its file.
#[derive(Deserialize)]
struct CorpusEntry {
    /// A JSON document, in any spelling.
    source: String,
    /// The canonical form of the document; `None` if the document contains an integer beyond 2^53 - 1.
    canonical: Option<String>,
}

#[test]
fn canonical_bytes_match_the_recorded_oracle() {
    let (mut serialized_count, mut refused_count) = (0, 0);
    for line in include_str!("canonical/corpus.jsonl").lines() {
        let recorded: CorpusEntry = serde_json::from_str(line).unwrap();
        let document = serde_json::from_str(&recorded.source).unwrap();
        match (Canonical::of(&document), recorded.canonical) {
            (Ok(actual), Some(expected)) => {
                assert_eq!(actual.text(), expected, "{}", recorded.source);
                serialized_count += 1;
            }
            (Err(CanonicalRefusal::IntegerOutOfRange { .. }), None) => refused_count += 1,
            (actual, expected) => panic!("{}: got {actual:?}, the oracle has {expected:?}", recorded.source),
        }
    }
    assert!(serialized_count > 1_000 && refused_count > 100, "{serialized_count} written, {refused_count} refused");
}
