//! Manual resolution of runs whose outcome is unknown.

use super::ExecutionDetail;
use crate::{
    Failure, MaybeReplayed, Stores,
    access::{Operation, authorize},
    commit_context::CommitContext,
    execution::execution_reader::{ExecutionReader, Ownership},
    idempotency::{KeyedRequests, convert_failure_after_commit, keyed_outcome},
    services::{CommonOperations, SharedState},
    wakeups::WakeupSender,
};
use fairway_domain::{
    access::{Caller, Permission},
    execution::{
        ports::{ExecutionReadStore, StoredRun},
        resolve_unknown::{Resolution, ResolutionStore, ResolveRefusal, resolve},
    },
    id::ExecutionId,
    idempotency::{KeyedOutcome, RequestKey},
    note::Note,
    store::CommitError,
    tenant::TenantScope,
    wakeup::Wakeup,
};
use std::sync::Arc;

/// Records people's decisions about runs whose outcome is unknown.
pub struct UnknownOutcomes {
    context: CommitContext,
    wakeup_sender: WakeupSender,
    execution_store: Arc<dyn ExecutionReadStore>,
    resolution_store: Arc<dyn ResolutionStore>,
    keyed_requests: Arc<KeyedRequests>,
    execution_reader: Arc<ExecutionReader>,
}

impl UnknownOutcomes {
    pub(crate) fn new(
        stores: &Stores,
        shared: &SharedState,
        common: &CommonOperations,
        execution_reader: &Arc<ExecutionReader>,
    ) -> Self {
        Self {
            context: shared.context.clone(),
            wakeup_sender: shared.wakeups.clone(),
            execution_store: Arc::clone(&stores.executions),
            resolution_store: Arc::clone(&stores.resolutions),
            keyed_requests: Arc::clone(&common.keyed_requests),
            execution_reader: Arc::clone(execution_reader),
        }
    }
}

impl UnknownOutcomes {
    /// Records a person's decision about a run whose outcome is unknown.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; forbidden when the caller may not resolve runs in its scope;
    /// refused when the outcome is known.
    pub async fn resolve_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        resolution: Resolution,
        note: Option<&Note>,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ExecutionDetail>, Failure> {
        let (StoredRun { execution, .. }, ownership) =
            self.execution_reader.state_with_ownership(caller, id, None, Operation::ReadExecution).await?;
        let position = self.execution_reader.position_of_run(caller, &execution).await?;
        let scope = match authorize::authorize(caller, Operation::ResolveExecution, &position) {
            // The caller already sees its own run, so the refusal may name the missing permission.
            Err(Failure::NotFound) if ownership == Ownership::Own => {
                Err(authorize::missing_permission(caller, Permission::ExecutionKill))
            }
            authorization => authorization,
        }?;
        let outcome = keyed_outcome(key, 200, id.uuid());
        let resolved = self.keyed_requests.idempotent(
            scope,
            key,
            async || self.commit_resolution(scope, caller, id, resolution, note, outcome.as_ref()).await,
            async |_| Ok(()),
        );
        let ((), replayed) = resolved.await?.into_parts();
        let detail = self.execution_reader.execution_detail(caller, id, None).await;
        Ok(replayed.with_value(convert_failure_after_commit(detail, key)?))
    }

    async fn commit_resolution(
        &self,
        scope: TenantScope,
        caller: &Caller,
        id: ExecutionId,
        resolution: Resolution,
        note: Option<&Note>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let record = self.execution_store.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let stamp = self.context.stamp(caller);
        let moment = self.context.moment_at(stamp.at);
        let change = resolve(&record, resolution, note, &stamp, moment)?;
        match self.resolution_store.commit_resolution(scope, &change, key).await {
            Ok(()) => {
                self.context.notify_facts();
                self.wakeup_sender.publish(Wakeup::RunEnded(id));
                Ok(())
            }
            // A concurrent request has resolved the run.
            Err(CommitError::Stale) => Err(ResolveRefusal::NotUnknown.into()),
            Err(error) => Err(error.into()),
        }
    }
}
