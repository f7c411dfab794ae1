//! Warnings about generated plans: their assumptions and omissions, and inputs that the reused policy bundle needs.

use super::{UseCases, generate::GenerationInput};
use crate::Failure;
use fairway_domain::{
    asset::{
        content::{self, CheckedContent},
        kind::AssetKind,
    },
    flow::{Flow, ToolChoice},
    release::missing_policy_input::{UndeclaredInput, undeclared_inputs},
    slug::Slug,
    tenant::TenantScope,
    use_case::{
        bundle::BundlePlan,
        gaps::{Gap, Gaps, ReferenceProvision},
    },
};

/// Maximum number of names that a warning lists.
const MAX_LISTED_NAMES: usize = 20;
/// Maximum length of a name in a warning, in characters.
const MAX_NAME_CHARS: usize = 100;

/// A warning about a generated plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanWarning {
    /// Stable code of the warning.
    pub code: &'static str,
    /// Human-readable text of the warning.
    pub message: String,
}

impl UseCases {
    /// Returns a warning for each rule of the reused policy bundle that reads an input that the plan lacks. Because of
    /// such a rule, the policy denies the runs of the use case.
    pub(super) async fn policy_input_warnings(
        &self,
        scope: TenantScope,
        plan: &BundlePlan,
        gaps: &Gaps,
    ) -> Result<Vec<PlanWarning>, Failure> {
        let Gap { availability: ReferenceProvision::Reused, reference: Some(slug) } = &gaps.policy_bundle else {
            return Ok(Vec::new());
        };
        let Ok(slug) = Slug::parse(slug) else { return Ok(Vec::new()) };
        let stored = self.asset_store.find_by_slug(scope, &slug, None).await?;
        let Some((_, Some(version))) = stored else { return Ok(Vec::new()) };
        let content = version.content().map_err(|_| Failure::Inconsistent("the content of a version is not JSON"))?;
        let Ok(CheckedContent::PolicyBundle(policy)) = content::parse_existing(AssetKind::PolicyBundle, &content)
        else {
            return Err(Failure::Inconsistent("a stored policy bundle that does not compile"));
        };
        let required =
            policy.inputs_assumed_present().map(|(rule, inputs)| (rule.to_owned(), inputs.into_iter().collect()));
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
}

/// Returns the names that the texts put in backticks, but that are neither an input nor a connection of the plan.
fn unused_names(plan: &BundlePlan, input: GenerationInput<'_>) -> Vec<String> {
    let texts = std::iter::once(input.description).chain(input.notes.iter().map(|note| note.as_str()));
    let mut names: Vec<String> = Vec::new();
    for name in texts.flat_map(|text| text.split('`').skip(1).step_by(2)).map(str::trim) {
        // The local provider may rename an input, so each possible name is compared.
        let field = name.trim_start_matches('_').to_ascii_lowercase();
        let possible_names = [format!("input_{field}"), format!("{field}_text"), field];
        let is_used = plan.inputs().iter().any(|input| possible_names.contains(&input.name))
            || plan.connections().iter().any(|connection| connection.eq_ignore_ascii_case(name));
        let is_short = !name.is_empty() && name.chars().count() <= MAX_NAME_CHARS;
        if is_short && !is_used && names.len() < MAX_LISTED_NAMES && !names.iter().any(|listed| listed == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Whether a step of the plan's flow reads the prompt template.
fn reads_prompt(plan: &BundlePlan) -> bool {
    Flow::from_content(&plan.flow_content())
        .is_ok_and(|flow| flow.referenced_release_roles().contains(&AssetKind::PromptTemplate))
}

/// Whether an agent in the plan's flow may call tools.
fn uses_tools(plan: &BundlePlan) -> bool {
    let flow = Flow::from_content(&plan.flow_content());
    let names_tools = |choice: &ToolChoice| match choice {
        ToolChoice::All => true,
        ToolChoice::Named(names) => !names.is_empty(),
    };
    flow.is_ok_and(|flow| flow.agent_tool_choices().any(names_tools))
}

/// Returns warnings about the assumptions and omissions of a plan, and about the effect of a failed step.
/// `local_input` is the input of the built-in local provider, if that provider generated the plan.
pub(super) fn plan_warnings(
    plan: &BundlePlan,
    gaps: &Gaps,
    local_input: Option<GenerationInput<'_>>,
) -> Vec<PlanWarning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message: String| warnings.push(PlanWarning { code, message });
    if let Some(input) = local_input {
        let message = "no model was called: the built-in provider generated the bundle from its rules";
        warn("local_provider", message.to_owned());
        for name in unused_names(plan, input) {
            let message = format!(
                "the name `{name}` is neither an input nor a connection of the bundle: names of inputs have lower-case \
                 letters, digits and `_`, and a bundle has at most 20"
            );
            warn("name_not_used", message);
        }
        let reused = gaps.connections.iter().filter(|gap| gap.availability == ReferenceProvision::Reused);
        for name in reused.filter_map(|gap| gap.reference.as_deref()) {
            let message = format!("the description mentions the connection `{name}`, so the bundle needs it");
            warn("assumed_connection", message);
        }
    }
    if !reads_prompt(plan) {
        let message = "no step of the flow reads the prompt template of the bundle";
        warn("prompt_not_used", message.to_owned());
    }
    let slug = plan.model_policy_ref();
    warn("assumed_model_policy", format!("the bundle assumes the model policy `{slug}`"));
    if matches!(plan.inputs(), [input] if input.name == "input") {
        warn("assumed_input", "the description names no input, so the bundle assumes one: `input`".to_owned());
    }
    match (gaps.policy_bundle.availability, &gaps.policy_bundle.reference) {
        (ReferenceProvision::MintFresh, _) => {
            let message = "publication makes a policy bundle that allows runs in `dev` and denies them elsewhere";
            warn("assumed_policy", message.to_owned());
        }
        (ReferenceProvision::Reused, Some(slug)) => {
            let message = format!("publication reuses the workspace's policy bundle `{slug}`");
            warn("assumed_policy_bundle", message);
        }
        (ReferenceProvision::Reused | ReferenceProvision::NeedsAccess | ReferenceProvision::NeedsAdmin, _) => {}
    }
    if uses_tools(plan) {
        let message = "agents of the flow call tools: bind their definitions to the release draft before its review";
        warn("tools_not_bound", message.to_owned());
    }
    warn("step_failure_ends_run", "a step that fails without `on_failure` ends the run without an output".to_owned());
    warnings
}
