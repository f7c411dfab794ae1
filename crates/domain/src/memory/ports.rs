//! Where chat memory is kept.

use super::{Erasure, KeptTurn, MemoryPlace, PersonalData, Recalled, Scope};
use crate::{
    id::AssetId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use async_trait::async_trait;

/// What a run wants to be given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Under which memory asset the turns were kept.
    pub asset: AssetId,
    /// Those of the session, or of all sessions of the owner.
    pub scope: Scope,
    /// Most turns, the latest ones; none where they may not be read.
    pub most: u32,
    /// Those that are younger.
    pub days: u32,
    /// What may be in them.
    pub personal_data: PersonalData,
}

/// Keeps turns. They are written with the ends of their runs (`execution::ports::ExecutionStore::finish`).
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// What is there for a run, by the database's clock, within the bytes that a run is given.
    async fn recall(&self, scope: TenantScope, place: &MemoryPlace, wanted: &Wanted) -> Result<Recalled, StoreError>;
    /// Every turn of a conversation whose time is not over, the oldest first.
    async fn turns(&self, scope: TenantScope, place: &MemoryPlace) -> Result<Vec<KeptTurn>, StoreError>;
    /// Erases a conversation, and with it what runs under way would still write. Stale when it has another number of turns
    /// by now.
    async fn commit_erasure(&self, scope: TenantScope, erasure: &Erasure) -> Result<(), CommitError>;
    /// Forgets turns whose time is over or whose contract is revoked, and erasures that nothing is under way for any more;
    /// answers how many turns.
    async fn forget(&self) -> Result<u64, StoreError>;
}
