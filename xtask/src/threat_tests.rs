//! Checks that `docs/security.md` names existing tests for every threat and every promise.
//!
//! The document has one table row for each threat (`T1` …) and each promise (`R1` …). The last cell of a row lists the
//! evidence: tests as `` `package::file::test` ``, or `open:` and a description of the missing test.

mod test_names;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::workspace_packages::packages;

const DOCUMENT: &str = "docs/security.md";
/// Files with the list of browser tests (states).
const BROWSER_TESTS: [&str; 2] = ["portal/browser/run.mjs", "tools/oidc/run.mjs"];
const THREATS: u32 = 52;
const PROMISES: u32 = 26;

/// Compares the document's rows with the expected rows and the existing tests.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let document = fs::read_to_string(paths.root.join(DOCUMENT)).with_context(|| format!("reading {DOCUMENT}"))?;
    let mut tests = BTreeSet::new();
    for package in packages(paths)? {
        test_names::collect(&paths.root.join(&package.folder), &package.name, &mut tests)?;
    }
    for file in BROWSER_TESTS {
        test_names::collect_browser_states(&paths.root.join(file), &mut tests)?;
    }
    let errors = find_errors(&document, &tests);
    if !errors.is_empty() {
        bail!("{} errors in {DOCUMENT}:\n  {}", errors.len(), errors.join("\n  "));
    }
    Ok(())
}

/// The identifiers of all required rows, in document order.
fn expected_rows() -> Vec<String> {
    let threats = (1..=THREATS).map(|number| format!("T{number}"));
    threats.chain((1..=PROMISES).map(|number| format!("R{number}"))).collect()
}

/// All errors in the document's rows.
fn find_errors(document: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let rows: Vec<(&str, &str)> = document.lines().filter_map(parse_row).collect();
    let mut errors = Vec::new();
    for id in expected_rows() {
        match rows.iter().filter(|(found, _)| *found == id).count() {
            1 => {}
            0 => errors.push(format!("{id}: no row")),
            count => errors.push(format!("{id}: {count} rows")),
        }
    }
    let expected_ids: BTreeSet<String> = expected_rows().into_iter().collect();
    for (id, cell) in rows {
        if !expected_ids.contains(id) {
            errors.push(format!("{id}: no such threat or promise"));
        }
        for evidence in cell.split([',', ';']).map(str::trim) {
            if let Some(error) = evidence_error(evidence, tests) {
                errors.push(format!("{id}: {error}"));
            }
        }
    }
    errors
}

/// The identifier and the last cell of a threat's or promise's row.
fn parse_row(line: &str) -> Option<(&str, &str)> {
    let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let (id, other_cells) = cells.split_once('|')?;
    let id = id.trim();
    let number = id.strip_prefix(['T', 'R'])?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (_, evidence) = other_cells.rsplit_once('|')?;
    Some((id, evidence.trim()))
}

/// The error of one entry of the evidence cell, if any.
fn evidence_error(evidence: &str, tests: &BTreeSet<String>) -> Option<String> {
    if let Some(name) = evidence.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
        return (!tests.contains(name)).then(|| format!("there is no test `{name}`"));
    }
    // `open: part N` is refused, because readers do not know the parts of the project plan.
    let is_open = evidence.strip_prefix("open: ").is_some_and(|missing| !missing.starts_with("part "));
    (!is_open).then(|| format!("`{evidence}` is neither a test nor `open:` with what is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> BTreeSet<String> {
        ["fairway-api::body::refuses", "fairway-domain::json::bounds"].map(str::to_owned).into()
    }

    /// A document with a valid row for every identifier. `replacements` replaces some rows.
    fn document(replacements: &[(&str, &str)]) -> String {
        let line = |id: String| match replacements.iter().find(|(replaced, _)| *replaced == id) {
            Some((_, row)) => (*row).to_owned(),
            None => format!("| {id} | a fact | `fairway-api::body::refuses` |"),
        };
        let rows: Vec<String> = expected_rows().into_iter().map(line).collect();
        format!("# Security\n\n| row | fact | shown by |\n|---|---|---|\n{}\n", rows.join("\n"))
    }

    #[test]
    fn accepts_existing_tests_and_missing_evidence() {
        let mixed = "| T9 | a | b | `fairway-domain::json::bounds`, `fairway-api::body::refuses`; open: deep nesting |";
        let open = "| R25 | a fact | open: two versions |";
        assert_eq!(find_errors(&document(&[("T9", mixed), ("R25", open)]), &tests()), [""; 0]);
    }

    #[test]
    fn rejects_missing_doubled_and_unknown_rows() {
        let double = "| T2 | a | `fairway-api::body::refuses` |\n| T2 | a | `fairway-api::body::refuses` |";
        let found =
            find_errors(&document(&[("T1", ""), ("T2", double), ("R26", "| R27 | a | open: nothing |")]), &tests());
        assert_eq!(found, ["T1: no row", "T2: 2 rows", "R26: no row", "R27: no such threat or promise"]);
    }

    #[test]
    fn rejects_unknown_tests_and_undescribed_missing_evidence() {
        for (cell, expected_error) in [
            ("`fairway-api::body::gone`", "T3: there is no test `fairway-api::body::gone`"),
            ("", "T3: `` is neither a test nor `open:` with what is missing"),
            ("open", "T3: `open` is neither a test nor `open:` with what is missing"),
            (
                "open: part 5 of this round",
                "T3: `open: part 5 of this round` is neither a test nor `open:` with what is missing",
            ),
            ("`fairway-api::body::refuses`, later", "T3: `later` is neither a test nor `open:` with what is missing"),
        ] {
            let row = format!("| T3 | a fact | {cell} |");
            assert_eq!(find_errors(&document(&[("T3", &row)]), &tests()), [expected_error]);
        }
    }
}
