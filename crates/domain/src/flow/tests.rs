use super::*;
use proptest::prelude::*;

const GOOD: &str = r#"
name: answer-with-sources
description: Answers a question.
trigger:
  type: api_request
  inputs_schema:
    question: string
entry_step: check
steps:
  - id: check
    type: task
    action: evaluate_policy
    inputs:
      topic: "{{trigger.question}}"
    on_success: search
    on_failure: refuse
  - id: search
    type: task
    action: retrieve_documents
    inputs: {query: "{{trigger.question}}", knowledge_base: "{{release.knowledge_base}}"}
    output: documents
  - id: answer
    type: llm_call
    inputs:
      prompt: "{{release.prompt_template}}"
      documents: "{{steps.search.output.documents}}"
    model_policy: "{{release.model_policy}}"
    output: {text: "{{steps.answer.output}}"}
    next: done
  - id: refuse
    type: return
    output: "not allowed"
  - id: done
    type: return
    output: {answer: "{{steps.answer.output}}", asked: "{{trigger.question}}"}
"#;

fn codes(text: &str) -> Vec<(&'static str, Option<u32>)> {
    parse_yaml(text).err().unwrap_or_default().into_iter().map(|problem| (problem.code, problem.line)).collect()
}

/// The good flow with one text in it replaced.
fn changed(from: &str, to: &str) -> Vec<(&'static str, Option<u32>)> {
    assert!(GOOD.contains(from), "{from}");
    codes(&GOOD.replacen(from, to, 1))
}

fn next_id(flow: &Flow, step: &str, success: bool) -> String {
    match flow.next_after(flow.step(step).unwrap(), success) {
        Next::Step(step) => step.id.clone(),
        Next::Returns => "(returns)".to_owned(),
        Next::Fails => "(fails)".to_owned(),
    }
}

#[test]
fn a_good_flow_reads_back_from_its_content() {
    let flow = parse_yaml(GOOD).unwrap();
    assert_eq!(flow.name(), Some("answer-with-sources"));
    assert_eq!(flow.entry().unwrap().id, "check");
    assert!(flow.uses_provider_routes());
    assert_eq!(
        flow.release_roles().into_iter().collect::<Vec<_>>(),
        [AssetKind::PromptTemplate, AssetKind::KnowledgeBase, AssetKind::ModelPolicy]
    );
    assert_eq!(Flow::from_content(&flow.to_content()).unwrap(), flow);
}

#[test]
fn steps_follow_their_targets_or_the_list() {
    let flow = parse_yaml(GOOD).unwrap();
    assert_eq!(next_id(&flow, "check", true), "search");
    assert_eq!(next_id(&flow, "check", false), "refuse");
    assert_eq!(next_id(&flow, "search", true), "answer");
    assert_eq!(next_id(&flow, "search", false), "(fails)");
    assert_eq!(next_id(&flow, "answer", true), "done");
    assert_eq!(next_id(&flow, "done", true), "(returns)");
}

#[test]
fn the_implicit_flow_is_sound() {
    let flow = Flow::implicit();
    assert_eq!(Flow::from_content(&flow.to_content()).unwrap(), flow);
    assert_eq!(next_id(&flow, "answer", true), "done");
    assert_eq!(flow.release_roles().len(), 2);
}

