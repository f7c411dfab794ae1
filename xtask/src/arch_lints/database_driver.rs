//! Limits the modules of the PostgreSQL adapter that name the driver or its pool. All other modules send statements
//! through `database.rs` and read rows through `row.rs`, so that timeouts, retries and errors have one implementation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The source folder of the PostgreSQL adapter.
const ADAPTER: &str = "adapters/postgres/src";

/// The crates of the driver, its pool and its TLS.
const DRIVER_CRATES: [&str; 3] = ["tokio_postgres", "deadpool_postgres", "tokio_postgres_rustls"];

/// The modules that may name the driver, with their purposes.
const DRIVER_MODULES: [&str; 11] = [
    // Wrappers for the driver's rows and parameters, which all other modules use.
    "row.rs",
    "param.rs",
    // Connection pools, and the sending of statements.
    "database/pool.rs",
    "database/send_statement.rs",
    "database/typed.rs",
    // Removal of the values that the driver quotes in errors, and the mapping of errors to those of the domain.
    "error_redaction.rs",
    "store_error.rs",
    // Migrations and partitions, over a connection of the role that owns the schema.
    "migration.rs",
    "migration/runner.rs",
    "partition.rs",
    // `LISTEN` and `NOTIFY`, each on a dedicated connection.
    "wakeups.rs",
];

/// The unlisted modules of the adapter that name the driver.
///
/// # Errors
/// When a source cannot be read, or a listed module is missing or does not name the driver.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let adapter = root.join(ADAPTER);
    let mut found = Vec::new();
    let mut unused = DRIVER_MODULES.to_vec();
    for source in sources {
        let Ok(module) = source.strip_prefix(&adapter) else { continue };
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", source.display()))?;
        let Some(driver) = driver_crate(&text) else { continue };
        let unused_count = unused.len();
        unused.retain(|listed_module| module != Path::new(listed_module));
        if unused.len() == unused_count {
            found.push(format!(
                "{ADAPTER}/{}: `{driver}` is named; send statements through `database.rs`, read rows through `row.rs`",
                module.display()
            ));
        }
    }
    if !unused.is_empty() {
        bail!("{} do not name the driver: remove them from the list of its modules", unused.join(", "));
    }
    Ok(found)
}

/// The first of [`DRIVER_CRATES`] that the code of a source names, outside of comments.
fn driver_crate(text: &str) -> Option<&'static str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split(|character| !is_word(character)))
        .find_map(|word| DRIVER_CRATES.into_iter().find(|driver| *driver == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The violations of an adapter that consists of the listed modules, which name the driver, and one further module.
    fn violations_with(module: &str, text: &str) -> Result<Vec<String>> {
        let root = tempfile::tempdir()?;
        let listed_modules = DRIVER_MODULES.map(|module| (module, "use tokio_postgres::Client;\n"));
        let mut sources = Vec::new();
        for (module, text) in listed_modules.into_iter().chain([(module, text)]) {
            let path = root.path().join(ADAPTER).join(module);
            fs::create_dir_all(path.parent().context("no parent")?)?;
            fs::write(&path, text)?;
            sources.push(path);
        }
        violations(root.path(), &sources)
    }

    #[test]
    fn rejects_the_driver_in_other_modules() {
        for text in [
            "use tokio_postgres::Row;\n",
            "use deadpool_postgres::Pool;\n",
            "fn read(row: &tokio_postgres::Row) {}\n",
            "use tokio_postgres_rustls::MakeRustlsConnect;\n",
        ] {
            let found = violations_with("release/load.rs", text).unwrap();
            assert!(matches!(&found[..], [problem] if problem.contains("release/load.rs")), "{text}: {found:?}");
        }
    }

    #[test]
    fn accepts_modules_without_the_driver() {
        for text in ["use crate::row::Row;\n", "// `tokio_postgres` is not named here.\n"] {
            let found = violations_with("release/load.rs", text).unwrap();
            assert!(found.is_empty(), "{text}: {found:?}");
        }
    }

    #[test]
    fn rejects_listed_modules_without_the_driver() {
        assert!(violations_with("row.rs", "pub(crate) struct Row;\n").is_err());
    }
}
