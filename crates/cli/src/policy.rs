//! Policies, tested without a server: bundles with the tests that they carry, and scenarios beside them.

mod junit;
mod suite;

use crate::{
    failure::{Failure, Finding},
    output::{say, tell},
    session::Session,
    text::plain,
};
use clap::Subcommand;
use fairway_domain::policy::Idle;
use serde::Serialize;
use std::path::PathBuf;

/// What to do with policies.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Check the bundles of a directory and run their tests and scenarios
    #[command(
        after_help = "Every YAML or JSON file below the directory is looked at: a manifest of a policy bundle (`kind`, \
        `content`), the content of one alone (`rules`), or scenarios (`bundle`, `scenarios`). What is none of these is \
        passed over.\n\nExamples:\n  fairway policy test examples/policy\n  \
        fairway policy test policies --junit report.xml --require-coverage"
    )]
    Test {
        /// The directory
        directory: PathBuf,
        /// Write the results as JUnit XML, too
        #[arg(long, value_name = "FILE")]
        junit: Option<PathBuf>,
        /// Fail where a rule is never met by a test, or can never decide
        #[arg(long)]
        require_coverage: bool,
    },
}

/// One test, and what came of it.
#[derive(Debug, Serialize)]
struct Verdict {
    bundle: String,
    file: String,
    line: Option<u32>,
    name: String,
    passed: bool,
    /// What was expected and what was decided, where they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<String>,
}

/// What tests say of one rule.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct RuleCoverage {
    rule: String,
    /// How many tests it matched in.
    met: usize,
    /// Why it can never decide anything, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<Idle>,
}

/// What becomes of a rule that no test meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Coverage {
    /// It fails.
    Required,
    /// It is a warning.
    Told,
}

impl RuleCoverage {
    /// What is missing for its tests to say anything of it; none where nothing is.
    fn lack(&self) -> Option<String> {
        match (&self.idle, self.met) {
            (Some(Idle::Unreachable), _) => Some("can never hold".to_owned()),
            (Some(Idle::ShadowedBy(other)), _) => {
                Some(format!("never decides: `{}` holds wherever it does", plain(other)))
            }
            (None, 0) => Some("is met by no test".to_owned()),
            (None, _) => None,
        }
    }
}

/// One bundle, and what tests say of it.
#[derive(Debug, Serialize)]
struct Bundle {
    bundle: String,
    file: String,
    rules: Vec<RuleCoverage>,
}

/// Everything that was found in a directory.
#[derive(Debug, Default, Serialize)]
struct Report {
    bundles: Vec<Bundle>,
    tests: Vec<Verdict>,
    errors: Vec<Finding>,
}

pub(crate) fn run(command: &Command, session: &Session) -> Result<(), Failure> {
    let Command::Test { directory, junit, require_coverage } = command;
    let report = suite::report(directory)?;
    if let Some(path) = junit {
        junit::write(&report, if *require_coverage { Coverage::Required } else { Coverage::Told }, path)?;
    }
    let output = session.offline();
    if output.is_for_people() {
        report.tell()?;
    } else {
        let value = serde_json::to_value(&report).map_err(|error| Failure::Unfit(error.to_string()))?;
        output.value(&value)?;
    }
    let (failed, uncovered) = (report.failed(), report.uncovered());
    if !report.errors.is_empty() {
        return Err(Failure::Files(report.errors));
    }
    match (failed, uncovered) {
        (0, 0) => Ok(()),
        (0, _) if !require_coverage => Ok(()),
        (0, rules) => Err(Failure::Unfit(format!("{rules} rules are never met by a test or can never decide"))),
        (tests, _) => Err(Failure::Unfit(format!("{tests} tests failed"))),
    }
}

impl Report {
    fn failed(&self) -> usize {
        self.tests.iter().filter(|test| !test.passed).count()
    }

    fn uncovered(&self) -> usize {
        self.bundles.iter().flat_map(|bundle| &bundle.rules).filter(|rule| rule.lack().is_some()).count()
    }

    fn tell(&self) -> Result<(), Failure> {
        for test in self.tests.iter().filter(|test| !test.passed) {
            let difference = test.difference.as_deref().unwrap_or_default();
            let (file, line) = (plain(&test.file), test.line.unwrap_or(1));
            say(&format!("FAIL {file}:{line}: {}: {}: {}", plain(&test.bundle), plain(&test.name), plain(difference)))?;
        }
        for bundle in &self.bundles {
            for rule in &bundle.rules {
                let Some(lack) = rule.lack() else { continue };
                tell(&format!("warning: {}: rule `{}` {lack}", plain(&bundle.file), plain(&rule.rule)));
            }
        }
        let rules = self.bundles.iter().map(|bundle| bundle.rules.len()).sum::<usize>();
        let met = self.bundles.iter().flat_map(|bundle| &bundle.rules).filter(|rule| rule.met > 0).count();
        say(&format!(
            "{} bundles, {} tests, {} failed; {met} of {rules} rules met",
            self.bundles.len(),
            self.tests.len(),
            self.failed()
        ))
    }
}
