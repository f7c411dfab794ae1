//! Scenarios as files.

use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The sections that a scenario may have, each at most once and in this order.
const SECTIONS: [&str; 18] = [
    "policy.json",
    "flow.yaml",
    "prompt.json",
    "included.json",
    "model_policy.json",
    "sovereignty.json",
    "residencies.json",
    "memory.json",
    "tools.json",
    "servers.json",
    "guardrails.json",
    "hooks.json",
    "run.json",
    "recalled.json",
    "answers.json",
    "tool_results.json",
    "hook_answers.json",
    "transcript",
];

/// One situation.
pub(crate) struct Scenario {
    pub(crate) path: PathBuf,
    text: String,
}

impl Scenario {
    /// Every scenario, by name.
    #[expect(clippy::disallowed_methods, reason = "the domain itself reads no files")]
    pub(crate) fn all() -> Vec<Self> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/cases");
        let entries = |folder: &Path| {
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<PathBuf>>()
        };
        let mut paths: Vec<PathBuf> = entries(&cases).iter().flat_map(|folder| entries(folder)).collect();
        paths.sort();
        let read = |path: PathBuf| Self { text: std::fs::read_to_string(&path).unwrap(), path };
        let all: Vec<Self> = paths.into_iter().map(read).collect();
        all.iter().for_each(Self::check);
        all
    }

    /// A misspelled section would be passed over without a word.
    fn check(&self) {
        let names: Vec<usize> = self
            .text
            .lines()
            .filter_map(header)
            .map(|name| SECTIONS.iter().position(|known| *known == name))
            .map(|place| place.unwrap_or_else(|| panic!("{}: unknown section", self.path.display())))
            .collect();
        assert!(names.is_sorted_by(|one, other| one < other), "{}: the order of sections", self.path.display());
        assert_eq!(names.last(), Some(&(SECTIONS.len() - 1)), "{}: no transcript", self.path.display());
    }

    /// The sentence in front.
    pub(crate) fn shows(&self) -> &str {
        self.text.split("\n-- ").next().unwrap().trim()
    }

    /// What a section says.
    pub(crate) fn section(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.text.split_once(&format!("\n-- {name} --\n"))?;
        let next = rest.match_indices("-- ").find(|(at, _)| {
            let begins = *at == 0 || rest.as_bytes()[at - 1] == b'\n';
            begins && header(rest[*at..].lines().next().unwrap()).is_some()
        });
        Some(next.map_or(rest, |(at, _)| &rest[..at]))
    }

    /// The same, read as JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let wrong = |error| panic!("{}: {name}: {error}", self.path.display());
        self.section(name).map(|text| serde_json::from_str(text).unwrap_or_else(wrong))
    }

    /// What it expects.
    pub(crate) fn transcript(&self) -> &str {
        self.section("transcript").unwrap()
    }

    /// The same scenario that expects something else.
    pub(crate) fn with(&self, transcript: &str) -> Self {
        let (before, _) = self.text.split_once("\n-- transcript --\n").unwrap();
        Self { path: self.path.clone(), text: format!("{before}\n-- transcript --\n{transcript}") }
    }

    /// Makes what is told what is expected.
    #[expect(clippy::disallowed_methods, reason = "the domain itself writes no files")]
    pub(crate) fn accept(&self, told: &str) {
        if self.transcript() != told {
            std::fs::write(&self.path, self.with(told).text).unwrap();
        }
    }
}

/// The name of the section that a line begins.
fn header(line: &str) -> Option<&str> {
    line.strip_prefix("-- ")?.strip_suffix(" --")
}
