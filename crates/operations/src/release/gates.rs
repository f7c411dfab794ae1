//! The gates of a release: the requirements for each possible next state.

use super::activation_checks::CheckScope;
use crate::{Failure, access::Operation, release::Releases};
use fairway_domain::{
    access::Caller,
    asset::kind::AssetKind,
    id::ReleaseId,
    release::{
        Release, StateName,
        activate::{ActivationReport, FlowStatus},
        gate::{Gate, GateContext, documents_gate},
        vector_gate::vector_gates,
    },
    tenant::TenantScope,
};

impl Releases {
    /// Returns every gate of every possible next state, in its current evaluation.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn release_gates(&self, caller: &Caller, id: ReleaseId) -> Result<Vec<Gate>, Failure> {
        let (scope, position, placed) = self.authorize_release(caller, Operation::ReadReleaseGates, id).await?;
        let (release, deployment) = (&placed.release, &placed.deployment);
        let next = release.valid_transitions(deployment);
        let unresolved = if next.contains(&StateName::ReviewReady) {
            self.resolve_references(caller, &position, release).await?.err().unwrap_or_default()
        } else {
            Vec::new()
        };
        // The searches of an active release are checked too. It continues to use the index revisions with which it
        // was approved, and operators must see their state.
        let is_served = next.contains(&StateName::Active) || release.state.name() == StateName::Active;
        let searches = if is_served { self.vector_reports(scope, release).await? } else { Vec::new() };
        let report = if next.contains(&StateName::Active) {
            self.activation_report(scope, release, CheckScope::All(&searches)).await?
        } else if next.contains(&StateName::Approved) {
            self.review_report(scope, release).await?
        } else {
            ActivationReport::unchecked()
        };
        let rule = self.approval_rule(scope, release).await?;
        let around = GateContext {
            deployment,
            approval_rule: rule,
            activation_report: &report,
            unresolved_references: &unresolved,
        };
        let mut gates = release.gates(&around);
        if is_served {
            gates.extend(documents_gate(&self.index_revision_store.release_pins(scope, id).await?));
            gates.extend(vector_gates(&searches));
        }
        Ok(gates)
    }

    /// Evaluates the facts that reviewers are warned about before an approval.
    async fn review_report(&self, scope: TenantScope, release: &Release) -> Result<ActivationReport, Failure> {
        let flow = release.bindings.iter().find(|binding| binding.role == AssetKind::OrchestrationFlow);
        let flow = match flow {
            Some(binding) => self.flow_status(scope, binding).await?,
            None => FlowStatus::Absent,
        };
        Ok(ActivationReport {
            undeclared_inputs: self.undeclared_inputs(scope, release, &flow).await?,
            is_use_case_inactive: self.is_use_case_inactive(scope, release).await?,
            ..ActivationReport::unchecked()
        })
    }
}
