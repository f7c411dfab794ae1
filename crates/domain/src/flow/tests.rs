use super::{
    reference::{ReferenceResolver, ResolveError},
    value_budget::ValueBudget,
    *,
};
use proptest::prelude::*;
use std::borrow::Cow;

const VALID_FLOW: &str = r#"
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

/// Returns the problems of the valid flow in which one text is replaced, as codes with lines.
fn problems_with_replacement(from: &str, to: &str) -> Vec<(&'static str, Option<u32>)> {
    assert!(VALID_FLOW.contains(from), "{from}");
    codes(&VALID_FLOW.replacen(from, to, 1))
}

fn next_id(flow: &Flow, step: &str, success: bool) -> String {
    match flow.next_after(flow.step(step).unwrap(), success) {
        NextStep::Step(step) => step.id.clone(),
        NextStep::Returns => "(returns)".to_owned(),
        NextStep::Fails => "(fails)".to_owned(),
    }
}

#[test]
fn valid_flow_round_trips_through_content() {
    let flow = parse_yaml(VALID_FLOW).unwrap();
    assert_eq!(flow.name(), Some("answer-with-sources"));
    assert_eq!(flow.entry().unwrap().id, "check");
    assert!(flow.uses_provider_routes());
    assert_eq!(
        flow.referenced_release_roles().into_iter().collect::<Vec<_>>(),
        [AssetKind::PromptTemplate, AssetKind::KnowledgeBase, AssetKind::ModelPolicy]
    );
    assert_eq!(Flow::from_content(&flow.to_content()).unwrap(), flow);
}

#[test]
fn steps_follow_their_targets_or_the_list() {
    let flow = parse_yaml(VALID_FLOW).unwrap();
    assert_eq!(next_id(&flow, "check", true), "search");
    assert_eq!(next_id(&flow, "check", false), "refuse");
    assert_eq!(next_id(&flow, "search", true), "answer");
    assert_eq!(next_id(&flow, "search", false), "(fails)");
    assert_eq!(next_id(&flow, "answer", true), "done");
    assert_eq!(next_id(&flow, "done", true), "(returns)");
}

#[test]
fn implicit_flow_is_valid() {
    let flow = Flow::implicit();
    assert_eq!(Flow::from_content(&flow.to_content()).unwrap(), flow);
    assert_eq!(next_id(&flow, "answer", true), "done");
    assert_eq!(flow.referenced_release_roles().len(), 2);
}

