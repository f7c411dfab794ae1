//! Reading executions and what stands behind them.

use crate::{
    Failure, Services,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{ActorKind, Caller, Place},
    evidence::{ArtifactRow, Chain, DecisionRow, EvidenceRecord},
    execution::Execution,
    id::{ApprovalId, ExecutionId},
    tenant::TenantScope,
};

/// The governance chain of one execution, section by section.
#[derive(Clone, Debug)]
pub struct FlatEvidence {
    /// The execution.
    pub execution: Execution,
    /// Release, workload, bindings and approvals as the run found them.
    pub chain: Chain,
    /// The strictest decision of the run.
    pub decision: DecisionRow,
    /// Documents kept as evidence.
    pub artifacts: Vec<ArtifactRow>,
    notes: Vec<(ApprovalId, String)>,
}

impl FlatEvidence {
    /// The note to an approval, while it is kept.
    #[must_use]
    pub fn note(&self, approval: ApprovalId) -> Option<&str> {
        self.notes.iter().find(|(id, _)| *id == approval).map(|(_, note)| note.as_str())
    }
}

impl Services {
    /// One execution: to its submitter with the answer, to others who may see executions there without.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub async fn read_execution(&self, caller: &Caller, id: ExecutionId) -> Result<Execution, Failure> {
        let scope = TenantScope::of(caller);
        let execution = self.stores.executions.find(scope, id).await?.ok_or(Failure::NotFound)?;
        // Anybody can call themselves nobody, so nobody owns no run.
        let own = execution.submitter == caller.actor && caller.actor.kind() != ActorKind::Anonymous;
        if own {
            return Ok(execution);
        }
        let place = self.place_of_run(caller, &execution).await?;
        gate::enter(caller, Operation::ReadExecution, &place)?;
        Ok(Execution { output: None, ..execution })
    }

    /// All that stands behind one execution.
    ///
    /// # Errors
    /// Not found when the caller may not see executions there.
    pub async fn evidence(&self, caller: &Caller, id: ExecutionId) -> Result<FlatEvidence, Failure> {
        let scope = TenantScope::of(caller);
        let EvidenceRecord { execution, chain, decision, artifacts, notes } =
            self.stores.executions.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let place = self.place_of_run(caller, &execution).await?;
        gate::enter(caller, Operation::ReadEvidenceGraph, &place)?;
        Ok(FlatEvidence { execution, chain, decision, artifacts, notes })
    }

    async fn place_of_run(&self, caller: &Caller, execution: &Execution) -> Result<Place, Failure> {
        self.place_of_workload(caller, execution.workspace_id, execution.workload_id).await
    }
}
