//! The check for inputs that a policy requires and no run has. A rule that reads such an input fails, and the failure
//! denies every run.

use super::activate::{UnmetRequirement, unmet};
use std::collections::BTreeSet;

/// The maximum number of inputs that the gates list.
const MAX_LISTED: usize = 20;

/// An input that a rule requires, and that neither the interface of the workload nor the trigger of the flow declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndeclaredInput {
    /// The identifier of the rule that reads the input.
    pub rule: String,
    /// The name of the input.
    pub input: String,
}

/// The declared inputs of a run; `None` if nothing declares inputs, because a run may then have any input.
///
/// If the interface has fields, only they count, because runs then have no other inputs. Otherwise the inputs of the
/// flow's trigger count.
pub(super) fn declared_inputs<'n>(interface: &[&'n str], trigger: &'n [String]) -> Option<BTreeSet<&'n str>> {
    match (interface, trigger) {
        ([], []) => None,
        ([], trigger) => Some(trigger.iter().map(String::as_str).collect()),
        (interface, _) => Some(interface.iter().copied().collect()),
    }
}

/// The inputs that rules require and nothing declares. The result is empty if the release and its workload declare no
/// inputs at all.
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

/// The warnings about these inputs that the gate `policy_bundle` reports.
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
