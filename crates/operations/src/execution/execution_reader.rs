//! Reading executions and their evidence.

use crate::{
    Failure, Stores,
    access::{Operation, ScopeResolver, authorize},
    anonymous_rate_limit::RateLimits,
    services::{CommonOperations, SharedState},
    wakeups::Wakeups,
};
use fairway_domain::{
    access::{ActorKind, ActorRef, Caller, Permission, ResourcePosition},
    evidence::{
        EvidenceArtifactWithContent, RunEvidence,
        lineage::{LineageFilter, LineagePage},
    },
    execution::{
        Execution, Status, StepRow,
        ports::{EventStore, ExecutionFilter, ExecutionReadStore, StoredRun},
        usage::{ListedExecution, RunUsageSummary},
    },
    id::{ApprovalId, ArtifactId, ExecutionId, ReleaseId, WorkloadId, WorkspaceId},
    release::lane::Lane,
    share_link::{ShareLinkStore, TokenHash},
    slug::Slug,
    store::{Page, PageRequest},
    tenant::TenantScope,
    time::Timestamp,
    workload::ports::WorkloadStore,
};
use std::sync::Arc;

/// Level of detail that a reader of evidence receives, by its permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disclosure {
    /// Names, codes, digests and lengths.
    Summary,
    /// Also texts (notes, transcripts and other payloads, retrieval queries), and the decisions and reasons in lineage,
    /// for callers that may cancel runs in the workload's scope.
    Operator,
}

/// Relation between the caller and a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ownership {
    /// The caller submitted the run, or presents its result token. It may read and cancel the run without a
    /// permission.
    Own,
    /// The run belongs to another caller, so the caller needs a permission.
    Other,
}

/// An execution with the details that the caller may see.
#[derive(Clone, Debug)]
pub struct ExecutionDetail {
    /// The execution, with its output for the submitter only.
    pub execution: Execution,
    /// The steps of the run; `None` for a caller that reads its own run without the permission to view executions.
    pub steps: Option<Vec<StepRow>>,
    /// Workload, tokens and cost of the run; `None` under the same condition as `steps`.
    pub summary: Option<RunUsageSummary>,
}

/// Filter of an execution list.
#[derive(Clone, Debug, Default)]
pub struct ExecutionQuery {
    /// Only executions of this workload.
    pub workload_id: Option<WorkloadId>,
    /// Only executions of this release.
    pub release_id: Option<ReleaseId>,
    /// Only executions in this status.
    pub status: Option<Status>,
    /// Only executions in this environment.
    pub environment: Option<Slug>,
    /// Only executions on this lane.
    pub lane: Option<Lane>,
    /// Only executions with this error code.
    pub error_code: Option<String>,
    /// Only executions of this submitter.
    pub submitted_by: Option<ActorRef>,
    /// Only executions created at this time or later.
    pub since: Option<Timestamp>,
    /// Only executions created before this time.
    pub until: Option<Timestamp>,
}

/// Reads executions, their events and their evidence.
pub struct ExecutionReader {
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) execution_store: Arc<dyn ExecutionReadStore>,
    pub(crate) event_store: Arc<dyn EventStore>,
    pub(crate) share_link_store: Arc<dyn ShareLinkStore>,
    pub(crate) workload_store: Arc<dyn WorkloadStore>,
    pub(crate) scope_resolver: Arc<ScopeResolver>,
    pub(crate) rate_limits: Arc<RateLimits>,
}

impl ExecutionReader {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            wakeups: shared.wakeups.subscriptions(),
            execution_store: Arc::clone(&stores.executions),
            event_store: Arc::clone(&stores.events),
            share_link_store: Arc::clone(&stores.share_links),
            workload_store: Arc::clone(&stores.workloads),
            scope_resolver: Arc::clone(&common.scope_resolver),
            rate_limits: Arc::clone(&common.rate_limits),
        }
    }
}

