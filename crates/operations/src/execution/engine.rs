//! The engine: a plain loop over the steps of a flow, with ports for what is outside.

use super::plan::RunPlan;
use fairway_domain::{
    asset::{kind::AssetKind, ports::ArtifactPath},
    evidence::{EvidenceArtifact, RecordedDecision},
    execution::{
        Outcome, RunError, Status, StepRecord,
        provider::{Completion, Message, MessageRole, Provider, ProviderCall},
    },
    flow::{
        Action, Flow, Next, Output, Step, StepKind,
        allowance::{Allowance, Exhausted},
        reference::{Reference, ReferenceScope, Template, Unresolvable},
    },
    id::{DecisionId, ExecutionId, Ids},
    policy::{self, CompiledPolicy, PolicyActor, PolicyDecision, PolicyInput, PolicyRelease, PolicyWorkload},
    prompt::PromptRefusal,
    release::lane::Lane,
    time::Clock,
};
use serde_json::{Map, Value, json};
use std::{borrow::Cow, collections::BTreeMap, time::Instant};

/// Steps that one run may take. A sound flow has no cycle and at most 200 steps; this holds even if it had.
const STEP_BUDGET: usize = 1_000;
/// Room for the values of one run, in bytes: sixteen times the longest request, four times the longest prompt, and as
/// much as thirty runs can have in a server that is promised half a gibibyte.
const VALUE_BYTES: usize = 16 << 20;
/// Values of a call that are the conversation, not arguments of its prompt.
const CONVERSATION: [&str; 3] = ["prompt", "message", "messages"];

/// Whether this server runs an action.
pub(crate) const fn runs(action: Action) -> bool {
    match action {
        Action::EvaluatePolicy => true,
        Action::RetrieveDocuments => false,
    }
}

/// Who runs what: the words that policies read.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    pub(crate) actor: String,
    pub(crate) actor_kind: &'static str,
    pub(crate) groups: Vec<String>,
    pub(crate) roles: Vec<String>,
    pub(crate) workload_slug: String,
    pub(crate) owner_ref: String,
    pub(crate) environment: String,
    pub(crate) lane: Lane,
}

impl RunFacts {
    /// Asks the policy about a run with these inputs.
    pub(crate) fn decide(
        &self,
        (policy, plan): (&CompiledPolicy, &RunPlan),
        inputs: &Map<String, Value>,
        clock: &dyn Clock,
    ) -> PolicyDecision {
        policy.decide(&PolicyInput {
            actor: PolicyActor {
                reference: &self.actor,
                kind: self.actor_kind,
                groups: &self.groups,
                roles: &self.roles,
            },
            workload: PolicyWorkload {
                slug: &self.workload_slug,
                owner_ref: &self.owner_ref,
                workload_id: &plan.names.workload_id,
            },
            release: PolicyRelease {
                release_id: &plan.names.release_id,
                state: "active",
                environment: &self.environment,
            },
            inputs,
            environment: &self.environment,
            lane: self.lane.as_str(),
            now: clock.now(),
        })
    }
}

/// What the engine reaches outside.
pub(crate) struct Outside<'a> {
    pub(crate) provider: &'a dyn Provider,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) ids: &'a dyn Ids,
}

/// How a run ended, as the engine sees it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<RunError>,
    /// The answer and what its providers said of it.
    pub(crate) output: Option<(Value, Map<String, Value>)>,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) decisions: Vec<RecordedDecision>,
    pub(crate) artifacts: Vec<EvidenceArtifact>,
    /// The strictest decision of the run.
    pub(crate) decision: PolicyDecision,
}

/// Why a step did not succeed.
enum StepFailure {
    /// A failure that `on_failure` may catch.
    Failed(RunError),
    /// A denial, which nothing catches.
    Denied,
    /// The run has no room left. Nothing catches that either: there is none for the step that would.
    NoRoom,
}

impl From<Exhausted> for StepFailure {
    fn from(_: Exhausted) -> Self {
        Self::NoRoom
    }
}

impl From<Unresolvable> for StepFailure {
    fn from(refusal: Unresolvable) -> Self {
        match refusal {
            Unresolvable::Missing(_) => Self::of("reference_missing", "a value that a step refers to does not exist"),
            Unresolvable::TooLarge(_) => Self::NoRoom,
        }
    }
}

impl StepFailure {
    fn of(code: &str, message: &str) -> Self {
        Self::Failed(RunError::new(code, message))
    }
}

