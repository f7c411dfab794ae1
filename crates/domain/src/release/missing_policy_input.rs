//! The check for inputs that a policy requires but no run has. A rule that reads such an input fails, and thereby
//! denies every run.

use super::activate::{UnmetRequirement, unmet};
use std::collections::BTreeSet;

/// The maximum number of inputs that the gates list.
const MAX_LISTED: usize = 20;

/// An input that a rule requires, but that neither the interface of the workload nor the trigger of the flow
/// declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndeclaredInput {
    /// The identifier of the rule.
    pub rule: String,
    /// The name of the input.
    pub input: String,
}

/// The declared inputs; `None` if nothing declares inputs, because a run may then have any input.
///
/// If the interface has fields, it decides, because runs then have no other inputs. Otherwise the trigger of the
/// flow decides.
pub(super) fn declared_inputs<'n>(interface: &[&'n str], trigger: &'n [String]) -> Option<BTreeSet<&'n str>> {
    match (interface, trigger) {
        ([], []) => None,
        ([], trigger) => Some(trigger.iter().map(String::as_str).collect()),
        (interface, _) => Some(interface.iter().copied().collect()),
    }
}

/// The inputs that rules require and that are not declared. The result is empty if nothing declares inputs.
#[must_use]
pub fn undeclared_inputs(
    required: &[(String, Vec<String>)],
    interface: &[&str],
    trigger: &[String],
) -> Vec<UndeclaredInput> {
    let Some(declared) = declared_inputs(interface, trigger) else { return Vec::new() };
    let undeclared_of_rule = |(rule, inputs): &(String, Vec<String>)| {
        let missing = inputs.iter().filter(|input| !declared.contains(input.as_str()));
        missing.map(|input| UndeclaredInput { rule: rule.clone(), input: input.clone() }).collect::<Vec<_>>()
    };
    required.iter().flat_map(undeclared_of_rule).take(MAX_LISTED).collect()
}

/// The warnings that the gate `policy_bundle` reports for these inputs.
pub(super) fn undeclared_warnings(inputs: &[UndeclaredInput]) -> impl Iterator<Item = UnmetRequirement> {
    inputs.iter().map(|UndeclaredInput { rule, input }| {
        let message = format!(
            "the rule `{rule}` reads the input `{input}`, which neither the interface of the workload nor the trigger of \
             the flow declares: a run without it is denied (`policy_evaluation_error`); declare it, or test \
             `has(inputs.{input})` first"
        );
        unmet("policy_bundle", "policy_input_undeclared", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_decides_before_trigger() {
        let required = [("r".to_owned(), vec!["a".to_owned(), "b".to_owned()])];
        let undeclared = |interface: &[&str], trigger: &[&str]| {
            let trigger: Vec<String> = trigger.iter().map(|name| (*name).to_owned()).collect();
            let found = undeclared_inputs(&required, interface, &trigger);
            found.into_iter().map(|found| found.input).collect::<Vec<_>>()
        };
        assert!(undeclared(&[], &[]).is_empty());
        assert_eq!(undeclared(&[], &["a"]), ["b"]);
        assert_eq!(undeclared(&["b"], &["a", "b"]), ["a"]);
        assert!(undeclared(&["a", "b"], &[]).is_empty());
    }
}
