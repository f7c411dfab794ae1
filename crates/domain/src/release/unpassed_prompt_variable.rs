//! The check for variables of the bound prompt that neither a step nor a declared input supplies. A run that renders
//! the prompt without them fails.

use super::{
    activate::{UnmetRequirement, unmet},
    missing_policy_input::declared_inputs,
};
use crate::flow::{Flow, bound_prompt_use::CONVERSATION_INPUTS};

/// The maximum number of variables that the gates list.
const MAX_LISTED: usize = 20;

/// A step of the flow that renders the bound prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromptStep {
    /// The identifier of the step.
    pub step_id: String,
    /// The names of the prompt arguments that the step passes.
    pub arguments: Vec<String>,
}

impl PromptStep {
    /// The steps of a flow that render the bound prompt.
    #[must_use]
    pub fn of_flow(flow: &Flow) -> Vec<Self> {
        let steps = flow.steps().iter().filter(|step| step.renders_bound_prompt());
        steps
            .map(|step| Self {
                step_id: step.id.clone(),
                arguments: step.prompt_arguments().map(str::to_owned).collect(),
            })
            .collect()
    }
}

/// A variable of the bound prompt that a step does not pass and that no declared input supplies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnpassedVariable {
    /// The identifier of the step that renders the prompt.
    pub step_id: String,
    /// The slug of the bound prompt.
    pub prompt: String,
    /// The name of the variable.
    pub variable: String,
}

/// The variables of the prompt that neither a step nor a declared input supplies. The result is empty if nothing
/// declares inputs. A run may then have any input, and its inputs are arguments of its prompt too.
#[must_use]
pub fn unpassed_variables(
    prompt: &str,
    variables: &[String],
    steps: &[PromptStep],
    interface: &[&str],
    trigger: &[String],
) -> Vec<UnpassedVariable> {
    let Some(declared) = declared_inputs(interface, trigger) else { return Vec::new() };
    // A chat supplies these inputs, even if nothing declares them.
    let is_supplied = |name: &str| declared.contains(name) || CONVERSATION_INPUTS.contains(&name);
    let unpassed_of_step = |step: &PromptStep| {
        let missing = variables.iter().filter(|name| !is_supplied(name.as_str()) && !step.arguments.contains(name));
        missing
            .map(|variable| UnpassedVariable {
                step_id: step.step_id.clone(),
                prompt: prompt.to_owned(),
                variable: variable.clone(),
            })
            .collect::<Vec<_>>()
    };
    steps.iter().flat_map(unpassed_of_step).take(MAX_LISTED).collect()
}

/// The warnings about these variables that the gate `flow` reports.
pub(super) fn unpassed_warnings(variables: &[UnpassedVariable]) -> impl Iterator<Item = UnmetRequirement> {
    variables.iter().map(|UnpassedVariable { step_id, prompt, variable }| {
        let message = format!(
            "the step `{step_id}` does not pass the variable `{variable}` of the prompt `{prompt}`, and no declared \
             input has this name: runs without it fail (`prompt_argument_missing`); add `{variable}` to the `inputs` \
             of the step, or declare an input `{variable}`"
        );
        unmet("flow", "prompt_variable_not_passed", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::parse_yaml;

    const FLOW: &str = r#"
entry_step: ask
steps:
  - {id: ask, type: llm_call, inputs: {prompt: "{{release.prompt_template}}", topic: cats, message: hello}}
  - {id: plain, type: agent, inputs: {prompt: "{{release.prompt_template}}"}}
  - {id: own, type: llm_call, inputs: {prompt: "No bound prompt."}}
  - {id: end, type: return, output: "{{steps.plain.output}}"}
"#;

    #[test]
    fn names_variables_that_neither_step_nor_input_supplies() {
        let steps = PromptStep::of_flow(&parse_yaml(FLOW).unwrap());
        let variables = ["topic", "tone", "message"].map(str::to_owned);
        let unpassed = |interface: &[&str], trigger: &[&str]| {
            let trigger: Vec<String> = trigger.iter().map(|name| (*name).to_owned()).collect();
            let found = unpassed_variables("desk", &variables, &steps, interface, &trigger);
            found.into_iter().map(|found| format!("{} {}", found.step_id, found.variable)).collect::<Vec<_>>()
        };
        assert!(unpassed(&[], &[]).is_empty(), "a run may have any input");
        assert_eq!(unpassed(&[], &["question"]), ["ask tone", "plain topic", "plain tone"]);
        assert_eq!(unpassed(&[], &["tone"]), ["plain topic"]);
        assert_eq!(unpassed(&["topic"], &["tone"]), ["ask tone", "plain tone"], "the interface decides");
        assert!(unpassed(&["topic", "tone"], &[]).is_empty());
    }
}
