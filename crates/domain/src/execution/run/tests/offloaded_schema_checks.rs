//! Tests of schema checks that a run offloads.

use super::*;

/// A schema that needs more than two thousand evaluations for each array item. It accepts items only if `fits` is true.
fn branches(fits: bool) -> Value {
    let mut branches = vec![json!(false); 2_000];
    branches.push(json!(fits));
    json!({ "type": "array", "items": { "anyOf": branches } })
}

/// Runs a plan with scripted model answers and tool results, and returns the number of offloaded schema checks.
/// `interrupt_at` interrupts the run at the check with this index.
fn run_counting_checks(
    plan: &RunPlan,
    answers: Vec<ModelResponse>,
    result: &Value,
    interrupt_at: Option<usize>,
) -> (usize, RunEnd) {
    let (attributes, moments, redactor) = (policy_attributes(), Moments::default(), Redactor::default());
    let inputs = json!({ "text": "charged twice" }).as_object().unwrap().clone();
    let stored_inputs = Payload { body: Value::Object(inputs.clone()).to_string().into(), salt: [1; 16] };
    let execution_id = Uuid::from_u128(7).into();
    let run_input = RunInput {
        execution_id,
        plan,
        policy_attributes: &attributes,
        inputs: &inputs,
        stored_inputs: &stored_inputs,
        input_digest: stored_inputs.digest(),
    };
    let decision = attributes.decide_by_plan(plan, &inputs, moments.next().now());
    let mut run = Run::new(run_input, decision, moments.next());
    let (mut effect, mut checks, mut answers) = (run.start(), 0, answers.into_iter());
    loop {
        effect = match effect {
            RunEffect::CallModel(request) => {
                let offers = request.conversation.tools.iter().zip(&plan.tools);
                let mut schemas =
                    offers.map(|(offer, bound_tool)| (&offer.input_schema, &bound_tool.tool.input_schema));
                assert!(schemas.all(|(offered, bound)| Arc::ptr_eq(offered, bound)), "a model request copies a schema");
                run.on_model(moments.next(), answers.next().unwrap())
            }
            RunEffect::CallTool(_) => run.on_tool(moments.next(), Ok(result.clone())),
            RunEffect::Reserve => run.on_reservation(moments.next()),
            RunEffect::CheckSchema(_) if interrupt_at == Some(checks) => {
                return (checks, run.finish(moments.next(), Some(Interruption::DeadlineExceeded), &redactor));
            }
            RunEffect::CheckSchema(check) => {
                checks += 1;
                run.on_schema_check(moments.next(), check.run())
            }
            other @ (RunEffect::CheckContracts
            | RunEffect::LoadHistory
            | RunEffect::RetrieveDocuments(_)
            | RunEffect::CheckGuardrails(_)
            | RunEffect::CallHook(_)
            | RunEffect::Ended) => {
                assert!(matches!(other, RunEffect::Ended), "{other:?}");
                return (checks, run.finish(moments.next(), None, &redactor));
            }
        }
    }
}

#[test]
fn offloads_only_long_answer_checks() {
    for (items, fits, expected_checks) in [(2, true, 0), (100, true, 1), (2, false, 0), (100, false, 1)] {
        let mut plan = plan(allow_all_policy(), prompt_flow(&["{{release.prompt_template}}"]));
        let prompt = json!({ "system_prompt": "Sort.", "output_schema": branches(fits) });
        let CheckedContent::PromptTemplate(template) =
            content::parse_existing(AssetKind::PromptTemplate, &prompt).unwrap()
        else {
            panic!("expected a prompt template");
        };
        plan.prompt = Some(template.compose(|_| None).unwrap());
        let answer = json!(vec![1; items]).to_string();
        let (checks, run_outcome) = run_counting_checks(&plan, vec![model_response(&answer)], &Value::Null, None);
        assert_eq!(checks, expected_checks, "{items} items");
        let code = run_outcome.error.map(|error| error.code);
        assert_eq!(code.as_deref(), (!fits).then_some("output_schema_mismatch"), "{items} items");
        assert_eq!(
            (run_outcome.steps.len(), run_outcome.artifacts.len()),
            (if fits { 2 } else { 1 }, 1),
            "the answer is recorded once"
        );
        if expected_checks == 1 {
            let (_, interrupted) = run_counting_checks(&plan, vec![model_response(&answer)], &Value::Null, Some(0));
            assert_eq!(
                (interrupted.status, interrupted.steps.len(), interrupted.artifacts.len()),
                (Status::Failed, 1, 1)
            );
        }
    }
}

/// A plan whose agent can use one tool.
fn agent_plan(definition: &Value) -> RunPlan {
    let steps = json!([
        { "id": "work", "type": "agent", "inputs": { "prompt": "Use it." } },
        { "id": "end", "type": "return", "output": "{{steps.work.output}}" }
    ]);
    let trigger = json!({ "type": "api_request", "inputs_schema": { "text": "string" } });
    let flow = json!({ "name": "f", "trigger": trigger, "entry_step": "work", "steps": steps });
    let mut plan = plan(allow_all_policy(), Flow::from_content(&flow).unwrap());
    plan.prompt = None;
    plan.model_policy.as_mut().unwrap().supports_tool_use = true;
    let (tool, source) = (Tool::parse(definition).unwrap(), source("count@v1", definition));
    plan.tools = vec![BoundTool { slug: "count".to_owned(), source, tool, server: None }];
    plan
}

#[test]
fn offloads_long_tool_schema_checks() {
    for (argument_fits, result_fits, items, expected_checks) in
        [(true, true, 100, 4), (true, true, 2, 0), (false, true, 100, 1), (true, false, 100, 3)]
    {
        let definition = json!({
            "name": "count", "annotations": { "read_only": true },
            "input_schema": { "type": "object", "properties": { "a": branches(argument_fits) } },
            "output_schema": branches(result_fits),
            "binding": { "kind": "http", "ref": "https://api.example.com" }
        });
        let plan = agent_plan(&definition);
        let mut call_response = model_response("");
        let arguments = json!({ "a": vec![1; items] }).to_string();
        let call = ToolCall { id: "c".to_owned(), name: "count".to_owned(), arguments };
        call_response.completion.as_mut().unwrap().tool_calls = vec![call];
        let (checks, run_outcome) =
            run_counting_checks(&plan, vec![call_response, model_response("done")], &json!(vec![1; items]), None);
        assert_eq!(checks, expected_checks, "{argument_fits} {result_fits} {items}");
        assert_eq!(run_outcome.output.unwrap().0, "done");
        let call = run_outcome.artifacts.iter().find(|artifact| artifact.kind == "tool_call").unwrap();
        let code = match (argument_fits, result_fits) {
            (true, true) => "answered",
            (false, _) => "tool_arguments_invalid",
            (true, false) => "tool_result_invalid",
        };
        assert_eq!(call.body["result"], code);
    }
}
