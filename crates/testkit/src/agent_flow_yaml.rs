//! The YAML of a flow with an agent step, for the tests of several crates.

/// A flow with one agent step, which takes at most three turns. The output is the model's answer.
pub const AGENT_FLOW: &str = "\
name: Answer with tools
description: Lets a model call tools until it knows.
trigger: { type: api_request, inputs_schema: { ticket: string } }
entry_step: work
steps:
  - id: work
    type: agent
    max_steps: 3
    inputs: { prompt: 'Answer with the tools.', message: '{{trigger.ticket}}' }
  - id: done
    type: return
    output: '{{steps.work.output}}'
";
