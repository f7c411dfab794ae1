//! Idempotency keys: the same request sent again finds the effect of the first.

use crate::{access::ActorRef, store::StoreError, tenant::TenantScope};
use async_trait::async_trait;
use std::time::Duration;
use uuid::Uuid;

/// A key as a request carries it, within its tenant, caller and route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestKey {
    /// 1 to 255 visible ASCII characters.
    pub key: String,
    /// Whose key it is.
    pub caller: ActorRef,
    /// The route, with the identifiers of its path: one key on two resources is two keys.
    pub route: String,
    /// BLAKE3 of the canonical body: the same key with another body is a conflict.
    pub body_digest: [u8; 32],
}

/// What a finished request left: enough to read the resource again under the caller's present rights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The HTTP status of the first answer.
    pub status: u16,
    /// The resource that it named.
    pub resource: Uuid,
}

/// A key with the outcome that its commit stores in the same transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyedOutcome {
    /// The key.
    pub key: RequestKey,
    /// What will be answered to a repetition.
    pub outcome: Outcome,
}

/// What is known of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Never seen, or longer ago than keys are kept.
    No,
    /// Seen with another body.
    OtherBody,
    /// Reserved by a request that works outside the database before its commit.
    Reserved,
    /// Seen, and the resource itself says how far it went: an execution that runs, or has ended.
    AsResource(Uuid),
    /// The first call ended so.
    Done(Outcome),
}

/// Reads keys, and reserves them. Outcomes are written by the commits that the keys protect.
#[async_trait]
pub trait IdempotencyStore: Send + Sync {
    /// What is known of a key. One whose lease expired was never seen.
    async fn look_up(&self, scope: TenantScope, key: &RequestKey) -> Result<Known, StoreError>;
    /// Reserves a key for a request that works outside the database first: until `lease` is over, or until the commit that
    /// makes `resource` completes the reservation. Answers whether the key is reserved for this resource; else it has an
    /// outcome, or the lease of another request.
    async fn reserve(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError>;
    /// Prolongs a reservation that is still there.
    async fn renew_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<(), StoreError>;
    /// Frees a key that is reserved for this resource. A reservation that a commit completed stays.
    async fn release_reservation(&self, scope: TenantScope, key: &RequestKey, resource: Uuid)
    -> Result<(), StoreError>;
    /// Deletes keys that are kept no longer; answers how many.
    async fn sweep(&self) -> Result<u64, StoreError>;
}
