//! Settling runs of which nobody knows how they came out.

use super::ReadExecution;
use crate::{
    Done, Failure, Services,
    access::{Operation, gate},
    execution::evidence::Own,
    once::keyed,
};
use fairway_domain::{
    access::{Caller, Permission},
    execution::{
        ports::RunState,
        settle::{SettleRefusal, Settled, settle},
    },
    id::ExecutionId,
    idempotency::{KeyedOutcome, RequestKey},
    signal::Signal,
    store::CommitError,
    tenant::TenantScope,
};

impl Services {
    /// Takes a person's word for how a run came out that is unknown.
    ///
    /// # Errors
    /// Not found when the caller does not see the run; when it may settle none there; when the run is not unknown.
    pub async fn settle_execution(
        &self,
        caller: &Caller,
        id: ExecutionId,
        (settled, note): (Settled, Option<&str>),
        key: Option<&RequestKey>,
    ) -> Result<Done<ReadExecution>, Failure> {
        let (RunState { execution, .. }, own) = self.state_as(caller, id, None, Operation::ReadExecution).await?;
        let place = self.place_of_run(caller, &execution).await?;
        let scope = match gate::enter(caller, Operation::SettleExecution, &place) {
            // It sees its own run, so it is told what is missing.
            Err(Failure::NotFound) if own == Own::Yes => Err(gate::refused(caller, Permission::ExecutionKill)),
            entered => entered,
        }?;
        let outcome = keyed(key, 200, id.uuid());
        let done = self.once(
            scope,
            key,
            async || self.take_word((scope, caller), id, (settled, note), outcome.as_ref()).await,
            async |_| Ok(()),
        );
        let ((), replayed) = done.await?.apart();
        Ok(replayed.with(self.execution_detail(caller, id, None).await?))
    }

    async fn take_word(
        &self,
        (scope, caller): (TenantScope, &Caller),
        id: ExecutionId,
        said: (Settled, Option<&str>),
        key: Option<&KeyedOutcome>,
    ) -> Result<(), Failure> {
        let record = self.stores.executions.evidence(scope, id).await?.ok_or(Failure::NotFound)?;
        let settlement = settle(&record, said, &self.stamp(caller), self.ids.as_ref())?;
        match self.stores.settlements.commit_settlement(scope, &settlement, key).await {
            Ok(()) => {
                self.wake.facts();
                self.signal(Signal::Ended(id));
                Ok(())
            }
            // Somebody else was faster.
            Err(CommitError::Stale) => Err(SettleRefusal::NotUnknown.into()),
            Err(error) => Err(error.into()),
        }
    }
}
