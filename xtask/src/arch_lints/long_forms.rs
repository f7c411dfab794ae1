//! Checks that the list of tests with a long form is complete and current. A long form is an extended variant of a
//! test, which only `cargo xtask model` requests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The list of tests with a long form, one name on each line, which `cargo xtask model` runs.
pub(crate) const LIST_FILE: &str = "crates/testkit/src/long_forms.txt";
/// The environment variable that requests long forms. Its name is split, so that this file passes its own check.
const VARIABLE: &str = concat!("FAIRWAY_TEST_", "LONG");
/// Files that may name the variable: the command that sets it, and the function that reads it.
const ALLOWED: [&str; 2] = ["xtask/src/model.rs", "crates/testkit/src/long_form.rs"];

/// The names of all tests with a long form.
///
/// # Errors
/// When the list cannot be read.
pub(crate) fn listed_tests(root: &Path) -> Result<Vec<String>> {
    let list = fs::read_to_string(root.join(LIST_FILE)).with_context(|| format!("reading {LIST_FILE}"))?;
    Ok(list.lines().map(str::to_owned).collect())
}

/// Messages about sources that name `VARIABLE` although they are not in `ALLOWED`, and about listed tests that do
/// not exist.
///
/// # Errors
/// When a source or the list cannot be read.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut missing = listed_tests(root)?;
    for path in sources {
        let relative = path.strip_prefix(root).unwrap_or(path);
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", relative.display()))?;
        if text.contains(VARIABLE) && !ALLOWED.iter().any(|allowed| relative == Path::new(allowed)) {
            found.push(format!(
                "{}: use `is_long_form_requested()` of crates/testkit/src/long_form.rs",
                relative.display()
            ));
        }
        missing.retain(|test| !contains_test(relative, &text, test));
    }
    found.extend(missing.into_iter().map(|test| format!("{LIST_FILE}: there is no test `{test}`")));
    Ok(found)
}

/// Whether a file contains the test `module::submodule::function`, according to the file's path and function names.
fn contains_test(path: &Path, text: &str, test: &str) -> bool {
    let Some((module, function)) = test.rsplit_once("::") else { return false };
    let is_module = path.with_extension("").ends_with(module.replace("::", "/"));
    is_module && path.with_extension("").iter().any(|part| part == "tests") && text.contains(&format!("fn {function}("))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_direct_reads_and_missing_listed_tests() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            path
        };
        write(LIST_FILE, "fleet::kill::loses_nothing\nfleet::loses_nothing\nfleet::gone\n");
        let nested = write(
            "crates/api/tests/faults/fleet/kill.rs",
            "async fn loses_nothing() { if is_long_form_requested() {} }",
        );
        let test =
            write("crates/api/tests/faults/fleet.rs", "async fn loses_nothing() { if is_long_form_requested() {} }");
        let setter = write("xtask/src/model.rs", VARIABLE);
        let direct_reader = write("crates/api/tests/it/other.rs", VARIABLE);
        let found = violations(root.path(), &[test, nested, setter, direct_reader]).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/api/tests/it/other.rs: "), "{found:?}");
        assert!(found[1].ends_with("there is no test `fleet::gone`"), "{found:?}");
    }
}
