//! The draft generator: a governed built-in workload of each tenant that drafts content from descriptions.
//!
//! A caller needs the permission to create assets in the target workspace, but no permission on the generator. Runs of
//! the generator belong to a system actor whose only right is to execute runs. Answers of the generator are treated as
//! data and never executed.

use crate::{
    Failure, RunRefusal, Settings, Stores,
    access::{IdentityClaims, Operation, ScopeResolver, authorize},
    asset::{Assets, validate},
    commit_context::CommitContext,
    execution::{ExecuteRequest, Executions, RunPayload, WaitMode},
    release::Releases,
    services::{CommonOperations, SharedState},
};
use fairway_domain::{
    access::{AccessStore, ActorRef, Caller},
    asset::{
        content::{self, ContentWarning},
        kind::AssetKind,
        ports::AssetStore,
    },
    execution::{Execution, Status, dispatch::DispatchPolicy},
    generator::{Description, ENVIRONMENT, SLUG, parse_json_answer},
    id::{ExecutionId, WorkspaceId},
    idempotency::RequestKey,
    release::ports::ReleaseStore,
    slug::Slug,
    tenant::{TenantScope, TenantStore, WorkspaceStore},
    workload::ports::WorkloadStore,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

mod provision;

/// Name of the system actor that submits runs of the generator.
pub(crate) const ACTOR: &str = "generator";

/// Whether tenants receive a generator automatically.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProvisioningMode {
    /// The server provisions a generator for each tenant.
    On,
    /// The server provisions no generators.
    Off,
}

impl ProvisioningMode {
    /// Parses the value of the setting; `None` for an invalid value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// A generated draft; no asset is created from it.
#[derive(Clone, Debug)]
pub struct GeneratedDraft {
    /// Content for a version of a prompt template.
    pub content: Value,
    /// Warnings about the content, for the author.
    pub warnings: Vec<ContentWarning>,
    /// The run of the generator that produced the draft.
    pub generation_id: ExecutionId,
    /// Whether an earlier request with the same idempotency key started this run.
    pub replayed: bool,
}

/// A JSON object that the generator produced. The calling operation must validate it like submitted content.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedObject {
    /// The generated object, before validation.
    pub(crate) value: Value,
    /// Whether the built-in local provider, and not a model, generated the object.
    pub(crate) is_local: bool,
    /// The run of the generator that produced the object.
    pub(crate) generation_id: ExecutionId,
    /// Whether an earlier request with the same idempotency key started this run.
    pub(crate) replayed: bool,
}

/// Reason why no draft was generated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenerateRefusal {
    /// Drafts require synchronous runs, but this installation executes all runs on workers.
    #[error("this deployment executes no runs synchronously")]
    InlineUnavailable,
    /// The generator has no active release, or its run failed; the identifier is that of the failed run.
    #[error("the generator is not available")]
    Unavailable(Option<ExecutionId>),
    /// The generator's policy denied the run.
    #[error("the generator's policy does not allow this")]
    Denied {
        /// The run of the generator that was denied.
        execution_id: ExecutionId,
        /// The reason code of the denial.
        reason_code: String,
    },
    /// The generated content is not a valid prompt template or bundle.
    #[error("the generated content is invalid")]
    Invalid {
        /// The run that generated the content.
        execution_id: ExecutionId,
        /// The invalid members of a bundle: path and stable code. They contain no generated values or names.
        problems: Vec<(&'static str, &'static str)>,
    },
}

impl GenerateRefusal {
    /// Creates the refusal of generated content without a list of problems.
    pub(crate) const fn invalid(execution_id: ExecutionId) -> Self {
        Self::Invalid { execution_id, problems: Vec::new() }
    }

    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InlineUnavailable => "inline_dispatch_unavailable",
            Self::Unavailable(_) => "generator_unavailable",
            Self::Denied { .. } => "policy_denied",
            Self::Invalid { .. } => "generated_content_invalid",
        }
    }
}

