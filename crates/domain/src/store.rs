//! What every store has in common: revisions, changes, errors, pages.

use crate::audit::Fact;
use serde::{Deserialize, Serialize};
use std::error::Error;
use uuid::Uuid;

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

/// A page of a list, newest first: at most `limit` rows from `start`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Paging {
    /// 1 to 200.
    pub limit: u32,
    /// Where the page begins.
    pub start: Start,
}

/// Where a page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// After so many rows, 0 to 10 000: the store walks past them.
    Skip(u32),
    /// Behind the row of this mark: the store goes there directly, however deep it is.
    Behind(Mark),
}

/// Where a row stands in its list: the key that the list is ordered by. Every list is ordered by one that is unique
/// and never changes, so a mark means the same place whatever is added or taken away meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u128);

impl Mark {
    /// The mark of that number, as it was handed out.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The mark as a number, to be handed out.
    #[must_use]
    pub const fn number(self) -> u128 {
        self.0
    }

    /// The key of a list that is ordered by identifiers.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        Uuid::from_u128(self.0)
    }

    /// The key of a list that is ordered by places in a log; a number that is none lies behind everything.
    #[must_use]
    pub fn index(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl From<Uuid> for Mark {
    fn from(id: Uuid) -> Self {
        Self(id.as_u128())
    }
}

impl Paging {
    /// The first `limit` rows.
    #[must_use]
    pub const fn first(limit: u32) -> Self {
        Self { limit, start: Start::Skip(0) }
    }
}

/// A page of a list, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// Rows of the whole list. Exact up to 10 000, and anything above beyond.
    pub total: u64,
    /// The last row's mark, if the list goes on behind it.
    pub next: Option<Mark>,
}

impl<T> Listed<T> {
    /// The same page with its rows turned into something else.
    pub fn map<U>(self, turn: impl FnMut(T) -> U) -> Listed<U> {
        Listed { rows: self.rows.into_iter().map(turn).collect(), total: self.total, next: self.next }
    }

    /// The same where a row may fail to be turned.
    ///
    /// # Errors
    /// With the first row's failure.
    pub fn try_map<U, E>(self, turn: impl FnMut(T) -> Result<U, E>) -> Result<Listed<U>, E> {
        let rows = self.rows.into_iter().map(turn).collect::<Result<_, _>>()?;
        Ok(Listed { rows, total: self.total, next: self.next })
    }
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
    /// A release that is not over binds a version of the asset.
    AssetInUse,
    /// The asset is granted to that principal or workspace already.
    DuplicateGrant,
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
    /// The share link is revoked, expired or used up.
    ShareLinkClosed,
}

impl Conflict {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::DuplicateSlug => "duplicate_slug",
            Self::DuplicateVersionLabel => "duplicate_version_label",
            Self::AssetInUse => "asset_in_use",
            Self::DuplicateGrant => "duplicate_grant",
            Self::DuplicateRole => "duplicate_role",
            Self::DuplicateRoleBinding => "duplicate_role_binding",
            Self::HostTaken => "host_taken",
            Self::MissingReference => "missing_reference",
            Self::ContractOfAnother => "contract_of_another_asset",
            Self::ContractRevoked => "contract_revoked",
            Self::ShareLinkClosed => "share_link_closed",
        }
    }
}
