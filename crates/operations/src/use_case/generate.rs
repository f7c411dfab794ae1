//! Generation of bundle plans: the generator's answer is a stranger's content.

use super::{UseCases, connection_access};
use crate::{
    Failure,
    access::Operation,
    asset::home_of,
    generator::{GenerateRefusal, GeneratedObject},
};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{
        Lifecycle,
        content::{self, CheckedContent},
        kind::AssetKind,
        ports::{AssetFilter, AssetVisibility},
    },
    flow::{Flow, ToolChoice},
    generator::{MODEL_SLUG, bundle_message},
    id::{ExecutionId, WorkspaceId},
    idempotency::RequestKey,
    note::Note,
    release::policy_input::{UndeclaredInput, undeclared_inputs},
    secret::has_credential,
    slug::Slug,
    store::PageRequest,
    tenant::TenantScope,
    text::is_prose,
    use_case::{
        bundle::{BundlePlan, BundleRefusal},
        gaps::{ConnectionAccess, Gap, GapKind, Gaps, connection_gaps},
    },
};
use serde_json::Value;

/// The maximum number of model policies and of connections that the generator learns of.
const MAX_LISTED: u32 = 50;
/// The maximum number of model policies whose approval is checked.
const MAX_MODEL_POLICIES: u32 = 10;
/// The maximum length of a question, in characters.
const MAX_QUESTION: usize = 1_000;

/// A remark about a generated plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanWarning {
    /// The stable code.
    pub code: &'static str,
    /// The message for people.
    pub message: String,
}

/// A generated plan. Nothing is created from it.
#[derive(Clone, Debug)]
pub struct GeneratedPlan {
    /// The plan.
    pub plan: BundlePlan,
    /// Remarks for the author.
    pub warnings: Vec<PlanWarning>,
    /// The gaps of its references.
    pub gaps: Gaps,
}

/// The outcome of a generation.
#[derive(Clone, Debug)]
pub enum Generation {
    /// A plan.
    Plan(Box<GeneratedPlan>),
    /// The description is too short; a question with a proposed answer.
    Question {
        /// The question.
        question: String,
        /// The proposed answer, if the generator has one.
        proposed_answer: Option<String>,
    },
}

/// The outcome of a generation, with its run.
#[derive(Clone, Debug)]
pub struct GenerationResult {
    /// The outcome.
    pub outcome: Generation,
    /// The run of the generator.
    pub generation_id: ExecutionId,
    /// Whether an earlier request with the same key started the run.
    pub replayed: bool,
}

/// What the generator works from.
#[derive(Clone, Copy, Debug)]
pub(super) struct GenerationInput<'i> {
    /// The description of the use case.
    pub(super) description: &'i str,
    /// What to change, in the order of the conversation.
    pub(super) notes: &'i [Note],
    /// The plan to refine.
    pub(super) current: Option<&'i BundlePlan>,
}

impl UseCases {
    /// Generates a bundle plan from a description. Only the generator's run is stored.
    ///
    /// # Errors
    /// When the caller may not author use cases and create assets there, the generator is not available or its policy
    /// denies the run, or the plan is invalid.
    pub async fn generate_plan(
        &self,
        caller: &Caller,
        workspace: WorkspaceId,
        description: &str,
        key: Option<&RequestKey>,
    ) -> Result<GenerationResult, Failure> {
        let (scope, place) = self.authorize_new(caller, Operation::GenerateUseCase, workspace).await?;
        let input = GenerationInput { description, notes: &[], current: None };
        let message = self.generation_message(caller, scope, &place, input).await?;
        let answer = self.generators.generate_object(caller, workspace, &message, key).await?;
        self.check_generated(caller, scope, &place, answer).await
    }

    /// The message to the generator. It names nothing that the caller may not see.
    pub(super) async fn generation_message(
        &self,
        caller: &Caller,
        scope: TenantScope,
        place: &ResourcePosition,
        input: GenerationInput<'_>,
    ) -> Result<String, Failure> {
        let workspace = place.workspace.ok_or(Failure::Inconsistent("a position without a workspace"))?;
        let access = connection_access(caller, place);
        let policies = self.approved_model_policies(caller, scope, place).await?;
        let known = match access {
            // The generator must not reveal names to a caller that may not see them.
            ConnectionAccess::Hidden => Vec::new(),
            ConnectionAccess::Read | ConnectionAccess::Manage => {
                let page = self.connection_store.list(scope, workspace, PageRequest::first(MAX_LISTED)).await?;
                page.rows.into_iter().map(|connection| connection.into_record().name).collect()
            }
        };
        let notes: Vec<String> = input.notes.iter().map(|note| note.as_str().to_owned()).collect();
        // A caller that may not read the bundle must not learn of it from the generator.
        let sees_bundle = access != ConnectionAccess::Hidden && caller.rights.allow(Permission::AssetView, place);
        let current = input.current.filter(|_| sees_bundle).map(BundlePlan::to_document);
        Ok(bundle_message(input.description, &notes, current.as_ref(), &policies, &known))
    }

