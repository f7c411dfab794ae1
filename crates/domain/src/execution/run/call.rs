//! Questions to models: what is asked, and what is made of the answer.

use super::{Known, Reached, Run, StepFailure, Subject, scope::WithPrompt, span};
use crate::{
    asset::{content::Route, kind::AssetKind, ports::ArtifactPath},
    evidence::EvidenceArtifact,
    execution::provider::{Completion, Message, MessageRole, ProviderCall, ProviderError},
    flow::{
        Step,
        reference::{Reference, Template},
    },
    time::Timestamp,
};
use serde_json::{Map, Value, json};

/// Values of a call that are the conversation, not arguments of its prompt.
const CONVERSATION: [&str; 3] = ["prompt", "message", "messages"];

/// What is kept of a question until its answer comes.
pub(super) struct Asked {
    route: AskedRoute,
    at: Timestamp,
    /// What was said, where it has to be recorded.
    said: Option<Map<String, Value>>,
}

/// What became of a question.
#[derive(Clone, Copy)]
enum Answered<'a> {
    With(&'a Completion),
    Failed(ProviderError),
    Never,
}

struct AskedRoute {
    route_id: String,
    provider: String,
    model: String,
    account_slot: String,
}

impl<'a> Run<'a> {
    /// The question of a step.
    pub(super) fn question(&mut self, step: &'a Step, inputs: &Map<String, Value>) -> Result<Reached, StepFailure> {
        let Some(policy) = &self.subject.plan.model_policy else {
            return Err(StepFailure::of("model_policy_missing", "the release binds no model policy"));
        };
        // Noted before anything of it can be refused: a prompt that cannot be filled was read all the same.
        self.note_call(step);
        let system_prompt = self.prompt_of(step, inputs)?;
        let messages = self.conversation(inputs)?;
        let Route { route_id, provider, model, account_slot, .. } = &policy.provider_route;
        let said = if self.keeps_transcript { Some(self.said(step, &system_prompt, &messages)?) } else { None };
        let call = ProviderCall {
            account_slot: account_slot.clone(),
            provider: provider.clone(),
            model: model.clone(),
            system_prompt,
            messages,
            temperature: policy.temperature,
            max_tokens: policy.max_tokens.and_then(|most| u32::try_from(most).ok()),
        };
        let route = AskedRoute {
            route_id: route_id.clone(),
            provider: provider.clone(),
            model: model.clone(),
            account_slot: account_slot.clone(),
        };
        let asked = Asked { route, at: self.outside.clock.now(), said };
        Ok(Reached::Asks(Box::new(call), Box::new(asked)))
    }

