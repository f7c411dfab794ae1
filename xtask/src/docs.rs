//! `cargo xtask docs`: copies tables from snapshots, which tests keep current, into documents.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;

const SNAPSHOT: &str = "crates/domain/src/release/snapshots/fairway_domain__release__tests__moves.snap";
const DOCUMENT: &str = "docs/release-states.md";
const BEGIN: &str = "<!-- moves: written by `cargo xtask docs` -->\n";
const END: &str = "<!-- end of moves -->";

pub(crate) fn run(paths: &Paths) -> Result<ExitCode> {
    fs::write(paths.root.join(DOCUMENT), rendered_document(paths)?).with_context(|| format!("writing {DOCUMENT}"))?;
    println!("wrote {DOCUMENT}");
    Ok(ExitCode::SUCCESS)
}

/// Checks that the table in the document equals the snapshot.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    if read(paths, DOCUMENT)? != rendered_document(paths)? {
        bail!("{DOCUMENT} differs from the snapshot: run `cargo xtask docs`");
    }
    Ok(())
}

fn rendered_document(paths: &Paths) -> Result<String> {
    replace_table(&read(paths, DOCUMENT)?, table(&read(paths, SNAPSHOT)?)?)
}

fn read(paths: &Paths, path: &str) -> Result<String> {
    fs::read_to_string(PathBuf::from(&paths.root).join(path)).with_context(|| format!("reading {path}"))
}

/// The body of a snapshot, below its header.
fn table(snapshot: &str) -> Result<&str> {
    snapshot.splitn(3, "---\n").nth(2).context("the snapshot has no header")
}

/// Replaces the text between the begin and end markers of the document.
fn replace_table(document: &str, table: &str) -> Result<String> {
    let (before, rest) = document.split_once(BEGIN).with_context(|| format!("{DOCUMENT} lacks the line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{DOCUMENT} lacks the line {END}"))?;
    Ok(format!("{before}{BEGIN}{}\n{END}{after}", table.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_the_table_between_markers() {
        let snapshot = "---\nsource: x\n---\n| a |\n|---|\n";
        let document = format!("# T\n\n{BEGIN}old\n{END}\n\nMore.\n");
        let expected = format!("# T\n\n{BEGIN}| a |\n|---|\n{END}\n\nMore.\n");
        assert_eq!(replace_table(&document, table(snapshot).unwrap()).unwrap(), expected);
        assert_eq!(replace_table(&expected, table(snapshot).unwrap()).unwrap(), expected);
        assert!(replace_table("# T\n", "| a |").is_err());
    }
}
