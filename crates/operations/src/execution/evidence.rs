//! Reading executions and what stands behind them.

use crate::{
    Failure, Services,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{ActorKind, Caller, Place},
    evidence::{ArtifactRow, Chain, DecisionRow, EvidenceRecord},
    execution::{Execution, Status, ports::ExecutionFilter},
    id::{ApprovalId, ExecutionId, ReleaseId, WorkloadId},
    store::{Listed, Paging},
    tenant::TenantScope,
    time::Timestamp,
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

/// Which executions to list.
#[derive(Clone, Debug, Default)]
pub struct ExecutionQuery {
    /// Those of this workload.
    pub workload_id: Option<WorkloadId>,
    /// Those under this release.
    pub release_id: Option<ReleaseId>,
    /// Those in this status.
    pub status: Option<Status>,
    /// Those made at this moment or later.
    pub since: Option<Timestamp>,
    /// Those made before this moment.
    pub until: Option<Timestamp>,
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

    /// Executions without their answers, newest first: those that the caller may see, its own ones no further.
    ///
    /// # Errors
    /// When the caller sees no executions at all.
    pub async fn list_executions(
        &self,
        caller: &Caller,
        query: ExecutionQuery,
        page: Paging,
    ) -> Result<Listed<Execution>, Failure> {
        let (scope, reach) = gate::enter_list(caller, Operation::ListExecutions)?;
        let ExecutionQuery { workload_id: workload, release_id: release, status, since, until } = query;
        let filter = ExecutionFilter { workload, release, status, since, until, reach };
        Ok(self.stores.executions.list(scope, &filter, page).await?)
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