    /// The value of a step whose question was answered.
    pub(super) fn take_answer(
        &mut self,
        step: &Step,
        asked: Asked,
        answer: Result<Completion, ProviderError>,
    ) -> Result<Value, StepFailure> {
        self.keep_call(step, &asked, answer.as_ref().map_or_else(|error| Answered::Failed(*error), Answered::With));
        if let Some(mut said) = asked.said {
            let mut room = Ok(());
            if let Ok(completion) = &answer {
                let text = Value::String(completion.text.clone());
                said.insert("answer_bytes".to_owned(), json!(completion.text.len()));
                room = self.allowance.take_for(&text);
                // An answer that there is no room for ends the run, and the transcript says how long it was.
                if room.is_ok() {
                    said.insert("answer".to_owned(), text);
                }
            }
            self.transcript.push(Value::Object(said));
            room?;
        }
        let completion = answer.map_err(|error| StepFailure::of(error.code(), &error.to_string()))?;
        // The schema is the bound prompt's, and a call with words of its own is none of it.
        let bound = self.subject.plan.prompt.as_ref().filter(|_| asks_for_bound_prompt(step.inputs.get("prompt")));
        if bound.is_some_and(|prompt| !prompt.takes(&completion.text)) {
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

    /// What is left of a question that nobody waits for any more.
    pub(super) fn keep_unanswered(&mut self, step: &Step, asked: Asked) {
        self.keep_call(step, &asked, Answered::Never);
        self.transcript.extend(asked.said.map(Value::Object));
    }

    /// The rendered prompt. Arguments come from the step's inputs, else from the run's.
    fn prompt_of(&mut self, step: &Step, inputs: &Map<String, Value>) -> Result<String, StepFailure> {
        let Subject { plan, inputs: sent, .. } = self.subject;
        let template = step.inputs.get("prompt");
        let bound = asks_for_bound_prompt(template);
        let rendered = match &plan.prompt {
            Some(prompt) if bound => {
                let mut arguments = sent.clone();
                let own = inputs.iter().filter(|(name, _)| !CONVERSATION.contains(&name.as_str()));
                arguments.extend(own.map(|(name, value)| (name.clone(), value.clone())));
                prompt.render(&arguments).map_err(StepFailure::of_prompt)?
            }
            None if bound => return Err(StepFailure::of("prompt_missing", "the release binds no prompt")),
            Some(_) | None => String::new(),
        };
        let Some(template) = template else { return Ok(rendered) };
        let known = Known { plan, inputs: sent, outputs: &self.outputs, own: None };
        let scope = WithPrompt { known, prompt: Value::String(rendered) };
        let value = template.resolve(&scope, &mut self.allowance)?;
        Ok(match value {
            Value::String(text) => text,
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        })
    }

    /// `messages`, else `message`, of the step, else of the run; without either, the run's inputs as JSON.
    fn conversation(&self, inputs: &Map<String, Value>) -> Result<Vec<Message>, StepFailure> {
        let malformed = || StepFailure::of("messages_malformed", "messages are objects with `role` and `content`");
        for values in [inputs, self.subject.inputs] {
            match values.get("messages") {
                Some(Value::Array(list)) => {
                    return list.iter().map(|entry| message(entry).ok_or_else(malformed)).collect();
                }
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                    return Err(malformed());
                }
                None => {}
            }
            if let Some(said) = values.get("message") {
                let content = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
                return Ok(vec![Message { role: MessageRole::User, content }]);
            }
        }
        let content = Value::Object(self.subject.inputs.clone()).to_string();
        Ok(vec![Message { role: MessageRole::User, content }])
    }

    /// The part of a transcript that a question is. Its length is paid for: it is kept until the end.
    fn said(
        &mut self,
        step: &Step,
        system_prompt: &str,
        messages: &[Message],
    ) -> Result<Map<String, Value>, StepFailure> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|message| json!({ "role": message.role.as_str(), "content": message.content }))
            .collect();
        let said = json!({ "step_id": step.id, "system_prompt": system_prompt, "messages": messages });
        self.allowance.take_for(&said)?;
        match said {
            Value::Object(said) => Ok(said),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(Map::new()),
        }
    }

    /// What was asked of whom, and how it went: counts and codes, never what was said.
    fn keep_call(&mut self, step: &Step, asked: &Asked, answered: Answered<'_>) {
        let now = self.outside.clock.now();
        let AskedRoute { route_id, provider, model, account_slot } = &asked.route;
        let latency = u64::try_from(span(asked.at, now).as_micros()).unwrap_or(u64::MAX);
        let mut body = Map::new();
        body.insert("step_id".to_owned(), json!(step.id));
        body.insert("route_id".to_owned(), json!(route_id));
        body.insert("provider".to_owned(), json!(provider));
        body.insert("model".to_owned(), json!(model));
        body.insert("account_slot".to_owned(), json!(account_slot));
        body.insert("latency_us".to_owned(), json!(latency));
        let result = match answered {
            Answered::With(completion) => {
                body.insert("tokens_in".to_owned(), json!(completion.tokens_in));
                body.insert("tokens_out".to_owned(), json!(completion.tokens_out));
                "answered"
            }
            Answered::Failed(error) => error.code(),
            Answered::Never => "not_waited_for",
        };
        body.insert("attempts".to_owned(), json!([{ "route_id": route_id, "result": result }]));
        let artifact_id = self.outside.ids.fresh().into();
        self.ended.artifacts.push(EvidenceArtifact {
            artifact_id,
            kind: "provider_call",
            storage_ref: ArtifactPath::of_evidence(self.subject.execution_id, artifact_id, "provider-call.json"),
            body,
            payload: None,
            created_at: now,
        });
    }
}

/// Whether a call is given the prompt that its release binds; without a prompt of its own it is.
pub(super) fn asks_for_bound_prompt(template: Option<&Template>) -> bool {
    let is_bound = |reference: &Reference| matches!(reference, Reference::Release { role: AssetKind::PromptTemplate });
    template.is_none_or(|template| template.references().into_iter().any(is_bound))
}

fn message(entry: &Value) -> Option<Message> {
    let role = match entry.get("role")?.as_str()? {
        "user" => MessageRole::User,
        "assistant" => MessageRole::Assistant,
        _ => return None,
    };
    Some(Message { role, content: entry.get("content")?.as_str()?.to_owned() })
}
