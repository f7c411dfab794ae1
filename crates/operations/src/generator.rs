//! The generator: a governed workload of each tenant, run under a credential of its own, whose answers are data.
//!
//! Who asks for a draft needs the right to make assets where the draft is meant for, and no right to the generator. The
//! generator has no rights but to be run: nothing that it answers is done.

use crate::{
    Failure, RunRefusal, Services,
    access::{Claims, Operation, gate},
    asset::judged,
    execution::{Asks, ExecuteRequest, Patience},
};
use fairway_domain::{
    access::{ActorRef, Caller},
    asset::{
        content::{self, ContentWarning},
        kind::AssetKind,
    },
    execution::{Execution, Status, dispatch::Dispatch},
    generator::{Description, ENVIRONMENT, SLUG, object_of},
    id::{ExecutionId, WorkspaceId},
    idempotency::RequestKey,
    slug::Slug,
    tenant::TenantScope,
};
use serde_json::{Map, Value, json};

mod provision;

/// Who runs the generator.
pub(crate) const CREDENTIAL: &str = "generator";

/// Whether tenants that have no generator are given one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Provisioning {
    /// They are.
    On,
    /// They go without.
    Off,
}

impl Provisioning {
    /// The one of that spelling in settings.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// A draft that was generated. Nothing was made of it.
#[derive(Clone, Debug)]
pub struct Draft {
    /// What a version of a prompt template could say.
    pub content: Value,
    /// What its author should know.
    pub warnings: Vec<ContentWarning>,
    /// The run that drafted it.
    pub generation_id: ExecutionId,
    /// Whether an earlier request with the same key asked for it.
    pub replayed: bool,
}

/// Why there is no draft.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenerateRefusal {
    /// Workers run everything here, and nobody waits for them.
    #[error("nothing is run while its caller waits here")]
    InlineUnavailable,
    /// No release of the generator is active, or its run came to nothing.
    #[error("the generator is not available")]
    Unavailable(Option<ExecutionId>),
    /// The generator's policy refused.
    #[error("the generator's policy does not allow this")]
    Denied {
        /// The run.
        execution_id: ExecutionId,
        /// Why.
        reason_code: String,
    },
    /// What was generated cannot be what was asked for.
    #[error("what was generated is no prompt template that could be kept")]
    Invalid(ExecutionId),
}

impl GenerateRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InlineUnavailable => "inline_dispatch_unavailable",
            Self::Unavailable(_) => "generator_unavailable",
            Self::Denied { .. } => "policy_denied",
            Self::Invalid(_) => "generated_content_invalid",
        }
    }
}

impl Services {
    /// Drafts the content of a prompt template from a description. Nothing is made but the run.
    ///
    /// # Errors
    /// When the caller may not make assets in that workspace; when nothing is run while its caller waits; when the generator
    /// has no active release; when its policy refuses; when what it answers could not be kept.
    pub async fn generate_draft(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        description: &Description,
        key: Option<&RequestKey>,
    ) -> Result<Draft, Failure> {
        let place = self.place_for(caller, Operation::GenerateDraft, Some(workspace)).await?;
        let scope = gate::enter(caller, Operation::GenerateDraft, &place)?;
        if self.settings.dispatch == Dispatch::Queued {
            return Err(GenerateRefusal::InlineUnavailable.into());
        }
        let (run, replayed) = self.generation(caller, workspace, description, key).await?;
        let generation_id = run.execution_id;
        match run.status {
            Status::Completed => {}
            Status::Denied => {
                return Err(
                    GenerateRefusal::Denied { execution_id: generation_id, reason_code: run.reason_code }.into()
                );
            }
            // What the model said is larger than all that a run may hold, so no version could say it.
            Status::Failed if is_too_large(&run) => return Err(GenerateRefusal::Invalid(generation_id).into()),
            Status::Queued
            | Status::Running
            | Status::AwaitingReview
            | Status::Failed
            | Status::Cancelled
            | Status::Unknown => return Err(GenerateRefusal::Unavailable(Some(generation_id)).into()),
        }
        let (content, offline) = answered(&run).ok_or(GenerateRefusal::Invalid(generation_id))?;
        let content = checked(scope, content).await?.ok_or(GenerateRefusal::Invalid(generation_id))?;
        let mut warnings = content::warnings(AssetKind::PromptTemplate, &content);
        if offline {
            warnings.push(ContentWarning {
                pointer: String::new(),
                code: "local_provider",
                message: "no model was asked: the draft follows the rules of the built-in provider".to_owned(),
                conversion: None,
            });
        }
        Ok(Draft { content, warnings, generation_id, replayed })
    }

