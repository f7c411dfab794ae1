//! Reads, checks and tests the policy bundles and scenarios of a directory.

use super::{BundleCoverage, Report, RuleCoverage, TestResult};
use crate::{
    asset::content_problems,
    failure::{Failure, Finding},
    untrusted_file::{self, LocatedValue, MAX_DIRECTORY_BYTES, Source, sidecar_texts::SidecarLocation},
};
use fairway_domain::{
    asset::kind::AssetKind,
    policy::{CompiledPolicy, Difference, Scenario},
};
use serde_json::Value;
use similar::TextDiff;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

/// Minimum similarity (from 0 to 1) between an unknown kind and `policy_bundle` to report a probable misspelling.
const MIN_SIMILARITY: f32 = 0.8;

/// The policy content of one file.
enum PolicyFile {
    Bundle(Box<CompiledBundle>),
    Scenarios {
        located: LocatedValue,
        bundle: String,
    },
    /// An invalid file of a policy bundle. The slug prevents a second error for scenarios of this bundle.
    Broken {
        slug: String,
        findings: Vec<Finding>,
    },
    /// A file without policy content.
    Other,
}

/// A policy bundle that was checked and compiled.
pub(super) struct CompiledBundle {
    pub(super) slug: String,
    pub(super) located: LocatedValue,
    /// The JSON pointer to the bundle's content in the file.
    pub(super) pointer: &'static str,
    policy: CompiledPolicy,
    /// The number of tests that matched each rule.
    match_counts: BTreeMap<String, usize>,
}

/// Tests all bundles below the directory.
pub(super) fn test_directory(directory: &Path) -> Result<Report, Failure> {
    let paths = untrusted_file::manifest_files(directory)?;
    let mut report = Report::default();
    let (mut bundles, mut scenarios, mut broken) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for (path, file) in read_all(&paths, directory) {
        match file {
            PolicyFile::Bundle(bundle) => {
                let slug = bundle.slug.clone();
                if bundles.insert(slug, *bundle).is_some() {
                    let message = "another file of the directory has a bundle with this slug";
                    report.errors.push(Finding::whole(path.display().to_string(), "duplicate_slug", message));
                }
            }
            PolicyFile::Scenarios { located, bundle } => scenarios.push((located, bundle)),
            PolicyFile::Broken { slug, findings } => {
                broken.insert(slug);
                report.errors.extend(findings);
            }
            PolicyFile::Other => {}
        }
    }
    for bundle in bundles.values_mut() {
        bundle.run_own_tests(&mut report);
    }
    for (located, bundle) in &scenarios {
        match bundles.get_mut(bundle) {
            Some(compiled) => compiled.run_tests(located, "/scenarios", &mut report),
            // The bundle is invalid, and its error is reported already.
            None if broken.contains(bundle) => {}
            None => {
                let message = "the directory has no bundle with this slug";
                report.errors.push(located.finding("/bundle", "unknown_bundle", message));
            }
        }
    }
    report.bundles = bundles.into_values().map(CompiledBundle::into_coverage).collect();
    if report.bundles.is_empty() && report.errors.is_empty() {
        report.errors.push(no_bundles(directory));
    }
    Ok(report)
}

/// The valid bundles below a directory.
///
/// # Errors
/// When the file of a bundle is invalid, or the directory contains no bundle.
pub(super) fn read_bundles(directory: &Path) -> Result<Vec<CompiledBundle>, Failure> {
    let paths = untrusted_file::manifest_files(directory)?;
    let (mut bundles, mut errors) = (Vec::new(), Vec::new());
    for (_, file) in read_all(&paths, directory) {
        match file {
            PolicyFile::Bundle(bundle) => bundles.push(*bundle),
            PolicyFile::Broken { findings, .. } => errors.extend(findings),
            PolicyFile::Scenarios { .. } | PolicyFile::Other => {}
        }
    }
    if bundles.is_empty() && errors.is_empty() {
        errors.push(no_bundles(directory));
    }
    if errors.is_empty() { Ok(bundles) } else { Err(Failure::Files(errors)) }
}

