//! Idempotency keys: a repeated request returns the effect of the first request.

use crate::{access::ActorRef, store::StoreError, tenant::TenantScope};
use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

/// The idempotency key of a request, scoped to tenant, caller and route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey {
    /// The key that the client chose: 1 to 255 visible ASCII characters.
    pub key: String,
    /// The caller that sent the request; keys of different callers are independent.
    pub caller: ActorRef,
    /// The route with the identifiers in its path, so that the same key on two resources counts as two keys.
    pub route: String,
    /// BLAKE3 of the canonical request body. A repeated key with another body is a conflict.
    pub body_digest: [u8; 32],
}

/// The stored outcome of a request. It suffices to read the resource again with the caller's current permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredOutcome {
    /// The HTTP status of the first response.
    pub status: u16,
    /// The identifier of the affected resource.
    pub resource: Uuid,
}

/// An idempotency key and its outcome, which a commit stores in the same transaction as the effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedOutcome {
    /// The idempotency key of the request.
    pub key: RequestKey,
    /// The outcome that a repeated request receives.
    pub outcome: StoredOutcome,
}

/// The state of an idempotency key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyState {
    /// The key was never used, or its retention has passed.
    Unknown,
    /// The key was used with another request body.
    DifferentBody,
    /// A request with the key is in progress; it reserved the key because it has external effects before its commit.
    Reserved,
    /// A request with the key created the execution with this identifier, which records its own progress.
    InUse(Uuid),
    /// The first request with the key ended with this outcome.
    Completed(StoredOutcome),
}

/// Reads and reserves idempotency keys. Outcomes are stored by the commits of the requests themselves.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// Reads the state of a key. A key whose reservation has expired counts as unknown.
    async fn key_state(&self, scope: TenantScope, key: &RequestKey) -> Result<KeyState, StoreError>;
    /// Reserves a key for a request with external effects before its commit. The reservation ends when `lease` expires,
    /// or when the commit of `resource` stores an outcome. Returns false if the key has an outcome, or another request
    /// has reserved it.
    async fn reserve(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError>;
    /// Extends the reservation of a key for this resource by `lease`.
    async fn renew_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<(), StoreError>;
    /// Releases the reservation of a key for this resource. An outcome that is already stored is kept.
    async fn release_reservation(&self, scope: TenantScope, key: &RequestKey, resource: Uuid)
    -> Result<(), StoreError>;
    /// Deletes the keys whose retention has passed, and returns their number.
    async fn delete_expired(&self) -> Result<u64, StoreError>;
}
