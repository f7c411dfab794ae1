//! Idempotency keys and preconditions: replays for repeated requests, and new attempts after concurrent changes.

use crate::{Failure, RunRefusal, Settings, Stores, commit_context::CommitContext, services::SharedState};
use fairway_domain::{
    execution::{resolve_unknown::ResolveRefusal, review::ReviewRefusal},
    idempotency::{IdempotencyStore, KeyState, KeyedOutcome, RequestKey, StoredOutcome},
    store::{Revision, StoreError, StoreFault},
    tenant::TenantScope,
};
use std::sync::Arc;
use uuid::Uuid;

mod reservation;

/// Maximum number of attempts to decide and commit while concurrent changes make the commit stale.
pub(crate) const MAX_ATTEMPTS: usize = 3;

/// Precondition of a change: the revisions that the client accepts, from `If-Match`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Precondition {
    /// Any revision; the request has no `If-Match`.
    #[default]
    Any,
    /// One of the revisions that `If-Match` lists.
    OneOf(Vec<Revision>),
}

impl Precondition {
    pub(crate) fn check(&self, current_revision: Revision) -> Result<(), Failure> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(revisions) if revisions.contains(&current_revision) => Ok(()),
            Self::OneOf(_) => Err(Failure::PreconditionFailed),
        }
    }

    /// Checks the precondition for settings that are not stored yet; these have the revision [`Revision::UNSET`].
    pub(crate) fn check_absent(&self) -> Result<(), Failure> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(revisions) if revisions.contains(&Revision::UNSET) => Ok(()),
            Self::OneOf(_) => Err(Failure::PreconditionFailed),
        }
    }

    /// Returns the failure of a stale commit if the client named revisions. Otherwise returns `None`, and the operation
    /// decides again.
    pub(crate) const fn stale_failure(&self) -> Option<Failure> {
        match self {
            Self::Any => None,
            Self::OneOf(_) => Some(Failure::PreconditionFailed),
        }
    }
}

/// The result of an operation, and whether it replays the outcome of an earlier request with the same key.
#[derive(Clone, Debug)]
pub struct MaybeReplayed<T> {
    /// The resource as the caller may currently read it.
    pub value: T,
    /// The status code of the first response, if this response replays it.
    pub replayed: Option<u16>,
}

impl<T> MaybeReplayed<T> {
    pub(crate) const fn first(value: T) -> Self {
        Self { value, replayed: None }
    }

    /// Returns the resource, and the replay status without it.
    pub fn into_parts(self) -> (T, MaybeReplayed<()>) {
        (self.value, MaybeReplayed { value: (), replayed: self.replayed })
    }

    /// Returns the same replay status with another value.
    pub(crate) fn with_value<U>(self, value: U) -> MaybeReplayed<U> {
        MaybeReplayed { value, replayed: self.replayed }
    }
}

pub(crate) fn keyed_outcome(key: Option<&RequestKey>, status: u16, resource: Uuid) -> Option<KeyedOutcome> {
    key.map(|key| KeyedOutcome { key: key.clone(), outcome: StoredOutcome { status, resource } })
}

/// Executes each request with an idempotency key once, and replays its outcome to repeated requests.
#[derive(Clone)]
pub struct KeyedRequests {
    pub(crate) context: CommitContext,
    pub(crate) settings: Arc<Settings>,
    pub(crate) key_store: Arc<dyn IdempotencyStore>,
}

impl KeyedRequests {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            settings: Arc::clone(&shared.settings),
            key_store: Arc::clone(&stores.idempotency),
        }
    }
}

impl KeyedRequests {
    /// Deletes expired idempotency keys; returns their number.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete_expired_keys(&self) -> Result<u64, Failure> {
        Ok(self.key_store.delete_expired().await?)
    }

    /// Executes an operation once per idempotency key. A replay reads the earlier outcome with the caller's current
    /// rights.
    pub(crate) async fn idempotent<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        effect: impl AsyncFnOnce() -> Result<T, Failure>,
        replay: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<MaybeReplayed<T>, Failure> {
        if let Some(outcome) = self.earlier_outcome(scope, key).await? {
            return Ok(MaybeReplayed { value: replay(outcome.resource).await?, replayed: Some(outcome.status) });
        }
        match effect().await {
            Err(Failure::KeyTaken) => {
                // A concurrent request with the same key was committed first, so its outcome is the response.
                let outcome = self.earlier_outcome(scope, key).await?.ok_or(Failure::Contended)?;
                Ok(MaybeReplayed { value: replay(outcome.resource).await?, replayed: Some(outcome.status) })
            }
            Err(failure) => self.replay_after_failure(scope, key, failure, replay).await,
            Ok(value) => {
                self.context.notify_facts();
                Ok(MaybeReplayed::first(value))
            }
        }
    }

    /// Checks after a failure whether a concurrent request with the same key was committed. That request may have
    /// caused the failure, for example by creating the slug. In that case, its outcome is the response.
    async fn replay_after_failure<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        failure: Failure,
        replay: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<MaybeReplayed<T>, Failure> {
        let may_be_replay = matches!(
            failure,
            Failure::Conflict(_)
                | Failure::Contended
                | Failure::Asset(_)
                | Failure::Release(_)
                | Failure::AccessRequest(_)
                | Failure::Erasure(_)
                | Failure::UseCase(_)
                | Failure::DeliveryNotFailed(_)
                | Failure::PreconditionFailed
                | Failure::Run(RunRefusal::NotCancellable)
                | Failure::Review(ReviewRefusal::NotPending)
                | Failure::Resolve(ResolveRefusal::NotUnknown)
        );
        if !may_be_replay {
            return Err(failure);
        }
        match self.earlier_outcome(scope, key).await {
            Ok(Some(outcome)) => {
                Ok(MaybeReplayed { value: replay(outcome.resource).await?, replayed: Some(outcome.status) })
            }
            // This request released its reservation, and another request has reserved the key in the meantime.
            Ok(None) | Err(Failure::KeyInProgress) => Err(failure),
            Err(other) => Err(other),
        }
    }

    /// Returns the outcome of an earlier request with this key.
    pub(crate) async fn earlier_outcome(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
    ) -> Result<Option<StoredOutcome>, Failure> {
        let Some(key) = key else { return Ok(None) };
        match self.key_store.key_state(scope, key).await? {
            KeyState::Unknown => Ok(None),
            KeyState::DifferentBody => Err(Failure::KeyReused),
            KeyState::Reserved => Err(Failure::KeyInProgress),
            KeyState::Completed(outcome) => Ok(Some(outcome)),
            KeyState::InUse(_) => Err(Failure::Inconsistent("another route holds the idempotency key of an execution")),
        }
    }
}

/// Converts a failure to read the result after a commit. A caller without a key receives [`Failure::OutcomeLost`],
/// because a repeated request would repeat the change. A caller with a key can safely repeat the request.
pub(crate) fn convert_failure_after_commit<T, K>(result: Result<T, Failure>, key: Option<&K>) -> Result<T, Failure> {
    match result {
        Err(Failure::Store(StoreError { fault: StoreFault::Unavailable, .. })) if key.is_none() => {
            Err(Failure::OutcomeLost)
        }
        result => result,
    }
}
