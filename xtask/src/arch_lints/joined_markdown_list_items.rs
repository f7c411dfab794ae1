//! Finds Markdown list items that a rewrap of the text has joined to the previous line:
//! `A sentence. - **The next item.**`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The marker of a list item within a line.
const MARKER: &str = " - ";

/// The lines of Markdown documents, outside of code blocks and tables, that contain a joined list item.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn violations(root: &Path, documents: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in documents {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(path);
        let mut is_code = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code && has_joined_item(line) {
                found.push(format!("{}:{}: begin the list item on a new line", relative.display(), index + 1));
            }
        }
    }
    Ok(found)
}

fn has_joined_item(line: &str) -> bool {
    if line.trim_start().starts_with('|') {
        return false;
    }
    line.trim_end().ends_with(" -")
        || line.match_indices(MARKER).any(|(start, _)| {
            let (before, rest) = line.split_at(start);
            let item = &rest[MARKER.len()..];
            let ends_sentence = before.ends_with(['.', ';', ':', ')', '*', '`']);
            let begins_item =
                item.starts_with("**") || item.starts_with(|first: char| first == '`' || first.is_ascii_uppercase());
            ends_sentence && begins_item
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_list_items_within_a_line() {
        for line in ["One. - **Two.**", "- One: - Two", "One (1). - `two`", "One. -", "**One** - Two"] {
            assert!(has_joined_item(line), "{line}");
        }
        for line in
            ["- **One.** Two.", "  - `one`", "one - two", "2 - 1", "| a. | - B |", "---", "", "1 to 2 - Not one"]
        {
            assert!(!has_joined_item(line), "{line}");
        }
    }

    #[test]
    fn reads_documents_without_code_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let document = directory.path().join("a.md");
        fs::write(&document, "One. - Two.\n\n```sh\necho one; - Two\n```\n\n- One.\n- Two. -\n  Three.\n").unwrap();
        let found = violations(directory.path(), &[document]).unwrap();
        assert_eq!(found, ["a.md:1: begin the list item on a new line", "a.md:8: begin the list item on a new line"]);
    }
}
