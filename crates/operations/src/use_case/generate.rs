//! Generation of bundle plans. The answer of the generator is untrusted, so it is checked like submitted content.

use super::{
    UseCases, connection_access,
    warnings::{PlanWarning, plan_warnings},
};
use crate::{
    Failure,
    access::Operation,
    asset::workspace_and_namespace,
    generator::{GenerateRefusal, GeneratedObject},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{
        Lifecycle,
        kind::AssetKind,
        ports::{AssetFilter, AssetVisibility},
    },
    generator::{MODEL_POLICY_SLUG, bundle_plan_message},
    id::{ExecutionId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    secret::contains_likely_credential,
    store::PageRequest,
    tenant::TenantScope,
    text::is_blank_or_prose,
    use_case::{
        bundle::{BundlePlan, BundleRefusal},
        gaps::{ConnectionAccess, Gap, Gaps, ReferenceProvision, connection_gaps},
    },
};
use serde_json::Value;

/// Maximum number of model policies, and maximum number of connections, that the message to the generator lists.
const MAX_LISTED: u32 = 50;
/// Maximum number of model policies whose approval is checked.
const MAX_MODEL_POLICIES: u32 = 10;
/// Maximum length of a question of the generator, in characters.
const MAX_QUESTION: usize = 1_000;

/// A generated plan; nothing is created from it.
#[derive(Clone, Debug)]
pub struct GeneratedPlan {
    /// The plan, after the checks of submitted plans.
    pub plan: BundlePlan,
    /// Assumptions and omissions of the plan, for its author.
    pub warnings: Vec<PlanWarning>,
    /// How each reference of the plan can be resolved.
    pub gaps: Gaps,
}

/// The outcome of a request to generate a plan.
#[derive(Clone, Debug)]
pub enum PlanOrQuestion {
    /// The generator returned a valid plan.
    Plan(Box<GeneratedPlan>),
    /// The generator returned a question, because the description is too short.
    Question {
        /// The text of the question.
        question: String,
        /// An answer that the generator proposes, if any.
        proposed_answer: Option<String>,
    },
}

/// The outcome of a generation, with the run that produced it.
#[derive(Clone, Debug)]
pub struct GenerationResult {
    /// The plan, or a question.
    pub outcome: PlanOrQuestion,
    /// The run of the generator that produced the outcome.
    pub generation_id: ExecutionId,
    /// Whether an earlier request with the same idempotency key started this run.
    pub replayed: bool,
}

/// Input from which the message to the generator is created.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenerationInput<'i> {
    /// The description of the use case by its author.
    pub(super) description: &'i str,
    /// Changes that the author requested, in the order of the conversation.
    pub(super) notes: &'i [Note],
    /// The plan to refine; `None` for a new use case.
    pub(super) current: Option<&'i BundlePlan>,
}

impl UseCases {
    /// Generates a bundle plan from a description. Only the run of the generator is stored.
    ///
    /// # Errors
    /// In these cases: the caller may not author use cases and create assets in the workspace; the generator is
    /// unavailable; its policy denies the run; the plan is invalid.
    pub async fn generate_plan(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        description: &str,
        key: Option<&RequestKey>,
    ) -> Result<GenerationResult, Failure> {
        let (scope, position) = self.authorize_new(caller, Operation::GenerateUseCase, workspace).await?;
        let input = GenerationInput { description, notes: &[], current: None };
        let message = self.generation_message(caller, scope, &position, input).await?;
        let generated = self.draft_generator.generate_object(caller, workspace, &message, key).await?;
        self.check_generated_plan(caller, scope, &position, generated, input).await
    }

    /// Creates the message to the generator. It contains only names that the caller may see.
    pub(super) async fn generation_message(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        input: GenerationInput<'_>,
    ) -> Result<String, Failure> {
        let workspace = position.workspace.ok_or(Failure::Inconsistent("a position without a workspace"))?;
        let access = connection_access(caller, position);
        let policies = self.approved_model_policies(caller, scope, position).await?;
        let connections = match access {
            // The generator could reveal the names of connections to a caller that may not read them, so they are
            // omitted.
            ConnectionAccess::Hidden => Vec::new(),
            ConnectionAccess::Read | ConnectionAccess::Manage => {
                let page = self.connection_store.list(scope, workspace, PageRequest::first(MAX_LISTED)).await?;
                let names = page.rows.into_iter().map(|connection| connection.into_record().name);
                // The message separates names by commas, so names with a comma are omitted.
                names.filter(|name| !name.contains(',')).collect()
            }
        };
        let notes: Vec<String> = input.notes.iter().map(|note| note.as_str().to_owned()).collect();
        // The generator could reveal the current plan, so the message omits it for a caller that may not read the
        // bundle.
        let sees_bundle = access != ConnectionAccess::Hidden && caller.rights.allow(Permission::AssetView, position);
        let current = input.current.filter(|_| sees_bundle).map(BundlePlan::to_document);
        Ok(bundle_plan_message(input.description, &notes, current.as_ref(), &policies, &connections))
    }