impl StepFailure {
    fn of_prompt(refusal: PromptRefusal) -> Self {
        let offset = refusal.offset().and_then(|offset| u32::try_from(offset).ok());
        Self::Failed(RunError { offset, ..RunError::new(refusal.code(), &refusal.to_string()) })
    }
}

/// One run under way.
pub(crate) struct Run<'a> {
    pub(crate) execution_id: ExecutionId,
    pub(crate) plan: &'a RunPlan,
    pub(crate) facts: &'a RunFacts,
    pub(crate) inputs: &'a Map<String, Value>,
    pub(crate) outside: Outside<'a>,
    outputs: BTreeMap<String, Value>,
    allowance: Allowance,
    metadata: Map<String, Value>,
    ended: Ended,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        execution_id: ExecutionId,
        (plan, facts): (&'a RunPlan, &'a RunFacts),
        inputs: &'a Map<String, Value>,
        decision: PolicyDecision,
        outside: Outside<'a>,
    ) -> Self {
        let ended = Ended {
            status: Status::Failed,
            outcome: Outcome::Failure,
            error: None,
            output: None,
            steps: Vec::new(),
            decisions: Vec::new(),
            artifacts: Vec::new(),
            decision,
        };
        let (outputs, metadata) = (BTreeMap::new(), Map::new());
        let allowance = Allowance::of(VALUE_BYTES);
        Self { execution_id, plan, facts, inputs, outside, outputs, allowance, metadata, ended }
    }

    /// Runs to the end. Dropping the future stops the run between two steps or within a provider's call; what it did
    /// until then stays in the run.
    pub(crate) async fn run_to_end(&mut self) {
        let plan = self.plan;
        let Some(mut step) = plan.flow.entry() else {
            return self.fail(RunError::new("flow_invalid", "the flow has no entry"));
        };
        for _ in 0..STEP_BUDGET {
            let began = Instant::now();
            let done = self.take(step).await;
            let failure = match &done {
                Ok(_) => None,
                Err(StepFailure::Failed(error)) => Some(error.code.clone()),
                Err(StepFailure::Denied) => Some("policy_denied".to_owned()),
                Err(StepFailure::NoRoom) => Some("value_too_large".to_owned()),
            };
            self.ended.steps.push(StepRecord {
                step_id: step.id.clone(),
                step_type: step.kind.as_str(),
                failure,
                duration: began.elapsed(),
            });
            let (succeeded, error) = match done {
                Ok(value) => {
                    self.outputs.insert(step.id.clone(), value);
                    (true, None)
                }
                Err(StepFailure::Failed(error)) => (false, Some(error)),
                Err(StepFailure::Denied) => {
                    self.ended.status = Status::Denied;
                    self.ended.outcome = Outcome::Denied;
                    return;
                }
                Err(StepFailure::NoRoom) => {
                    return self
                        .fail(RunError::new("value_too_large", "the values of the run take more room than a run has"));
                }
            };
            match (plan.flow.next_after(step, succeeded), error) {
                (Next::Step(next), _) => step = next,
                (Next::Returns, None) => return self.complete(&step.id),
                (Next::Returns | Next::Fails, Some(error)) => return self.fail(error),
                (Next::Fails, None) => {
                    return self.fail(RunError::new("flow_invalid", "the flow leads nowhere from here"));
                }
            }
        }
        self.fail(RunError::new("step_budget_exceeded", "the run took more steps than a run may"));
    }

    /// How the run stands now.
    pub(crate) fn into_ended(self) -> Ended {
        self.ended
    }

    fn complete(&mut self, returned: &str) {
        self.ended.status = Status::Completed;
        self.ended.outcome = Outcome::Success;
        let value = self.outputs.remove(returned).unwrap_or(Value::Null);
        self.ended.output = Some((value, std::mem::take(&mut self.metadata)));
    }

    fn fail(&mut self, error: RunError) {
        self.ended.error = Some(error);
    }

    async fn take(&mut self, step: &Step) -> Result<Value, StepFailure> {
        let mut inputs = Map::new();
        for (name, template) in &step.inputs {
            // The prompt is resolved where it is rendered: the bound one is a template of its own.
            if name != "prompt" {
                inputs.insert(name.clone(), self.resolve(template, None)?);
            }
        }
        let produced = match &step.kind {
            StepKind::Task { action: Action::EvaluatePolicy } => self.evaluate_policy(inputs)?,
            StepKind::LlmCall { .. } => self.call_model(step, inputs).await?,
            StepKind::Return { output } => return self.resolve(output, None),
            StepKind::Task { action: Action::RetrieveDocuments }
            | StepKind::Agent { .. }
            | StepKind::Embedding { .. } => {
                return Err(StepFailure::of("step_type_unavailable", "this server cannot run steps of this type"));
            }
        };
        match &step.output {
            // A name is another way to read the whole (see `member`).
            None | Some(Output::Named(_)) => Ok(produced),
            Some(Output::Mapped(template)) => self.resolve(template, Some((&step.id, produced))),
        }
    }

    fn resolve(&mut self, template: &Template, own: Option<(&str, Value)>) -> Result<Value, StepFailure> {
        let known = Known { plan: self.plan, inputs: self.inputs, outputs: &self.outputs, own };
        Ok(template.resolve(&known, &mut self.allowance)?)
    }

    /// Decides again with the step's inputs laid over the run's. The strictest decision of a run counts.
    fn evaluate_policy(&mut self, inputs: Map<String, Value>) -> Result<Value, StepFailure> {
        let mut merged = self.inputs.clone();
        merged.extend(inputs);
        let decision = self.facts.decide((&self.plan.policy, self.plan), &merged, self.outside.clock);
        let id = DecisionId::from(self.outside.ids.fresh());
        self.ended.decisions.push(RecordedDecision::of(id, &decision, self.outside.clock.now()));
        let told = json!({ "outcome": decision.outcome.as_str(), "reason_code": decision.reason_code });
        let denied = decision.outcome == policy::Outcome::Deny;
        self.ended.decision = policy::strictest(self.ended.decision.clone(), decision);
        if denied { Err(StepFailure::Denied) } else { Ok(told) }
    }

    async fn call_model(&mut self, step: &Step, inputs: Map<String, Value>) -> Result<Value, StepFailure> {
        let Some(policy) = &self.plan.model_policy else {
            return Err(StepFailure::of("model_policy_missing", "the release binds no model policy"));
        };
        let system_prompt = self.prompt_of(step, &inputs)?;
        let route = &policy.provider_route;
        let call = ProviderCall {
            account_slot: route.account_slot.clone(),
            provider: route.provider.clone(),
            model: route.model.clone(),
            system_prompt,
            messages: self.conversation(&inputs)?,
            temperature: policy.temperature,
            max_tokens: policy.max_tokens.and_then(|most| u32::try_from(most).ok()),
        };
        let began = Instant::now();
        let answer = self.outside.provider.complete(&call).await;
        self.keep_call(step, &call, &route.route_id, began, &answer);
        let completion = answer.map_err(|error| StepFailure::of(error.code(), &error.to_string()))?;
        if self.plan.prompt.as_ref().is_some_and(|prompt| !prompt.takes(&completion.text)) {
            let message = "the answer does not satisfy the prompt's schema";
            return Err(StepFailure::of("output_schema_mismatch", message));
        }
        // What a provider says is as long as the provider likes.
        let (answer, metadata) = (Value::String(completion.text), Value::Object(completion.metadata));
        self.allowance.take_for(&answer)?;
        self.allowance.take_for(&metadata)?;
        self.metadata.insert(step.id.clone(), metadata);
        Ok(answer)
    }

    /// The rendered prompt. Arguments come from the step's inputs, else from the run's.
    fn prompt_of(&mut self, step: &Step, inputs: &Map<String, Value>) -> Result<String, StepFailure> {
        let template = step.inputs.get("prompt");
        let bound = match template {
            Some(template) => template
                .references()
                .iter()
                .any(|reference| matches!(reference, Reference::Release { role: AssetKind::PromptTemplate })),
            None => true,
        };
        let mut arguments = self.inputs.clone();
        let own = inputs.iter().filter(|(name, _)| !CONVERSATION.contains(&name.as_str()));
        arguments.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let rendered = match &self.plan.prompt {
            Some(prompt) if bound => prompt.render(&arguments).map_err(StepFailure::of_prompt)?,
            None if bound => return Err(StepFailure::of("prompt_missing", "the release binds no prompt")),
            Some(_) | None => String::new(),
        };
        match template {
            None => Ok(rendered),
            Some(template) => {
                let known = Known { plan: self.plan, inputs: self.inputs, outputs: &self.outputs, own: None };
                let scope = WithPrompt { known, prompt: Value::String(rendered) };
                let value = template.resolve(&scope, &mut self.allowance)?;
                Ok(match value {
                    Value::String(text) => text,
                    other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        other.to_string()
                    }
                })
            }
        }
    }

    /// `messages`, else `message`, of the step, else of the run; without either, the run's inputs as JSON.
    fn conversation(&self, inputs: &Map<String, Value>) -> Result<Vec<Message>, StepFailure> {
        let malformed = || StepFailure::of("messages_malformed", "messages are objects with `role` and `content`");
        for values in [inputs, self.inputs] {
            if let Some(Value::Array(list)) = values.get("messages") {
                return list.iter().map(|entry| message(entry).ok_or_else(malformed)).collect();
            }
            if let Some(said) = values.get("message") {
                let content = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
                return Ok(vec![Message { role: MessageRole::User, content }]);
            }
        }
        let content = Value::Object(self.inputs.clone()).to_string();
        Ok(vec![Message { role: MessageRole::User, content }])
    }

    /// What was asked of whom, and how it went: counts and codes, never what was said.
    fn keep_call(
        &mut self,
        step: &Step,
        call: &ProviderCall,
        route_id: &str,
        began: Instant,
        answer: &Result<Completion, fairway_domain::execution::provider::ProviderError>,
    ) {
        let mut body = Map::new();
        body.insert("step_id".to_owned(), json!(step.id));
        body.insert("route_id".to_owned(), json!(route_id));
        body.insert("provider".to_owned(), json!(call.provider));
        body.insert("model".to_owned(), json!(call.model));
        body.insert("account_slot".to_owned(), json!(call.account_slot));
        let latency = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        body.insert("latency_us".to_owned(), json!(latency));
        let attempt = match answer {
            Ok(completion) => {
                body.insert("tokens_in".to_owned(), json!(completion.tokens_in));
                body.insert("tokens_out".to_owned(), json!(completion.tokens_out));
                json!({ "route_id": route_id, "result": "answered" })
            }
            Err(error) => json!({ "route_id": route_id, "result": error.code() }),
        };
        body.insert("attempts".to_owned(), json!([attempt]));
        let artifact_id = self.outside.ids.fresh().into();
        self.ended.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind: "provider_call",
            storage_ref: ArtifactPath::of_evidence(self.execution_id, artifact_id, "provider-call.json"),
            body,
            created_at: self.outside.clock.now(),
        });
    }
}