#[test]
fn reports_code_and_line_of_each_rule() {
    let problem_at = |code, line| vec![(code, Some(line))];
    assert_eq!(problems_with_replacement("name: answer", "naem: answer"), problem_at("unknown_key", 2));
    assert_eq!(problems_with_replacement("entry_step: check", "entry_step: start"), problem_at("unknown_step", 8));
    assert_eq!(
        problems_with_replacement("    on_failure: refuse", "    on_failure: gone"),
        problem_at("unknown_step", 16)
    );
    assert_eq!(problems_with_replacement("on_failure: refuse", "on_failure: done"), problem_at("unreachable_step", 30));
    assert_eq!(
        problems_with_replacement("id: done", "id: answer"),
        vec![("duplicate_step_id", Some(33)), ("unknown_step", Some(29))]
    );
    assert_eq!(
        problems_with_replacement("on_failure: refuse", "on_failure: refuse\n    next: search"),
        problem_at("next_and_on_success", 17)
    );
    assert_eq!(problems_with_replacement("evaluate_policy", "launch"), problem_at("unknown_action", 12));
    assert_eq!(problems_with_replacement("type: llm_call", "type: magic"), problem_at("unknown_step_type", 23));
    assert_eq!(problems_with_replacement("question: string", "question: uuid"), problem_at("invalid_value", 7));
    assert_eq!(
        problems_with_replacement("question: string", "question: string\n    __proto__: string"),
        problem_at("invalid_value", 8)
    );
    assert_eq!(
        problems_with_replacement("{{trigger.question}}", "{{trigger.__proto__}}"),
        problem_at("unknown_input", 14)
    );
    assert_eq!(
        problems_with_replacement("{{release.prompt_template}}", "{{release.prompt}}"),
        problem_at("unknown_role", 25)
    );
    assert_eq!(
        problems_with_replacement("{{steps.search.output.documents}}", "{{steps.gone.output}}"),
        problem_at("unknown_step", 26)
    );
    assert_eq!(
        problems_with_replacement("{{steps.search.output.documents}}", "{{steps.done.output}}"),
        problem_at("step_not_earlier", 26)
    );
    assert_eq!(
        problems_with_replacement("{{steps.search.output.documents}}", "{{steps.answer.output}}"),
        problem_at("step_not_earlier", 26)
    );
    assert_eq!(problems_with_replacement("not allowed", "{{steps.answer.output}}"), problem_at("step_not_earlier", 32));
    assert_eq!(problems_with_replacement("not allowed", "{{oops"), problem_at("reference_malformed", 32));
    assert_eq!(
        problems_with_replacement("{{release.model_policy}}", "{{trigger.question}}"),
        problem_at("invalid_value", 27)
    );
    assert_eq!(
        problems_with_replacement("      prompt: \"{{release.prompt_template}}\"\n", ""),
        problem_at("missing_key", 25)
    );
    assert_eq!(problems_with_replacement("output: documents", "output: 7"), problem_at("invalid_value", 21));
    assert_eq!(problems_with_replacement("    output: \"not allowed\"\n", ""), problem_at("missing_key", 30));
}

#[test]
fn refuses_cycles_and_missing_returns() {
    assert_eq!(
        problems_with_replacement("next: done", "next: search").first().map(|problem| problem.0),
        Some("unreachable_step")
    );
    let cycle = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy, next: b}\n  \
                 - {id: b, type: task, action: evaluate_policy, next: a, on_failure: c}\n  - {id: c, type: return, output: x}\n";
    assert_eq!(codes(cycle), [("cycle", Some(3)), ("cycle", Some(4))]);
    let self_cycle = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy, next: a}\n";
    assert_eq!(codes(self_cycle), [("cycle", Some(3))]);
    let without_return = "entry_step: a\nsteps:\n  - {id: a, type: task, action: evaluate_policy}\n";
    assert_eq!(codes(without_return), [("path_without_return", Some(3))]);
}

#[test]
fn reports_several_problems_at_once() {
    let text =
        VALID_FLOW.replace("on_failure: refuse", "on_failure: gone").replace("output: documents", "colour: blue");
    assert_eq!(codes(&text), [("unknown_key", Some(21)), ("unknown_step", Some(16))]);
}

/// Returns all problems of a flow as codes with lines, ordered by line.
fn sorted_problems(text: &str) -> Vec<(&'static str, u32)> {
    let mut problems: Vec<_> = codes(text).into_iter().map(|(code, line)| (code, line.unwrap_or_default())).collect();
    problems.sort_by_key(|(code, line)| (*line, *code));
    problems
}

