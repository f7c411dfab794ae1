//! Architecture lints: allowed dependencies, file lengths, names, wording and lists of documents.

mod database_driver;
mod dependencies;
mod files;
mod joined_markdown_list_items;
pub(crate) mod long_forms;
mod outgoing_connections;
mod repository_files;
mod restricted_calls;
mod sql_statements;
mod wording;

use anyhow::{Result, bail};

use crate::paths::Paths;
use crate::step::run_for_output;
use crate::workspace_packages::packages;
use dependencies::{DependencyRule, rules, violations};

/// Runs all lints; the error lists all violations.
pub(crate) fn run(place: &Paths) -> Result<()> {
    let packages = packages(place)?;
    let mut found = Vec::new();
    for rule in rules(&packages)? {
        found.extend(violations(&rule, &dependency_tree(place, &rule)?));
    }
    found.extend(files::violations(&place.root)?);
    let sources = repository_files::sources(&place.root)?;
    found.extend(outgoing_connections::violations(&place.root, &sources)?);
    found.extend(restricted_calls::violations(&place.root, &sources)?);
    found.extend(sql_statements::violations(&place.root, &sources)?);
    found.extend(database_driver::violations(&place.root, &sources)?);
    found.extend(long_forms::violations(&place.root, &sources)?);
    let documents = repository_files::documents(&place.root)?;
    found.extend(joined_markdown_list_items::violations(&place.root, &documents)?);
    found.extend(wording::violations(&place.root, &sources, &documents)?);
    if !found.is_empty() {
        bail!("{} violations:\n  {}", found.len(), found.join("\n  "));
    }
    Ok(())
}

/// The output of `cargo tree` for the rule's package, as if built alone: one line for each package, with its features.
fn dependency_tree(place: &Paths, rule: &DependencyRule) -> Result<String> {
    let mut command = place.cargo();
    command.args(["tree", "--package", &rule.package, "--edges", "normal", "--prefix", "none", "--format", "{p} {f}"]);
    run_for_output(command)
}
