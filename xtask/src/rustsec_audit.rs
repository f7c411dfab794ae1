//! Matches cargo's locked packages with a local copy of the RustSec advisory database; needs no network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde::Deserialize;
use time::macros::format_description;
use time::{Date, OffsetDateTime};

use crate::paths::Paths;

/// The local copy of the advisory database: one advisory on each line, with identifier, version ranges and kind.
const DATABASE_COPY: &str = "tools/advisories.json";
/// Maximum age of the copy in days. An older copy is only a warning, so that time alone fails no build.
const MAX_AGE_DAYS: i64 = 90;
/// The file with the reasons for accepted advisories, which cargo-deny reads too.
const ACCEPTED_LIST: &str = "deny.toml";
/// The operating systems and processors that Fairway supports.
const SYSTEMS: [&str; 2] = ["linux", "macos"];
const PROCESSORS: [&str; 2] = ["x86_64", "aarch64"];

/// The parsed copy of the advisory database.
#[derive(Deserialize)]
struct Database {
    /// The date of the copy: `2026-08-21`.
    as_of: String,
    advisories: Vec<Advisory>,
}

/// An advisory of the RustSec database: <https://github.com/rustsec/advisory-db>.
#[derive(Deserialize)]
struct Advisory {
    id: String,
    package: String,
    /// Version ranges that contain the fix.
    patched: Vec<VersionReq>,
    /// Version ranges that never had the flaw.
    unaffected: Vec<VersionReq>,
    /// `unmaintained`, `unsound` or `notice`; absent for a vulnerability.
    informational: Option<String>,
    /// The date on which the database withdrew the advisory, if it did.
    withdrawn: Option<String>,
    #[serde(default)]
    affected: Affected,
}

/// The affected platforms; an empty list means all.
#[derive(Deserialize, Default)]
struct Affected {
    #[serde(default)]
    os: Vec<String>,
    #[serde(default)]
    arch: Vec<String>,
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: Version,
    /// The registry of the package; absent for workspace packages.
    source: Option<String>,
}

#[derive(Deserialize)]
struct DenySettings {
    advisories: AcceptedAdvisories,
}

#[derive(Deserialize)]
struct AcceptedAdvisories {
    ignore: Vec<AcceptedAdvisory>,
}

#[derive(Deserialize)]
struct AcceptedAdvisory {
    id: String,
    reason: String,
}

/// An advisory that applies to a locked package.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MatchedAdvisory {
    id: String,
    package: String,
    version: Version,
    /// The kind of a notice, such as `unmaintained`; `None` for a vulnerability.
    informational: Option<String>,
}

/// The output and the failures of the check.
#[derive(Default, PartialEq, Eq, Debug)]
struct AdvisoryReport {
    accepted: Vec<String>,
    failures: Vec<String>,
}

/// Matches `Cargo.lock` with the copy of the advisory database. A vulnerable package always fails the check. An
/// unmaintained or unsound package fails the check unless `deny.toml` has a reason for its advisory. A reason whose
/// advisory matches no package also fails the check, so that the list stays current.
///
/// # Errors
/// When the check fails, or a file cannot be read or parsed.
pub(crate) fn check(paths: &Paths) -> Result<()> {
    let read = |path: &str| fs::read_to_string(paths.root.join(path)).with_context(|| format!("reading {path}"));
    let database = parse_database(&read(DATABASE_COPY)?)?;
    if let Some(warning) = age_warning(&database.as_of, OffsetDateTime::now_utc().date())? {
        println!("warning: {warning}");
    }
    let report = evaluate(
        &findings(&database, &locked_packages(&read("Cargo.lock")?)?),
        &accepted_reasons(&read(ACCEPTED_LIST)?)?,
    );
    for line in &report.accepted {
        println!("{line}");
    }
    if !report.failures.is_empty() {
        bail!("{} advisories:\n  {}", report.failures.len(), report.failures.join("\n  "));
    }
    Ok(())
}

fn parse_database(text: &str) -> Result<Database> {
    let database: Database =
        serde_json::from_str(text).with_context(|| format!("{DATABASE_COPY} is not a valid copy"))?;
    if database.advisories.is_empty() {
        bail!("{DATABASE_COPY} contains no advisory");
    }
    Ok(database)
}

/// The locked packages that come from a registry, without those of the workspace.
fn locked_packages(text: &str) -> Result<Vec<LockedPackage>> {
    let lock: Lock = toml::from_str(text).context("reading the packages of Cargo.lock")?;
    Ok(lock.package.into_iter().filter(|package| package.source.is_some()).collect())
}