    /// The run of the generator, ended or not, and whether an earlier request with the same key started it.
    async fn generation(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        description: &Description,
        key: Option<&RequestKey>,
    ) -> Result<(Execution, bool), Failure> {
        let actor = ActorRef::system(CREDENTIAL);
        let claims = Claims { actor, groups: Vec::new(), tenant: Some(caller.tenant) };
        let wanted = ExecuteRequest {
            slug: named(SLUG)?,
            environment: named(ENVIRONMENT)?,
            // Who asked, and for where, is no business of the model: only the message is said to it.
            asks: Asks::Inputs(Map::from_iter([
                ("message".to_owned(), json!(description.as_str())),
                ("requested_by".to_owned(), json!(caller.actor.to_string())),
                ("workspace_id".to_owned(), json!(workspace)),
            ])),
            session: None,
            lane: None,
            on_behalf_of: None,
            pass: None,
            address: None,
            patience: Patience::End(None),
        };
        let identity = (self.settings.identity, &claims, caller.request_id);
        match self.execute(identity, &wanted, key).await {
            Err(failure) if is_missing(&failure) => {
                if self.settings.generator == Provisioning::Off {
                    return Err(GenerateRefusal::Unavailable(None).into());
                }
                if let Err(failure) = self.provision_generator(caller.tenant).await {
                    let error: &dyn std::error::Error = &failure;
                    tracing::error!(error, "the generator could not be provisioned");
                    return Err(GenerateRefusal::Unavailable(None).into());
                }
            }
            ran => return ran.map(|answer| (answer.execution, answer.replayed)),
        }
        match self.execute(identity, &wanted, key).await {
            Err(failure) if is_missing(&failure) => Err(GenerateRefusal::Unavailable(None).into()),
            ran => ran.map(|answer| (answer.execution, answer.replayed)),
        }
    }
}

/// Whether there is no generator to run.
const fn is_missing(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotFound
            | Failure::Forbidden(_)
            | Failure::Run(
                RunRefusal::NoActiveRelease | RunRefusal::NothingToRun | RunRefusal::Suspended | RunRefusal::Retired
            )
    )
}

fn named(slug: &'static str) -> Result<Slug, Failure> {
    Slug::parse(slug).map_err(|_| Failure::Corrupt("a slug of the generator that is none"))
}

/// The object that was answered, and whether no model was asked for it.
fn answered(run: &Execution) -> Option<(Value, bool)> {
    let stored: Value = serde_json::from_str(run.output.as_ref()?).ok()?;
    let by_rules = |said: &Value| said.get("provider").and_then(Value::as_str) == Some("local");
    let offline = stored.get("metadata").and_then(Value::as_object).is_some_and(|said| said.values().any(by_rules));
    Some((object_of(stored.get("output")?.as_str()?)?, offline))
}

fn is_too_large(run: &Execution) -> bool {
    run.error.as_ref().is_some_and(|error| error.code == "value_too_large")
}

/// The content, if a version could say this: judged from scratch, as if a stranger had sent it. A draft refers to nothing:
/// what a model names was not chosen by who asked, and would be looked up with its rights.
async fn checked(scope: TenantScope, content: Value) -> Result<Option<Value>, Failure> {
    let judgement = match judged(scope, AssetKind::PromptTemplate, content).await {
        Err(Failure::Content(_) | Failure::Canonical(_)) => return Ok(None),
        judgement => judgement?,
    };
    let refers = judgement.prompt.is_some_and(|prompt| prompt.references().next().is_some());
    if refers || !judgement.references.is_empty() {
        return Ok(None);
    }
    let content: Value = serde_json::from_slice(judgement.canonical.bytes())
        .map_err(|_| Failure::Corrupt("canonical content that is no JSON"))?;
    Ok(content.get("allowed_commands").is_none().then_some(content))
}