fn no_bundles(directory: &Path) -> Finding {
    let message = "the directory contains no policy bundle";
    Finding::whole(directory.display().to_string(), "no_bundles", message)
}

/// Reads and compiles the files in parallel, one thread for each processor. The result has the order of the paths.
fn read_all<'p>(paths: &'p [PathBuf], root: &Path) -> Vec<(&'p PathBuf, PolicyFile)> {
    let remaining_bytes = Mutex::new(MAX_DIRECTORY_BYTES);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let chunk_size = paths.len().div_ceil(threads).max(1);
    let remaining_bytes = &remaining_bytes;
    thread::scope(|scope| {
        let read = move |chunk: &[PathBuf]| {
            chunk.iter().map(|path| read_policy_file(path, root, remaining_bytes)).collect::<Vec<_>>()
        };
        let handles: Vec<_> = paths.chunks(chunk_size).map(|chunk| scope.spawn(move || read(chunk))).collect();
        let files = handles
            .into_iter()
            .flat_map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        paths.iter().zip(files).collect()
    })
}

/// Reads a file and its sidecar texts, and subtracts the size of the texts from `remaining_bytes`.
fn read_policy_file(path: &Path, root: &Path, remaining_bytes: &Mutex<u64>) -> PolicyFile {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let located = match Source::read_file(path).and_then(|source| source.try_value()) {
        Ok(located) => located,
        Err(finding) => return PolicyFile::Broken { slug: stem, findings: vec![finding] },
    };
    if let Some(bundle) = located.value.get("bundle") {
        return match scenario_bundle(&located, bundle) {
            Ok(bundle) => PolicyFile::Scenarios { located, bundle },
            Err(finding) => PolicyFile::Broken { slug: stem, findings: vec![finding] },
        };
    }
    let slug = located.value.get("slug").and_then(Value::as_str).map_or(stem, str::to_owned);
    let broken = |findings| PolicyFile::Broken { slug: slug.clone(), findings };
    match bundle_pointer(&located) {
        Ok(Some(pointer)) => {
            compile_bundle(&slug, located, pointer, path, root, remaining_bytes).unwrap_or_else(broken)
        }
        Ok(None) => PolicyFile::Other,
        Err(finding) => broken(vec![finding]),
    }
}

/// Checks and compiles the bundle at a JSON pointer of a file.
fn compile_bundle(
    slug: &str,
    mut located: LocatedValue,
    pointer: &'static str,
    path: &Path,
    root: &Path,
    remaining_bytes: &Mutex<u64>,
) -> Result<PolicyFile, Vec<Finding>> {
    if !pointer.is_empty() {
        let mut remaining_bytes = remaining_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        located = located
            .with_texts_limited(&SidecarLocation { path, root }, &mut remaining_bytes)
            .map_err(|finding| vec![finding])?;
    }
    // Removes findings about failed tests, because the command reports these as test results.
    let mut problems = content_problems(AssetKind::PolicyBundle, &located, pointer);
    problems.retain(|problem| problem.code != "policy_test_failed");
    if !problems.is_empty() {
        return Err(problems);
    }
    let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
    let policy = CompiledPolicy::compile(content).map_err(|problems| {
        let located_problem = |problem: &fairway_domain::asset::content::ContentProblem| {
            located.finding(&format!("{pointer}{}", problem.pointer), problem.code, problem.message.as_str())
        };
        problems.iter().map(located_problem).collect::<Vec<_>>()
    })?;
    Ok(PolicyFile::Bundle(Box::new(CompiledBundle {
        slug: slug.to_owned(),
        located,
        pointer,
        policy,
        match_counts: BTreeMap::new(),
    })))
}

