//! Requests that are sent again, and resources that moved: idempotency keys and preconditions.

use crate::{Failure, RunRefusal, Services};
use fairway_domain::{
    execution::{review::ReviewRefusal, settle::SettleRefusal},
    idempotency::{KeyedOutcome, Known, Outcome, RequestKey},
    store::{Revision, StoreError, StoreFault},
    tenant::TenantScope,
};
use uuid::Uuid;

mod reservation;

/// How often a decision is taken again after somebody else was faster.
pub(crate) const ATTEMPTS: usize = 3;

/// The revisions that a caller accepts, from `If-Match`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Expected {
    /// Whatever is there.
    #[default]
    Any,
    /// One of these.
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

    /// The same where nothing is there yet: whoever names a revision has seen something else.
    pub(crate) fn check_absent(&self) -> Result<(), Failure> {
        match self {
            Self::Any => Ok(()),
            Self::OneOf(_) => Err(Failure::PreconditionFailed),
        }
    }

    /// What a lost guard means: somebody who named a revision is told, everybody else's decision is taken again.
    pub(crate) const fn on_stale(&self) -> Option<Failure> {
        match self {
            Self::Any => None,
            Self::OneOf(_) => Some(Failure::PreconditionFailed),
        }
    }
}

/// What an operation gives, and whether this request or an earlier one with its key did it.
#[derive(Clone, Debug)]
pub struct Done<T> {
    /// The resource as it may be read now.
    pub value: T,
    /// The status of the first answer, where this one repeats it.
    pub replayed: Option<u16>,
}

impl<T> Done<T> {
    pub(crate) const fn now(value: T) -> Self {
        Self { value, replayed: None }
    }

    /// The resource, and the rest without it.
    pub fn apart(self) -> (T, Done<()>) {
        (self.value, Done { value: (), replayed: self.replayed })
    }

    /// The same about something else.
    pub(crate) fn with<U>(self, value: U) -> Done<U> {
        Done { value, replayed: self.replayed }
    }
}

pub(crate) fn keyed(key: Option<&RequestKey>, status: u16, resource: Uuid) -> Option<KeyedOutcome> {
    key.map(|key| KeyedOutcome { key: key.clone(), outcome: Outcome { status, resource } })
}

impl Services {
    /// Does something once for a key: an earlier outcome is read again under the caller's present rights instead.
    pub(crate) async fn once<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        effect: impl AsyncFnOnce() -> Result<T, Failure>,
        again: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<Done<T>, Failure> {
        if let Some(outcome) = self.earlier(scope, key).await? {
            return Ok(Done { value: again(outcome.resource).await?, replayed: Some(outcome.status) });
        }
        match effect().await {
            Err(Failure::KeyTaken) => {
                // Somebody else with the same key was faster, and has committed.
                let outcome = self.earlier(scope, key).await?.ok_or(Failure::Contended)?;
                Ok(Done { value: again(outcome.resource).await?, replayed: Some(outcome.status) })
            }
            Err(failure) => self.after_failure(scope, key, failure, again).await,
            Ok(value) => {
                self.wake.facts();
                Ok(Done::now(value))
            }
        }
    }

    /// A refusal may be the echo of this very request: a twin with the same key that was faster may have taken the
    /// slug or moved the state. Then its outcome is the answer.
    async fn after_failure<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        failure: Failure,
        again: impl AsyncFnOnce(Uuid) -> Result<T, Failure>,
    ) -> Result<Done<T>, Failure> {
        let echo = matches!(
            failure,
            Failure::Conflict(_)
                | Failure::Contended
                | Failure::Asset(_)
                | Failure::Release(_)
                | Failure::PreconditionFailed
                | Failure::Run(RunRefusal::NotCancellable)
                | Failure::Review(ReviewRefusal::NotPending)
                | Failure::Settle(SettleRefusal::NotUnknown)
        );
        if !echo {
            return Err(failure);
        }
        match self.earlier(scope, key).await {
            Ok(Some(outcome)) => Ok(Done { value: again(outcome.resource).await?, replayed: Some(outcome.status) }),
            // This request released its reservation, and a twin reserved the key since.
            Ok(None) | Err(Failure::KeyInProgress) => Err(failure),
            Err(other) => Err(other),
        }
    }

    /// What an earlier request with this key did.
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
            Known::AsResource(_) => Err(Failure::Corrupt("a key of an execution stands at another route")),
        }
    }
}

/// What is read after a commit. Where that fails, a caller without a key hears that the change may have happened; with a key, a
/// repeat reads the outcome.
pub(crate) fn after_commit<T>(read: Result<T, Failure>, key: Option<&RequestKey>) -> Result<T, Failure> {
    match read {
        Err(Failure::Store(StoreError { fault: StoreFault::Unavailable, .. })) if key.is_none() => {
            Err(Failure::OutcomeLost)
        }
        read => read,
    }
}
