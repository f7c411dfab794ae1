//! The gates of a release: the requirements for each possible next state.

use super::activation_checks::CheckScope;
use crate::{Failure, access::Operation, release::Releases};
use fairway_domain::{
    access::Caller,
    id::ReleaseId,
    release::{
        StateName,
        activate::ActivationReport,
        gate::{Gate, GateContext, documents_gate},
        vector_search_warnings::vector_gates,
    },
};

impl Releases {
    /// Returns every gate of every possible next state, as currently evaluated.
    ///
    /// # Errors
    /// Not found when the caller does not see the release.
    pub async fn release_gates(&self, caller: &Caller, id: ReleaseId) -> Result<Vec<Gate>, Failure> {
        let (scope, position, release_with_deployment) =
            self.authorize_release(caller, Operation::ReadReleaseGates, id).await?;
        let (release, deployment) = (&release_with_deployment.release, &release_with_deployment.deployment);
        let next_states = release.valid_transitions(deployment);
        let unresolved = if next_states.contains(&StateName::ReviewReady) {
            self.resolve_references(caller, &position, release).await?.err().unwrap_or_default()
        } else {
            Vec::new()
        };
        // The searches of an active release are included. It may still serve the index revisions with which it was
        // approved, and operators must see their state.
        let is_served = next_states.contains(&StateName::Active) || release.state.name() == StateName::Active;
        let searches = if is_served { self.vector_reports(scope, release).await? } else { Vec::new() };
        // The activation checks run for every earlier state, from the draft on. Before the approval, the gates show
        // them as warnings.
        let precedes_activation =
            |state: &StateName| matches!(state, StateName::ReviewReady | StateName::Approved | StateName::Active);
        let report = if next_states.iter().any(precedes_activation) {
            self.activation_report(scope, release, CheckScope::All(&searches)).await?
        } else {
            ActivationReport::unchecked()
        };
        let rule = self.approval_rule(scope, release).await?;
        let gate_context = GateContext {
            deployment,
            approval_rule: rule,
            activation_report: &report,
            unresolved_references: &unresolved,
        };
        let mut gates = release.gates(&gate_context);
        if is_served {
            gates.extend(documents_gate(&self.index_revision_store.release_pins(scope, id).await?));
            gates.extend(vector_gates(&searches));
        }
        Ok(gates)
    }
}
