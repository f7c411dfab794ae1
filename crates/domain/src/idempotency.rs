//! Idempotency keys: a repeated request returns the effect of the first.

use crate::{access::ActorRef, store::StoreError, tenant::TenantScope};
use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

/// The idempotency key of a request, scoped to tenant, caller and route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey {
    /// 1 to 255 visible ASCII characters.
    pub key: String,
    /// The caller.
    pub caller: ActorRef,
    /// The route with its path identifiers, so that one key on two resources counts as two keys.
    pub route: String,
    /// BLAKE3 of the canonical body; the same key with another body is a conflict.
    pub body_digest: [u8; 32],
}

/// The stored outcome of a request, sufficient to read the resource again under the caller's current rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredOutcome {
    /// The HTTP status of the first response.
    pub status: u16,
    /// The affected resource.
    pub resource: Uuid,
}

/// A key with the outcome that its commit stores in the same transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedOutcome {
    /// The key.
    pub key: RequestKey,
    /// The response to a repeated request.
    pub outcome: StoredOutcome,
}

/// The state of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// Unknown, or past its retention.
    Unknown,
    /// Used with another body.
    DifferentBody,
    /// Reserved by a request that has external effects before its commit.
    Reserved,
    /// Used by a resource that tracks its own progress: an execution that runs or has ended.
    InUse(Uuid),
    /// The first request ended with this outcome.
    Completed(StoredOutcome),
}

/// Reads and reserves keys. The commits that use the keys store the outcomes.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// The state of a key. A key with an expired lease is unknown.
    async fn key_state(&self, scope: TenantScope, key: &RequestKey) -> Result<KeyState, StoreError>;
    /// Reserves a key for a request with external effects, until `lease` expires or the commit that creates `resource`
    /// completes the reservation. Returns false if the key has an outcome, or if another request holds its lease.
    async fn reserve(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError>;
    /// Extends an existing reservation.
    async fn renew_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<(), StoreError>;
    /// Releases a key that is reserved for this resource. A completed reservation stays.
    async fn release_reservation(&self, scope: TenantScope, key: &RequestKey, resource: Uuid)
    -> Result<(), StoreError>;
    /// Deletes keys past their retention; returns their number.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}
