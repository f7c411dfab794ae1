//! Reading executions and what stands behind them.

use crate::{
    Failure, Services,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{ActorKind, Caller, Permission, Place},
    evidence::{
        ArtifactDocument, EvidenceRecord,
        lineage::{LineageFilter, LineagePage},
    },
    execution::{
        Execution, Status, StepRow,
        ports::{ExecutionFilter, RunState},
    },
    id::{ApprovalId, ArtifactId, ExecutionId, ReleaseId, WorkloadId, WorkspaceId},
    share_link::TokenHash,
    store::{Listed, Paging},
    tenant::TenantScope,
    time::Timestamp,
};

/// How much of what people and models said a reader is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disclosure {
    /// Names, codes, digests, lengths.
    Summary,
    /// Notes, transcripts and the reasons behind as well: to whoever may stop runs where the workload is.
    Operator,
}

/// Whose a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Own {
    /// Who asks may read, follow and stop it without any right.
    Yes,
    /// Who asks needs a right to.
    No,
}

/// One execution as its reader may see it.
#[derive(Clone, Debug)]
pub struct ReadExecution {
    /// The execution, with its answer for its submitter alone.
    pub execution: Execution,
    /// What its steps did; `None` to a submitter who may not see executions there.
    pub steps: Option<Vec<StepRow>>,
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

impl Services {
    /// One execution, to its submitter or to others who may see executions there.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub async fn execution_detail(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<ReadExecution, Failure> {
        let execution = self.read_execution(caller, id, token).await?;
        let place = self.place_of_run(caller, &execution).await?;
        let steps = match gate::enter(caller, Operation::ReadExecution, &place) {
            Ok(scope) => Some(self.stores.executions.steps(scope, id).await?),
            Err(_) => None,
        };
        Ok(ReadExecution { execution, steps })
    }