/// The slug of the bundle that a scenario file tests.
fn scenario_bundle(located: &LocatedValue, bundle: &Value) -> Result<String, Finding> {
    let refuse = |pointer, message| Err(located.finding(pointer, "invalid_scenario", message));
    let Some(bundle) = bundle.as_str() else {
        return refuse("/bundle", "`bundle` must be the slug of a bundle");
    };
    match located.value.get("scenarios") {
        Some(Value::Array(_)) => Ok(bundle.to_owned()),
        Some(_) => refuse("/scenarios", "`scenarios` must be a list"),
        None => refuse("", "a file with `bundle` must list its cases under `scenarios`"),
    }
}

/// The JSON pointer to a bundle's content; `None` when the file is not a policy bundle.
///
/// A file with a misspelled kind is an error, because skipping the file would silently skip its tests.
fn bundle_pointer(located: &LocatedValue) -> Result<Option<&'static str>, Finding> {
    let kind = located.value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let has_content = located.value.get("content").is_some();
    match AssetKind::parse(kind) {
        Some(AssetKind::PolicyBundle) if has_content => Ok(Some("/content")),
        Some(AssetKind::PolicyBundle) => {
            let message = "a manifest of a policy bundle must have its rules and tests under `content`";
            Err(located.finding("", "invalid_manifest", message))
        }
        Some(_) => Ok(None),
        None if resembles_policy_bundle(kind) => {
            let message = "unknown asset kind; did you mean `policy_bundle`?";
            Err(located.finding("/kind", "invalid_asset_kind", message))
        }
        None => Ok((!has_content && located.value.get("rules").is_some()).then_some("")),
    }
}

/// Whether an unknown kind is probably a misspelled `policy_bundle`.
fn resembles_policy_bundle(kind: &str) -> bool {
    let expected = AssetKind::PolicyBundle.as_str();
    let kind = kind.to_lowercase();
    kind.len() <= 2 * expected.len() && TextDiff::from_chars(kind.as_str(), expected).ratio() >= MIN_SIMILARITY
}

impl CompiledBundle {
    fn run_own_tests(&mut self, report: &mut Report) {
        let located = std::mem::take(&mut self.located);
        let pointer = format!("{}/tests", self.pointer);
        if located.value.pointer(&pointer).is_some() {
            self.run_tests(&located, &pointer, report);
        }
        self.located = located;
    }

    /// Runs the tests in the list at a JSON pointer of a file.
    fn run_tests(&mut self, located: &LocatedValue, pointer: &str, report: &mut Report) {
        let tests = located.value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        for (index, value) in tests.enumerate() {
            let scenario_pointer = format!("{pointer}/{index}");
            let Some(scenario) = Scenario::parse(value) else {
                let message = "a scenario needs `name`, `input`, and `expect` with a valid outcome";
                report.errors.push(located.finding(&scenario_pointer, "invalid_scenario", message));
                continue;
            };
            let decision = scenario.decide(&self.policy);
            for rule in &decision.matched_rules {
                *self.match_counts.entry(rule.clone()).or_default() += 1;
            }
            let mut differences: Vec<String> =
                scenario.differences(&decision).iter().map(describe_difference).collect();
            if !differences.is_empty() && !decision.failed_rules.is_empty() {
                differences.push(decision.failure_reasons());
            }
            report.tests.push(TestResult {
                bundle: self.slug.clone(),
                file: located.name.clone(),
                line: located.position(&scenario_pointer).map(|position| position.line),
                name: scenario.name().to_owned(),
                passed: differences.is_empty(),
                difference: (!differences.is_empty()).then(|| differences.join("; ")),
            });
        }
    }

    fn into_coverage(self) -> BundleCoverage {
        let to_coverage = |(rule, idle): (&str, _)| {
            let met = self.match_counts.get(rule).copied().unwrap_or_default();
            RuleCoverage { rule: rule.to_owned(), met, idle }
        };
        let rules = self.policy.rule_reachability().into_iter().map(to_coverage).collect();
        BundleCoverage { bundle: self.slug, file: self.located.name, rules }
    }
}

fn describe_difference(difference: &Difference) -> String {
    let Difference { part, expected, decided } = difference;
    format!("{}: expected {expected}, decided {decided}", part.as_str())
}
