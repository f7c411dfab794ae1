//! Compares the declared inputs of runs with the inputs that the bound policy and the bound prompt need.

use super::{activation_checks::ROLE_MISMATCH, evaluated_content::EvaluatedContent};
use crate::{Failure, release::Releases};
use fairway_domain::{
    asset::kind::AssetKind,
    release::{
        Binding, Release,
        activate::FlowStatus,
        missing_policy_input::{UndeclaredInput, undeclared_inputs},
        unpassed_prompt_variable::{UnpassedVariable, unpassed_variables},
    },
    tenant::TenantScope,
    workload::interface::{InputField, InterfaceConfig},
};

/// The inputs that the interface of the workload and the trigger of the flow declare.
pub(super) struct DeclaredInputs {
    interface: Vec<String>,
    trigger: Vec<String>,
}

impl DeclaredInputs {
    fn interface(&self) -> Vec<&str> {
        self.interface.iter().map(String::as_str).collect()
    }
}

fn find_binding(release: &Release, role: AssetKind) -> Option<&Binding> {
    release.bindings.iter().find(|binding| binding.role == role)
}

impl Releases {
    /// Returns the inputs that are declared for runs of the release.
    pub(super) async fn declared_inputs(
        &self,
        scope: TenantScope,
        release: &Release,
        flow: &FlowStatus,
    ) -> Result<DeclaredInputs, Failure> {
        let workload = self.workloads.workload_of(scope, release.workload_id).await?;
        let fields = workload.interface_config.as_ref().map(InterfaceConfig::input_fields).unwrap_or_default();
        let trigger = match flow {
            FlowStatus::Valid { declared_inputs, .. } => declared_inputs.clone(),
            FlowStatus::Absent | FlowStatus::Invalid => Vec::new(),
        };
        let interface = fields.iter().map(InputField::name).map(str::to_owned).collect();
        Ok(DeclaredInputs { interface, trigger })
    }

    /// Returns the inputs that rules of the bound policy require and that are not declared.
    pub(super) async fn undeclared_inputs(
        &self,
        scope: TenantScope,
        release: &Release,
        declared: &DeclaredInputs,
    ) -> Result<Vec<UndeclaredInput>, Failure> {
        let Some(binding) = find_binding(release, AssetKind::PolicyBundle) else { return Ok(Vec::new()) };
        let summary = self.evaluated_content(scope, binding).await?;
        let EvaluatedContent::Policy { required_inputs, .. } = &*summary else { return Err(ROLE_MISMATCH) };
        Ok(undeclared_inputs(required_inputs, &declared.interface(), &declared.trigger))
    }

    /// Returns the variables of the bound prompt that neither a step of the bound flow passes nor an input supplies.
    /// Variables of included prompts count once the references to these prompts are resolved.
    pub(super) async fn unpassed_variables(
        &self,
        scope: TenantScope,
        release: &Release,
        declared: &DeclaredInputs,
    ) -> Result<Vec<UnpassedVariable>, Failure> {
        let prompt = find_binding(release, AssetKind::PromptTemplate);
        let (Some(prompt), Some(flow)) = (prompt, find_binding(release, AssetKind::OrchestrationFlow)) else {
            return Ok(Vec::new());
        };
        let flow = self.evaluated_content(scope, flow).await?;
        let EvaluatedContent::Flow { prompt_steps, .. } = &*flow else { return Err(ROLE_MISMATCH) };
        let included =
            release.references.iter().filter(|reference| reference.from_version_id == prompt.asset_version_id);
        let included = included.map(|reference| reference.asset_version_id);
        let versions: Vec<_> = std::iter::once(prompt.asset_version_id).chain(included).collect();
        let mut variables: Vec<String> = Vec::new();
        for version in versions {
            let summary = self.version_summary(scope, version).await?;
            // An included skill has no variables.
            if let EvaluatedContent::Prompt { arguments } = &*summary {
                variables.extend(arguments.iter().cloned());
            }
        }
        variables.sort_unstable();
        variables.dedup();
        let slug = prompt.asset_slug.as_str();
        Ok(unpassed_variables(slug, &variables, prompt_steps, &declared.interface(), &declared.trigger))
    }
}