#[test]
fn unreadable_parts_hide_no_other_problems() {
    let steps = |steps: &str| format!("entry_step: a\nsteps:\n{steps}");
    let entry = "entry_step: nope\nsteps:\n  - {id: a, type: llmcall, next: b}\n  - {id: b, type: return, output: 1}\n";
    assert_eq!(sorted_problems(entry), [("unknown_step", 1), ("unknown_step_type", 3)]);
    let text = steps(
        "  - {id: a, type: task, inputs: {q: '{{trigger.q}}'}, on_failure: w, colour: blue}\n  \
         - {id: b, type: return, output: '{{release.zz}} {{trigger.z}} {{steps.gone.output}} {{oops}}'}\n",
    );
    let step = [("missing_key", 3), ("unknown_input", 3), ("unknown_key", 3), ("unknown_step", 3)];
    let end = [("reference_malformed", 4), ("unknown_input", 4), ("unknown_role", 4), ("unknown_step", 4)];
    assert_eq!(sorted_problems(&text), [step, end].concat());
    let text = steps(
        "  - {id: a, type: task, action: evaluate_policy, inputs: {q: '{{trigger.q}}'}}\n  \
         - {id: a, type: return, output: '{{release.zz}}'}\n",
    );
    assert_eq!(sorted_problems(&text), [("unknown_input", 3), ("duplicate_step_id", 4), ("unknown_role", 4)]);
    let lists =
        steps("  - {id: a, type: return, output: [['{{trigger.q}}', '{{oops}}'], {k: '{{steps.a.output}}'}]}\n");
    assert_eq!(sorted_problems(&lists), [("reference_malformed", 3), ("step_not_earlier", 3), ("unknown_input", 3)]);
}

#[test]
fn analyzes_known_paths_of_partial_flows() {
    let task = |id: &str, settings: &str| format!("  - {{id: {id}, type: task, action: evaluate_policy{settings}}}\n");
    let end = |id: &str| format!("  - {{id: {id}, type: return, output: x}}\n");
    let flow = |steps: &[String]| format!("entry_step: a\nsteps:\n{}", steps.concat());
    // However the unknown target is corrected, step `a` is part of a cycle.
    let text = flow(&[task("a", ", on_failure: gone"), task("b", ", next: a"), end("c")]);
    assert_eq!(sorted_problems(&text), [("cycle", 3), ("unknown_step", 3), ("cycle", 4)]);
    // Step `a` refers to a step that always runs later. This is reported even though another target is unknown.
    let text = flow(&[task("a", ", inputs: {x: '{{steps.b.output}}'}"), task("b", ", on_failure: gone"), end("c")]);
    assert_eq!(sorted_problems(&text), [("step_not_earlier", 3), ("unknown_step", 4)]);
    // A step of unknown type may continue with step `c` or end the run. In both cases, step `d` is unreachable.
    let unknown_type = "  - {id: b, type: odd}\n".to_owned();
    let text = flow(&[task("a", ""), unknown_type.clone(), end("c"), end("d")]);
    assert_eq!(sorted_problems(&text), [("unknown_step_type", 4), ("unreachable_step", 6)]);
    // A flow with a cycle also reports other problems of its paths.
    let text = flow(&[
        task("a", ", next: a"),
        "  - {id: b, type: return, output: '{{steps.c.output}}'}\n".to_owned(),
        end("c"),
    ]);
    let unreachable = [("unreachable_step", 4), ("unreachable_step", 5)];
    assert_eq!(sorted_problems(&text), [[("cycle", 3), ("step_not_earlier", 4)].as_slice(), &unreachable].concat());
}

#[test]
fn unreadable_parts_cause_no_other_problems() {
    let flow = |steps: &str| format!("entry_step: a\nsteps:\n{steps}");
    let end = "  - {id: z, type: return, output: '{{steps.b.output}}'}\n";
    // Nothing more is reported, because a corrected step could be the missing target or contain the missing edge.
    for (step, code) in [
        ("  - 7\n", "wrong_type"),
        ("  - {type: task, action: evaluate_policy, next: z}\n", "missing_key"),
        ("  - {id: 7, type: task, action: evaluate_policy, next: z}\n", "wrong_type"),
    ] {
        let text = flow(&format!("  - {{id: a, type: task, action: evaluate_policy, next: b}}\n{step}{end}"));
        assert_eq!(sorted_problems(&text), [(code, 4)], "{step}");
    }
    for (step, code) in [
        ("  - {id: a, type: odd}\n", "unknown_step_type"),
        ("  - {id: a, type: task, action: evaluate_policy, next: 7}\n", "wrong_type"),
        ("  - {id: a, type: return}\n", "missing_key"),
        ("  - {id: a}\n", "missing_key"),
    ] {
        assert_eq!(sorted_problems(&flow(step)), [(code, 3)], "{step}");
    }
    for trigger in ["7", "{inputs_schema: 7}"] {
        let text = format!(
            "trigger: {trigger}\nentry_step: a\nsteps:\n  - {{id: a, type: return, output: '{{{{trigger.q}}}}'}}\n"
        );
        assert_eq!(sorted_problems(&text), [("wrong_type", 1)]);
    }
}