impl ExecutionReader {
    /// Returns one execution with details, for its submitter and for callers that may view executions in its scope.
    ///
    /// # Errors
    /// Not found when the caller may not see the execution.
    pub async fn execution_detail(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<ExecutionDetail, Failure> {
        let execution = self.read_execution(caller, id, token).await?;
        let position = self.position_of_run(caller, &execution).await?;
        let Ok(scope) = authorize::authorize(caller, Operation::ReadExecution, &position) else {
            return Ok(ExecutionDetail { execution, steps: None, summary: None });
        };
        let steps = self.event_store.steps(scope, id).await?;
        let summary = self.execution_store.summary(scope, id).await?;
        Ok(ExecutionDetail { execution, steps: Some(steps), summary })
    }

    /// Returns one execution. Its submitter and the bearer of its result token receive the output; callers with the
    /// permission to view executions in its scope do not.
    ///
    /// # Errors
    /// Not found when the caller may not see the execution.
    pub async fn read_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<Execution, Failure> {
        self.read_with_ownership(caller, id, token, Operation::ReadExecution).await.map(|(execution, _)| execution)
    }

    /// Returns one execution, and whether the caller owns it. The submitter and the bearer of its result token own it.
    pub(super) async fn read_with_ownership(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<(Execution, Ownership), Failure> {
        // Reading a large output waits for memory. The server therefore reads it only for a caller that may see it.
        let (StoredRun { execution, is_output_omitted }, ownership) =
            self.state_with_ownership(caller, id, token, operation).await?;
        match ownership {
            Ownership::Own if is_output_omitted => {
                let execution = self.execution_store.find(TenantScope::for_caller(caller), id).await?;
                Ok((execution.ok_or(Failure::NotFound)?, Ownership::Own))
            }
            Ownership::Own => Ok((execution, Ownership::Own)),
            Ownership::Other => Ok((Execution { output: None, ..execution }, Ownership::Other)),
        }
    }

    /// Returns the same as [`Self::read_with_ownership`], but without a large output, for operations that do not need
    /// it.
    pub(super) async fn state_with_ownership(
        &self,
        caller: &Caller,
        id: ExecutionId,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<(StoredRun, Ownership), Failure> {
        let state =
            self.execution_store.find_state(TenantScope::for_caller(caller), id).await?.ok_or(Failure::NotFound)?;
        let ownership = self.authorize_run_access(caller, &state.execution, token, operation).await?;
        Ok((state, ownership))
    }

    /// Determines whether the caller owns a run. A caller that does not own the run needs the operation's permission.
    ///
    /// # Errors
    /// Not found when the caller may not see the run.
    pub(super) async fn authorize_run_access(
        &self,
        caller: &Caller,
        execution: &Execution,
        token: Option<&TokenHash>,
        operation: Operation,
    ) -> Result<Ownership, Failure> {
        let scope = TenantScope::for_caller(caller);
        if is_submitter(caller, execution) || self.is_result_token(scope, execution.execution_id, token).await? {
            return Ok(Ownership::Own);
        }
        let position = self.position_of_run(caller, execution).await?;
        authorize::authorize(caller, operation, &position)?;
        Ok(Ownership::Other)
    }

    async fn is_result_token(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        token: Option<&TokenHash>,
    ) -> Result<bool, Failure> {
        let Some(token) = token else { return Ok(false) };
        Ok(self.share_link_store.result_token(scope, id).await?.is_some_and(|stored_token| stored_token == *token))
    }

    /// Lists executions without outputs, newest first. Callers need the permission to view executions even for their
    /// own runs.
    ///
    /// # Errors
    /// When the caller may not view executions in any scope.
    pub async fn list_executions(
        &self,
        caller: &Caller,
        query: ExecutionQuery,
        page: PageRequest,
    ) -> Result<Page<ListedExecution>, Failure> {
        let (scope, visible_scopes) = authorize::authorize_list(caller, Operation::ListExecutions)?;
        let filter = ExecutionFilter {
            workload: query.workload_id,
            release: query.release_id,
            status: query.status,
            environment: query.environment,
            lane: query.lane,
            error_code: query.error_code,
            submitter: query.submitted_by,
            since: query.since,
            until: query.until,
            visible_scopes,
        };
        Ok(self.execution_store.list(scope, &filter, page).await?)
    }

    /// Returns the evidence of an execution. Only operators receive approval notes and retrieval queries.
    ///
    /// # Errors
    /// When the caller lacks the permission to view executions in the run's scope: forbidden for the submitter of the
    /// run, not found for other callers.
    pub async fn read_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<RunEvidence, Failure> {
        let scope = TenantScope::for_caller(caller);
        self.authorize_run_lookup(caller, Operation::ReadEvidenceGraph, id).await?;
        let mut record = self.execution_store.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let position = self.authorize_evidence(caller, &record.execution, Operation::ReadEvidenceGraph).await?;
        match disclosure_for(caller, &position) {
            Disclosure::Summary => {
                record.retrievals.iter_mut().for_each(|retrieval| retrieval.query = None);
                record.notes_withheld = true;
            }
            Disclosure::Operator if record.has_notes => {
                let approval_ids: Vec<ApprovalId> =
                    record.chain.approvals.iter().map(|approval| approval.approval_id).collect();
                record.notes = self.execution_store.approval_notes(scope, &approval_ids).await?;
            }
            Disclosure::Operator => {}
        }
        Ok(record)
    }

    /// Returns one document of an execution's evidence. Only operators receive payloads.
    ///
    /// # Errors
    /// Not found when the document does not exist, or the caller may not view executions in the run's scope.
    pub async fn evidence_artifact(
        &self,
        caller: &Caller,
        id: ExecutionId,
        artifact: ArtifactId,
    ) -> Result<EvidenceArtifactWithContent, Failure> {
        let scope = TenantScope::for_caller(caller);
        self.authorize_run_lookup(caller, Operation::ReadEvidenceArtifact, id).await?;
        let stored = self.execution_store.artifact(scope, id, artifact).await?;
        let (execution, mut artifact) = stored.ok_or(Failure::NotFound)?;
        let position = self.authorize_evidence(caller, &execution, Operation::ReadEvidenceArtifact).await?;
        if disclosure_for(caller, &position) == Disclosure::Summary {
            artifact.payload_withheld |= artifact.payload.take().is_some();
        }
        Ok(artifact)
    }

    /// Returns a page of the lineage: the sources that the steps of an execution read.
    ///
    /// # Errors
    /// Not found when the execution is not in the given workspace, or the caller may not view executions in that
    /// scope.
    pub async fn context_lineage(
        &self,
        caller: &Caller,
        id: ExecutionId,
        workspace: WorkspaceId,
        filter: LineageFilter,
        limit: u32,
        offset: u32,
    ) -> Result<(LineagePage, Disclosure), Failure> {
        let scope = TenantScope::for_caller(caller);
        self.authorize_run_lookup(caller, Operation::ReadContextLineage, id).await?;
        let lineage = self.execution_store.lineage(scope, id, filter, limit, offset).await?.ok_or(Failure::NotFound)?;
        if lineage.execution.workspace_id != workspace {
            return Err(Failure::NotFound);
        }
        let position = self.authorize_evidence(caller, &lineage.execution, Operation::ReadContextLineage).await?;
        Ok((lineage, disclosure_for(caller, &position)))
    }

    /// Returns the resource position of a run whose evidence the caller may read. If the submitter lacks the
    /// permission, the refusal is forbidden and names it.
    async fn authorize_evidence(
        &self,
        caller: &Caller,
        execution: &Execution,
        operation: Operation,
    ) -> Result<ResourcePosition, Failure> {
        let position = self.position_of_run(caller, execution).await?;
        match authorize::authorize(caller, operation, &position) {
            Ok(_) => Ok(position),
            Err(Failure::NotFound) if is_submitter(caller, execution) => {
                Err(authorize::missing_permission(caller, Permission::ExecutionView))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Authorizes access to a run before its data is read. A full read takes longer than a failed lookup, so its
    /// response time would reveal that the run exists. For its own run, the submitter passes this check; the calling
    /// operation decides.
    async fn authorize_run_lookup(
        &self,
        caller: &Caller,
        operation: Operation,
        id: ExecutionId,
    ) -> Result<(), Failure> {
        if caller.rights.scope_restriction(Permission::ExecutionView).is_none() {
            return Ok(());
        }
        let location =
            self.execution_store.location(TenantScope::for_caller(caller), id).await?.ok_or(Failure::NotFound)?;
        let position = self.scope_resolver.position_of_workload(caller, location.workspace, location.workload).await?;
        if location.submitter == caller.actor {
            Ok(())
        } else {
            authorize::authorize(caller, operation, &position).map(|_| ())
        }
    }

    pub(crate) async fn position_of_run(
        &self,
        caller: &Caller,
        execution: &Execution,
    ) -> Result<ResourcePosition, Failure> {
        self.scope_resolver.position_of_workload(caller, execution.workspace_id, execution.workload_id).await
    }
}

/// Whether the caller submitted the run. Any client may call as `anonymous`, so the actor `anonymous` owns no run.
fn is_submitter(caller: &Caller, execution: &Execution) -> bool {
    execution.submitter == caller.actor && caller.actor.kind() != ActorKind::Anonymous
}

fn disclosure_for(caller: &Caller, position: &ResourcePosition) -> Disclosure {
    if caller.rights.allow(Permission::ExecutionKill, position) { Disclosure::Operator } else { Disclosure::Summary }
}