fn message(entry: &Value) -> Option<Message> {
    let role = match entry.get("role")?.as_str()? {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        _ => return None,
    };
    Some(Message { role, content: entry.get("content")?.as_str()?.to_owned() })
}

/// The values that references of a run have.
struct Known<'r> {
    plan: &'r RunPlan,
    inputs: &'r Map<String, Value>,
    outputs: &'r BTreeMap<String, Value>,
    own: Option<(&'r str, Value)>,
}

impl ReferenceScope for Known<'_> {
    fn value(&self, reference: &Reference) -> Option<Cow<'_, Value>> {
        match reference {
            Reference::Trigger { input } => self.inputs.get(input).map(Cow::Borrowed),
            Reference::Step { step, fields } => {
                let whole = match &self.own {
                    Some((id, value)) if id == step => value,
                    Some(_) | None => self.outputs.get(step)?,
                };
                member(&self.plan.flow, step, whole, fields).map(Cow::Borrowed)
            }
            // A role stands for the bound asset's name where nothing else is meant by it.
            Reference::Release { role } => self.plan.bound_slug(*role).map(|slug| Cow::Owned(Value::String(slug))),
        }
    }
}

/// Follows names into an output. A step that named its output is also read under that name.
fn member<'v>(flow: &Flow, step: &str, whole: &'v Value, fields: &[String]) -> Option<&'v Value> {
    let (mut value, mut rest) = (whole, fields);
    if let Some((first, tail)) = fields.split_first() {
        let output = flow.step(step).and_then(|step| step.output.as_ref());
        if matches!(output, Some(Output::Named(name)) if name == first) {
            rest = tail;
        }
    }
    for field in rest {
        value = value.get(field)?;
    }
    Some(value)
}

/// The same, where the bound prompt stands for its rendering.
struct WithPrompt<'r> {
    known: Known<'r>,
    prompt: Value,
}

impl ReferenceScope for WithPrompt<'_> {
    fn value(&self, reference: &Reference) -> Option<Cow<'_, Value>> {
        match reference {
            Reference::Release { role: AssetKind::PromptTemplate } => Some(Cow::Borrowed(&self.prompt)),
            Reference::Release { .. } | Reference::Trigger { .. } | Reference::Step { .. } => {
                self.known.value(reference)
            }
        }
    }
}
