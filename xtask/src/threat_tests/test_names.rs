//! Collects the names of all tests from the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Adds every test of a package as `package::file::test`.
///
/// # Errors
/// When a folder or a source file cannot be read.
pub(super) fn collect(folder: &Path, package: &str, names: &mut BTreeSet<String>) -> Result<()> {
    for part in ["src", "tests"] {
        let root = folder.join(part);
        if root.is_dir() {
            walk(&root, &mut Vec::new(), &mut |modules, source| {
                let file = file_part(part, modules);
                for test in declared_tests(source) {
                    names.insert(
                        [package, &file, test]
                            .into_iter()
                            .filter(|name| !name.is_empty())
                            .collect::<Vec<_>>()
                            .join("::"),
                    );
                }
            })?;
        }
    }
    Ok(())
}

/// Adds the name of every browser test (state) as `browser::state`. The browser tests themselves fail if a listed
/// state has no test.
///
/// # Errors
/// When the file cannot be read or lists no states.
pub(super) fn collect_browser_states(file: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    let source = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    names.extend(
        listed_states(&source).context("the browser tests list no states")?.map(|state| format!("browser::{state}")),
    );
    Ok(())
}

/// The quoted names in the constant `STATES` of a JavaScript source.
fn listed_states(source: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, table) = source.split_once("const STATES = {")?;
    let (table, _) = table.split_once("};")?;
    Some(table.split('"').skip(1).step_by(2))
}

/// Calls `visit` with the module path and the text of every source file below a folder.
fn walk(folder: &Path, modules: &mut Vec<String>, visit: &mut impl FnMut(&[String], &str)) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        modules.push(name);
        if path.is_dir() {
            walk(&path, modules, visit)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(modules, &fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?);
        }
        modules.pop();
    }
    Ok(())
}

/// The file part of `package::file::test`, which is the shortened module path. Unit tests in `tests.rs` belong to the
/// parent module. Integration tests omit the name of their test target, unless the file is the target's root.
fn file_part(part: &str, modules: &[String]) -> String {
    let mut names: Vec<&str> = modules.iter().map(String::as_str).collect();
    if names.last().is_some_and(|name| ["lib", "main", "tests"].contains(name)) {
        names.pop();
    }
    if part == "tests" && names.len() > 1 {
        names.remove(0);
    }
    names.join("::")
}

/// The test functions of a source file, except ignored ones.
fn declared_tests(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in source.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let name = attribute.split(['(', ']', ' ']).next().unwrap_or_default();
            is_test |= name == "test" || name.ends_with("::test");
            is_ignored |= name == "ignore";
            continue;
        }
        if let Some(function) = function_name(line) {
            if is_test && !is_ignored {
                found.push(function);
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// The name of the function that a line declares.
fn function_name(line: &str) -> Option<&str> {
    let declaration = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    declaration.split(|character: char| !(character.is_alphanumeric() || character == '_')).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_tests_and_leaves_out_other_functions_and_ignored_tests() {
        let source = "\
            #[test]\nfn plain() {}\n\
            fn helper() {}\n\
            #[tokio::test(flavor = \"multi_thread\")]\nasync fn of_a_runtime() {}\n\
            #[test]\n#[ignore]\nfn left_out() {}\n\
            proptest! {\n    /// Draws.\n    #[test]\n    fn drawn(text in \".*\") {}\n}\n\
            #[expect(clippy::panic, reason = \"a test\")]\n#[actix_web::test]\nasync fn served() {}\n";
        assert_eq!(declared_tests(source), ["plain", "of_a_runtime", "drawn", "served"]);
    }

    #[test]
    fn lists_states_of_the_browser_tests() {
        let source =
            "import x from \"y\";\nconst STATES = {\n  forms: [\"gallery\", \"fields\"],\n  runs: [\"why\"],\n};\n";
        assert_eq!(listed_states(source).unwrap().collect::<Vec<_>>(), ["gallery", "fields", "why"]);
        assert!(listed_states("const OTHER = {};").is_none());
    }

    #[test]
    fn names_files_without_their_target() {
        let file = |part: &str, path: &str| {
            let modules: Vec<String> = path.split('/').map(str::to_owned).collect();
            file_part(part, &modules)
        };
        assert_eq!(file("src", "flow/yaml/tests"), "flow::yaml");
        assert_eq!(file("src", "lib"), "");
        assert_eq!(file("src", "json"), "json");
        assert_eq!(file("tests", "it/body"), "body");
        assert_eq!(file("tests", "it/sync/pull"), "sync::pull");
        assert_eq!(file("tests", "scenarios/main"), "scenarios");
        assert_eq!(file("tests", "canonical"), "canonical");
    }

    #[test]
    fn collects_tests_of_a_package() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["src/flow", "tests/it"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for (file, name) in [("src/lib.rs", "here"), ("src/flow/tests.rs", "parses"), ("tests/it/body.rs", "refuses")] {
            fs::write(root.path().join(file), format!("#[test]\nfn {name}() {{}}\n")).unwrap();
        }
        let mut found = BTreeSet::new();
        collect(root.path(), "fairway-x", &mut found).unwrap();
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["fairway-x::body::refuses", "fairway-x::flow::parses", "fairway-x::here"]);
    }
}
