//! Limits on the length and the names of files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::repository_files::sources;

/// Maximum number of lines of a source file.
const MAX_LINES: usize = 500;
/// Maximum number of lines of a test file.
const MAX_TEST_LINES: usize = 800;

/// Forbidden file names that say nothing about the content. `mod` is forbidden because modules with parts are
/// `noun.rs` next to `noun/`.
const FORBIDDEN_NAMES: &[&str] =
    &["util", "utils", "helper", "helpers", "common", "type", "types", "manager", "managers", "misc", "stuff", "mod"];

/// Forbidden file names that do not state the purpose of the module: adverbs, participles and metaphors. Use the term
/// of the glossary (`docs/glossary.md`) instead.
const UNCLEAR_NAMES: &[&str] = &[
    "apart",
    "aside",
    "away",
    "behalf",
    "beside",
    "came",
    "furniture",
    "gone",
    "here",
    "looked",
    "nobody",
    "passage",
    "place",
    "said",
    "sight",
    "taken",
    "there",
    "together",
    "told",
    "words",
];

/// The source files that are too long or have a forbidden name.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources(root)? {
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", relative.display()))?;
        found.extend(name_violation(relative));
        found.extend(length_violation(relative, text.lines().count()));
    }
    found.sort();
    Ok(found)
}

fn name_violation(path: &Path) -> Option<String> {
    // Names of folders are checked too.
    let name = path.with_extension("");
    let forbidden = |list: &[&str]| name.iter().find(|part| list.iter().any(|word| *part == *word));
    if let Some(part) = forbidden(FORBIDDEN_NAMES) {
        return Some(format!("{}: `{}` is an uninformative name", path.display(), part.display()));
    }
    let part = forbidden(UNCLEAR_NAMES)?;
    Some(format!("{}: `{}` does not say what the module is; see docs/glossary.md", path.display(), part.display()))
}

/// The tables of typed queries, which `cargo xtask schema` writes.
const GENERATED: &str = "adapters/postgres/src/schema.rs";

fn length_violation(path: &Path, lines: usize) -> Option<String> {
    if path == Path::new(GENERATED) {
        return None;
    }
    let is_test = path.iter().any(|part| part == "tests");
    let limit = if is_test { MAX_TEST_LINES } else { MAX_LINES };
    (lines > limit).then(|| format!("{}: {lines} lines exceed the maximum of {limit}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_long_files_with_a_higher_limit_for_tests() {
        assert_eq!(length_violation(Path::new(GENERATED), 900), None);
        assert_eq!(length_violation(Path::new("crates/domain/src/release.rs"), 500), None);
        assert!(length_violation(Path::new("crates/domain/src/release.rs"), 501).is_some());
        assert_eq!(length_violation(Path::new("crates/api/tests/it/release.rs"), 800), None);
        assert!(length_violation(Path::new("crates/api/tests/it/release.rs"), 801).is_some());
    }

    #[test]
    fn rejects_uninformative_names() {
        for path in [
            "crates/api/src/utils.rs",
            "crates/api/tests/common/mod.rs",
            "adapters/x/src/helpers/text.rs",
            "adapters/x/src/together.rs",
        ] {
            assert!(name_violation(Path::new(path)).is_some(), "{path}");
        }
        for path in ["crates/api/src/release.rs", "crates/api/src/asset_type.rs", "crates/api/src/modes.rs"] {
            assert_eq!(name_violation(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn visits_nested_folders() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["crates/a/src/deep", "adapters", "xtask"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        assert!(violations(root.path()).is_err());
        fs::write(root.path().join("crates/a/src/deep/long.rs"), "\n".repeat(501)).unwrap();
        fs::write(root.path().join("crates/a/src/deep/types.rs"), "").unwrap();
        let found = violations(root.path()).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