    /// Checks an answer of the generator with the caller's rights.
    pub(super) async fn check_generated(
        &self,
        caller: &Caller,
        scope: TenantScope,
        place: &ResourcePosition,
        answer: GeneratedObject,
    ) -> Result<GenerationResult, Failure> {
        let (generation_id, replayed) = (answer.generation_id, answer.replayed);
        if answer.value.get("needs_clarification") == Some(&Value::Bool(true)) {
            let outcome = clarification(&answer.value).ok_or_else(|| GenerateRefusal::invalid(generation_id))?;
            return Ok(GenerationResult { outcome, generation_id, replayed });
        }
        let plan = match self.check_plan(caller, scope, place, answer.value).await {
            Err(Failure::Bundle(refusal)) => return Err(invalid_plan(generation_id, &refusal).into()),
            checked => checked?,
        };
        let gaps = self.plan_gaps(caller, scope, place, &plan).await?;
        let mut warnings = warnings(&plan, &gaps, answer.is_local);
        warnings.extend(self.policy_input_warnings(scope, &plan, &gaps).await?);
        let outcome = Generation::Plan(Box::new(GeneratedPlan { plan, warnings, gaps }));
        Ok(GenerationResult { outcome, generation_id, replayed })
    }

    /// The slugs of the approved model policies that the caller and the workspace see, its newest first, and the built-in
    /// one.
    async fn approved_model_policies(
        &self,
        caller: &Caller,
        scope: TenantScope,
        place: &ResourcePosition,
    ) -> Result<Vec<String>, Failure> {
        let (workspace, namespace) = home_of(place)?;
        let visibility =
            AssetVisibility::FromWorkspace { namespace, workspace: place.workspace, principals: caller.principals() };
        let filter = AssetFilter { visibility, kind: Some(AssetKind::ModelPolicy), lifecycle: Some(Lifecycle::Active) };
        let own =
            self.asset_store.own_active(scope, (namespace, workspace), AssetKind::ModelPolicy, MAX_MODEL_POLICIES);
        let own = own.await?;
        let visible = self.asset_store.list(scope, &filter, PageRequest::first(MAX_LISTED)).await?;
        let others = visible.rows.into_iter().filter(|asset| !asset.is_builtin() && asset.workspace_id != workspace);
        let mut slugs = Vec::new();
        for asset in own.into_iter().chain(others).zip(0..MAX_MODEL_POLICIES).map(|(asset, _)| asset) {
            if !self.assets.sees_asset(caller, &asset, Some(place)).await? {
                continue;
            }
            match self.approved_model_policy(caller, scope, place, &asset.slug).await {
                Ok(_) => slugs.push(asset.slug.to_string()),
                Err(Failure::UseCase(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        slugs.push(MODEL_SLUG.to_owned());
        Ok(slugs)
    }

    /// Warnings about rules of the reused policy bundle that read inputs which the plan lacks. Their runs are denied.
    async fn policy_input_warnings(
        &self,
        scope: TenantScope,
        plan: &BundlePlan,
        gaps: &Gaps,
    ) -> Result<Vec<PlanWarning>, Failure> {
        let Gap { kind: GapKind::Reused, reference: Some(slug) } = &gaps.policy_bundle else { return Ok(Vec::new()) };
        let Ok(slug) = Slug::parse(slug) else { return Ok(Vec::new()) };
        let found = self.asset_store.find_by_slug(scope, &slug, None).await?;
        let Some((_, Some(version))) = found else { return Ok(Vec::new()) };
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let Ok(CheckedContent::PolicyBundle(policy)) = content::read(AssetKind::PolicyBundle, &content) else {
            return Err(Failure::Inconsistent("a stored policy bundle that does not compile"));
        };
        let required = policy.required_inputs().map(|(rule, inputs)| (rule.to_owned(), inputs.into_iter().collect()));
        let required: Vec<(String, Vec<String>)> = required.collect();
        let declared: Vec<&str> = plan.inputs().iter().map(|input| input.name.as_str()).collect();
        let undeclared = undeclared_inputs(&required, &declared, &[]).into_iter();
        let warning = |UndeclaredInput { rule, input }| PlanWarning {
            code: "policy_input_undeclared",
            message: format!(
                "the rule `{rule}` of the policy bundle `{slug}` reads the input `{input}`, which the bundle lacks: its \
                 runs are denied until the description or the policy changes"
            ),
        };
        Ok(undeclared.map(warning).collect())
    }

    async fn plan_gaps(
        &self,
        caller: &Caller,
        scope: TenantScope,
        place: &ResourcePosition,
        plan: &BundlePlan,
    ) -> Result<Gaps, Failure> {
        let workspace = place.workspace.ok_or(Failure::Inconsistent("a position without a workspace"))?;
        let access = connection_access(caller, place);
        let connections = self.connection_store.find_named(scope, workspace, plan.connections()).await?;
        let policy_bundle = match self.sole_policy_bundle(scope, place).await? {
            Some(asset) => {
                if self.assets.sees_asset(caller, &asset, Some(place)).await? {
                    Gap { kind: GapKind::Reused, reference: Some(asset.slug.to_string()) }
                } else {
                    Gap { kind: GapKind::NeedsAdmin, reference: None }
                }
            }
            None => Gap { kind: GapKind::MintFresh, reference: None },
        };
        Ok(Gaps {
            model_policy: Gap { kind: GapKind::Reused, reference: Some(plan.model_policy_ref().to_string()) },
            policy_bundle,
            connections: connection_gaps(plan, &connections, access),
            redacted: access == ConnectionAccess::Hidden,
        })
    }
}

/// The refusal of a generated plan, with the members that have problems.
fn invalid_plan(execution_id: ExecutionId, refusal: &BundleRefusal) -> GenerateRefusal {
    let mut problems = Vec::new();
    if let BundleRefusal::Invalid(found) = refusal {
        for problem in found.iter().map(|problem| (problem.member_path(), problem.code)) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    GenerateRefusal::Invalid { execution_id, problems }
}

/// The generator's question, if it is plain text without secrets.
fn clarification(answer: &Value) -> Option<Generation> {
    let text = |name: &str| {
        let text = answer.get(name).and_then(Value::as_str)?;
        let is_plain = is_prose(text, MAX_QUESTION) && !text.contains('<') && !has_credential(text);
        is_plain.then(|| text.to_owned())
    };
    let question = text("question").filter(|question| !question.trim().is_empty())?;
    Some(Generation::Question { question, proposed_answer: text("proposed_answer") })
}

/// Whether an agent of the flow may call tools.
fn uses_tools(plan: &BundlePlan) -> bool {
    let flow = Flow::from_content(&plan.flow_content());
    let names_tools = |choice: &ToolChoice| match choice {
        ToolChoice::All => true,
        ToolChoice::Named(names) => !names.is_empty(),
    };
    flow.is_ok_and(|flow| flow.agent_tool_choices().any(names_tools))
}

/// What was assumed, and what happens when a step fails.
fn warnings(plan: &BundlePlan, gaps: &Gaps, is_local: bool) -> Vec<PlanWarning> {
    let mut found = Vec::new();
    let mut warn = |code, message: String| found.push(PlanWarning { code, message });
    if is_local {
        let message = "no model was called: the built-in provider generated the bundle from its rules";
        warn("local_provider", message.to_owned());
    }
    let slug = plan.model_policy_ref();
    warn("assumed_model_policy", format!("the bundle assumes the model policy `{slug}`"));
    if matches!(plan.inputs(), [input] if input.name == "input") {
        warn("assumed_input", "the description names no input, so the bundle assumes one: `input`".to_owned());
    }
    match (gaps.policy_bundle.kind, &gaps.policy_bundle.reference) {
        (GapKind::MintFresh, _) => {
            let message = "publication makes a policy bundle that allows runs in `dev` and denies them elsewhere";
            warn("assumed_policy", message.to_owned());
        }
        (GapKind::Reused, Some(slug)) => {
            let message = format!("publication reuses the workspace's policy bundle `{slug}`");
            warn("assumed_policy_bundle", message);
        }
        (GapKind::Reused | GapKind::NeedsAccess | GapKind::NeedsAdmin, _) => {}
    }
    if uses_tools(plan) {
        let message = "agents of the flow call tools: bind their definitions to the release draft before its review";
        warn("tools_not_bound", message.to_owned());
    }
    warn("step_failure_ends_run", "a step that fails without `on_failure` ends the run without an output".to_owned());
    found
}
