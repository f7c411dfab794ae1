//! White-box tests of flows that validation rejects, and of recorded lineage. The scenario files in
//! `crates/domain/tests/scenarios` test valid flows.

mod offloaded_schema_checks;

use super::*;
use crate::{
    asset::{
        canonical::Canonical,
        content::{self, CheckedContent, tool::Tool},
        kind::AssetKind,
    },
    evidence::lineage::{Origin, UntrustedReason},
    execution::{
        Payload,
        plan::{BoundAsset, BoundTool, RunPlan, RunPolicyAttributes, SourceVersion},
        provider::{Completion, ToolCall},
        routing::{Attempt, Routing},
    },
    flow::Flow,
    hook::Hooks,
    policy::CompiledPolicy,
    redaction::Redactor,
    release::lane::Lane,
};
use ::time::OffsetDateTime;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use std::time::Duration;
use uuid::Uuid;

/// Creates moments that are one millisecond apart and have sequential identifiers.
#[derive(Default)]
struct Moments(AtomicU64);

impl Moments {
    fn next(&self) -> Moment {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp::new(OffsetDateTime::UNIX_EPOCH).plus(Duration::from_millis(count));
        Moment::new(now, Uuid::from_u64_pair(0, count << 32), [9; 16])
    }
}

fn policy(rules: Value) -> CompiledPolicy {
    CompiledPolicy::compile(&json!({ "rules": rules })).unwrap()
}

fn allow_all_policy() -> CompiledPolicy {
    policy(json!([{ "id": "all", "condition": "always", "outcome": "allow", "reason_code": "open" }]))
}

fn source(text: &str, content: &Value) -> SourceVersion {
    let canonical = Canonical::of(content).unwrap();
    SourceVersion { reference: text.to_owned(), checksum: canonical.checksum().clone(), size_bytes: 10 }
}

fn plan(policy: CompiledPolicy, flow: Flow) -> RunPlan {
    let prompt = json!({ "system_prompt": "Sort: $arg:text", "variables": [
        { "name": "text", "description": "The ticket.", "type": "string" },
    ] });
    let CheckedContent::PromptTemplate(template) = content::parse_existing(AssetKind::PromptTemplate, &prompt).unwrap()
    else {
        panic!("expected a prompt template");
    };
    let route = json!({ "route_id": "primary", "provider": "local", "model": "m", "account_slot": "local", "state": "approved" });
    let model = json!({ "provider_route": route });
    let CheckedContent::ModelPolicy(model_policy) = content::parse_existing(AssetKind::ModelPolicy, &model).unwrap()
    else {
        panic!("expected a model policy");
    };
    let bound_asset = |role, slug: &str, content: &Value| BoundAsset {
        role,
        slug: slug.to_owned(),
        source: Some(source(&format!("{slug}@v1"), content)),
    };
    RunPlan {
        policy,
        bound_assets: vec![
            bound_asset(AssetKind::PromptTemplate, "sorting", &prompt),
            bound_asset(AssetKind::OrchestrationFlow, "steps", &flow.to_content()),
        ],
        flow,
        prompt: Some(template.compose(|_| None).unwrap()),
        routing: Routing::for_policy(&model_policy, None, |_| None),
        model_policy: Some(model_policy),
        sovereignty: None,
        knowledge: Vec::new(),
        memory: None,
        tools: Vec::new(),
        guardrails: Arc::default(),
        hooks: Hooks::default(),
        sandbox: None,
        included: vec![source("manners@v3", &json!({}))],
        release_id: "r".to_owned(),
        workload_id: "w".to_owned(),
    }
}

fn policy_attributes() -> RunPolicyAttributes {
    RunPolicyAttributes {
        actor: "user:ada".to_owned(),
        actor_kind: "user",
        groups: Vec::new(),
        roles: Vec::new(),
        workload_slug: "tickets".to_owned(),
        owner_ref: "team:support".to_owned(),
        environment: "dev".to_owned(),
        lane: Lane::Standard,
    }
}

fn model_response(text: &str) -> ModelResponse {
    let completion = Completion { text: text.to_owned(), tokens_in: 1, tokens_out: 1, ..Completion::default() };
    let attempt = Attempt {
        route: 0,
        result: Ok(()),
        status: None,
        cause: None,
        retry_after: None,
        latency: Duration::from_millis(1),
    };
    ModelResponse { attempts: vec![attempt], was_streamed: false, completion: Ok(completion) }
}