    /// Checks a plan that the generator returned, with the caller's rights.
    pub(super) async fn check_generated_plan(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        generated: GeneratedObject,
        input: GenerationInput<'_>,
    ) -> Result<GenerationResult, Failure> {
        let (generation_id, replayed) = (generated.generation_id, generated.replayed);
        if generated.value.get("needs_clarification") == Some(&Value::Bool(true)) {
            let outcome = clarification(&generated.value).ok_or_else(|| GenerateRefusal::invalid(generation_id))?;
            return Ok(GenerationResult { outcome, generation_id, replayed });
        }
        let plan = match self.check_plan(caller, scope, position, generated.value).await {
            Err(Failure::Bundle(refusal)) => return Err(invalid_plan(generation_id, &refusal).into()),
            checked => checked?,
        };
        let gaps = self.plan_gaps(caller, scope, position, &plan).await?;
        let mut warnings = plan_warnings(&plan, &gaps, generated.is_local.then_some(input));
        warnings.extend(self.policy_input_warnings(scope, &plan, &gaps).await?);
        let outcome = PlanOrQuestion::Plan(Box::new(GeneratedPlan { plan, warnings, gaps }));
        Ok(GenerationResult { outcome, generation_id, replayed })
    }

    /// Returns the slugs of approved model policies: those that the caller and the workspace see, newest first, and
    /// that of the built-in policy.
    async fn approved_model_policies(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
    ) -> Result<Vec<String>, Failure> {
        let (workspace, namespace) = workspace_and_namespace(position)?;
        let visibility = AssetVisibility::FromWorkspace {
            namespace,
            workspace: position.workspace,
            principals: caller.principals(),
        };
        let filter = AssetFilter { visibility, kind: Some(AssetKind::ModelPolicy), lifecycle: Some(Lifecycle::Active) };
        let from_workspace =
            self.asset_store.list_owned_active(scope, namespace, workspace, AssetKind::ModelPolicy, MAX_MODEL_POLICIES);
        let from_workspace = from_workspace.await?;
        let page = self.asset_store.list(scope, &filter, PageRequest::first(MAX_LISTED)).await?;
        let from_other_workspaces =
            page.rows.into_iter().filter(|asset| !asset.is_builtin() && asset.workspace_id != workspace);
        let mut slugs = Vec::new();
        for asset in
            from_workspace.into_iter().chain(from_other_workspaces).zip(0..MAX_MODEL_POLICIES).map(|(asset, _)| asset)
        {
            if !self.assets.sees_asset(caller, &asset, Some(position)).await? {
                continue;
            }
            match self.usable_model_policy(caller, scope, position, &asset.slug).await {
                Ok(_) => slugs.push(asset.slug.to_string()),
                Err(Failure::UseCase(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        slugs.push(MODEL_POLICY_SLUG.to_owned());
        Ok(slugs)
    }

    async fn plan_gaps(
        &self,
        caller: &Caller,
        scope: TenantScope,
        position: &ResourcePosition,
        plan: &BundlePlan,
    ) -> Result<Gaps, Failure> {
        let workspace = position.workspace.ok_or(Failure::Inconsistent("a position without a workspace"))?;
        let access = connection_access(caller, position);
        let connections = self.connection_store.find_named(scope, workspace, plan.connections()).await?;
        let policy_bundle = match self.sole_policy_bundle(scope, position).await? {
            Some(asset) => {
                if self.assets.sees_asset(caller, &asset, Some(position)).await? {
                    Gap { availability: ReferenceProvision::Reused, reference: Some(asset.slug.to_string()) }
                } else {
                    Gap { availability: ReferenceProvision::NeedsAdmin, reference: None }
                }
            }
            None => Gap { availability: ReferenceProvision::MintFresh, reference: None },
        };
        Ok(Gaps {
            model_policy: Gap {
                availability: ReferenceProvision::Reused,
                reference: Some(plan.model_policy_ref().to_string()),
            },
            policy_bundle,
            connections: connection_gaps(plan, &connections, access),
            redacted: access == ConnectionAccess::Hidden,
        })
    }
}

/// Returns the refusal of a generated plan, with the path and code of each invalid member.
fn invalid_plan(execution_id: ExecutionId, refusal: &BundleRefusal) -> GenerateRefusal {
    let mut problems = Vec::new();
    if let BundleRefusal::Invalid(bundle_problems) = refusal {
        for problem in bundle_problems.iter().map(|problem| (problem.member_path(), problem.code)) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    GenerateRefusal::Invalid { execution_id, problems }
}

/// Returns the generator's question, if it is plain text without credentials.
fn clarification(answer: &Value) -> Option<PlanOrQuestion> {
    let text = |name: &str| {
        let text = answer.get(name).and_then(Value::as_str)?;
        let is_plain =
            is_blank_or_prose(text, MAX_QUESTION) && !text.contains('<') && !contains_likely_credential(text);
        is_plain.then(|| text.to_owned())
    };
    let question = text("question").filter(|question| !question.trim().is_empty())?;
    Some(PlanOrQuestion::Question { question, proposed_answer: text("proposed_answer") })
}