/// Generates drafts with the built-in workload of a tenant.
pub struct DraftGenerator {
    context: CommitContext,
    settings: Arc<Settings>,
    access_store: Arc<dyn AccessStore>,
    asset_store: Arc<dyn AssetStore>,
    release_store: Arc<dyn ReleaseStore>,
    tenant_store: Arc<dyn TenantStore>,
    workload_store: Arc<dyn WorkloadStore>,
    workspace_store: Arc<dyn WorkspaceStore>,
    scope_resolver: Arc<ScopeResolver>,
    assets: Arc<Assets>,
    executions: Arc<Executions>,
    releases: Arc<Releases>,
}

impl DraftGenerator {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        assets: &Arc<Assets>,
        executions: &Arc<Executions>,
        releases: &Arc<Releases>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            access_store: Arc::clone(&stores.access),
            asset_store: Arc::clone(&stores.assets),
            release_store: Arc::clone(&stores.releases),
            tenant_store: Arc::clone(&stores.tenants),
            workload_store: Arc::clone(&stores.workloads),
            workspace_store: Arc::clone(&stores.workspaces),
            scope_resolver: Arc::clone(&common.scope_resolver),
            assets: Arc::clone(assets),
            executions: Arc::clone(executions),
            releases: Arc::clone(releases),
        }
    }
}

impl DraftGenerator {
    /// Generates the content of a prompt template from a description. The run is stored, but no asset is created from
    /// the content.
    ///
    /// # Errors
    /// In these cases: the caller may not create assets in the workspace; this installation executes no synchronous
    /// runs; the generator has no active release; its policy denies the run; the generated content is invalid.
    pub async fn generate_prompt_content(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        description: &Description,
        key: Option<&RequestKey>,
    ) -> Result<GeneratedDraft, Failure> {
        let position =
            self.scope_resolver.position_for_new_resource(caller, Operation::GenerateDraft, Some(workspace)).await?;
        let scope = authorize::authorize(caller, Operation::GenerateDraft, &position)?;
        let (run, replayed) = self.completed_run(caller, workspace, description.as_str(), key).await?;
        let generation_id = run.execution_id;
        let (content, is_local) = generated_content(&run).ok_or(GenerateRefusal::invalid(generation_id))?;
        let content = validate_draft(scope, content).await?.ok_or(GenerateRefusal::invalid(generation_id))?;
        let mut warnings = content::warnings(AssetKind::PromptTemplate, &content);
        if is_local {
            warnings.push(ContentWarning {
                pointer: String::new(),
                code: "local_provider",
                message: "no model was called: the built-in provider generated the draft from its rules".to_owned(),
                conversion: None,
            });
        }
        Ok(GeneratedDraft { content, warnings, generation_id, replayed })
    }

    /// Generates an object from a message. The calling operation must authorize the caller before the call, and
    /// validate the object after it.
    ///
    /// # Errors
    /// As [`Self::generate_prompt_content`]; also when the answer is not a single JSON object.
    pub(crate) async fn generate_object(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        message: &str,
        key: Option<&RequestKey>,
    ) -> Result<GeneratedObject, Failure> {
        let (run, replayed) = self.completed_run(caller, workspace, message, key).await?;
        let generation_id = run.execution_id;
        let (value, is_local) = generated_content(&run).ok_or(GenerateRefusal::invalid(generation_id))?;
        Ok(GeneratedObject { value, is_local, generation_id, replayed })
    }

    /// Executes the generator and waits for completion; returns the run, and whether an earlier request with the same
    /// key started it.
    async fn completed_run(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        message: &str,
        key: Option<&RequestKey>,
    ) -> Result<(Execution, bool), Failure> {
        if self.settings.dispatch == DispatchPolicy::Queued {
            return Err(GenerateRefusal::InlineUnavailable.into());
        }
        let (run, replayed) = self.run_generator(caller, workspace, message, key).await?;
        let generation_id = run.execution_id;
        match run.status {
            Status::Completed => {}
            Status::Denied => {
                return Err(
                    GenerateRefusal::Denied { execution_id: generation_id, reason_code: run.reason_code }.into()
                );
            }
            // The run failed because its output exceeds the size limit of a run. Such output would also exceed the size
            // limit of a version.
            Status::Failed if is_too_large(&run) => return Err(GenerateRefusal::invalid(generation_id).into()),
            Status::Queued
            | Status::Running
            | Status::AwaitingReview
            | Status::Failed
            | Status::Cancelled
            | Status::Unknown => return Err(GenerateRefusal::Unavailable(Some(generation_id)).into()),
        }
        Ok((run, replayed))
    }

