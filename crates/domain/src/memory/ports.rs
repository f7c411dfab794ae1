//! Storage port of chat memory.

use super::{ConversationErasure, ConversationKey, MemoryScope, PersonalDataPolicy, RecalledTurns, StoredTurn};
use crate::{
    id::AssetId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Query of a run for earlier turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecallQuery {
    /// The memory asset whose turns are recalled.
    pub asset: AssetId,
    /// Turns of the session, or of all sessions of the owner.
    pub scope: MemoryScope,
    /// Maximum number of turns, latest first; 0 when reading is not permitted.
    pub limit: u32,
    /// Maximum age, in days.
    pub max_age_days: u32,
    /// Handling of personal data.
    pub personal_data: PersonalDataPolicy,
}

/// Stores turns. A run's end writes its turn (`execution::ports::RunStore::finish`).
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// Earlier turns for a run, by the database's clock, within the byte limit of a replay.
    async fn recall(
        &self,
        scope: TenantScope,
        place: &ConversationKey,
        wanted: &RecallQuery,
    ) -> Result<RecalledTurns, StoreError>;
    /// Every unexpired turn of a conversation, oldest first.
    async fn list_turns(&self, scope: TenantScope, place: &ConversationKey) -> Result<Vec<StoredTurn>, StoreError>;
    /// Erases a conversation; active runs that started before the erasure write no turn. Stale when the number of turns
    /// has changed.
    async fn commit_erasure(&self, scope: TenantScope, erasure: &ConversationErasure) -> Result<(), CommitError>;
    /// Deletes expired turns, turns under a revoked contract, and erasures that no active run needs any more. Returns
    /// the number of deleted turns.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}
