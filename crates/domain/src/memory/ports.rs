//! The store port of conversation memory.

use super::{ConversationErasure, ConversationKey, MemoryScope, PersonalDataPolicy, RecalledTurns, StoredTurn};
use crate::{
    id::AssetId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// The query by which a run reads earlier turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecallQuery {
    /// The memory asset that stores the turns.
    pub asset: AssetId,
    /// Whether to load the turns of the session or of all sessions of the owner.
    pub scope: MemoryScope,
    /// The maximum number of turns, latest first; 0 if the run may not receive turns.
    pub limit: u32,
    /// The maximum age of a turn, in days.
    pub max_age_days: u32,
    /// How the memory treats personal data; this may exclude turns that are not masked.
    pub personal_data: PersonalDataPolicy,
}

/// Stores the turns of conversations. The commit of a run's end stores the turn of the run
/// (`execution::ports::RunStore::finish`).
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// Loads the earlier turns for a run, within the byte limit of a replay. The clock of the store determines the age
    /// of a turn.
    async fn recall(
        &self,
        scope: TenantScope,
        conversation: &ConversationKey,
        query: &RecallQuery,
    ) -> Result<RecalledTurns, StoreError>;
    /// Lists every unexpired turn of a conversation, oldest first.
    async fn list_turns(
        &self,
        scope: TenantScope,
        conversation: &ConversationKey,
    ) -> Result<Vec<StoredTurn>, StoreError>;
    /// Erases a conversation. Active runs that started before the erasure store no turn. Fails with `Stale` if the
    /// number of turns has changed.
    async fn commit_erasure(&self, scope: TenantScope, erasure: &ConversationErasure) -> Result<(), CommitError>;
    /// Deletes turns that have expired. Also deletes turns with a revoked contract if their setting is
    /// [`OnRevoke::Erase`](super::OnRevoke::Erase), and records of erasures that no active run needs. Returns the
    /// number of deleted turns.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}
