//! Finds phrases that documents and comments must not contain, because they hide the subject or the condition of a
//! sentence. CONTRIBUTING.md contains all rules of wording; this list covers only those that a text search can check.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The banned phrases, each with the text to write instead.
const BANNED_PHRASES: &[(&str, &str)] = &[
    ("all the same", "name the exception"),
    ("are told", "`get`, `receive` or the status"),
    ("comes to", "`reaches` or the result"),
    ("fell silent", "`timed out` or `stopped responding`"),
    ("for nothing", "`without a result`"),
    ("goes on", "`continues`"),
    ("in step with", "`together with`, or the comparison"),
    ("is told", "`gets`, `receives` or the status"),
    ("several at once", "`concurrent` and the noun"),
    ("stands behind", "`proves`, or the relation"),
    ("told of", "`reported`"),
];

/// The lines of comments and Markdown documents that contain a banned phrase.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn violations(root: &Path, sources: &[PathBuf], documents: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources.iter().chain(documents).filter(|path| !path.ends_with(file!())) {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let relative = path.strip_prefix(root).unwrap_or(path);
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        for (index, line) in text.lines().enumerate() {
            let prose = if is_source { line.split_once("//").map(|(_, comment)| comment) } else { Some(line) };
            if let Some((phrase, replacement)) = prose.and_then(banned_phrase) {
                found.push(format!("{}:{}: write {replacement} for \"{phrase}\"", relative.display(), index + 1));
            }
        }
    }
    Ok(found)
}

fn banned_phrase(prose: &str) -> Option<(&'static str, &'static str)> {
    let prose = prose.to_lowercase();
    let is_word_end = |text: Option<char>| text.is_none_or(|character| !character.is_alphanumeric());
    BANNED_PHRASES.iter().copied().find(|(phrase, _)| {
        prose.match_indices(phrase).any(|(start, _)| {
            let (before, rest) = prose.split_at(start);
            is_word_end(before.chars().next_back()) && is_word_end(rest[phrase.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_whole_phrases_in_any_case() {
        assert_eq!(banned_phrase("Several at once").map(|(phrase, _)| phrase), Some("several at once"));
        assert_eq!(banned_phrase("the run goes on, and ends").map(|(phrase, _)| phrase), Some("goes on"));
        assert_eq!(banned_phrase("the list of cargoes on board"), None);
    }

    #[test]
    fn reads_comments_and_documents_but_no_code() {
        let directory = tempfile::tempdir().unwrap();
        let (source, document) = (directory.path().join("a.rs"), directory.path().join("b.md"));
        fs::write(&source, "let text = \"it goes on\";\n// It goes on.\n").unwrap();
        fs::write(&document, "A run.\nIt fell silent.\n").unwrap();
        let found = violations(directory.path(), &[source], &[document]).unwrap();
        assert_eq!(
            found,
            [
                "a.rs:2: write `continues` for \"goes on\"",
                "b.md:2: write `timed out` or `stopped responding` for \"fell silent\""
            ]
        );
    }
}
