//! Writes transcripts of runs: steps of a flow, for which the scenario scripts the responses of providers, tools and
//! hooks.

mod transcript;

use crate::{
    policy::{self, RunRequest},
    scenario_file::Scenario,
};
use fairway_domain::{
    access::ActorRef,
    asset::{
        canonical::Checksum,
        content::{
            self, ModelPolicy, SovereigntyProfile, Tool,
            mcp_server::{McpServer, ToolPin},
        },
        kind::AssetKind,
    },
    execution::{
        Payload,
        http_call::HttpCallError,
        plan::{BoundAsset, BoundServer, BoundTool, RunPlan, RunPolicyAttributes, SourceVersion},
        provider::{Completion, ProviderError, ToolCall},
        routing::{Attempt, ModelRequest, ModelResponse as RouteAnswer, Routing},
        run::{History, Interruption, Run, RunEffect, RunInput},
        tool::ToolFailure,
    },
    flow::{Flow, parse_yaml},
    guardrail::Guardrails,
    hook::{Hook, HookError, HookResponse, Hooks},
    id::{ExecutionId, WorkloadId},
    memory::{
        BoundMemory, ConversationKey, ConversationSessionId, MemoryConfig, RecalledTurns, StoredTurn, turn_digest,
    },
    moment::Moment,
    policy::CompiledPolicy,
    prompt::{
        PromptTemplate,
        composition::{ComposedPrompt, IncludedBody},
    },
    redaction::Redactor,
    release::lane::Lane,
    time::Timestamp,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use transcript::{write_hook_call, write_model_call, write_outcome, write_problem, write_text, write_tool_call};
use uuid::Uuid;

/// The maximum length of a text in a transcript, in bytes. The transcript contains only the length of a longer text.
const MAX_TEXT_BYTES: usize = 400;

/// A response of the provider, as a scenario scripts it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedResponse {
    text: Option<String>,
    /// The tool calls that the model requests, each with its name and its arguments as text.
    #[serde(default)]
    tool_calls: Vec<(String, String)>,
    #[serde(default)]
    vector: Vec<f32>,
    /// How often the text is repeated. Responses that are too long for the file use this.
    #[serde(default = "once")]
    times: usize,
    #[serde(default)]
    tokens: (u64, u64),
    #[serde(default)]
    metadata: Map<String, Value>,
    error: Option<String>,
    /// The value of `Retry-After` in the response, in seconds.
    retry_after: Option<u64>,
    /// The interruption that ends the run while it awaits this response.
    cut: Option<String>,
}

const fn once() -> usize {
    1
}

impl ScriptedResponse {
    fn completion(&self) -> Result<Completion, ProviderError> {
        match &self.error {
            Some(code) => Err(ProviderError::ALL.into_iter().find(|error| error.code() == code).unwrap()),
            None => {
                let text = self.text.as_deref().unwrap_or_default().repeat(self.times);
                let (tokens_in, tokens_out) = self.tokens;
                let (metadata, vector) = (self.metadata.clone(), self.vector.clone());
                let scripted_calls = self.tool_calls.iter().enumerate();
                let tool_calls = scripted_calls.map(|(index, (name, arguments))| ToolCall {
                    id: format!("call-{}", index + 1),
                    name: name.clone(),
                    arguments: arguments.clone(),
                });
                let tool_calls = tool_calls.collect();
                Ok(Completion { text, tool_calls, vector, tokens_in, tokens_out, metadata, ..Completion::default() })
            }
        }
    }
}

fn parse_interruption(name: &str) -> Interruption {
    match name {
        "overdue" => Interruption::DeadlineExceeded,
        "lease_lost" => Interruption::LeaseLost,
        "suspended" => Interruption::WorkloadStopped,
        _ => panic!("unknown interruption: {name}"),
    }
}

/// A clock with a fixed time, and a source of sequential identifiers.
struct FixedEnv {
    now: Timestamp,
    count: AtomicU64,
}

