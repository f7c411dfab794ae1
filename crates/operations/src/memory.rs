//! Conversation memory, as its owners read and erase it.

use crate::{
    Failure, Stores,
    access::{Operation, authorize},
    anonymous_rate_limit::RateLimits,
    commit_context::CommitContext,
    execution::run_access,
    idempotency::MAX_ATTEMPTS,
    services::{CommonOperations, SharedState},
    share_link::RuntimeCaller,
    workload::position_of,
};
use fairway_domain::{
    access::{ActorRef, Caller},
    id::WorkloadId,
    memory::{ConversationErasure, ConversationKey, ConversationSessionId, StoredTurn, ports::MemoryStore},
    store::CommitError,
    tenant::TenantScope,
    workload::{Workload, ports::WorkloadStore},
};
use std::sync::Arc;

/// Reads and erases the turns of conversations.
#[derive(Clone)]
pub struct Memories {
    context: CommitContext,
    memory_store: Arc<dyn MemoryStore>,
    workload_store: Arc<dyn WorkloadStore>,
    rate_limits: Arc<RateLimits>,
}

impl Memories {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, common: &CommonOperations) -> Self {
        Self {
            context: shared.context.clone(),
            memory_store: Arc::clone(&stores.memory),
            workload_store: Arc::clone(&stores.workloads),
            rate_limits: Arc::clone(&common.rate_limits),
        }
    }
}

impl Memories {
    /// Returns the stored turns of the caller's own conversation, oldest first.
    ///
    /// # Errors
    /// Not found when the caller does not see the workload or is anonymous; throttled when the caller exceeds the
    /// rate limit of a public workload.
    pub async fn read_memory(
        &self,
        caller: &Caller,
        runtime_caller: &RuntimeCaller,
        workload: WorkloadId,
        session: ConversationSessionId,
    ) -> Result<Vec<StoredTurn>, Failure> {
        let (scope, workload) = self.authorize_memory(caller, runtime_caller, Operation::ReadMemory, workload).await?;
        let key = ConversationKey::for_caller(workload.workload_id, &caller.actor, session).ok_or(Failure::NotFound)?;
        Ok(self.memory_store.list_turns(scope, &key).await?)
    }

    /// Erases the memory of the caller's conversation, or of that of `owner` if the caller may cancel runs of the
    /// workload. Active runs that started before the erasure write no turn.
    ///
    /// # Errors
    /// As [`Self::read_memory`]; also when the caller may not erase the memory of another principal.
    pub async fn erase_memory(
        &self,
        caller: &Caller,
        runtime_caller: &RuntimeCaller,
        workload: WorkloadId,
        session: ConversationSessionId,
        owner: Option<&ActorRef>,
    ) -> Result<(), Failure> {
        let (scope, workload) = self.authorize_memory(caller, runtime_caller, Operation::EraseMemory, workload).await?;
        let owner = match owner.filter(|owner| **owner != caller.actor) {
            Some(other) => {
                authorize::authorize(caller, Operation::EraseMemoryOfOthers, &position_of(caller, &workload))?;
                other
            }
            None => &caller.actor,
        };
        let key = ConversationKey::for_caller(workload.workload_id, owner, session).ok_or(Failure::NotFound)?;
        for _ in 0..MAX_ATTEMPTS {
            let turns = self.memory_store.list_turns(scope, &key).await?.len();
            let turns = u32::try_from(turns).unwrap_or(u32::MAX);
            let erasure = ConversationErasure::create(key.clone(), turns, &workload, &self.context.stamp(caller));
            match self.memory_store.commit_erasure(scope, &erasure).await {
                Err(CommitError::Stale) => continue,
                committed => committed?,
            }
            self.context.notify_facts();
            return Ok(());
        }
        Err(Failure::Contended)
    }

    async fn authorize_memory(
        &self,
        caller: &Caller,
        runtime_caller: &RuntimeCaller,
        operation: Operation,
        workload: WorkloadId,
    ) -> Result<(TenantScope, Workload), Failure> {
        let presented_link = runtime_caller.link.as_ref();
        let stored = self.workload_store.find(TenantScope::for_caller(caller), workload).await?;
        let workload = stored.ok_or(Failure::NotFound)?;
        let scope = run_access::authorize_interface_view(caller, presented_link, &workload, operation)?;
        self.rate_limits.count_workload_request(caller, &workload, Some(runtime_caller.address)).await?;
        run_access::check_link_presence(presented_link, workload.effective_access_mode())?;
        Ok((scope, workload))
    }

    /// Deletes turns that have expired or whose access contract is revoked; returns their number.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_expired_or_revoked(&self) -> Result<u64, Failure> {
        Ok(self.memory_store.delete_expired().await?)
    }
}
