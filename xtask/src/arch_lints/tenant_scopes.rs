//! Restricts where tenant scopes are made: only authorization and background tasks choose a tenant.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The constructors that take a tenant without an identified caller, and the files that may call them.
const CONSTRUCTORS: &[(&str, &[&str])] = &[
    (
        "TenantScope::for_background_task(",
        &[
            // Rows of all tenants that a background task claims.
            "adapters/postgres/src/execution/lease.rs",
            "adapters/postgres/src/execution/queue.rs",
            "adapters/postgres/src/execution/review.rs",
            "crates/operations/src/asset/artifact_maintenance.rs",
            "crates/operations/src/release/rollback_advisor.rs",
            "crates/operations/src/rollout/rollout_controller.rs",
        ],
    ),
    ("TenantScope::for_platform_operator(", &["crates/operations/src/access/authorize.rs"]),
    (
        "TenantScope::for_share_token(",
        // The tenant of a token is used for the lookup of its link only.
        &["crates/operations/src/share_link.rs"],
    ),
    ("TenantScope::for_unknown_token(", &["crates/operations/src/share_link.rs"]),
];

/// The source files that make a tenant scope although they neither authorize nor run in the background.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for source in sources {
        let relative = source.strip_prefix(root).unwrap_or(source);
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", relative.display()))?;
        found.extend(violations_in(relative, &text));
    }
    for (constructor, files) in CONSTRUCTORS {
        for file in *files {
            let text = fs::read_to_string(root.join(file)).unwrap_or_default();
            if !text.contains(constructor) {
                bail!("{file} does not call `{constructor}…)`: remove it from the list of allowed files");
            }
        }
    }
    Ok(found)
}

fn violations_in(path: &Path, text: &str) -> Vec<String> {
    let is_product = path.starts_with("crates") || path.starts_with("adapters");
    let is_test =
        path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "benches" || part == "testkit");
    if !is_product || is_test {
        return Vec::new();
    }
    // Unit tests are the last item of a file.
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let is_called = |constructor: &str| {
        product.lines().any(|line| line.contains(constructor) && !line.trim_start().starts_with("//"))
    };
    CONSTRUCTORS
        .iter()
        .filter(|(constructor, files)| is_called(constructor) && !files.iter().any(|file| path == Path::new(file)))
        .map(|(constructor, _)| {
            format!("{}: `{constructor}…)` chooses a tenant; take the scope that authorization returns", path.display())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_scopes_outside_authorization_and_background_tasks() {
        for (path, text) in [
            ("crates/operations/src/workload.rs", "    let scope = TenantScope::for_background_task(tenant);"),
            ("crates/operations/src/tenant.rs", "    Ok(TenantScope::for_platform_operator(id))"),
            (
                "crates/api/src/seed.rs",
                "let scope = TenantScope::for_background_task(id);\n#[cfg(test)]\nmod tests {\n}",
            ),
        ] {
            assert_eq!(violations_in(Path::new(path), text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn accepts_listed_files_tests_and_comments() {
        let call = "let scope = TenantScope::for_background_task(id);";
        let in_tests = format!("fn f() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {call}\n}}\n");
        for (path, text) in [
            ("adapters/postgres/src/execution/lease.rs", call),
            ("crates/operations/src/blocking.rs", in_tests.as_str()),
            ("adapters/postgres/tests/it/fixture.rs", call),
            ("crates/operations/src/asset/impact/tests.rs", call),
            ("crates/operations/src/workload.rs", "// Not TenantScope::for_background_task(id)."),
        ] {
            assert!(violations_in(Path::new(path), text).is_empty(), "{path}: {text}");
        }
    }

    #[test]
    fn rejects_listed_files_without_a_call() {
        let root = tempfile::tempdir().unwrap();
        assert!(violations(root.path(), &[]).is_err());
    }
}
