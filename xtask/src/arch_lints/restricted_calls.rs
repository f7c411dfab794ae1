//! Restricts calls that bypass an architecture rule to listed callers. Only authorization and background tasks choose
//! a tenant. Only a store restores an aggregate without a decision. Only the builder of commits writes facts. Only
//! `main` functions and development tools return untyped errors.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A call that bypasses an architecture rule, and its permitted callers.
struct Restriction {
    /// The text with which a call starts.
    call: &'static str,
    /// The error message for a call from another file.
    problem: &'static str,
    /// The files and folders that may contain the call.
    callers: &'static [&'static str],
}

const CHOOSES_TENANT: &str = "chooses a tenant; take the scope that authorization returns";

const WRITES_FACT: &str = "writes a fact beside `GuardedCommit`, which writes it with its change";

const CLAIMS_KEY: &str = "claims an idempotency key beside the statement builder";

const RESTRICTIONS: &[Restriction] = &[
    Restriction {
        call: "::restore(",
        problem: "makes an aggregate without a decision; only a store restores what was committed",
        callers: &["adapters/postgres/src"],
    },
    Restriction {
        call: "INSERT INTO fact (",
        problem: WRITES_FACT,
        callers: &["adapters/postgres/src/guarded_commit.rs"],
    },
    Restriction {
        call: "INTO fact_pending",
        problem: WRITES_FACT,
        callers: &["adapters/postgres/src/guarded_commit.rs"],
    },
    Restriction {
        call: "fairway_commit(",
        problem: "ends a commit beside `GuardedCommit`, which adds its guard",
        callers: &["adapters/postgres/src/guarded_commit.rs"],
    },
    Restriction { call: "insert_into(fact::", problem: WRITES_FACT, callers: &[] },
    Restriction { call: "insert_into(fact_pending::", problem: WRITES_FACT, callers: &[] },
    Restriction { call: "insert_into(schema::fact::", problem: WRITES_FACT, callers: &[] },
    Restriction { call: "insert_into(schema::fact_pending::", problem: WRITES_FACT, callers: &[] },
    Restriction {
        call: "anyhow::",
        problem: "returns an untyped error; only `main` functions and development tools use `anyhow`",
        callers: &["crates/api/src/main.rs", "crates/bench/src", "adapters/postgres/examples"],
    },
    Restriction {
        call: "INTO idempotency_key",
        problem: CLAIMS_KEY,
        callers: &["adapters/postgres/src/guarded_commit.rs"],
    },
    Restriction {
        // The key of a new tenant belongs to the tenant of its creator, and `fairway_commit` works in one tenant.
        call: "fairway_claim_key(",
        problem: CLAIMS_KEY,
        callers: &["adapters/postgres/src/tenant.rs"],
    },
    Restriction {
        // Reserves a key before an effect outside of the database.
        call: "fairway_reserve_key(",
        problem: CLAIMS_KEY,
        callers: &["adapters/postgres/src/idempotency.rs"],
    },
    Restriction { call: "insert_into(idempotency_key::", problem: CLAIMS_KEY, callers: &[] },
    Restriction { call: "insert_into(schema::idempotency_key::", problem: CLAIMS_KEY, callers: &[] },
    Restriction {
        call: "TenantScope::for_background_task(",
        problem: CHOOSES_TENANT,
        callers: &[
            // Background tasks that process rows of all tenants.
            "adapters/postgres/src/erasure.rs",
            "adapters/postgres/src/execution/lease.rs",
            "adapters/postgres/src/execution/queue.rs",
            "adapters/postgres/src/execution/review.rs",
            "crates/operations/src/asset/artifacts.rs",
            "crates/operations/src/connection/expiry.rs",
            "crates/operations/src/connection/scheduled_checks.rs",
            "crates/operations/src/notification/projector.rs",
            "crates/operations/src/release/rollback_advisor.rs",
            "crates/operations/src/rollout/rollout_controller.rs",
            "crates/operations/src/transparency_log/log_auditor.rs",
            "crates/operations/src/transparency_log/tree_builder/log_step.rs",
        ],
    },
    Restriction {
        call: "TenantScope::for_platform_operator(",
        problem: CHOOSES_TENANT,
        callers: &["crates/operations/src/access/authorize.rs"],
    },
    Restriction {
        // The tenant in an unverified share token may only be used to look up the token's link.
        call: "TenantScope::for_share_token_lookup(",
        problem: CHOOSES_TENANT,
        callers: &["crates/operations/src/share_link.rs"],
    },
    Restriction {
        call: "TenantScope::for_rate_limiting_unknown_tokens(",
        problem: CHOOSES_TENANT,
        callers: &["crates/operations/src/share_link.rs"],
    },
    Restriction {
        // The tenant in a session token may only be used for the session of that token.
        call: "TenantScope::for_session(",
        problem: CHOOSES_TENANT,
        callers: &[
            "crates/operations/src/access/sessions.rs",
            "crates/operations/src/access/sessions/group_renewal.rs",
        ],
    },
    Restriction {
        // A verified identity selects the tenant in which its name is pinned. A logout notification of the identity
        // provider selects the tenant of the sessions that it ends.
        call: "TenantScope::for_identity(",
        problem: CHOOSES_TENANT,
        callers: &[
            "crates/operations/src/access/identity_resolver.rs",
            "crates/operations/src/access/sessions.rs",
            "crates/operations/src/access/test_sign_in_report.rs",
        ],
    },
];