/// The reasons for accepted advisories, by identifier.
fn accepted_reasons(text: &str) -> Result<BTreeMap<String, String>> {
    let settings: DenySettings = toml::from_str(text)
        .with_context(|| format!("each entry of `ignore` in {ACCEPTED_LIST} needs an `id` and a `reason`"))?;
    Ok(settings.advisories.ignore.into_iter().map(|accepted| (accepted.id, accepted.reason)).collect())
}

fn findings(database: &Database, packages: &[LockedPackage]) -> Vec<MatchedAdvisory> {
    let mut found = Vec::new();
    for advisory in database.advisories.iter().filter(|advisory| advisory.is_relevant()) {
        let affected = packages.iter().filter(|package| package.name == advisory.package);
        for package in affected.filter(|package| advisory.affects(&package.version)) {
            found.push(MatchedAdvisory {
                id: advisory.id.clone(),
                package: package.name.clone(),
                version: package.version.clone(),
                informational: advisory.informational.clone(),
            });
        }
    }
    found
}

fn evaluate(findings: &[MatchedAdvisory], reasons: &BTreeMap<String, String>) -> AdvisoryReport {
    let mut report = AdvisoryReport::default();
    for finding in findings {
        let MatchedAdvisory { id, package, version, informational } = finding;
        let reason = reasons.get(id).filter(|reason| !reason.trim().is_empty());
        match (informational, reason) {
            (None, _) => report.failures.push(format!("{id}: {package} {version} is vulnerable")),
            (Some(kind), Some(reason)) => {
                report.accepted.push(format!("{id}: {package} {version} is {kind}: {reason}"))
            }
            (Some(kind), None) => {
                report
                    .failures
                    .push(format!("{id}: {package} {version} is {kind}; {ACCEPTED_LIST} gives no reason for it"));
            }
        }
    }
    let found: BTreeSet<&String> = findings.iter().map(|finding| &finding.id).collect();
    let unused = reasons.keys().filter(|id| !found.contains(id));
    report
        .failures
        .extend(unused.map(|id| format!("{id}: applies to no locked package; remove it from {ACCEPTED_LIST}")));
    report
}

/// A warning when the copy is older than [`MAX_AGE_DAYS`] days.
fn age_warning(as_of: &str, today: Date) -> Result<Option<String>> {
    let date = Date::parse(as_of, format_description!("[year]-[month]-[day]"))
        .with_context(|| format!("{DATABASE_COPY} has an invalid date: `{as_of}`"))?;
    let days = (today - date).whole_days();
    Ok((days > MAX_AGE_DAYS).then(|| format!("{DATABASE_COPY} is {days} days old; newer advisories are not matched")))
}

impl Advisory {
    /// Whether the advisory is not withdrawn and concerns a supported platform.
    fn is_relevant(&self) -> bool {
        let concerns = |listed: &[String], supported: &[&str]| {
            listed.is_empty() || listed.iter().any(|name| supported.contains(&name.as_str()))
        };
        self.withdrawn.is_none() && concerns(&self.affected.os, &SYSTEMS) && concerns(&self.affected.arch, &PROCESSORS)
    }

