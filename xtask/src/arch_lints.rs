//! Architecture lints: allowed dependencies, file lengths, names, wording and lists of documents.

mod database_driver;
mod dependencies;
mod files;
mod joined_markdown_list_items;
pub(crate) mod long_forms;
mod outgoing_connections;
mod repository_files;
mod restricted_calls;
mod untyped_sql_statements;
mod wording;

use anyhow::{Result, bail};

use crate::paths::Paths;
use crate::step::run_for_output;
use crate::workspace_packages::packages;
use dependencies::{DependencyRule, rules, violations};

/// Runs all lints; the error lists all violations.
pub(crate) fn run(paths: &Paths) -> Result<()> {
    let packages = packages(paths)?;
    let mut found = Vec::new();
    for rule in rules(&packages)? {
        found.extend(violations(&rule, &dependency_tree(paths, &rule)?));
    }
    found.extend(files::violations(&paths.root)?);
    let sources = repository_files::sources(&paths.root)?;
    found.extend(outgoing_connections::violations(&paths.root, &sources)?);
    found.extend(restricted_calls::violations(&paths.root, &sources)?);
    found.extend(untyped_sql_statements::violations(&paths.root, &sources)?);
    found.extend(database_driver::violations(&paths.root, &sources)?);
    found.extend(long_forms::violations(&paths.root, &sources)?);
    let documents = repository_files::documents(&paths.root)?;
    found.extend(joined_markdown_list_items::violations(&paths.root, &documents)?);
    found.extend(wording::violations(&paths.root, &sources, &documents)?);
    if !found.is_empty() {
        bail!("{} violations:\n  {}", found.len(), found.join("\n  "));
    }
    Ok(())
}

/// The output of `cargo tree` for the rule's package, as if built alone: one line for each package, with its features.
fn dependency_tree(paths: &Paths, rule: &DependencyRule) -> Result<String> {
    let mut command = paths.cargo();
    command.args(["tree", "--package", &rule.package, "--edges", "normal", "--prefix", "none", "--format", "{p} {f}"]);
    run_for_output(command)
}
