//! Writes test results as JUnit XML for CI systems.

use super::{CoveragePolicy, Report};
use crate::failure::Failure;
use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};
use std::{fs, io, path::Path};

pub(super) fn write(report: &Report, coverage: CoveragePolicy, path: &Path) -> Result<(), Failure> {
    let mut junit = Junit::new("fairway policy test");
    for bundle in &report.bundles {
        let mut suite = TestSuite::new(bundle.bundle.as_str());
        for test in report.tests.iter().filter(|test| test.bundle == bundle.bundle) {
            let status = match &test.difference {
                None => TestCaseStatus::success(),
                Some(difference) => failed(difference),
            };
            let mut case = TestCase::new(test.name.as_str(), status);
            case.set_classname(test.file.as_str());
            suite.add_test_case(case);
        }
        // With `--require-coverage` a coverage gap is also a failed test case. Otherwise CI would show a failed step
        // without a failed test.
        let checked_rules = bundle.rules.iter().filter(|_| coverage == CoveragePolicy::Required);
        for (rule, gap) in checked_rules.filter_map(|rule| Some((&rule.rule, rule.gap()?))) {
            let mut case = TestCase::new(format!("coverage of rule {rule}"), failed(&format!("rule `{rule}` {gap}")));
            case.set_classname(bundle.file.as_str());
            suite.add_test_case(case);
        }
        junit.add_test_suite(suite);
    }
    if !report.errors.is_empty() {
        let mut suite = TestSuite::new("files");
        for error in &report.errors {
            suite.add_test_case(TestCase::new(error.file.as_str(), failed(&error.to_string())));
        }
        junit.add_test_suite(suite);
    }
    let failed = |cause| Failure::Io { path: path.to_owned(), cause };
    let text = junit.to_string().map_err(|error| failed(io::Error::other(error)))?;
    fs::write(path, text).map_err(failed)
}

fn failed(message: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    status
}
