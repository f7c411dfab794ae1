//! What every store has in common: revisions, changes, errors, pages.

use crate::audit::Fact;
use serde::{Deserialize, Serialize};
use std::error::Error;

/// Counts the changes of one row; a commit names the one it was decided on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(i64);

impl Revision {
    /// The revision of something just made.
    pub const FIRST: Self = Self(1);

    /// The revision that a row holds.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The count itself.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The revision after one more change.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A decision that awaits its commit: the next aggregate, what it was decided on, and the fact that it causes.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct Change<T> {
    /// The aggregate as it will be.
    pub next: T,
    /// The revision that the decision saw; `None` for something new.
    pub decided_on: Option<Revision>,
    /// The one entry that the audit log gets in the same transaction.
    pub fact: Fact,
}

impl<T> Change<T> {
    /// A change that makes something new.
    pub const fn creating(next: T, fact: Fact) -> Self {
        Self { next, decided_on: None, fact }
    }

    /// A change of what was seen at `decided_on`.
    pub const fn replacing(next: T, decided_on: Revision, fact: Fact) -> Self {
        Self { next, decided_on: Some(decided_on), fact }
    }
}

/// A page of a list: `limit` rows after skipping `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paging {
    /// 1 to 200.
    pub limit: u32,
    /// 0 to 10 000.
    pub offset: u32,
}

/// A store could not answer. Opaque: it is logged, never shown.
#[derive(Debug, thiserror::Error)]
#[error("the store could not answer")]
pub struct StoreError {
    /// What went wrong below, for the log.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
    /// Whether a later try may succeed (connection lost, time-out) or not.
    pub fault: StoreFault,
}

/// Whether a later try may succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFault {
    /// The store is away or overloaded: 503.
    Unavailable,
    /// The store and the program disagree: 500.
    Broken,
}

/// Why a commit did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The row moved since the decision.
    #[error("the row moved since the decision")]
    Stale,
    /// The idempotency key has an outcome already.
    #[error("the idempotency key is taken")]
    KeyTaken,
    /// A constraint over several rows refused.
    #[error("a constraint refused: {0:?}")]
    Conflict(Conflict),
    /// The store could not answer; whether the commit happened is not known.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Rules over several rows that the database keeps; the adapter maps constraint names to these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The slug is taken in its space.
    DuplicateSlug,
    /// The asset has a version of that label.
    DuplicateVersionLabel,
    /// The release has a binding of that role.
    DuplicateRole,
    /// The principal holds that role there already.
    DuplicateRoleBinding,
    /// Another tenant answers to that host name.
    HostTaken,
    /// Something that the row refers to is gone.
    MissingReference,
    /// Another knowledge base of the tenant has an access contract of that name.
    ContractOfAnother,
    /// The access contract is revoked, and the version says that it is not.
    ContractRevoked,
}

impl Conflict {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::DuplicateSlug => "duplicate_slug",
            Self::DuplicateVersionLabel => "duplicate_version_label",
            Self::DuplicateRole => "duplicate_role",
            Self::DuplicateRoleBinding => "duplicate_role_binding",
            Self::HostTaken => "host_taken",
            Self::MissingReference => "missing_reference",
            Self::ContractOfAnother => "contract_of_another_asset",
            Self::ContractRevoked => "contract_revoked",
        }
    }
}