/// Runs a plan with a provider that always gives this answer. `interrupt_at` interrupts the run at the effect with this
/// index.
fn run(plan: &RunPlan, answer: &str, interrupt_at: Option<(usize, Interruption)>) -> RunEnd {
    let (attributes, moments, redactor) = (policy_attributes(), Moments::default(), Redactor::default());
    let inputs = json!({ "text": "charged twice" }).as_object().unwrap().clone();
    let stored_inputs = Payload { body: Value::Object(inputs.clone()).to_string().into(), salt: [1; 16] };
    let run_input = RunInput {
        execution_id: Uuid::from_u128(7).into(),
        plan,
        policy_attributes: &attributes,
        inputs: &inputs,
        stored_inputs: &stored_inputs,
        input_digest: stored_inputs.digest(),
    };
    let decision = attributes.decide_by_plan(plan, &inputs, moments.next().now());
    let mut run = Run::new(run_input, decision, moments.next());
    let mut effect = run.start();
    let mut request_count = 0;
    while let RunEffect::CallModel(_) | RunEffect::Reserve = effect {
        if matches!(effect, RunEffect::Reserve) {
            effect = run.on_reservation(moments.next());
            continue;
        }
        request_count += 1;
        if let Some((index, interruption)) = interrupt_at
            && index == request_count
        {
            return run.finish(moments.next(), Some(interruption), &redactor);
        }
        effect = run.on_model(moments.next(), model_response(answer));
    }
    run.finish(moments.next(), None, &redactor)
}

fn prompt_flow(prompts: &[&str]) -> Flow {
    let mut steps: Vec<Value> = prompts
        .iter()
        .enumerate()
        .map(|(index, prompt)| json!({ "id": format!("s{index}"), "type": "llm_call", "inputs": { "prompt": prompt } }))
        .collect();
    let last = format!("{{{{steps.s{}.output}}}}", prompts.len() - 1);
    steps.push(json!({ "id": "end", "type": "return", "output": last }));
    let trigger = json!({ "type": "api_request", "inputs_schema": { "text": "string" } });
    let content = json!({ "name": "f", "trigger": trigger, "entry_step": "s0", "steps": steps });
    Flow::from_content(&content).unwrap()
}

/// Threat T14 in docs/security.md: validation rejects cycles, but even a run of a cyclic flow ends.
#[test]
fn stops_cyclic_flow_at_step_limit() {
    let plan = plan(allow_all_policy(), prompt_flow(&["a", "b"]).with_cycle_to_entry());
    let run_outcome = run(&plan, "x", None);
    assert_eq!(run_outcome.error.unwrap().code, "step_budget_exceeded");
    assert_eq!(
        (run_outcome.status, run_outcome.outcome, run_outcome.steps.len()),
        (Status::Failed, ExecutionOutcome::Failure, MAX_EXECUTED_STEPS)
    );
    assert_eq!(run_outcome.lineage.len(), crate::evidence::lineage::MAX_LINEAGE_ITEMS + 1, "the lineage is bounded");
    assert_eq!(run_outcome.lineage.last().unwrap().reference, "lineage_truncated");
}

#[test]
fn records_model_inputs_with_trust() {
    let plan = plan(allow_all_policy(), prompt_flow(&["{{release.prompt_template}}", "Shorten: {{steps.s0.output}}"]));
    let run_outcome = run(&plan, "billing", None);
    let items: Vec<(&str, &str, Option<UntrustedReason>)> = run_outcome
        .lineage
        .iter()
        .map(|item| (item.origin.as_str(), item.reference.as_str(), item.untrusted))
        .collect();
    let (prompt, input) = (Origin::PromptTemplate.as_str(), Origin::UserInput.as_str());
    assert_eq!(
        items,
        [
            (prompt, "sorting@v1", None),
            (prompt, "manners@v3", None),
            (input, "inputs", Some(UntrustedReason::UserSupplied)),
            (Origin::System.as_str(), "steps@v1#steps.s1", None),
            (input, "inputs", Some(UntrustedReason::UserSupplied)),
            (Origin::ToolResult.as_str(), "steps.s0.output", Some(UntrustedReason::ModelOutput)),
        ]
    );
    // The digest is salted, so that an attacker cannot confirm a guess of the output.
    let output = run_outcome.lineage.last().unwrap();
    assert_ne!(output.digest, <[u8; 32]>::from(blake3::hash(br#""billing""#)));
    assert_eq!(output.size_bytes, 9);
    assert_eq!(run_outcome.lineage[0].digest, plan.bound_assets[0].source.as_ref().unwrap().checksum.bytes());
}

#[test]
fn interrupted_run_keeps_its_transcript() {
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "watched", "obligations": ["record_transcript", "notify_owner"] }]);
    let plan = plan(policy(rules), prompt_flow(&["one", "two", "three"]));
    let run_outcome = run(&plan, "secret words", Some((3, Interruption::DeadlineExceeded)));
    assert_eq!((run_outcome.status, run_outcome.outcome), (Status::Failed, ExecutionOutcome::Timeout));
    assert!(run_outcome.output.is_none());
    let transcript = run_outcome.artifacts.iter().find(|artifact| artifact.kind == "transcript").unwrap();
    assert!(!Value::Object(transcript.body.clone()).to_string().contains("secret"), "{:?}", transcript.body);
    let payload: Value = serde_json::from_str(&transcript.payload.as_ref().unwrap().body).unwrap();
    assert_eq!(payload["calls"].as_array().unwrap().len(), 3);
    assert_eq!((&payload["calls"][2]["system_prompt"], payload["calls"][2].get("answer")), (&json!("three"), None));
    assert_eq!(run_outcome.steps.last().unwrap().failure.as_deref(), Some("deadline_exceeded"));
    let calls: Vec<&Value> =
        run_outcome.artifacts.iter().filter_map(|artifact| artifact.body.get("attempts")).collect();
    assert_eq!(calls[2][0]["result"], "not_waited_for");
    assert_eq!(payload["calls"][1]["answer"], "secret words");
    assert_eq!(payload["calls"][1]["system_prompt"], "two");
    let fulfilled: Vec<Obligation> = run_outcome.fulfilled.iter().map(|(obligation, _)| *obligation).collect();
    assert_eq!(fulfilled, [Obligation::RecordTranscript, Obligation::NotifyOwner]);
}

