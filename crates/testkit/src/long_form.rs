//! Long forms of tests, which only `cargo xtask model` requests.
//!
//! INVARIANT: this file has no dependencies, because the domain's tests include the file and do not depend on the
//! testkit.

/// The environment variable that requests long forms.
const LONG_FORM_VARIABLE: &str = "FAIRWAY_TEST_LONG";
/// The names of the tests with a long form, one in each line. `cargo xtask model` runs exactly these tests.
const LONG_FORMS: &str = include_str!("long_forms.txt");

/// Whether a process requests long forms. `arguments` is the process's command line; `is_set` tests an environment
/// variable.
///
/// Also fails in short runs if the test is not listed, because `cargo xtask model` would never run its long form.
///
/// # Panics
/// When nextest runs a test that is not listed. Other runners do not pass the test's name.
pub(crate) fn is_long(arguments: impl Iterator<Item = String>, is_set: impl FnOnce(&str) -> bool) -> bool {
    if let Some(test) = running_test(arguments) {
        assert!(
            is_listed(&test),
            "`{test}` has a long form that `cargo xtask model` skips: list it in crates/testkit/src/long_forms.txt"
        );
    }
    is_set(LONG_FORM_VARIABLE)
}

/// The name of the single test in a nextest process, from `program --exact name --nocapture`.
fn running_test(arguments: impl Iterator<Item = String>) -> Option<String> {
    let arguments: Vec<String> = arguments.skip(1).collect();
    let is_exact = arguments.iter().any(|argument| argument == "--exact");
    arguments.into_iter().find(|argument| is_exact && !argument.starts_with('-'))
}

fn is_listed(test: &str) -> bool {
    LONG_FORMS.lines().any(|line| line == test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> impl Iterator<Item = String> {
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn reads_the_test_from_the_arguments_of_nextest() {
        let test_in = |words: &[&str]| running_test(arguments(words));
        assert_eq!(test_in(&["it-1", "--exact", "lanes::one", "--nocapture"]).as_deref(), Some("lanes::one"));
        assert_eq!(test_in(&["it-1", "lanes::one", "--exact"]).as_deref(), Some("lanes::one"));
        assert_eq!(test_in(&["it-1", "lanes"]), None);
        assert_eq!(test_in(&["it-1"]), None);
    }

    #[test]
    fn listed_test_follows_the_requested_form() {
        let test = LONG_FORMS.lines().next().unwrap();
        for is_asked in [true, false] {
            assert_eq!(is_long(arguments(&["it-1", "--exact", test]), |_| is_asked), is_asked);
            assert_eq!(is_long(arguments(&["it-1"]), |_| is_asked), is_asked);
        }
    }

    #[test]
    #[should_panic(expected = "list it in crates/testkit/src/long_forms.txt")]
    fn unlisted_test_fails_in_short_runs_too() {
        is_long(arguments(&["it-1", "--exact", "soak::of_a_new_test"]), |_| false);
    }

    #[test]
    fn listed_names_are_sorted_and_unique() {
        let lines: Vec<&str> = LONG_FORMS.lines().collect();
        assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "{lines:?}");
    }
}