impl FixedEnv {
    fn moment(&self) -> Moment {
        let first_number = self.count.fetch_add(1, Ordering::Relaxed) << 32;
        Moment::new(self.now, Uuid::from_u64_pair(0x7000, first_number), [7; 16])
    }
}

/// Whether a scenario runs a flow. Otherwise, it only evaluates a policy.
pub(crate) fn has_flow(scenario: &Scenario) -> bool {
    ["flow.yaml", "prompt.json", "model_policy.json", "answers.json"]
        .iter()
        .any(|name| scenario.section(name).is_some())
}

/// Writes the transcript of each run, from the policy decision to the end of the run.
pub(crate) fn flow_transcript(scenario: &Scenario) -> String {
    let plan = match run_plan(scenario) {
        Ok(plan) => plan,
        Err(refusals) => return refusals,
    };
    let (runs, mut out) = (policy::runs(scenario), String::new());
    for (index, request) in runs.iter().enumerate() {
        if runs.len() > 1 {
            writeln!(out, "run {}", index + 1).unwrap();
        }
        execute_run(scenario, &plan, request, &mut out);
    }
    out
}

/// Builds the run plan from the sections of the file, which represent the bindings of the release.
///
/// # Errors
/// Returns the transcript of all refusals.
fn run_plan(scenario: &Scenario) -> Result<RunPlan, String> {
    let mut refusals = String::new();
    let policy = policy::compile_policy(scenario).map_err(|refusal| refusals.push_str(&refusal));
    let flow = scenario.section("flow.yaml").map_or_else(|| Ok(Flow::implicit()), parse_yaml);
    let flow = flow.map_err(|problems| problems.iter().for_each(|problem| write_problem(problem, &mut refusals)));
    let prompt = scenario.json::<Value>("prompt.json").map(|content| compose_prompt(scenario, &content, &mut refusals));
    let model_policy: Option<Value> = scenario.json("model_policy.json");
    let model_policy = model_policy.map(|content| ModelPolicy::parse(&content).unwrap());
    let profile = scenario.json("sovereignty.json").map(|content: Value| SovereigntyProfile::parse(&content).unwrap());
    let residencies: BTreeMap<String, String> = scenario.json("residencies.json").unwrap_or_default();
    let residency = |slot: &str| residencies.get(slot).map(String::as_str);
    let routing = model_policy.as_ref().map(|policy| Routing::for_policy(policy, profile.as_ref(), residency));
    let (Ok(policy), Ok(flow), true) = (policy, flow, refusals.is_empty()) else { return Err(refusals) };
    let bound_assets = [
        (AssetKind::PolicyBundle, "policy.json"),
        (AssetKind::OrchestrationFlow, "flow.yaml"),
        (AssetKind::PromptTemplate, "prompt.json"),
        (AssetKind::ModelPolicy, "model_policy.json"),
    ];
    let bound_assets = bound_assets.into_iter().filter_map(|(role, name)| {
        let text = scenario.section(name)?;
        let slug = format!("desk-{}", name.split('.').next().unwrap().replace('_', "-"));
        let source = SourceVersion {
            reference: format!("{slug}@v1"),
            checksum: Checksum::blake3_of(text.as_bytes()),
            size_bytes: u64::try_from(text.len()).unwrap(),
        };
        Some(BoundAsset { role, slug, source: Some(source) })
    });
    Ok(RunPlan {
        policy,
        flow,
        prompt: prompt.flatten(),
        model_policy,
        routing: routing.unwrap_or_default(),
        bound_assets: bound_assets.collect(),
        sovereignty: None,
        knowledge: Vec::new(),
        memory: bound_memory(scenario),
        tools: bound_tools(scenario),
        guardrails: guardrails(scenario),
        hooks: hooks(scenario),
        sandbox: None,
        included: Vec::new(),
        release_id: "r-1".to_owned(),
        workload_id: "w-1".to_owned(),
    })
}

