//! Common types of all stores: revisions, changes, errors and pages.

use crate::audit::Fact;
use serde::{Deserialize, Serialize};
use std::{error::Error, ops::Deref};
use uuid::Uuid;

/// The change counter of a row; a commit names the revision on which it is based.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(i64);

impl Revision {
    /// The revision of a new row.
    pub const FIRST: Self = Self(1);

    /// The revision of settings that nobody has made yet.
    pub const UNSET: Self = Self(0);

    /// Wraps a stored revision.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The numeric value.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The next revision.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A decision that awaits its commit. Only the domain makes one; others read its record.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct Change<T>(pub(crate) ChangeRecord<T>);

/// What a decision changes: the next aggregate, the revision on which the decision is based, and its fact.
#[derive(Clone, Debug)]
pub struct ChangeRecord<T> {
    /// The next aggregate.
    pub next: T,
    /// The revision on which the decision is based; `None` for a new aggregate.
    pub decided_on: Option<Revision>,
    /// The audit log entry, written in the same transaction.
    pub fact: Fact,
}

impl<T> ChangeRecord<T> {
    /// The revision that the commit of a replacement must find.
    ///
    /// # Errors
    /// Inconsistent if the decision creates its aggregate: its commit must not overwrite a row.
    pub fn replaced_revision(&self) -> Result<Revision, StoreError> {
        let missing = || StoreError {
            source: "a decision that creates an aggregate replaces no revision".into(),
            fault: StoreFault::Inconsistent,
        };
        self.decided_on.ok_or_else(missing)
    }
}

impl<T> Change<T> {
    /// Creates a new aggregate.
    pub(crate) const fn create(next: T, fact: Fact) -> Self {
        Self(ChangeRecord { next, decided_on: None, fact })
    }

    /// Replaces the aggregate that was read at `decided_on`.
    pub(crate) const fn replace(next: T, decided_on: Revision, fact: Fact) -> Self {
        Self(ChangeRecord { next, decided_on: Some(decided_on), fact })
    }

    /// The record, for a store that commits it.
    pub fn into_record(self) -> ChangeRecord<T> {
        self.0
    }
}

impl<T> Deref for Change<T> {
    type Target = ChangeRecord<T>;

    fn deref(&self) -> &ChangeRecord<T> {
        &self.0
    }
}

/// Makes the fields of an aggregate readable, and editable in the domain alone.
///
/// An aggregate comes from a decision, or from a store that restores what was committed. Other crates cannot edit a
/// field, so each change passes a decision. `cargo xtask check` compares the callers of `restore` with a list.
macro_rules! aggregate {
    ($aggregate:ident, $record:ident) => {
        impl $aggregate {
            /// Restores the aggregate from its committed fields.
            #[must_use]
            pub const fn restore(record: $record) -> Self {
                Self(record)
            }

            /// The fields, for a caller that takes them apart.
            #[must_use]
            pub fn into_record(self) -> $record {
                self.0
            }
        }

        impl std::ops::Deref for $aggregate {
            type Target = $record;

            fn deref(&self) -> &$record {
                &self.0
            }
        }
    };
}
pub(crate) use aggregate;

/// A request for a page, newest first: at most `limit` rows from `start`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// 1 to 200.
    pub limit: u32,
    /// The start of the page.
    pub start: PageStart,
}

/// The start of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageStart {
    /// After a number of rows, 0 to 10 000; the store skips them.
    Skip(u32),
    /// After the row of this cursor; the store seeks it directly at any depth.
    After(Cursor),
}

/// The position of a row in its list: the sort key. Each sort key is unique and immutable, so a cursor stays valid when
/// rows are inserted or deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor(u128);

impl Cursor {
    /// Wraps a cursor value that was returned to a client.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The value to return to a client.
    #[must_use]
    pub const fn value(self) -> u128 {
        self.0
    }

