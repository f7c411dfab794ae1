//! Compares the error codes in `docs/errors.md` with those in the sources of the command line.

use crate::root;
use std::{collections::BTreeSet, fs, path::Path};

/// Source texts that precede the code of a finding.
const CODE_PREFIXES: [&str; 7] = [
    "Finding::whole(",
    ".finding(",
    "new_finding(",
    "directory_failure(",
    "Fault::new(",
    "Self::new(",
    "code: ",
];

/// The source texts of the command line, without tests.
fn sources() -> String {
    fn collect_sources(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect_sources(&path, text);
            } else if path.file_name().unwrap() != "tests.rs" {
                let source = fs::read_to_string(&path).unwrap();
                text.push_str(source.split("#[cfg(test)]\nmod tests {").next().unwrap());
            }
        }
    }
    let mut text = String::new();
    collect_sources(&root().join("crates/cli/src"), &mut text);
    text
}

fn is_code(text: &str) -> bool {
    text.contains('_') && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The error codes in the sources: the first code-like string after each prefix, and the code at the start of
/// failure messages.
fn codes_in_sources(sources: &str) -> BTreeSet<&str> {
    let mut codes = BTreeSet::new();
    for maker in CODE_PREFIXES {
        for (at, _) in sources.match_indices(maker) {
            let rest = &sources[at + maker.len()..];
            let end = (0..=rest.len().min(160)).rev().find(|end| rest.is_char_boundary(*end)).unwrap();
            // A string after the end of the statement does not belong to the call.
            let call = rest[..end].split(';').next().unwrap();
            codes.extend(call.split('"').skip(1).step_by(2).find(|text| is_code(text)));
        }
    }
    codes.extend(
        sources.split('"').filter_map(|text| text.split_once(": ")).map(|(code, _)| code).filter(|code| is_code(code)),
    );
    codes
}

fn documented_codes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0))
}

#[test]
fn documented_codes_match_the_sources() {
    let text = fs::read_to_string(root().join("docs/errors.md")).unwrap();
    let (_, own) = text.split_once("<!-- codes:cli -->").unwrap();
    let (own, _) = own.split_once("<!-- /codes:cli -->").unwrap();
    let own: BTreeSet<&str> = documented_codes(own).collect();
    let sources = sources();
    let made = codes_in_sources(&sources);
    assert!(made.len() > 30, "the scan found only {made:?}");
    let all: BTreeSet<&str> = documented_codes(&text).collect();
    let missing: Vec<_> = made.difference(&all).collect();
    assert!(missing.is_empty(), "docs/errors.md does not list {missing:?}");
    let said = |code: &&&str| ["\"", ": "].iter().any(|end| sources.contains(&format!("\"{code}{end}")));
    let made_up: Vec<_> = own.iter().filter(|code| !said(code)).collect();
    assert!(made_up.is_empty(), "docs/errors.md lists codes without a source: {made_up:?}");
}