#[test]
fn every_rule_has_its_code_and_line() {
    let one = |code, line| vec![(code, Some(line))];
    assert_eq!(changed("name: answer", "naem: answer"), one("unknown_key", 2));
    assert_eq!(changed("entry_step: check", "entry_step: start"), one("unknown_step", 8));
    assert_eq!(changed("    on_failure: refuse", "    on_failure: gone"), one("unknown_step", 16));
    assert_eq!(changed("on_failure: refuse", "on_failure: done"), one("unreachable_step", 30));
    assert_eq!(changed("id: done", "id: answer"), vec![("duplicate_step_id", Some(33)), ("unknown_step", Some(29))]);
    assert_eq!(changed("on_failure: refuse", "on_failure: refuse\n    next: search"), one("next_and_on_success", 17));
    assert_eq!(changed("evaluate_policy", "launch"), one("unknown_action", 12));
    assert_eq!(changed("type: llm_call", "type: magic"), one("unknown_step_type", 23));
    assert_eq!(changed("question: string", "question: uuid"), one("invalid_value", 7));
    assert_eq!(changed("question: string", "question: string\n    __proto__: string"), one("invalid_value", 8));
    assert_eq!(changed("{{trigger.question}}", "{{trigger.__proto__}}"), one("unknown_input", 14));
    assert_eq!(changed("{{release.prompt_template}}", "{{release.prompt}}"), one("unknown_role", 25));
    assert_eq!(changed("{{steps.search.output.documents}}", "{{steps.gone.output}}"), one("unknown_step", 26));
    assert_eq!(changed("{{steps.search.output.documents}}", "{{steps.done.output}}"), one("step_not_earlier", 26));
    assert_eq!(changed("{{steps.search.output.documents}}", "{{steps.answer.output}}"), one("step_not_earlier", 26));
    assert_eq!(changed("not allowed", "{{steps.answer.output}}"), one("step_not_earlier", 32));
    assert_eq!(changed("not allowed", "{{oops"), one("reference_malformed", 32));
    assert_eq!(changed("{{release.model_policy}}", "{{trigger.question}}"), one("invalid_value", 27));
    assert_eq!(changed("      prompt: \"{{release.prompt_template}}\"\n", ""), one("missing_key", 25));
    assert_eq!(changed("output: documents", "output: 7"), one("invalid_value", 21));
    assert_eq!(changed("    output: \"not allowed\"\n", ""), one("missing_key", 30));
}

#[test]
fn cycles_and_open_ends_are_refused() {
    assert_eq!(changed("next: done", "next: search").first().map(|found| found.0), Some("unreachable_step"));
    let cycle = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy, next: b}\n  \
                 - {id: b, type: task, action: evaluate_policy, next: a, on_failure: c}\n  - {id: c, type: return, output: x}\n";
    assert_eq!(codes(cycle), [("cycle", Some(3)), ("cycle", Some(4))]);
    let own = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy, next: a}\n";
    assert_eq!(codes(own), [("cycle", Some(3))]);
    let open = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy}\n";
    assert_eq!(codes(open), [("path_without_return", Some(3))]);
}

#[test]
fn several_problems_come_at_once() {
    let text = GOOD.replace("on_failure: refuse", "on_failure: gone").replace("output: documents", "colour: blue");
    assert_eq!(codes(&text), [("unknown_key", Some(21)), ("unknown_step", Some(16))]);
}

#[test]
fn the_number_of_steps_is_bounded() {
    let flow = |count: usize| {
        let mut text = "entry_step: s0\nsteps:\n".to_owned();
        for index in 0..count - 1 {
            text.push_str(&format!("  - {{id: s{index}, type: task, action: evaluate_policy}}\n"));
        }
        text + "  - {id: end, type: return, output: x}\n"
    };
    assert!(parse_yaml(&flow(MAX_STEPS)).is_ok());
    assert_eq!(codes(&flow(MAX_STEPS + 1)), [("too_many_steps", Some(3))]);
    assert_eq!(codes(&flow(10_000)), [("flow_too_large", None)]);
}

#[test]
fn what_is_no_flow_is_refused() {
    assert_eq!(codes("[]"), [("wrong_type", Some(1))]);
    assert_eq!(codes("{}").len(), 2);
    assert_eq!(codes("entry_step: a\nsteps: []"), [("invalid_value", Some(2))]);
    assert_eq!(codes("entry_step: a\nsteps: [1]"), [("wrong_type", Some(2))]);
    let pointers: Vec<String> = Flow::from_content(&json!({"steps": [{"id": "-", "type": "return", "output": 1}]}))
        .unwrap_err()
        .into_iter()
        .map(|problem| problem.pointer)
        .collect();
    assert_eq!(pointers, ["/entry_step", "/steps/0/id"]);
}

proptest! {
    #[test]
    fn any_content_is_read_or_refused(
        keys in proptest::collection::vec("(id|type|next|on_success|on_failure|inputs|output|action|x)", 0..6),
        words in proptest::collection::vec("(a|b|task|return|llm_call|evaluate_policy|\\{\\{steps.a.output\\}\\})", 6),
    ) {
        let step: Map<String, Value> = keys.into_iter().zip(words).map(|(key, word)| (key, json!(word))).collect();
        let content = json!({"entry_step": "a", "steps": [step.clone(), step]});
        if let Ok(flow) = Flow::from_content(&content) {
            prop_assert_eq!(Flow::from_content(&flow.to_content()).unwrap(), flow);
        }
    }
}
