//! A directory of bundles and scenarios: read, checked, and run.

use super::{Bundle, Report, RuleCoverage, Verdict};
use crate::{
    asset::content_problems,
    failure::{Failure, Finding},
    file::{self, Located, MOST_BYTES, Source, beside::Beside},
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

/// From which share of letters on that stand in the same order, of 1, a kind is taken for a misspelt one.
const NEARLY: f32 = 0.8;

/// What a file holds.
enum Held {
    Bundle(Box<Ready>),
    Scenarios {
        located: Located,
        bundle: String,
    },
    /// Something that is wrong, and what it is called.
    Broken {
        slug: String,
        findings: Vec<Finding>,
    },
    /// Nothing for us.
    Other,
}

/// A bundle that can be asked.
struct Ready {
    slug: String,
    located: Located,
    /// Where its content begins.
    pointer: &'static str,
    policy: CompiledPolicy,
    /// How often each rule matched.
    met: BTreeMap<String, usize>,
}

/// Everything that is below the directory.
pub(super) fn report(directory: &Path) -> Result<Report, Failure> {
    let paths = file::below(directory)?;
    let mut report = Report::default();
    let (mut bundles, mut scenarios, mut broken) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
    for (path, held) in read_all(&paths, directory) {
        match held {
            Held::Bundle(ready) => {
                let slug = ready.slug.clone();
                if bundles.insert(slug, *ready).is_some() {
                    let message = "another file of the directory holds a bundle of this name";
                    report.errors.push(Finding::whole(path.display().to_string(), "duplicate_slug", message));
                }
            }
            Held::Scenarios { located, bundle } => scenarios.push((located, bundle)),
            Held::Broken { slug, findings } => {
                broken.insert(slug);
                report.errors.extend(findings);
            }
            Held::Other => {}
        }
    }
    for ready in bundles.values_mut() {
        ready.own_tests(&mut report);
    }
    for (located, bundle) in &scenarios {
        match bundles.get_mut(bundle) {
            Some(ready) => ready.run(located, "/scenarios", &mut report),
            // What is wrong with it was told.
            None if broken.contains(bundle) => {}
            None => {
                let message = "no bundle of this name is in the directory";
                report.errors.push(located.finding("/bundle", "unknown_bundle", message));
            }
        }
    }
    report.bundles = bundles.into_values().map(Ready::told).collect();
    if report.bundles.is_empty() && report.errors.is_empty() {
        let message = "the directory holds no policy bundle";
        report.errors.push(Finding::whole(directory.display().to_string(), "no_bundles", message));
    }
    Ok(report)
}

/// Reads and compiles, with as many threads as there are processors, in the order of the paths.
fn read_all<'p>(paths: &'p [PathBuf], root: &Path) -> Vec<(&'p PathBuf, Held)> {
    let room = Mutex::new(MOST_BYTES);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = paths.len().div_ceil(threads).max(1);
    let within = (root, &room);
    thread::scope(|scope| {
        let read = move |share: &[PathBuf]| share.iter().map(|path| read(path, within)).collect::<Vec<_>>();
        let working: Vec<_> = paths.chunks(share).map(|share| scope.spawn(move || read(share))).collect();
        let done = working
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        paths.iter().zip(done).collect()
    })
}

/// Reads a file, and the texts beside it while there is room for them.
fn read(path: &Path, within: (&Path, &Mutex<u64>)) -> Held {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let located = match Source::found(path).and_then(|source| source.parsed()) {
        Ok(located) => located,
        Err(finding) => return Held::Broken { slug: stem, findings: vec![finding] },
    };
    if let Some(bundle) = located.value.get("bundle") {
        return match scenarios_of(&located, bundle) {
            Ok(bundle) => Held::Scenarios { located, bundle },
            Err(finding) => Held::Broken { slug: stem, findings: vec![finding] },
        };
    }
    let slug = located.value.get("slug").and_then(Value::as_str).map_or(stem, str::to_owned);
    let broken = |findings| Held::Broken { slug: slug.clone(), findings };
    match place_of_bundle(&located) {
        Ok(Some(pointer)) => bundle((&slug, located, pointer), path, within).unwrap_or_else(broken),
        Ok(None) => Held::Other,
        Err(finding) => broken(vec![finding]),
    }
}

