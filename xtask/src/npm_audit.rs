//! Runs `npm audit` over npm lock files, if the registry supports it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::{Paths, find_on_path};

/// Folders with a `package-lock.json`: the portal, and external tools that checks and tests use.
const FOLDERS: [&str; 6] = ["portal", "tools/api", "tools/mcp", "tools/oidc", "tools/receivers", "tools/verify"];
/// Timeout of requests to the registry, in milliseconds. It is short, because the checks also run offline.
const FETCH_TIMEOUT: &str = "--fetch-timeout=10000";

/// The result of `npm audit` for a lock file.
#[derive(PartialEq, Eq, Debug)]
enum AuditResult {
    /// The registry did not respond, or does not support audits.
    Unsupported,
    /// Number of packages with high or critical advisories, and with other advisories.
    Reported { severe: u64, mild: u64 },
}

/// Audits all lock files. If the registry supports no audit, the check only prints this.
///
/// # Errors
/// When packages have high or critical advisories.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let Some(npm) = find_on_path("npm") else {
        println!("npm is not installed: its lock files were not audited");
        return Ok(());
    };
    let mut failures = Vec::new();
    for folder in FOLDERS {
        let mut audit = Command::new(&npm);
        audit.args(["audit", "--json", "--package-lock-only", "--fetch-retries=0", FETCH_TIMEOUT]);
        audit.current_dir(paths.root.join(folder));
        let output = audit.output().with_context(|| format!("starting npm in {folder}"))?;
        match parse_report(&output.stdout) {
            AuditResult::Unsupported => println!("{folder}: the registry does not support `npm audit`"),
            AuditResult::Reported { severe: 0, mild } => {
                println!("{folder}: no severe advisories, {mild} packages with others")
            }
            AuditResult::Reported { severe, .. } => {
                failures.push(format!("{folder}: {severe} packages with severe advisories; see `npm audit` there"));
            }
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n  "));
    }
    Ok(())
}

/// Parses the output of `npm audit`. Output without a report version means that the registry returned no report.
fn parse_report(report: &[u8]) -> AuditResult {
    let Ok(report) = serde_json::from_slice::<Value>(report) else { return AuditResult::Unsupported };
    let Some(counts) = report.get("auditReportVersion").and(report.pointer("/metadata/vulnerabilities")) else {
        return AuditResult::Unsupported;
    };
    let count = |names: &[&str]| names.iter().filter_map(|name| counts.get(name)?.as_u64()).sum();
    AuditResult::Reported { severe: count(&["high", "critical"]), mild: count(&["info", "low", "moderate"]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Tool folders with an npm lock file that [`FOLDERS`] omits.
    fn unlisted_folders(tools: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(tools).unwrap().flatten();
        let folders = entries.filter(|entry| entry.path().join("package-lock.json").is_file());
        folders
            .map(|entry| format!("tools/{}", entry.file_name().to_string_lossy()))
            .filter(|folder| !FOLDERS.contains(&folder.as_str()))
            .collect()
    }

    #[test]
    fn counts_severe_advisories_and_detects_missing_support() {
        assert_eq!(parse_report(b""), AuditResult::Unsupported);
        assert_eq!(
            parse_report(br#"{ "message": "405 Method Not Allowed", "statusCode": 405, "error": {} }"#),
            AuditResult::Unsupported
        );
        let report = br#"{ "auditReportVersion": 2, "vulnerabilities": {}, "metadata": { "vulnerabilities":
            { "info": 1, "low": 2, "moderate": 3, "high": 4, "critical": 5, "total": 15 } } }"#;
        assert_eq!(parse_report(report), AuditResult::Reported { severe: 9, mild: 6 });
    }

    /// Lock files contain no registry addresses, which would bind every machine to one registry.
    #[test]
    fn lock_files_name_no_registry() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for folder in FOLDERS {
            let lock = std::fs::read_to_string(root.join(folder).join("package-lock.json")).unwrap();
            assert!(!lock.contains("\"resolved\""), "{folder}");
        }
    }

    #[test]
    fn audits_every_lock_file() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(unlisted_folders(&root.join("tools")), [""; 0]);
    }
}