    /// One execution: to its submitter and to the bearer of its result token with the answer, to others who may see
    /// executions there without.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub async fn read_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<Execution, Failure> {
        self.read_as(caller, id, token, Operation::ReadExecution).await.map(|(execution, _)| execution)
    }

    /// One execution, and whether it is the caller's own: its submitter's, or that of the bearer of its result token.
    pub(super) async fn read_as(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<(Execution, Own), Failure> {
        // A large output waits for its turn to be read, so it is read for those alone who are shown it.
        let (RunState { execution, is_output_left_out }, own) = self.state_as(caller, id, token, operation).await?;
        match own {
            Own::Yes if is_output_left_out => {
                let found = self.stores.executions.find(TenantScope::of(caller), id).await?;
                Ok((found.ok_or(Failure::NotFound)?, Own::Yes))
            }
            Own::Yes => Ok((execution, Own::Yes)),
            Own::No => Ok((Execution { output: None, ..execution }, Own::No)),
        }
    }

    /// The same for operations that show no output: a large one is not read.
    pub(super) async fn state_as(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<(RunState, Own), Failure> {
        let state = self.stores.executions.state(TenantScope::of(caller), id).await?.ok_or(Failure::NotFound)?;
        let own = self.enter_as(caller, &state.execution, token, operation).await?;
        Ok((state, own))
    }

    /// Whether a run is the caller's own. Others need the right to the operation.
    ///
    /// # Errors
    /// Not found when the caller may not see it.
    pub(super) async fn enter_as(
        &self,
        caller: &Caller,
        execution: &Execution,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<Own, Failure> {
        let scope = TenantScope::of(caller);
        if is_submitter(caller, execution) || self.is_result_token(scope, execution.execution_id, token).await? {
            return Ok(Own::Yes);
        }
        let place = self.place_of_run(caller, execution).await?;
        gate::enter(caller, operation, &place)?;
        Ok(Own::No)
    }

    async fn is_result_token(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<bool, Failure> {
        let Some(token) = token else { return Ok(false) };
        Ok(self.stores.share_links.result_token(scope, id).await?.is_some_and(|kept| kept == *token))
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

    /// All that stands behind one execution. Notes to approvals and what was looked for are for operators.
    ///
    /// # Errors
    /// Not found when the caller may not see executions there; forbidden when the run is its own all the same.
    pub async fn evidence(&self, caller: &Caller, id: ExecutionId) -> Result<EvidenceRecord, Failure> {
        let scope = TenantScope::of(caller);
        self.enter_run(caller, Operation::ReadEvidenceGraph, id).await?;
        let mut record = self.stores.executions.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let place = self.enter_evidence(caller, &record.execution, Operation::ReadEvidenceGraph).await?;
        match disclosure(caller, &place) {
            Disclosure::Summary => {
                record.retrievals.iter_mut().for_each(|retrieval| retrieval.query = None);
                record.notes_withheld = true;
            }
            Disclosure::Operator if record.has_notes => {
                let shown: Vec<ApprovalId> =
                    record.chain.approvals.iter().map(|approval| approval.approval_id).collect();
                record.notes = self.stores.executions.approval_notes(scope, &shown).await?;
            }
            Disclosure::Operator => {}
        }
        Ok(record)
    }

    /// One document of an execution's evidence. What people and models said is for operators.
    ///
    /// # Errors
    /// Not found when there is none, or the caller may not see executions there.
    pub async fn evidence_artifact(
        &self,
        caller: &Caller,
        document: (ExecutionId, ArtifactId),
    ) -> Result<ArtifactDocument, Failure> {
        let scope = TenantScope::of(caller);
        self.enter_run(caller, Operation::ReadEvidenceArtifact, document.0).await?;
        let found = self.stores.executions.artifact(scope, document).await?;
        let (execution, mut artifact) = found.ok_or(Failure::NotFound)?;
        let place = self.enter_evidence(caller, &execution, Operation::ReadEvidenceArtifact).await?;
        if disclosure(caller, &place) == Disclosure::Summary {
            artifact.payload_withheld |= artifact.payload.take().is_some();
        }
        Ok(artifact)
    }

    /// A page of what the steps of one execution read.
    ///
    /// # Errors
    /// Not found when the execution is not in that workspace, or the caller may not see executions there.
    pub async fn context_lineage(
        &self,
        caller: &Caller,
        (id, workspace): (ExecutionId, WorkspaceId),
        page: (LineageFilter, u32, u32),
    ) -> Result<(LineagePage, Disclosure), Failure> {
        let scope = TenantScope::of(caller);
        self.enter_run(caller, Operation::ReadContextLineage, id).await?;
        let lineage = self.stores.executions.lineage(scope, id, page).await?.ok_or(Failure::NotFound)?;
        if lineage.execution.workspace_id != workspace {
            return Err(Failure::NotFound);
        }
        let place = self.enter_evidence(caller, &lineage.execution, Operation::ReadContextLineage).await?;
        Ok((lineage, disclosure(caller, &place)))
    }

    /// The place of a run whose evidence the caller may read. The submitter sees its own run, so it is told which permission
    /// is missing.
    async fn enter_evidence(
        &self,
        caller: &Caller,
        execution: &Execution,
        operation: Operation,
    ) -> Result<Place, Failure> {
        let place = self.place_of_run(caller, execution).await?;
        match gate::enter(caller, operation, &place) {
            Ok(_) => Ok(place),
            Err(Failure::NotFound) if is_submitter(caller, execution) => {
                Err(gate::refused(caller, Permission::ExecutionView))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Lets a caller that sees a part of the tenant come to a run before all of the run is read: reading takes longer
    /// than finding nothing, and the time would tell that there is something. What a submitter may read of its own run is
    /// for the operation to say.
    async fn enter_run(&self, caller: &Caller, operation: Operation, id: ExecutionId) -> Result<(), Failure> {
        if caller.rights.reach(Permission::ExecutionView).is_none() {
            return Ok(());
        }
        let home = self.stores.executions.home(TenantScope::of(caller), id).await?.ok_or(Failure::NotFound)?;
        let place = self.place_of_workload(caller, home.workspace, home.workload).await?;
        if home.submitter == caller.actor { Ok(()) } else { gate::enter(caller, operation, &place).map(|_| ()) }
    }

    pub(crate) async fn place_of_run(&self, caller: &Caller, execution: &Execution) -> Result<Place, Failure> {
        self.place_of_workload(caller, execution.workspace_id, execution.workload_id).await
    }
}

/// Whether the caller sent the run. Anybody can call themselves `anonymous`, so that actor owns no run.
fn is_submitter(caller: &Caller, execution: &Execution) -> bool {
    execution.submitter == caller.actor && caller.actor.kind() != ActorKind::Anonymous
}

fn disclosure(caller: &Caller, place: &Place) -> Disclosure {
    if caller.rights.allow(Permission::ExecutionKill, place) { Disclosure::Operator } else { Disclosure::Summary }
}