    /// The sort key of a list ordered by identifier.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        Uuid::from_u128(self.0)
    }

    /// The sort key of a list ordered by log index; an out-of-range value sorts last.
    #[must_use]
    pub fn index(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

impl From<Uuid> for Cursor {
    fn from(id: Uuid) -> Self {
        Self(id.as_u128())
    }
}

impl PageRequest {
    /// The first `limit` rows.
    #[must_use]
    pub const fn first(limit: u32) -> Self {
        Self { limit, start: PageStart::Skip(0) }
    }
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// The rows, newest first.
    pub rows: Vec<T>,
    /// The total number of rows, exact up to 10 000; a larger value means more than 10 000.
    pub total: u64,
    /// The cursor of the last row, if more rows follow.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Maps the rows.
    pub fn map<U>(self, turn: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(turn).collect(), total: self.total, next: self.next }
    }

    /// Maps the rows with a fallible function.
    ///
    /// # Errors
    /// The first error.
    pub fn try_map<U, E>(self, turn: impl FnMut(T) -> Result<U, E>) -> Result<Page<U>, E> {
        let rows = self.rows.into_iter().map(turn).collect::<Result<_, _>>()?;
        Ok(Page { rows, total: self.total, next: self.next })
    }
}

/// A failed store operation. The source is logged, never shown to clients.
#[derive(Debug, thiserror::Error)]
#[error("the store operation failed")]
pub struct StoreError {
    /// The underlying error, for the log.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
    /// Whether a retry can succeed, and whether a change may have happened.
    pub fault: StoreFault,
}

impl StoreError {
    /// The error for callers that did not ask for the failed write, such as a counter or an entry of the audit log. An
    /// unknown outcome becomes [`StoreFault::Unavailable`].
    #[must_use]
    pub fn of_internal_write(self) -> Self {
        match self.fault {
            StoreFault::OutcomeUnknown => Self { fault: StoreFault::Unavailable, ..self },
            StoreFault::Unavailable | StoreFault::Inconsistent => self,
        }
    }
}

/// Whether a retry can succeed, and whether a change may have happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFault {
    /// The store is unreachable or overloaded, and committed nothing: 503.
    Unavailable,
    /// The store received a change, and its response is missing. The change may be committed, now or later: 503 with
    /// `may_have_happened`. Reads never have this fault.
    OutcomeUnknown,
    /// The store and the program are inconsistent: 500.
    Inconsistent,
}

/// The reason a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The row changed since the decision.
    #[error("the row changed since the decision")]
    Stale,
    /// The idempotency key already has an outcome.
    #[error("the idempotency key is taken")]
    DuplicateKey,
    /// A cross-row constraint was violated.
    #[error("constraint violation: {0:?}")]
    Conflict(Conflict),
    /// The store operation failed; [`StoreError::fault`] says whether the commit may have happened.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Cross-row rules that the database enforces; the adapter maps constraint names to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// The slug already exists in its scope.
    DuplicateSlug,
    /// The asset already has a version with that label.
    DuplicateVersionLabel,
    /// A release that is neither superseded nor retired binds a version of the asset.
    AssetInUse,
    /// The asset is already granted to that principal or workspace.
    DuplicateGrant,
    /// The release already has a binding in that role.
    DuplicateRole,
    /// The principal already holds that role in the scope.
    DuplicateRoleBinding,
    /// Another tenant already uses the host name.
    HostTaken,
    /// The referenced row no longer exists.
    MissingReference,
    /// Another knowledge base of the tenant has an access contract with that name.
    ContractNameTaken,
    /// The access contract is revoked, but the version declares it active.
    ContractRevoked,
    /// The share link is revoked, expired or has no runs left.
    ShareLinkClosed,
    /// The scope already has a destination of that type and name.
    DuplicateDestination,
    /// The scope has as many destinations as it can have.
    TooManyDestinations,
    /// Another subject is pinned to the actor name.
    ActorNameTaken,
    /// The workspace already has a connection with that name.
    DuplicateConnection,
    /// Another refinement used the key.
    RefinementKeyTaken,
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
            Self::ContractNameTaken => "contract_of_another_asset",
            Self::ContractRevoked => "contract_revoked",
            Self::ShareLinkClosed => "share_link_closed",
            Self::DuplicateDestination => "duplicate_destination",
            Self::TooManyDestinations => "too_many_destinations",
            Self::ActorNameTaken => "actor_name_taken",
            Self::DuplicateConnection => "duplicate_connection",
            Self::RefinementKeyTaken => "idempotency_key_conflict",
        }
    }
}
