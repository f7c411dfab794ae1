//! Golden tests of policies and flows. Each scenario produces a transcript, which is compared with the expected one
//! line by line.
//!
//! A scenario is a file in `cases/`. It starts with a sentence that describes the scenario; sections follow.
//! `FAIRWAY_ACCEPT=1` rewrites the transcripts, and a person reviews the difference.

#[cfg(test)]
mod flow;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod scenario_file;

#[cfg(test)]
mod tests {
    use super::{flow, policy, scenario_file::Scenario};
    use std::collections::BTreeSet;

    const MIN_SCENARIOS: usize = 40;

    /// Runs a scenario, and returns the transcript that it produces.
    fn actual_transcript(scenario: &Scenario) -> String {
        if flow::has_flow(scenario) { flow::flow_transcript(scenario) } else { policy::policy_transcript(scenario) }
    }

    fn compare_transcript(scenario: &Scenario) -> Result<(), String> {
        let (actual, expected) = (actual_transcript(scenario), scenario.expected_transcript());
        let mut lines = actual.lines().zip(expected.lines().chain(std::iter::repeat("(nothing)"))).enumerate();
        if actual == expected {
            return Ok(());
        }
        let first_difference = lines.find(|(_, (actual, expected))| actual != expected);
        let (index, (_, expected)) = first_difference.unwrap_or((actual.lines().count(), ("", "(more)")));
        Err(format!("{}: line {} should be `{expected}`\n{actual}", scenario.path.display(), index + 1))
    }

    #[test]
    fn scenarios_match_their_transcripts() {
        if is_accepting_transcripts() {
            Scenario::load_all().iter().for_each(|scenario| scenario.accept_transcript(&actual_transcript(scenario)));
        }
        let differences: Vec<String> =
            Scenario::load_all().iter().filter_map(|scenario| compare_transcript(scenario).err()).collect();
        assert!(differences.is_empty(), "{}\n(`FAIRWAY_ACCEPT=1` rewrites the transcripts)", differences.join("\n\n"));
    }

    #[test]
    fn scenarios_have_distinct_descriptions_and_transcripts() {
        if is_accepting_transcripts() {
            return;
        }
        let scenarios = Scenario::load_all();
        assert!(scenarios.len() >= MIN_SCENARIOS, "only {} scenarios", scenarios.len());
        for scenario in &scenarios {
            assert!(
                scenario.expected_transcript().lines().any(|line| !line.trim().is_empty()),
                "{}",
                scenario.path.display()
            );
            assert!(
                scenario.description().ends_with('.'),
                "{} does not begin with a sentence",
                scenario.path.display()
            );
        }
        let sentences: BTreeSet<&str> = scenarios.iter().map(Scenario::description).collect();
        assert_eq!(sentences.len(), scenarios.len(), "two scenarios have the same description");
    }

    #[test]
    fn detects_damaged_transcripts() {
        if is_accepting_transcripts() {
            return;
        }
        for scenario in Scenario::load_all() {
            assert!(compare_transcript(&scenario).is_ok(), "{}", scenario.path.display());
            let lines: Vec<&str> = scenario.expected_transcript().lines().collect();
            let without_first = lines.iter().skip(1).fold(String::new(), |text, line| text + line + "\n");
            let without_last = lines.iter().rev().skip(1).rev().fold(String::new(), |text, line| text + line + "\n");
            let with_more = scenario.expected_transcript().to_owned() + "and more\n";
            let changed = scenario.expected_transcript().replacen(':', ";", 1);
            for damaged in [without_first, without_last, with_more, changed, String::new()] {
                assert!(
                    compare_transcript(&scenario.with_transcript(&damaged)).is_err(),
                    "{}:\n{damaged}",
                    scenario.path.display()
                );
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "only tests read the environment; the domain does not")]
    fn is_accepting_transcripts() -> bool {
        std::env::var_os("FAIRWAY_ACCEPT").is_some()
    }
}