/// A bundle that begins at a pointer of a file, checked and compiled.
fn bundle(
    (slug, mut located, pointer): (&str, Located, &'static str),
    path: &Path,
    (root, room): (&Path, &Mutex<u64>),
) -> Result<Held, Vec<Finding>> {
    if !pointer.is_empty() {
        let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
        located = located.with_texts_within(&Beside { path, root }, &mut room).map_err(|finding| vec![finding])?;
    }
    // A test that fails is told as a test, and everything else about the bundle as the server would.
    let mut problems = content_problems(AssetKind::PolicyBundle, &located, pointer);
    problems.retain(|problem| problem.code != "policy_test_failed");
    if !problems.is_empty() {
        return Err(problems);
    }
    let content = located.value.pointer(pointer).unwrap_or(&Value::Null);
    let policy = CompiledPolicy::compile(content).map_err(|problems| {
        let told = |problem: &fairway_domain::asset::content::ContentProblem| {
            located.finding(&format!("{pointer}{}", problem.pointer), problem.code, problem.message.as_str())
        };
        problems.iter().map(told).collect::<Vec<_>>()
    })?;
    Ok(Held::Bundle(Box::new(Ready { slug: slug.to_owned(), located, pointer, policy, met: BTreeMap::new() })))
}

/// The name of the bundle that a file of scenarios is about.
fn scenarios_of(located: &Located, bundle: &Value) -> Result<String, Finding> {
    let wrong = |pointer, message| Err(located.finding(pointer, "invalid_scenario", message));
    let Some(bundle) = bundle.as_str() else {
        return wrong("/bundle", "`bundle` is the slug of the bundle that the scenarios are about");
    };
    match located.value.get("scenarios") {
        Some(Value::Array(_)) => Ok(bundle.to_owned()),
        Some(_) => wrong("/scenarios", "`scenarios` is a list"),
        None => wrong("", "a file with `bundle` has its situations under `scenarios`"),
    }
}

/// Where the content of a bundle begins in a file; none where the file holds something else.
///
/// A file that says it is a bundle is one, and so is one that nearly says so: passed over, its tests would never run and
/// nobody would know.
fn place_of_bundle(located: &Located) -> Result<Option<&'static str>, Finding> {
    let kind = located.value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let has_content = located.value.get("content").is_some();
    match AssetKind::parse(kind) {
        Some(AssetKind::PolicyBundle) if has_content => Ok(Some("/content")),
        Some(AssetKind::PolicyBundle) => {
            let message = "a manifest of a policy bundle has its rules and tests under `content`";
            Err(located.finding("", "invalid_manifest", message))
        }
        Some(_) => Ok(None),
        None if is_nearly_a_bundle(kind) => {
            let message = "there is no such kind of asset; that of a policy bundle is `policy_bundle`";
            Err(located.finding("/kind", "invalid_asset_kind", message))
        }
        None => Ok((!has_content && located.value.get("rules").is_some()).then_some("")),
    }
}

/// Whether somebody who wrote this kind may well have meant `policy_bundle`.
fn is_nearly_a_bundle(kind: &str) -> bool {
    let meant = AssetKind::PolicyBundle.as_str();
    let kind = kind.to_lowercase();
    kind.len() <= 2 * meant.len() && TextDiff::from_chars(kind.as_str(), meant).ratio() >= NEARLY
}

impl Ready {
    fn own_tests(&mut self, report: &mut Report) {
        let located = std::mem::take(&mut self.located);
        let pointer = format!("{}/tests", self.pointer);
        if located.value.pointer(&pointer).is_some() {
            self.run(&located, &pointer, report);
        }
        self.located = located;
    }

    /// Runs the tests at a pointer of a file.
    fn run(&mut self, located: &Located, pointer: &str, report: &mut Report) {
        let tests = located.value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        for (index, value) in tests.enumerate() {
            let place = format!("{pointer}/{index}");
            let Some(scenario) = Scenario::of(value) else {
                let message = "a scenario has `name`, `input` and `expect` with an outcome, in the words of policies";
                report.errors.push(located.finding(&place, "invalid_scenario", message));
                continue;
            };
            let decision = scenario.decide(&self.policy);
            for rule in &decision.matched_rules {
                *self.met.entry(rule.clone()).or_default() += 1;
            }
            let differences: Vec<String> = scenario.differences(&decision).iter().map(told).collect();
            report.tests.push(Verdict {
                bundle: self.slug.clone(),
                file: located.name.clone(),
                line: located.place(&place).map(|(line, _)| line),
                name: scenario.name().to_owned(),
                passed: differences.is_empty(),
                difference: (!differences.is_empty()).then(|| differences.join("; ")),
            });
        }
    }

    fn told(self) -> Bundle {
        let of_rule = |(rule, idle): (&str, _)| {
            let met = self.met.get(rule).copied().unwrap_or_default();
            RuleCoverage { rule: rule.to_owned(), met, idle }
        };
        let rules = self.policy.idle().into_iter().map(of_rule).collect();
        Bundle { bundle: self.slug, file: self.located.name, rules }
    }
}

fn told(difference: &Difference) -> String {
    let Difference { part, expected, decided } = difference;
    format!("{}: expected {expected}, decided {decided}", part.as_str())
}