    /// Starts a run of the generator and waits for it; returns the run, and whether an earlier request with the same
    /// key started it.
    async fn run_generator(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        message: &str,
        key: Option<&RequestKey>,
    ) -> Result<(Execution, bool), Failure> {
        let actor = ActorRef::system(ACTOR);
        let claims = IdentityClaims { actor, groups: Vec::new(), tenant: Some(caller.tenant) };
        let request = ExecuteRequest {
            slug: builtin_slug(SLUG)?,
            environment: builtin_slug(ENVIRONMENT)?,
            // The generator's prompt uses only the message. The requester and the workspace are inputs so that the
            // evidence contains them.
            payload: RunPayload::Inputs(Map::from_iter([
                ("message".to_owned(), json!(message)),
                ("requested_by".to_owned(), json!(caller.actor.to_string())),
                ("workspace_id".to_owned(), json!(workspace)),
            ])),
            session: None,
            lane: None,
            on_behalf_of: None,
            link: None,
            address: None,
            wait: WaitMode::End(None),
        };
        let mode = self.settings.identity;
        match self.executions.execute(mode, &claims, caller.request_id, &request, key).await {
            Err(failure) if is_missing(&failure) => {
                if self.settings.generator == ProvisioningMode::Off {
                    return Err(GenerateRefusal::Unavailable(None).into());
                }
                if let Err(failure) = self.provision_generator(caller.tenant).await {
                    let error: &dyn std::error::Error = &failure;
                    tracing::error!(
                        error,
                        tenant_id = %caller.tenant,
                        "failed to create the built-in workload fairway-generator; failing the request"
                    );
                    return Err(GenerateRefusal::Unavailable(None).into());
                }
            }
            outcome => return outcome.map(|result| (result.execution, result.replayed)),
        }
        match self.executions.execute(mode, &claims, caller.request_id, &request, key).await {
            Err(failure) if is_missing(&failure) => Err(GenerateRefusal::Unavailable(None).into()),
            outcome => outcome.map(|result| (result.execution, result.replayed)),
        }
    }
}

/// Whether the failure means that the generator does not exist or has no active release.
const fn is_missing(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NotFound
            | Failure::Forbidden(_)
            | Failure::Run(
                RunRefusal::NoActiveRelease { .. }
                    | RunRefusal::NothingToRun
                    | RunRefusal::Suspended
                    | RunRefusal::Retired
            )
    )
}

fn builtin_slug(slug: &'static str) -> Result<Slug, Failure> {
    Slug::parse(slug).map_err(|_| Failure::Inconsistent("a slug of the generator is invalid"))
}

/// Returns the object in the answer of the generator, and whether the local provider generated it.
fn generated_content(run: &Execution) -> Option<(Value, bool)> {
    let stored: Value = serde_json::from_str(run.output.as_ref()?).ok()?;
    let is_local_step = |step: &Value| step.get("provider").and_then(Value::as_str) == Some("local");
    let is_local =
        stored.get("metadata").and_then(Value::as_object).is_some_and(|steps| steps.values().any(is_local_step));
    Some((parse_json_answer(stored.get("output")?.as_str()?)?, is_local))
}

fn is_too_large(run: &Execution) -> bool {
    run.error.as_ref().is_some_and(|error| error.code == "value_too_large")
}

/// Returns the content if it is a valid prompt template without references. References are refused, because the model
/// chose them and they would be resolved with the caller's rights.
async fn validate_draft(scope: TenantScope, content: Value) -> Result<Option<Value>, Failure> {
    let valid_content = match validate(scope, AssetKind::PromptTemplate, content).await {
        Err(Failure::Content(_) | Failure::Canonical(_)) => return Ok(None),
        valid_content => valid_content?,
    };
    let has_references = valid_content.prompt.is_some_and(|prompt| prompt.references().next().is_some());
    if has_references || !valid_content.references.is_empty() {
        return Ok(None);
    }
    let content: Value = serde_json::from_slice(valid_content.canonical.bytes())
        .map_err(|_| Failure::Inconsistent("canonical content is not JSON"))?;
    Ok(content.get("allowed_commands").is_none().then_some(content))
}