#[test]
fn reports_yaml_and_flow_problems_together() {
    let text = "name: a\nname: b\nentry_step: nope\nsteps:\n  - {id: a, type: !t task, action: x, max: 1}\n  \
                - {id: b, type: return, output: '{{trigger.q}}', output: 1e999}\n  \
                - {id: c, 5: x, type: return, output: '{{release.zz}}'}\n";
    let expected = [
        ("yaml_duplicate_key", 2),
        ("unknown_step", 3),
        ("unknown_action", 5),
        ("unknown_key", 5),
        ("yaml_tag", 5),
        ("yaml_duplicate_key", 6),
        ("yaml_number", 6),
        ("unknown_role", 7),
        ("yaml_key_no_text", 7),
    ];
    assert_eq!(sorted_problems(text), expected);
    // A broken value causes no problem other than its own.
    let last_step = "  - {id: z, type: return, output: '{{steps.b.output}}'}\n";
    for (step, code) in [
        ("{id: 1e999, type: task, action: evaluate_policy}", "yaml_number"),
        ("{id: b, id: c, type: task, action: evaluate_policy}", "yaml_duplicate_key"),
        ("{[id]: b, type: task, action: evaluate_policy}", "yaml_key_no_text"),
        ("{id: b, type: .inf}", "yaml_number"),
        ("{id: b, type: task, type: agent}", "yaml_duplicate_key"),
    ] {
        let text = format!("entry_step: b\nsteps:\n  - {step}\n{last_step}");
        assert_eq!(sorted_problems(&text), [(code, 3)], "{step}");
    }
}

#[test]
fn limits_number_of_steps() {
    let flow = |count: usize| {
        let mut text = "entry_step: s0\nsteps:\n".to_owned();
        for index in 0..count - 1 {
            text.push_str(&format!("  - {{id: s{index}, type: task, action: evaluate_policy}}\n"));
        }
        text + "  - {id: end, type: return, output: x}\n"
    };
    assert!(parse_yaml(&flow(MAX_STEPS)).is_ok());
    assert_eq!(codes(&flow(MAX_STEPS + 1)), [("too_many_steps", Some(3))]);
    let invalid_flow =
        flow(MAX_STEPS + 1).replace("id: s7, ", "id: s7, next: gone, ").replace("output: x", "output: '{{trigger.q}}'");
    assert_eq!(sorted_problems(&invalid_flow), [("too_many_steps", 3), ("unknown_step", 10), ("unknown_input", 203)]);
    assert_eq!(codes(&flow(10_000)), [("flow_too_large", Some(1))]);
    let wide = json!({"entry_step": "a", "steps": [{"id": "a", "type": "return", "output": vec![0; 30_000]}]});
    assert_eq!(Flow::from_content(&wide).unwrap_err()[0].code, "flow_too_large");
}

