//! Chat memory, as its owners see it: what is remembered of a conversation, and its end.

use crate::{
    Failure, Services,
    access::{Operation, gate},
    execution::admission,
    once::ATTEMPTS,
    share_link::Visit,
    workload::place_of,
};
use fairway_domain::{
    access::{ActorRef, Caller},
    id::WorkloadId,
    memory::{Erasure, KeptTurn, MemoryPlace, SessionId},
    store::CommitError,
    tenant::TenantScope,
    workload::Workload,
};

impl Services {
    /// What is remembered of a caller's own conversation, the oldest turn first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload, or nobody knows who it is; when a public workload is asked for
    /// too often.
    pub async fn read_memory(
        &self,
        caller: &Caller,
        visit: &Visit,
        (workload, session): (WorkloadId, SessionId),
    ) -> Result<Vec<KeptTurn>, Failure> {
        let (scope, workload) = self.enter_memory(caller, visit, Operation::ReadMemory, workload).await?;
        let place = MemoryPlace::of(workload.workload_id, &caller.actor, session).ok_or(Failure::NotFound)?;
        Ok(self.stores.memory.turns(scope, &place).await?)
    }

    /// Erases what is remembered of a conversation: the caller's own, or that of `owner` where the caller may stop runs of
    /// the workload. Runs under way write nothing of it any more.
    ///
    /// # Errors
    /// As [`Self::read_memory`]; besides when the caller may not erase what is another's.
    pub async fn erase_memory(
        &self,
        caller: &Caller,
        visit: &Visit,
        (workload, session): (WorkloadId, SessionId),
        owner: Option<&ActorRef>,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.enter_memory(caller, visit, Operation::EraseMemory, workload).await?;
        let owner = match owner.filter(|owner| **owner != caller.actor) {
            Some(other) => {
                gate::enter(caller, Operation::EraseMemoryOfOthers, &place_of(caller, &workload))?;
                other
            }
            None => &caller.actor,
        };
        let place = MemoryPlace::of(workload.workload_id, owner, session).ok_or(Failure::NotFound)?;
        for _ in 0..ATTEMPTS {
            let turns = self.stores.memory.turns(scope, &place).await?.len();
            let turns = u32::try_from(turns).unwrap_or(u32::MAX);
            let erasure = Erasure::say(place.clone(), turns, &workload, &self.stamp(caller));
            match self.stores.memory.commit_erasure(scope, &erasure).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.wake.facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }

    async fn enter_memory(
        &self,
        caller: &Caller,
        visit: &Visit,
        operation: Operation,
        workload: WorkloadId,
    ) -> Result<(TenantScope, Workload), Failure> {
        let pass = visit.pass.as_ref();
        let found = self.stores.workloads.find(TenantScope::of(caller), workload).await?;
        let workload = found.ok_or(Failure::NotFound)?;
        let scope = admission::see(caller, pass, &workload, operation)?;
        self.count_visit(scope, &workload, Some(visit.address)).await?;
        admission::is_shown(pass, workload.access_mode())?;
        Ok((scope, workload))
    }

    /// Forgets turns whose time is over or whose contract is revoked; answers how many.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn forget_turns(&self) -> Result<u64, Failure> {
        Ok(self.stores.memory.forget().await?)
    }
}
