//! Idempotency keys and preconditions: replay of repeated requests, and retries of decisions on changed resources.

use crate::{Failure, RunRefusal, Services};
use fairway_domain::{
    execution::{review::ReviewRefusal, settle::ResolveRefusal},
    idempotency::{KeyedOutcome, Known, Outcome, RequestKey},
    store::{Revision, StoreError, StoreFault},
    tenant::TenantScope,
};
use uuid::Uuid;

mod reservation;

/// Attempts of a decision whose commit loses against a concurrent change.
pub(crate) const ATTEMPTS: usize = 3;

/// The revisions that a caller accepts, from `If-Match`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Expected {
    /// Any revision.
    #[default]
    Any,
    /// One of these revisions.
    OneOf(Vec<Revision>),
}

impl Expected {
    pub(crate) fn check(&self, present: Revision) -> Result<(), Failure> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(revisions) if revisions.contains(&present) => Ok(()),
            Self::OneOf(_) => Err(Failure::PreconditionFailed),
        }
    }

    /// Checks the precondition of a resource that does not exist yet: no revision matches it.
    pub(crate) fn check_absent(&self) -> Result<(), Failure> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(_) => Err(Failure::PreconditionFailed),
        }
    }

    /// The failure of a stale commit for a caller that named a revision. Without a precondition the decision is
    /// retried.
    pub(crate) const fn on_stale(&self) -> Option<Failure> {
        match self {
            Self::Any => None,
            Self::OneOf(_) => Some(Failure::PreconditionFailed),
        }
    }
}

/// The result of an operation, and whether an earlier request with the same key committed it.
#[derive(Clone, Debug)]
pub struct Done<T> {
    /// The resource as the caller may read it now.
    pub value: T,
    /// The status of the first response, if this one replays it.
    pub replayed: Option<u16>,
}

impl<T> Done<T> {
    pub(crate) const fn now(value: T) -> Self {
        Self { value, replayed: None }
    }

    /// Splits the resource from the replay status.
    pub fn apart(self) -> (T, Done<()>) {
        (self.value, Done { value: (), replayed: self.replayed })
    }

    /// The same replay status with another value.
    pub(crate) fn with<U>(self, value: U) -> Done<U> {
        Done { value, replayed: self.replayed }
    }
}

pub(crate) fn keyed(key: Option<&RequestKey>, status: u16, resource: Uuid) -> Option<KeyedOutcome> {
    key.map(|key| KeyedOutcome { key: key.clone(), outcome: Outcome { status, resource } })
}

impl Services {
    /// Runs an effect once per key. A replay reads the earlier outcome under the caller's current rights.
    pub(crate) async fn once<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        effect: impl AsyncFnOnce() -> Result<T, Failure>,
        replay: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<Done<T>, Failure> {
        if let Some(outcome) = self.earlier(scope, key).await? {
            return Ok(Done { value: replay(outcome.resource).await?, replayed: Some(outcome.status) });
        }
        match effect().await {
            Err(Failure::KeyTaken) => {
                // A concurrent request with the same key has committed.
                let outcome = self.earlier(scope, key).await?.ok_or(Failure::Contended)?;
                Ok(Done { value: replay(outcome.resource).await?, replayed: Some(outcome.status) })
            }
            Err(failure) => self.replay_after_failure(scope, key, failure, replay).await,
            Ok(value) => {
                self.wake.facts();
                Ok(Done::now(value))
            }
        }
    }

    /// A refusal may result from a concurrent request with the same key, which took the slug or changed the state
    /// first. Its outcome is then the response.
    async fn replay_after_failure<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        failure: Failure,
        replay: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<Done<T>, Failure> {
        let may_be_replay = matches!(
            failure,
            Failure::Conflict(_)
                | Failure::Contended
                | Failure::Asset(_)
                | Failure::Release(_)
                | Failure::PreconditionFailed
                | Failure::Run(RunRefusal::NotCancellable)
                | Failure::Review(ReviewRefusal::NotPending)
                | Failure::Settle(ResolveRefusal::NotUnknown)
        );
        if !may_be_replay {
            return Err(failure);
        }
        match self.earlier(scope, key).await {
            Ok(Some(outcome)) => Ok(Done { value: replay(outcome.resource).await?, replayed: Some(outcome.status) }),
            // This request released its reservation, and another request reserved the key since.
            Ok(None) | Err(Failure::KeyInProgress) => Err(failure),
            Err(other) => Err(other),
        }
    }

    /// The outcome of an earlier request with this key.
    pub(crate) async fn earlier(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
    ) -> Result<Option<Outcome>, Failure> {
        let Some(key) = key else { return Ok(None) };
        match self.stores.idempotency.look_up(scope, key).await? {
            Known::No => Ok(None),
            Known::OtherBody => Err(Failure::KeyOtherBody),
            Known::Reserved => Err(Failure::KeyInProgress),
            Known::Done(outcome) => Ok(Some(outcome)),
            Known::AsResource(_) => Err(Failure::Corrupt("another route holds the idempotency key of an execution")),
        }
    }
}

/// The result of the read that follows a commit. If that read fails, a caller without a key gets
/// [`Failure::OutcomeLost`]; a caller with a key repeats the request.
pub(crate) fn after_commit<T>(read: Result<T, Failure>, key: Option<&RequestKey>) -> Result<T, Failure> {
    match read {
        Err(Failure::Store(StoreError { fault: StoreFault::Unavailable, .. })) if key.is_none() => {
            Err(Failure::OutcomeLost)
        }
        read => read,
    }
}