/// The bound tools. The slug of a tool's asset is derived from the name of the tool. A tool of an MCP server contains
/// the definition of its server.
fn bound_tools(scenario: &Scenario) -> Vec<BoundTool> {
    let contents: Vec<Value> = scenario.json("tools.json").unwrap_or_default();
    let servers: BTreeMap<String, Value> = scenario.json("servers.json").unwrap_or_default();
    let server = |slug: &str| {
        let index = servers.keys().position(|server| server == slug).unwrap();
        content::check(AssetKind::McpServer, &servers[slug]).unwrap();
        BoundServer {
            asset: Uuid::from_u128(20 + u128::try_from(index).unwrap()).into(),
            reference: format!("{slug}@v1"),
            server: McpServer::parse(&servers[slug]).unwrap(),
        }
    };
    let tools = contents.into_iter().map(|content| {
        content::check(AssetKind::ToolDefinition, &content).unwrap();
        let (tool, text) = (Tool::parse(&content).unwrap(), content.to_string());
        let slug = format!("{}-tool", tool.name.replace('_', "-"));
        let source = SourceVersion {
            reference: format!("{slug}@v1"),
            checksum: Checksum::blake3_of(text.as_bytes()),
            size_bytes: u64::try_from(text.len()).unwrap(),
        };
        BoundTool { slug, source, tool, server: content["binding"]["ref"]["slug"].as_str().map(server) }
    });
    tools.collect()
}

fn guardrails(scenario: &Scenario) -> Arc<Guardrails> {
    let mut guardrails = Guardrails::default();
    if let Some(content) = scenario.json::<Value>("guardrails.json") {
        content::check(AssetKind::GuardrailConfig, &content).unwrap();
        guardrails.add("desk-guardrails", &content).unwrap();
    }
    Arc::new(guardrails)
}

/// The bound hooks. The member `rules` of an entry is the policy that decides for the hook.
fn hooks(scenario: &Scenario) -> Hooks {
    let contents: Vec<Map<String, Value>> = scenario.json("hooks.json").unwrap_or_default();
    let hooks = contents.into_iter().enumerate().map(|(index, mut content)| {
        let rules = content.remove("rules").map(|rules| CompiledPolicy::compile(&json!({ "rules": rules })).unwrap());
        let content = Value::Object(content);
        content::check(AssetKind::HookDefinition, &content).unwrap();
        Hook::parse(&format!("desk-hook-{}", index + 1), &content, rules).unwrap()
    });
    Hooks::in_execution_order(hooks.collect())
}

/// The bound memory, if any. With a memory, every run of the scenario belongs to a conversation.
fn bound_memory(scenario: &Scenario) -> Option<BoundMemory> {
    let content: Value = scenario.json("memory.json")?;
    let config = MemoryConfig::parse(&content).unwrap();
    Some(BoundMemory { asset: Uuid::from_u128(9).into(), slug: "desk-memory".to_owned(), config })
}

/// The history of the conversation, as questions with responses. Without the section `recalled.json`, it is
/// unavailable.
fn conversation_history(scenario: &Scenario, now: Timestamp) -> History {
    let Some(turns) = scenario.json::<Option<Vec<(String, String)>>>("recalled.json").unwrap_or_default() else {
        return History::Unavailable;
    };
    let to_stored_turn = |(question, response): (String, String)| StoredTurn {
        execution_id: Uuid::from_u128(8).into(),
        digest: turn_digest(&question, &response, [7; 16]),
        question,
        response,
        stored_at: now,
        expires_at: now,
    };
    History::Loaded(
        Vec::new(),
        RecalledTurns { last_erasure: None, turns: turns.into_iter().map(to_stored_turn).collect() },
    )
}