#[test]
fn redaction_masks_answer_and_records_counts_only() {
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "masked", "obligations": ["redact_output"] }]);
    let plan = plan(policy(rules), prompt_flow(&["one"]));
    let run_outcome = run(&plan, "write to mia@example.com", None);
    assert_eq!(run_outcome.output.unwrap().0, "write to [email]");
    let redaction = run_outcome.artifacts.iter().find(|artifact| artifact.kind == "redaction").unwrap();
    assert_eq!(redaction.body["masked"], json!({ "email": 1 }));
    assert_eq!(run_outcome.fulfilled.len(), 1);
    let interrupted = run(&plan, "x", Some((1, Interruption::DeadlineExceeded)));
    assert!(interrupted.fulfilled.is_empty(), "redaction without an answer is unfulfilled");
}

#[test]
fn uncited_answer_fails_the_run() {
    let rules = json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
        "reason_code": "cited", "obligations": ["require_citation"] }]);
    let run_outcome = run(&plan(policy(rules), prompt_flow(&["one"])), "x", None);
    assert_eq!((run_outcome.status, run_outcome.output), (Status::Failed, None));
    assert_eq!(run_outcome.error.unwrap().code, "citation_missing");
    assert!(run_outcome.fulfilled.is_empty());
}

#[test]
fn no_transcript_without_obligation() {
    let run_outcome = run(&plan(allow_all_policy(), prompt_flow(&["one"])), "secret words", None);
    assert!(run_outcome.artifacts.iter().all(|artifact| artifact.payload.is_none()));
    assert_eq!(run_outcome.artifacts.len(), 1);
}

/// A run that a later decision denies still fulfils the obligations of its earlier decisions.
#[test]
fn denied_run_fulfils_earlier_obligations() {
    let rules = json!([
        { "id": "all", "condition": "always", "outcome": "allow_with_obligations", "reason_code": "watched",
            "obligations": ["record_transcript"] },
        { "id": "no", "condition": "has(inputs.said)", "outcome": "deny", "reason_code": "seen_enough" },
    ]);
    let steps = json!([
        { "id": "ask", "type": "llm_call", "inputs": { "prompt": "one" } },
        { "id": "check", "type": "task", "action": "evaluate_policy", "inputs": { "said": "{{steps.ask.output}}" } },
        { "id": "end", "type": "return", "output": "{{steps.ask.output}}" },
    ]);
    let trigger = json!({ "type": "api_request", "inputs_schema": { "text": "string" } });
    let content = json!({ "name": "f", "trigger": trigger, "entry_step": "ask", "steps": steps });
    let run_outcome = run(&plan(policy(rules), Flow::from_content(&content).unwrap()), "x", None);
    assert_eq!((run_outcome.status, run_outcome.outcome), (Status::Denied, ExecutionOutcome::Denied));
    assert!(run_outcome.artifacts.iter().any(|artifact| artifact.kind == "transcript"));
    assert_eq!(run_outcome.fulfilled.len(), 1);
}