    /// Whether a version is vulnerable: no range of patched or unaffected versions contains it. A range contains a
    /// pre-release only if it names a pre-release of the same version; every other pre-release counts as vulnerable.
    fn affects(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|range| range.matches(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn copy(advisories: &str) -> Database {
        parse_database(&format!(r#"{{ "as_of": "2026-08-21", "advisories": [{advisories}] }}"#)).unwrap()
    }

    fn package(name: &str, version: &str) -> String {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"registry\"\n")
    }

    fn finding_count(advisories: &str, name: &str, version: &str) -> usize {
        findings(&copy(advisories), &locked_packages(&package(name, version)).unwrap()).len()
    }

    #[test]
    fn affects_versions_outside_of_patched_and_unaffected_ranges() {
        let advisory = r#"{ "id": "R-1", "package": "x", "patched": ["^0.3.4", ">= 0.6.3", "< 0.10.0, >= 0.9.18"],
            "unaffected": ["< 0.3.2"] }"#;
        for (version, affected) in
            [("0.3.1", 0), ("0.3.2", 1), ("0.3.4", 0), ("0.4.0", 1), ("0.6.3", 0), ("0.6.3-rc.1", 1), ("1.0.0", 0)]
        {
            assert_eq!(finding_count(advisory, "x", version), affected, "{version}");
        }
        assert_eq!(finding_count(advisory, "y", "0.4.0"), 0);
    }

    #[test]
    fn skips_withdrawn_advisories_and_foreign_platforms() {
        let advisory_with =
            |members: &str| format!(r#"{{ "id": "R-1", "package": "x", "patched": [], "unaffected": [], {members} }}"#);
        for (members, affected) in [
            (r#""withdrawn": "2026-01-01""#, 0),
            (r#""affected": { "os": ["windows"] }"#, 0),
            (r#""affected": { "arch": ["x86"] }"#, 0),
            (r#""affected": { "os": ["windows", "linux"], "arch": ["x86_64"] }"#, 1),
        ] {
            assert_eq!(finding_count(&advisory_with(members), "x", "1.0.0"), affected, "{members}");
        }
    }

    #[test]
    fn vulnerable_packages_fail_even_with_a_reason() {
        let finding = |id: &str, kind: Option<&str>| MatchedAdvisory {
            id: id.to_owned(),
            package: "x".to_owned(),
            version: Version::new(1, 2, 3),
            informational: kind.map(str::to_owned),
        };
        let reasons = |ids: &[(&str, &str)]| {
            ids.iter().map(|(id, reason)| ((*id).to_owned(), (*reason).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let failures = |findings: &[MatchedAdvisory], ids: &[(&str, &str)]| evaluate(findings, &reasons(ids)).failures;
        let vulnerable = [finding("R-1", None)];
        assert_eq!(failures(&vulnerable, &[("R-1", "why")]), ["R-1: x 1.2.3 is vulnerable"]);
        let unmaintained = [finding("R-2", Some("unmaintained"))];
        assert_eq!(failures(&unmaintained, &[("R-2", "why")]), [""; 0]);
        assert_eq!(
            evaluate(&unmaintained, &reasons(&[("R-2", "why")])).accepted,
            ["R-2: x 1.2.3 is unmaintained: why"]
        );
        assert_eq!(failures(&unmaintained, &[]), ["R-2: x 1.2.3 is unmaintained; deny.toml gives no reason for it"]);
        assert_eq!(failures(&unmaintained, &[("R-2", " ")]).len(), 1);
        assert_eq!(failures(&[], &[("R-3", "why")]), ["R-3: applies to no locked package; remove it from deny.toml"]);
    }

    #[test]
    fn old_copy_is_a_warning() {
        let warning = |today: Date| age_warning("2026-08-21", today).unwrap();
        assert_eq!(warning(time::macros::date!(2026 - 11 - 19)), None);
        let message = warning(time::macros::date!(2026 - 11 - 20)).unwrap();
        assert!(message.contains("91 days old"), "{message}");
        assert_eq!(warning(time::macros::date!(2026 - 01 - 01)), None);
        assert!(age_warning("lately", time::macros::date!(2026 - 01 - 01)).is_err());
    }

    #[test]
    fn requires_reasons_and_a_non_empty_copy() {
        assert!(accepted_reasons("[advisories]\nignore = [\"R-1\"]\n").is_err());
        assert!(parse_database(r#"{ "as_of": "2026-08-21", "advisories": [] }"#).is_err());
    }

    /// The current lock file: no vulnerable package and three unmaintained ones.
    #[test]
    fn repository_passes_and_a_vulnerable_package_fails() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let (database, reasons) =
            (parse_database(&read(DATABASE_COPY)).unwrap(), accepted_reasons(&read(ACCEPTED_LIST)).unwrap());
        assert!(database.advisories.len() > 1_000);
        let lock = read("Cargo.lock");
        let current_findings = findings(&database, &locked_packages(&lock).unwrap());
        assert_eq!(evaluate(&current_findings, &reasons).failures, [""; 0]);
        let unmaintained: BTreeSet<&str> = current_findings.iter().map(|finding| finding.package.as_str()).collect();
        assert_eq!(unmaintained, BTreeSet::from(["derivative", "fxhash", "paste"]));
        let lock_with_vulnerability = format!("{lock}\n{}", package("h2", "0.3.17"));
        let report = evaluate(&findings(&database, &locked_packages(&lock_with_vulnerability).unwrap()), &reasons);
        assert!(report.failures.contains(&"RUSTSEC-2026-0258: h2 0.3.17 is vulnerable".to_owned()), "{report:?}");
    }
}
