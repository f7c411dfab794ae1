//! Compares the error codes in `docs/errors.md` with those in the sources of the command line.

use crate::root;
use std::{collections::BTreeSet, fs, path::Path};

/// Source texts that precede the code of a finding.
const CODE_PREFIXES: [&str; 7] =
    ["Finding::whole(", ".finding(", "new_finding(", "directory_failure(", "Fault::new(", "Self::new(", "code: "];

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
    for prefix in CODE_PREFIXES {
        for (offset, _) in sources.match_indices(prefix) {
            let rest = &sources[offset + prefix.len()..];
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
    let (_, section) = text.split_once("<!-- codes:cli -->").unwrap();
    let (section, _) = section.split_once("<!-- /codes:cli -->").unwrap();
    let cli_codes: BTreeSet<&str> = documented_codes(section).collect();
    let sources = sources();
    let source_codes = codes_in_sources(&sources);
    assert!(source_codes.len() > 30, "the scan found only {source_codes:?}");
    let documented: BTreeSet<&str> = documented_codes(&text).collect();
    let missing: Vec<_> = source_codes.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/errors.md does not list {missing:?}");
    let has_source = |code: &&&str| ["\"", ": "].iter().any(|end| sources.contains(&format!("\"{code}{end}")));
    let without_source: Vec<_> = cli_codes.iter().filter(|code| !has_source(code)).collect();
    assert!(without_source.is_empty(), "docs/errors.md lists codes without a source: {without_source:?}");
}