#[test]
fn refuses_content_that_is_not_a_flow() {
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

#[test]
fn locates_every_problem_of_a_long_flow() {
    let mut text = "entry_step: s0\nsteps:\n".to_owned();
    for index in 0..MAX_STEPS {
        text.push_str(&format!("  - {{id: s{index}, type: task, action: launch, pad: {}}}\n", "x".repeat(1_000)));
    }
    let problems = codes(&text);
    for code in ["unknown_action", "unknown_key"] {
        let lines = problems.iter().filter(|problem| problem.0 == code).map(|problem| problem.1);
        assert!(lines.eq((0..MAX_STEPS).map(|index| u32::try_from(index + 3).ok())), "{code}");
    }
    assert_eq!(problems.last(), Some(&("path_without_return", Some(202))));
}

#[test]
fn locates_unknown_key_at_the_key() {
    let text = "entry_step: a\nsteps:\n  - id: a\n    type: return\n    extra:\n      deep: 1\n    output: x\n";
    let problems = parse_yaml(text).unwrap_err();
    let positions: Vec<_> = problems.iter().map(|problem| (problem.code, problem.line, problem.column)).collect();
    assert_eq!(positions, [("unknown_key", Some(5), Some(5))]);
    assert_eq!(problems[0].message, "this key is unknown here; the keys are id, type, output");
    assert_eq!(problems[0].valid_names, ["id", "type", "output"]);
}

/// Returns the number of steps on the longest path; panics if the path is longer than `budget`.
fn longest_path(flow: &Flow, start: &Step, budget: usize) -> usize {
    assert!(budget > 0, "a path of this flow is longer than its number of steps");
    let length_after = |success| match flow.next_after(start, success) {
        NextStep::Step(step) => longest_path(flow, step, budget - 1),
        NextStep::Returns | NextStep::Fails => 0,
    };
    1 + length_after(true).max(length_after(false))
}

/// Builds a flow with these failure targets, and with each of these next targets whose index is divisible by 3.
fn wired_flow(targets: &[(usize, usize)], forward: bool) -> Value {
    let count = targets.len();
    let target = |from: usize, to: usize| {
        let to = if forward { from + 1 + to } else { to };
        (to < count).then(|| json!(format!("s{to}")))
    };
    let step = |(index, (next, failure)): (usize, &(usize, usize))| {
        if index + 1 == count {
            return json!({"id": format!("s{index}"), "type": "return", "output": "x"});
        }
        let mut step = json!({"id": format!("s{index}"), "type": "task", "action": "evaluate_policy"});
        let members = step.as_object_mut().unwrap();
        // Only a third of the steps name their next step. Otherwise too few random flows would reach all steps.
        members.extend(target(index, *next).filter(|_| next % 3 == 0).map(|to| ("next".to_owned(), to)));
        members.extend(target(index, *failure).map(|to| ("on_failure".to_owned(), to)));
        step
    };
    json!({"entry_step": "s0", "steps": targets.iter().enumerate().map(step).collect::<Vec<_>>()})
}

#[test]
fn generated_flows_are_often_valid() {
    let accepted = (0..1_000_usize).filter(|seed| {
        let targets: Vec<(usize, usize)> = (0..6).map(|step| (seed * 7 + step * 5, seed % (step + 2))).collect();
        Flow::from_content(&wired_flow(&targets, true)).is_ok()
    });
    assert!(accepted.count() > 100);
}

/// The outputs of the completed steps, by step identifier.
struct Outputs(BTreeMap<String, Value>);

impl ReferenceResolver for Outputs {
    fn value(&self, reference: &ValueReference) -> Option<Cow<'_, Value>> {
        match reference {
            ValueReference::Step { step, .. } => self.0.get(step).map(Cow::Borrowed),
            ValueReference::Trigger { .. } | ValueReference::Release { .. } => None,
        }
    }
}

/// How the output of a step repeats the previous output.
#[derive(Clone, Copy, Debug)]
enum Growth {
    Texts,
    Lists,
    Objects,
    /// Each step escapes every control character and every quotation mark once more.
    Escapes,
}