/// A mapped output is as untrusted as the least trusted value to which it refers.
#[test]
fn mapped_output_inherits_worst_trust() {
    let check =
        |id: &str, output: Value| json!({ "id": id, "type": "task", "action": "evaluate_policy", "output": output });
    let steps = json!([
        { "id": "ask", "type": "llm_call", "inputs": { "prompt": "one" } },
        check("said", json!({ "said": "{{steps.ask.output}}" })),
        check("sent", json!({ "sent": "{{trigger.text}}" })),
        check("both", json!({ "sent": "{{trigger.text}}", "again": "{{steps.said.output.said}}" })),
        check("none", json!({ "why": "{{steps.none.output.reason_code}}" })),
        { "id": "last", "type": "llm_call", "inputs": { "prompt": "two", "said": "{{steps.said.output}}",
            "sent": "{{steps.sent.output}}", "both": "{{steps.both.output}}", "none": "{{steps.none.output}}" } },
        { "id": "end", "type": "return", "output": ["{{steps.last.output}}", "{{trigger.text}}"] },
    ]);
    let trigger = json!({ "type": "api_request", "inputs_schema": { "text": "string" } });
    let content = json!({ "name": "f", "trigger": trigger, "entry_step": "ask", "steps": steps });
    let run_outcome = run(&plan(allow_all_policy(), Flow::from_content(&content).unwrap()), "x", None);
    assert_eq!(run_outcome.status, Status::Completed, "{:?}", run_outcome.error);
    let items: Vec<(&str, &str, Option<UntrustedReason>)> = run_outcome
        .lineage
        .iter()
        .filter(|item| item.reference.starts_with("steps.") || item.action_class.as_str() == "write")
        .map(|item| (item.origin.as_str(), item.reference.as_str(), item.untrusted))
        .collect();
    let (model, user) = (Some(UntrustedReason::ModelOutput), Some(UntrustedReason::UserSupplied));
    assert_eq!(
        items,
        [
            ("tool_result", "steps.both.output", model),
            ("system", "steps.none.output", None),
            ("tool_result", "steps.said.output", model),
            ("user_input", "steps.sent.output", user),
            ("user_input", "inputs", user),
        ]
    );
}

/// The schema of a prompt applies only to answers to that prompt.
#[test]
fn own_prompt_ignores_bound_prompt_schema() {
    let mut plan = plan(allow_all_policy(), prompt_flow(&["words of its own"]));
    let prompt = json!({ "system_prompt": "Sort.", "output_schema": { "type": "object" } });
    let CheckedContent::PromptTemplate(template) = content::parse_existing(AssetKind::PromptTemplate, &prompt).unwrap()
    else {
        panic!("expected a prompt template");
    };
    plan.prompt = Some(template.compose(|_| None).unwrap());
    assert_eq!(run(&plan, "no object", None).status, Status::Completed);
    plan.flow = prompt_flow(&["{{release.prompt_template}}"]);
    assert_eq!(run(&plan, "no object", None).error.unwrap().code, "output_schema_mismatch");
}

#[test]
fn estimates_fulfilment_work_in_advance() {
    let policy_imposing = |obligation: &str| {
        policy(json!([{ "id": "all", "condition": "always", "outcome": "allow_with_obligations",
            "reason_code": "owed", "obligations": [obligation] }]))
    };
    let long = "1 ".repeat(100_000);
    for (obligation, takes_long) in [("redact_output", true), ("record_transcript", false)] {
        let plan = plan(policy_imposing(obligation), prompt_flow(&["one"]));
        let (attributes, moments) = (policy_attributes(), Moments::default());
        let inputs = Map::new();
        let stored_inputs = Payload { body: "{}".into(), salt: [1; 16] };
        let run_input = RunInput {
            execution_id: Uuid::from_u128(7).into(),
            plan: &plan,
            policy_attributes: &attributes,
            inputs: &inputs,
            stored_inputs: &stored_inputs,
            input_digest: stored_inputs.digest(),
        };
        let decision = attributes.decide_by_plan(&plan, &inputs, moments.next().now());
        let mut run = Run::new(run_input, decision, moments.next());
        assert!(matches!(run.start(), RunEffect::CallModel(_)));
        let effect = run.on_model(moments.next(), model_response(&long));
        assert!(matches!(effect, RunEffect::Reserve), "200 KB require a reservation");
        assert!(matches!(run.on_reservation(moments.next()), RunEffect::Ended));
        let finished = run.end_before_obligations(moments.next(), None);
        assert_eq!(finished.fulfilment_bytes() > 200_000, takes_long, "{obligation}");
        let unfulfilled = finished.without_fulfilment();
        assert_eq!((unfulfilled.status, unfulfilled.output), (Status::Failed, None), "the answer is withheld");
    }
}