fn compose_prompt(scenario: &Scenario, content: &Value, refusals: &mut String) -> Option<ComposedPrompt> {
    let bodies: BTreeMap<String, Value> = scenario.json("included.json").unwrap_or_default();
    let composed = PromptTemplate::parse(content).and_then(|template| {
        template
            .compose(|reference| IncludedBody::of(AssetKind::PromptTemplate, bodies.get(reference.slug.as_str())?).ok())
    });
    let write_refusal = |refusal: fairway_domain::prompt::PromptRefusal| {
        let offset = refusal.offset().unwrap_or_default();
        writeln!(refusals, "refused: {} in the prompt at byte {offset}", refusal.code()).unwrap();
    };
    composed.map_err(write_refusal).ok()
}

/// The result of a tool call as a scenario describes it.
fn tool_result(response: &Value) -> Result<Value, ToolFailure> {
    let drift = |pin: &Value| ToolFailure::Drifted(pin.as_str().map(ToolPin::from_text_unchecked));
    let failure = || response.get("error").and_then(Value::as_str).map(|code| ToolFailure::from_code(code, None));
    response.get("drifted").map(drift).or_else(failure).map_or_else(|| Ok(response["gives"].clone()), Err)
}

fn execute_run(scenario: &Scenario, plan: &RunPlan, request: &RunRequest, out: &mut String) {
    let attributes = RunPolicyAttributes {
        actor: request.actor.clone(),
        actor_kind: request.actor_kind().to_owned().leak(),
        groups: request.groups.clone(),
        roles: request.roles.clone(),
        workload_slug: request.workload.clone(),
        owner_ref: request.owner.clone(),
        environment: request.environment.clone(),
        lane: Lane::parse(&request.lane).unwrap(),
    };
    let decision = attributes.decide_by_plan(plan, &request.inputs, request.now);
    policy::write_decision("decided", &decision, out);
    if decision.outcome == fairway_domain::policy::DecisionOutcome::Deny {
        writeln!(out, "ended: denied before it began").unwrap();
        return;
    }
    let env = FixedEnv { now: request.now, count: AtomicU64::new(0) };
    let payload = Payload { body: Value::Object(request.inputs.clone()).to_string().into(), salt: [7; 16] };
    let input = RunInput {
        execution_id: ExecutionId::from(env.moment().new_id()),
        plan,
        policy_attributes: &attributes,
        inputs: &request.inputs,
        stored_inputs: &payload,
        input_digest: payload.digest(),
    };
    let redactor = Redactor::default();
    let mut run = Run::new(input, decision, env.moment()).with_conversation();
    let answers: Vec<ScriptedResponse> = scenario.json("answers.json").unwrap_or_default();
    let mut answers = answers.into_iter();
    let mut effect = run.start();
    let hook_answers: Vec<Value> = scenario.json("hook_answers.json").unwrap_or_default();
    let mut hook_answers = hook_answers.into_iter();
    let tool_results: Vec<Value> = scenario.json("tool_results.json").unwrap_or_default();
    let mut tool_results = tool_results.into_iter();
    loop {
        effect = match effect {
            RunEffect::LoadHistory => run.on_history(env.moment(), conversation_history(scenario, request.now)),
            RunEffect::CallModel(model_request) => match call_model(&model_request, &mut answers, out) {
                CallOutcome::Completed(answer) => run.on_model(env.moment(), answer),
                CallOutcome::Interrupted(interruption) => {
                    return write_outcome(&run.finish(env.moment(), Some(interruption), &redactor), out);
                }
                CallOutcome::ScriptExhausted => return,
            },
            RunEffect::CheckGuardrails(guardrail_check) => {
                run.on_guardrail(env.moment(), Some(guardrail_check.run(&redactor)))
            }
            RunEffect::CheckSchema(check) => run.on_schema_check(env.moment(), check.run()),
            RunEffect::CallHook(call) => {
                write_hook_call(&call, out);
                let Some(response) = hook_answers.next() else {
                    writeln!(out, "(the script has no answer to this)").unwrap();
                    return;
                };
                let failure = response.get("error").and_then(Value::as_str).and_then(HttpCallError::from_code);
                let answer = failure.map_or_else(|| HookResponse::parse(response), |error| Err(HookError::Call(error)));
                run.on_hook(env.moment(), answer)
            }
            RunEffect::CallTool(request) => {
                write_tool_call(&request, out);
                let Some(response) = tool_results.next() else {
                    writeln!(out, "(the script has no answer to this)").unwrap();
                    return;
                };
                if let Some(interruption) = response.get("cut").and_then(Value::as_str) {
                    writeln!(out, "stopped: {interruption}").unwrap();
                    return write_outcome(
                        &run.finish(env.moment(), Some(parse_interruption(interruption)), &redactor),
                        out,
                    );
                }
                run.on_tool(env.moment(), tool_result(&response))
            }
            RunEffect::Reserve => run.on_reservation(env.moment()),
            RunEffect::CheckContracts | RunEffect::RetrieveDocuments(_) => {
                panic!("a scenario cannot bind a knowledge base")
            }
            RunEffect::Ended => break,
        };
    }
    let mut outcome = run.finish(env.moment(), None, &redactor);
    let session = ConversationSessionId::parse("s-1").unwrap();
    let conversation =
        ConversationKey::for_caller(WorkloadId::from(Uuid::from_u128(7)), &ActorRef::local(), session).unwrap();
    let (run, moment) = (input.execution_id, env.moment());
    let turn_write = outcome.decide_writeback(run, conversation, &[], Some(&[]), moment, &redactor);
    write_outcome(&outcome, out);
    if let Some(turn_write) = turn_write {
        write_text("remembered", &turn_write.turn.question, out);
        write_text("  and its answer", &turn_write.turn.response, out);
    }
    let unused = answers.count();
    if unused > 0 {
        writeln!(out, "unused answers: {unused}").unwrap();
    }
}