/// Builds a flow in which the output of each step contains the previous output several times.
fn growing_flow(steps: &[(Growth, usize)]) -> Value {
    let mut list =
        vec![json!({"id": "s0", "type": "task", "action": "evaluate_policy", "output": {"a": "\u{1}\"0123456789"}})];
    for (index, (growth, times)) in steps.iter().enumerate() {
        let previous_output = format!("{{{{steps.s{index}.output}}}}");
        let output = match growth {
            Growth::Texts => json!({"a": previous_output.repeat(*times)}),
            Growth::Lists => json!({"a": vec![previous_output; *times]}),
            Growth::Objects => (0..*times).map(|key| (format!("k{key}"), json!(previous_output))).collect(),
            Growth::Escapes => json!({"a": format!("x{previous_output}")}),
        };
        let id = format!("s{}", index + 1);
        list.push(json!({"id": id, "type": "task", "action": "evaluate_policy", "output": output}));
    }
    let last = format!("{{{{steps.s{}.output}}}}", steps.len());
    list.push(json!({"id": "end", "type": "return", "output": last}));
    json!({"entry_step": "s0", "steps": list})
}

/// Resolves the outputs of a flow's steps in order, as the run does. Returns the outputs, and whether all steps
/// completed within the budget.
fn resolve_outputs(flow: &Flow, bytes: usize) -> (Outputs, bool) {
    let (mut outputs, mut budget) = (Outputs(BTreeMap::new()), ValueBudget::new(bytes));
    for step in flow.steps() {
        let template = match (&step.kind, &step.output) {
            (StepKind::Return { output }, _) | (_, Some(StepOutputMapping::Mapped(output))) => output,
            _ => panic!("expected an output mapping on every step"),
        };
        match template.resolve(&outputs, &mut budget) {
            Ok(value) => outputs.0.insert(step.id.clone(), value),
            Err(ResolveError::TooLarge(_)) => return (outputs, false),
            Err(ResolveError::Missing(missing)) => panic!("{missing}"),
        };
    }
    (outputs, true)
}

#[test]
fn multiplying_flow_stops_at_budget() {
    // Without a budget, six steps that each repeat the output sixty times would create 60^6 times twelve bytes.
    let flow = Flow::from_content(&growing_flow(&[(Growth::Texts, 60); 6])).unwrap();
    let (outputs, completed) = resolve_outputs(&flow, 1 << 20);
    assert!(!completed && outputs.0.len() < 5, "{}", outputs.0.len());
    // Each step wraps the previous output in one more list. The result would be too deep for recursive serialization
    // and drop.
    let flow = Flow::from_content(&growing_flow(&[(Growth::Lists, 1); 190])).unwrap();
    assert!(!resolve_outputs(&flow, 1 << 30).1);
    let flow = Flow::from_content(&growing_flow(&[(Growth::Lists, 1); 50])).unwrap();
    assert!(resolve_outputs(&flow, 1 << 20).1, "a moderate flow completes");
}

proptest! {
    #[test]
    fn outputs_of_any_flow_stay_within_budget(
        steps in proptest::collection::vec(
            (prop_oneof![
                Just(Growth::Texts), Just(Growth::Lists), Just(Growth::Objects), Just(Growth::Escapes),
            ], 1_usize..12),
            1..9,
        ),
    ) {
        const BYTES: usize = 100_000;
        let flow = Flow::from_content(&growing_flow(&steps)).unwrap();
        let (outputs, _) = resolve_outputs(&flow, BYTES);
        let text: usize = outputs.0.values().map(|value| value.to_string().len()).sum();
        prop_assert!(text <= BYTES, "{}", text);
    }

    #[test]
    fn any_valid_flow_ends_within_step_count(
        targets in proptest::collection::vec((0_usize..10, 0_usize..10), 1..9),
        forward in any::<bool>(),
    ) {
        if let Ok(flow) = Flow::from_content(&wired_flow(&targets, forward)) {
            prop_assert!(longest_path(&flow, flow.entry().unwrap(), flow.steps().len()) <= flow.steps().len());
        }
    }

    #[test]
    fn reads_or_refuses_any_content(
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