/// The source files with a restricted call that are not listed as its callers.
pub(crate) fn violations(root: &Path, sources: &[PathBuf]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut calls: Vec<(PathBuf, &str)> = Vec::new();
    for source in sources {
        let relative = source.strip_prefix(root).unwrap_or(source);
        let text = fs::read_to_string(source).with_context(|| format!("reading {}", relative.display()))?;
        found.extend(violations_in(relative, &text));
        calls.extend(called_in(relative, &text).map(|restriction| (relative.to_owned(), restriction.call)));
    }
    for Restriction { call, callers, .. } in RESTRICTIONS {
        for caller in *callers {
            if !calls.iter().any(|(path, called)| called == call && path.starts_with(caller)) {
                bail!("{caller} has no `{call}…`: remove it from the list of allowed callers");
            }
        }
    }
    Ok(found)
}

fn violations_in(path: &Path, text: &str) -> Vec<String> {
    called_in(path, text)
        .filter(|restriction| !restriction.callers.iter().any(|caller| path.starts_with(caller)))
        .map(|Restriction { call, problem, .. }| format!("{}: `{call}…` {problem}", path.display()))
        .collect()
}

/// The restricted calls of a source file outside its tests.
fn called_in(path: &Path, text: &str) -> impl Iterator<Item = &'static Restriction> {
    let is_product = path.starts_with("crates") || path.starts_with("adapters");
    let is_test =
        path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "benches" || part == "testkit");
    // Unit tests are the last item of a source file, so the product's code is the text before them.
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let product = if is_product && !is_test { product } else { "" };
    RESTRICTIONS.iter().filter(|restriction| {
        product.lines().any(|line| line.contains(restriction.call) && !line.trim_start().starts_with("//"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_restricted_constructors_elsewhere() {
        for (path, text) in [
            ("crates/operations/src/workload.rs", "    let scope = TenantScope::for_background_task(tenant);"),
            ("crates/operations/src/tenant.rs", "    Ok(TenantScope::for_platform_operator(id))"),
            (
                "crates/api/src/seed.rs",
                "let scope = TenantScope::for_background_task(id);\n#[cfg(test)]\nmod tests {\n}",
            ),
            (
                "crates/operations/src/release.rs",
                "    let release = Release::restore(ReleaseRecord { state, ..fields });",
            ),
            (
                "adapters/postgres/src/workload.rs",
                "    SELECT fairway_commit((SELECT count(*) = 1 FROM made), tenant_id",
            ),
            ("adapters/postgres/src/audit.rs", "    diesel::insert_into(fact::table).values(row)"),
            ("adapters/postgres/src/audit.rs", "    INSERT INTO fact_pending (tenant_id, fact_id)"),
            ("adapters/postgres/src/execution/lease.rs", "    INSERT INTO idempotency_key AS known"),
            ("crates/api/src/serve.rs", "use anyhow::Context as _;"),
        ] {
            assert_eq!(violations_in(Path::new(path), text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn accepts_listed_callers_tests_and_comments() {
        let call = "let scope = TenantScope::for_background_task(id);";
        let in_tests = format!("fn f() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {call}\n}}\n");
        for (path, text) in [
            ("adapters/postgres/src/execution/lease.rs", call),
            ("adapters/postgres/src/release/rows.rs", "Ok(Release::restore(ReleaseRecord {"),
            ("crates/operations/src/blocking.rs", in_tests.as_str()),
            ("adapters/postgres/tests/it/fixture.rs", call),
            ("crates/operations/src/asset/impact/tests.rs", call),
            ("crates/operations/src/workload.rs", "// Not TenantScope::for_background_task(id)."),
        ] {
            assert!(violations_in(Path::new(path), text).is_empty(), "{path}: {text}");
        }
    }

    #[test]
    fn restricts_every_constructor_of_a_tenant_scope_except_that_of_a_caller() {
        let source = include_str!("../../../crates/domain/src/tenant.rs");
        let (_, methods) = source.split_once("impl TenantScope {").unwrap();
        let (methods, _) = methods.split_once("\n}").unwrap();
        let constructors: Vec<String> = methods
            .lines()
            .filter(|line| line.contains("-> Self"))
            .map(|line| format!("TenantScope::{}(", line.split_once("fn ").unwrap().1.split_once('(').unwrap().0))
            .filter(|call| call != "TenantScope::for_caller(")
            .collect();
        assert!(!constructors.is_empty() && source.matches("impl TenantScope").count() == 1);
        for call in constructors {
            assert!(RESTRICTIONS.iter().any(|restriction| restriction.call == call), "{call} is not restricted");
        }
    }

    #[test]
    fn rejects_listed_callers_without_a_call() {
        let root = tempfile::tempdir().unwrap();
        assert!(violations(root.path(), &[]).is_err());
    }
}
