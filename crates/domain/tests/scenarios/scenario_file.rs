//! Reads and writes scenario files.

use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// The sections that a scenario file can have, in order. Only `transcript` is required, and no section may occur twice.
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

/// A scenario file with its text.
pub(crate) struct Scenario {
    pub(crate) path: PathBuf,
    text: String,
}

impl Scenario {
    /// Loads all scenarios, ordered by path.
    #[expect(clippy::disallowed_methods, reason = "only tests read files; the domain does not")]
    pub(crate) fn load_all() -> Vec<Self> {
        let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/cases");
        let entries = |folder: &Path| {
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<PathBuf>>()
        };
        let mut paths: Vec<PathBuf> = entries(&cases).iter().flat_map(|folder| entries(folder)).collect();
        paths.sort();
        let load = |path: PathBuf| Self { text: std::fs::read_to_string(&path).unwrap(), path };
        let scenarios: Vec<Self> = paths.into_iter().map(load).collect();
        scenarios.iter().for_each(Self::check_sections);
        scenarios
    }

    /// Refuses unknown sections. Otherwise, a section with a misspelled name would be ignored.
    fn check_sections(&self) {
        let positions: Vec<usize> = self
            .text
            .lines()
            .filter_map(section_name)
            .map(|name| SECTIONS.iter().position(|known| *known == name))
            .map(|position| position.unwrap_or_else(|| panic!("{}: unknown section", self.path.display())))
            .collect();
        assert!(
            positions.is_sorted_by(|position, next| position < next),
            "{}: sections are out of order",
            self.path.display()
        );
        assert_eq!(positions.last(), Some(&(SECTIONS.len() - 1)), "{}: the transcript is missing", self.path.display());
    }

    /// The description, which is the text before the first section.
    pub(crate) fn description(&self) -> &str {
        self.text.split("\n-- ").next().unwrap().trim()
    }

    /// The text of a section, if the file has it.
    pub(crate) fn section(&self, name: &str) -> Option<&str> {
        let (_, remaining_text) = self.text.split_once(&format!("\n-- {name} --\n"))?;
        let next_header = remaining_text.match_indices("-- ").find(|(position, _)| {
            let starts_line = *position == 0 || remaining_text.as_bytes()[position - 1] == b'\n';
            starts_line && section_name(remaining_text[*position..].lines().next().unwrap()).is_some()
        });
        Some(next_header.map_or(remaining_text, |(position, _)| &remaining_text[..position]))
    }

    /// The content of a section, parsed as JSON; `None` if the file does not have the section.
    ///
    /// # Panics
    /// When the section is not JSON that represents a `T`.
    pub(crate) fn json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let fail = |error| panic!("{}: {name}: {error}", self.path.display());
        self.section(name).map(|text| serde_json::from_str(text).unwrap_or_else(fail))
    }

    /// The transcript that the file contains.
    pub(crate) fn expected_transcript(&self) -> &str {
        self.section("transcript").unwrap()
    }

    /// A copy of the scenario with this transcript.
    pub(crate) fn with_transcript(&self, transcript: &str) -> Self {
        let (before, _) = self.text.split_once("\n-- transcript --\n").unwrap();
        Self { path: self.path.clone(), text: format!("{before}\n-- transcript --\n{transcript}") }
    }

    /// Writes the actual transcript to the file, if it differs from the expected one.
    #[expect(clippy::disallowed_methods, reason = "only tests write files; the domain does not")]
    pub(crate) fn accept_transcript(&self, actual: &str) {
        if self.expected_transcript() != actual {
            std::fs::write(&self.path, self.with_transcript(actual).text).unwrap();
        }
    }
}

/// The name of the section that a header line `-- NAME --` starts.
fn section_name(line: &str) -> Option<&str> {
    line.strip_prefix("-- ")?.strip_suffix(" --")
}
