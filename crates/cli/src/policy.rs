//! Tests policies offline, by the tests in policy bundles and by scenario files.

mod junit;
mod suite;
mod try_policy;

use crate::{
    command_context::CommandContext,
    failure::{Failure, Finding},
    output::{eprint, print},
    terminal_text::sanitize,
};
use clap::Subcommand;
use fairway_domain::policy::Unreachable;
use serde::Serialize;
use std::path::PathBuf;

/// The subcommands of `fairway policy`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check the bundles of a directory and run their tests and scenarios
    #[command(after_help = "Reads every YAML and JSON file below the directory: manifests of policy bundles (`kind`, \
        `content`), plain bundle content (`rules`), and scenarios (`bundle`, `scenarios`). Other files are \
        skipped.\n\nExamples:\n  fairway policy test examples/policy\n  \
        fairway policy test policies --junit report.xml --require-coverage")]
    Test {
        /// The directory
        directory: PathBuf,
        /// Also write the results as JUnit XML
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Fail if a rule is matched by no test, or can never decide
        #[arg(long)]
        require_coverage: bool,
    },
    /// Decide for one input, and show for each rule which conditions held
    Try(try_policy::Arguments),
}

/// The result of one policy test.
#[derive(Debug, Serialize)]
struct TestResult {
    bundle: String,
    file: String,
    line: Option<u32>,
    name: String,
    passed: bool,
    /// The expected and the actual decision, when they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

/// The test coverage of one rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleCoverage {
    rule: String,
    /// The number of tests whose input matched the rule.
    met: usize,
    /// The reason why the rule can never decide, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Unreachable>,
}

/// The consequence of a rule without coverage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CoveragePolicy {
    /// The command fails (`--require-coverage`).
    Required,
    /// The command prints a warning.
    Reported,
}

impl RuleCoverage {
    /// A description of the rule's coverage gap, if any.
    fn gap(&self) -> Option<String> {
        match (&self.idle, self.met) {
            (Some(Unreachable::Unreachable), _) => Some("can never match".to_owned()),
            (Some(Unreachable::ShadowedBy(other)), _) => {
                Some(format!("never decides: `{}` matches whenever it does", sanitize(other)))
            }
            (None, 0) => Some("is matched by no test".to_owned()),
            (None, _) => None,
        }
    }
}

/// The coverage of one bundle.
#[derive(Debug, Serialize)]
struct BundleCoverage {
    bundle: String,
    file: String,
    rules: Vec<RuleCoverage>,
}

/// The results of all tests of a directory.
#[derive(Debug, Default, Serialize)]
struct Report {
    bundles: Vec<BundleCoverage>,
    tests: Vec<TestResult>,
    errors: Vec<Finding>,
}

pub(crate) fn run(command: &Command, context: &CommandContext) -> Result<(), Failure> {
    let (directory, junit, require_coverage) = match command {
        Command::Test { directory, junit, require_coverage } => (directory, junit, require_coverage),
        Command::Try(arguments) => return try_policy::run(arguments, context),
    };
    let report = suite::test_directory(directory)?;
    if let Some(path) = junit {
        junit::write(
            &report,
            if *require_coverage { CoveragePolicy::Required } else { CoveragePolicy::Reported },
            path,
        )?;
    }
    let output = context.offline_output();
    if output.is_for_people() {
        report.print()?;
    } else {
        let value = serde_json::to_value(&report).map_err(|error| Failure::Failed(error.to_string()))?;
        output.value(&value)?;
    }
    let (failed, uncovered) = (report.failed(), report.uncovered());
    if !report.errors.is_empty() {
        return Err(Failure::Files(report.errors));
    }
    match (failed, uncovered) {
        (0, 0) => Ok(()),
        (0, _) if !require_coverage => Ok(()),
        (0, rules) => Err(Failure::Failed(format!("{rules} rules are matched by no test or can never decide"))),
        (tests, _) => Err(Failure::Failed(format!("{tests} tests failed"))),
    }
}

impl Report {
    fn failed(&self) -> usize {
        self.tests.iter().filter(|test| !test.passed).count()
    }

    fn uncovered(&self) -> usize {
        self.bundles.iter().flat_map(|bundle| &bundle.rules).filter(|rule| rule.gap().is_some()).count()
    }

    fn print(&self) -> Result<(), Failure> {
        for test in self.tests.iter().filter(|test| !test.passed) {
            let difference = test.difference.as_deref().unwrap_or_default();
            let (file, line) = (sanitize(&test.file), test.line.unwrap_or(1));
            print(&format!(
                "FAIL {file}:{line}: {}: {}: {}",
                sanitize(&test.bundle),
                sanitize(&test.name),
                sanitize(difference)
            ))?;
        }
        for bundle in &self.bundles {
            for rule in &bundle.rules {
                let Some(gap) = rule.gap() else { continue };
                eprint(&format!("warning: {}: rule `{}` {gap}", sanitize(&bundle.file), sanitize(&rule.rule)));
            }
        }
        let rules = self.bundles.iter().map(|bundle| bundle.rules.len()).sum::<usize>();
        let matched_rules = self.bundles.iter().flat_map(|bundle| &bundle.rules).filter(|rule| rule.met > 0).count();
        print(&format!(
            "{} bundles, {} tests, {} failed; {matched_rules} of {rules} rules matched",
            self.bundles.len(),
            self.tests.len(),
            self.failed()
        ))
    }
}
