//! Checks that SQL statements of the adapters contain no hand-numbered parameters (`$1`), and that the list of untyped
//! statements is complete and current.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The list of statements that are SQL texts instead of typed queries, one on each line: file, and the name of the
/// static or of the function that builds the text. Every new entry needs a deliberate decision, because the compiler
/// checks only typed queries.
const LIST: &str = "adapters/postgres/text_statements.txt";
/// Tests of the statement builder, which are exempt because they compare generated texts with numbered parameters.
const BUILDER_TESTS: &str = "adapters/postgres/src/guarded_commit/tests.rs";
/// The Rust types of statements that are SQL texts.
const TYPES: [&str; 3] = ["Query", "GuardedCommit", "GuardedBatchCommit"];
/// Expressions that build SQL text or send it within a function. The list has the name of the function.
const BUILDERS: [&str; 11] = [
    " ListQuery {",
    "ListQuery::single(",
    ".number_names(",
    " sql::<",
    "(sql::<",
    "sql_query(",
    ".push_sql(",
    ".read_one(",
    ".query_one(",
    ".query_opt(",
    ".batch_execute(",
];

/// Sources with hand-numbered parameters, and differences between the list and the defined statements.
///
/// # Errors
/// When a source or the list cannot be read.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut statements = BTreeSet::new();
    for path in sources.iter().filter(|path| path.starts_with(root.join("adapters"))) {
        let relative = path.strip_prefix(root).unwrap_or(path);
        if relative == Path::new(BUILDER_TESTS) {
            continue;
        }
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", relative.display()))?;
        found.extend(numbered_lines(&text).map(|line| {
            format!("{}:{line}: name the parameter; the builder in `guarded_commit.rs` numbers it", relative.display())
        }));
        if relative.starts_with("adapters/postgres/src") && !relative.ends_with("tests.rs") {
            statements.extend(building_functions(&text).map(|name| format!("{} {name}", relative.display())));
            for name in names(&text) {
                let statement = format!("{} {name}", relative.display());
                if statements.contains(&statement) {
                    found.push(format!("{statement}: this name occurs twice; name each statement by its act and noun"));
                }
                statements.insert(statement);
            }
        }
    }
    let list = fs::read_to_string(root.join(LIST)).with_context(|| format!("reading {LIST}"))?;
    let listed: BTreeSet<String> = list.lines().map(str::to_owned).collect();
    let unlisted = statements.difference(&listed).map(|name| format!("{LIST}: `{name}` is text; type it or list it"));
    found.extend(unlisted);
    found.extend(listed.difference(&statements).map(|name| format!("{LIST}: there is no `{name}`")));
    Ok(found)
}

/// The numbers of lines with `$` and a digit.
fn numbered_lines(text: &str) -> impl Iterator<Item = usize> {
    let is_numbered =
        |line: &str| line.split('$').skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    (1..).zip(text.lines()).filter(move |(_, line)| is_numbered(line)).map(|(number, _)| number)
}

/// The names of the statements that a file defines, of any visibility.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (visibility, item) = line.trim_start().split_once("static ")?;
        let is_item = visibility.is_empty() || visibility.starts_with("pub");
        let (name, definition) = item.split_once(": ").filter(|_| is_item)?;
        let (kind, _) = definition.split_once(" =")?;
        TYPES.contains(&kind).then_some(name)
    })
}

/// The names of the functions that build or send SQL text, except those of tests. A function may occur several times.
fn building_functions(text: &str) -> impl Iterator<Item = &str> {
    let mut function = None;
    let product = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]"));
    product.filter_map(move |line| {
        let code = line.trim_start();
        if let Some((_, declaration)) = code.split_once("fn ").filter(|_| !code.starts_with("//")) {
            function = declaration.split(['(', '<']).next();
        }
        let is_declaration = code.contains("-> ListQuery {") || code.starts_with("impl ") || code.contains("struct ");
        let builds_text = !is_declaration && BUILDERS.iter().any(|builder| line.contains(builder));
        function.filter(|_| builds_text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(source: &str, list: &str) -> Result<Vec<String>> {
        let root = tempfile::tempdir()?;
        let path = root.path().join("adapters/postgres/src/thing.rs");
        fs::create_dir_all(path.parent().context("no parent")?)?;
        fs::write(&path, source)?;
        fs::write(root.path().join(LIST), list)?;
        violations(root.path(), &[path])
    }

    #[test]
    fn accepts_listed_statements_with_named_parameters() {
        let source = "    static FIND: Query = Query::new(\"SELECT FROM thing WHERE thing_id = {thing_id}\");\n";
        let found = project(source, "adapters/postgres/src/thing.rs FIND\n").unwrap();
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn lists_statements_of_any_visibility() {
        for visibility in ["", "pub ", "pub(super) ", "    pub(crate) "] {
            let source = format!("{visibility}static SAVE: GuardedCommit = GuardedCommit::new(\"\", \"true\");\n");
            let found = project(&source, "").unwrap();
            assert!(matches!(&found[..], [problem] if problem.contains("SAVE")), "{visibility}: {found:?}");
        }
    }

    #[test]
    fn lists_functions_that_build_text() {
        for text in ["let query = ListQuery {", "ListQuery::single(COLUMNS)", "all.filter(sql::<Bool>(READY))"] {
            let source = format!("pub(super) async fn list(scope: Scope) -> ListQuery {{\n    {text}\n}}\n");
            let found = project(&source, "").unwrap();
            assert!(matches!(&found[..], [problem] if problem.contains("thing.rs list")), "{text}: {found:?}");
            assert!(project(&source, "adapters/postgres/src/thing.rs list\n").unwrap().is_empty(), "{text}");
        }
    }

    #[test]
    fn rejects_equal_names_in_a_file() {
        let source = "static LOAD: Query = Query::new(\"\");\nstatic LOAD: Query = Query::new(\"\");\n";
        let found = project(source, "adapters/postgres/src/thing.rs LOAD\n").unwrap();
        assert!(matches!(&found[..], [problem] if problem.contains("twice")), "{found:?}");
    }

    #[test]
    fn rejects_numbered_parameters_and_differences_from_the_list() {
        let source =
            "static SAVE: GuardedCommit =\n    GuardedCommit::new(\"UPDATE thing SET name = $1\", \"true\");\n";
        let found = project(source, "adapters/postgres/src/thing.rs FIND\n").unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("thing.rs:2") && found[1].contains("SAVE") && found[2].contains("FIND"), "{found:?}");
    }
}
