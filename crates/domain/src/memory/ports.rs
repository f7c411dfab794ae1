//! Storage port of chat memory.

use super::{Erasure, StoredTurn, MemoryPlace, PersonalData, RecalledTurns, Scope};
use crate::{
    id::AssetId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// Query of a run for earlier turns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Memory asset of the turns.
    pub asset: AssetId,
    /// Turns of the session, or of all sessions of the owner.
    pub scope: Scope,
    /// Maximum number of turns, latest first; 0 when reading is not permitted.
    pub most: u32,
    /// Maximum age, in days.
    pub days: u32,
    /// Handling of personal data.
    pub personal_data: PersonalData,
}

/// Stores turns. A run's end writes its turn (`execution::ports::ExecutionStore::finish`).
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// Earlier turns for a run, by the database's clock, within the byte limit of a replay.
    async fn recall(&self, scope: TenantScope, place: &MemoryPlace, wanted: &Wanted) -> Result<RecalledTurns, StoreError>;
    /// Every unexpired turn of a conversation, oldest first.
    async fn turns(&self, scope: TenantScope, place: &MemoryPlace) -> Result<Vec<StoredTurn>, StoreError>;
    /// Erases a conversation; active runs that started before the erasure write no turn. Stale when the number of turns
    /// has changed.
    async fn commit_erasure(&self, scope: TenantScope, erasure: &Erasure) -> Result<(), CommitError>;
    /// Deletes expired turns, turns under a revoked contract, and erasures that no active run needs any more. Returns
    /// the number of deleted turns.
    async fn forget(&self) -> Result<u64, StoreError>;
}