/// The outcome of a model request.
enum CallOutcome {
    Completed(RouteAnswer),
    Interrupted(Interruption),
    ScriptExhausted,
}

/// Calls the routes of a model request in order, as the run engine does.
fn call_model(
    request: &ModelRequest,
    answers: &mut impl Iterator<Item = ScriptedResponse>,
    out: &mut String,
) -> CallOutcome {
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut failure = ProviderError::UnknownAccount;
    while let Some(next_attempt) = request.next_attempt(&attempts) {
        let pause = next_attempt.delay;
        if !pause.is_zero() {
            writeln!(out, "waited: {} ms", pause.as_millis()).unwrap();
        }
        write_model_call(request, next_attempt.route, attempts.is_empty(), out);
        let Some(response) = answers.next() else {
            writeln!(out, "(the script has no answer to this)").unwrap();
            return CallOutcome::ScriptExhausted;
        };
        if let Some(interruption) = &response.cut {
            writeln!(out, "stopped: {interruption}").unwrap();
            return CallOutcome::Interrupted(parse_interruption(interruption));
        }
        let completion = response.completion();
        let retry_after = response.retry_after.map(Duration::from_secs);
        let result = completion.as_ref().map(drop).map_err(|error| *error);
        attempts.push(Attempt {
            route: next_attempt.route,
            result,
            status: None,
            cause: None,
            retry_after,
            latency: Duration::ZERO,
        });
        match completion {
            Ok(completion) => {
                let (tokens_in, tokens_out) = (completion.tokens_in, completion.tokens_out);
                write_text(&format!("answered ({tokens_in} tokens in, {tokens_out} out)"), &completion.text, out);
                return CallOutcome::Completed(RouteAnswer {
                    attempts,
                    was_streamed: false,
                    completion: Ok(completion),
                });
            }
            Err(error) => {
                writeln!(out, "answered: {}", error.code()).unwrap();
                failure = error;
            }
        }
    }
    CallOutcome::Completed(RouteAnswer { attempts, was_streamed: false, completion: Err(failure) })
}
