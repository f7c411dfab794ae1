//! The types that all stores share: revisions, changes, errors and pages.

use crate::audit::Fact;
use serde::{Deserialize, Serialize};
use std::{error::Error, ops::Deref};
use uuid::Uuid;

/// The change counter of a row. A commit names the revision on which its decision is based, and is stale if the row
/// changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(i64);

impl Revision {
    /// The revision of a new row.
    pub const FIRST: Self = Self(1);

    /// The revision of settings that were never stored.
    pub const UNSET: Self = Self(0);

    /// Creates a revision from the stored number.
    #[must_use]
    pub const fn new(count: i64) -> Self {
        Self(count)
    }

    /// The number of the revision, as stored.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The revision after the next change.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A decision that awaits its commit. Only the domain can create or edit it; other crates can read it.
#[derive(Clone, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct Change<T>(pub(crate) ChangeRecord<T>);

/// The data of a decision: the next aggregate, the revision on which the decision is based, and its fact.
#[derive(Clone, Debug)]
pub struct ChangeRecord<T> {
    /// The aggregate after the change.
    pub next: T,
    /// The revision on which the decision is based; `None` for a new aggregate.
    pub expected_revision: Option<Revision>,
    /// The fact about the change, which the store writes to the audit log in the same transaction.
    pub fact: Fact,
}

impl<T> ChangeRecord<T> {
    /// The revision that the stored aggregate must have if this change replaces it.
    ///
    /// # Errors
    /// `Inconsistent` if the change creates a new aggregate, because its commit must not overwrite a row.
    pub fn replaced_revision(&self) -> Result<Revision, StoreError> {
        let no_revision = || StoreError {
            source: "a decision that creates an aggregate replaces no revision".into(),
            fault: StoreFault::Inconsistent,
        };
        self.expected_revision.ok_or_else(no_revision)
    }
}

impl<T> Change<T> {
    /// The decision to create a new aggregate.
    pub(crate) const fn create(next: T, fact: Fact) -> Self {
        Self(ChangeRecord { next, expected_revision: None, fact })
    }

    /// The decision to replace the aggregate that was read at `expected_revision`.
    pub(crate) const fn replace(next: T, expected_revision: Revision, fact: Fact) -> Self {
        Self(ChangeRecord { next, expected_revision: Some(expected_revision), fact })
    }

    /// The data of the change, for the store that commits it.
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

/// Makes the fields of an aggregate readable everywhere, and editable only in the domain.
///
/// An aggregate comes from a decision, or from a store that restores committed fields. Other crates cannot edit its
/// fields, so each change requires a decision. `cargo xtask check` compares the callers of `restore` with a list.
macro_rules! aggregate {
    ($aggregate:ident, $record:ident) => {
        impl $aggregate {
            /// Restores the aggregate from its committed fields; only stores may call this function.
            #[must_use]
            pub const fn restore(record: $record) -> Self {
                Self(record)
            }

            /// Converts the aggregate to its fields, for a caller that needs to move them.
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

/// A request for a page of a list, newest first: at most `limit` rows, starting at `start`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// The maximum number of rows, 1 to 200.
    pub limit: u32,
    /// The row with which the page starts.
    pub start: PageStart,
}

/// The row with which a page starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageStart {
    /// The row after this number of rows, 0 to 10,000, which the store must read and skip.
    Skip(u32),
    /// The row after that of this cursor. The store finds it directly, at any depth of the list.
    After(Cursor),
}

/// The position of a row in its list: the sort key of the row. Sort keys are unique and immutable, so a cursor stays
/// valid when rows are inserted or deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor(u128);

impl Cursor {
    /// Creates a cursor from a value that was returned to a client.
    #[must_use]
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    /// The value of the cursor, which is returned to clients.
    #[must_use]
    pub const fn value(self) -> u128 {
        self.0
    }

    /// The cursor as the sort key of a list that is ordered by identifier.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        Uuid::from_u128(self.0)
    }

    /// The cursor as the sort key of a list that is ordered by log index. A value out of range sorts last.
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
    /// A request for the first `limit` rows.
    #[must_use]
    pub const fn first(limit: u32) -> Self {
        Self { limit, start: PageStart::Skip(0) }
    }
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// The rows of the page, newest first.
    pub rows: Vec<T>,
    /// The total number of rows in the list, exact up to 10,000. A larger value means more than 10,000.
    pub total: u64,
    /// The cursor of the page's last row; `None` if no row follows.
    pub next: Option<Cursor>,
}

impl<T> Page<T> {
    /// Converts each row of the page.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(convert).collect(), total: self.total, next: self.next }
    }

    /// Converts each row of the page with a fallible function.
    ///
    /// # Errors
    /// The first error of the function.
    pub fn try_map<U, E>(self, convert: impl FnMut(T) -> Result<U, E>) -> Result<Page<U>, E> {
        let rows = self.rows.into_iter().map(convert).collect::<Result<_, _>>()?;
        Ok(Page { rows, total: self.total, next: self.next })
    }
}

/// A failed store operation. Its source is logged, but not shown to clients.
#[derive(Debug, thiserror::Error)]
#[error("the store operation failed")]
pub struct StoreError {
    /// The underlying error, for the log.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
    /// Whether a retry can succeed, and whether the change may have been committed.
    pub fault: StoreFault,
}

impl StoreError {
    /// Converts the error of a write that the client did not request, such as a counter or an audit entry. An unknown
    /// outcome becomes [`StoreFault::Unavailable`], because the client need not learn about this write.
    #[must_use]
    pub fn unknown_outcome_as_unavailable(self) -> Self {
        match self.fault {
            StoreFault::OutcomeUnknown => Self { fault: StoreFault::Unavailable, ..self },
            StoreFault::Unavailable | StoreFault::Inconsistent => self,
        }
    }
}

/// Whether a retry can succeed, and whether the change may have been committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreFault {
    /// The store is unreachable or overloaded, and has committed nothing. Over HTTP this is 503.
    Unavailable,
    /// The store received a change, but its response did not arrive. The change may have been committed, or may be
    /// committed later. Over HTTP this is 503 with `may_have_happened`. Reads never have this fault.
    OutcomeUnknown,
    /// The stored data do not have the form that the program expects. Over HTTP this is 500.
    Inconsistent,
}

/// The reason why a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The row changed since the decision, so the decision must be made again.
    #[error("the row changed since the decision")]
    Stale,
    /// The idempotency key already has an outcome.
    #[error("the idempotency key is taken")]
    DuplicateKey,
    /// The change violates a rule between rows.
    #[error("constraint violation: {0:?}")]
    Conflict(ConstraintConflict),
    /// The store operation failed. [`StoreError::fault`] tells whether the change may have been committed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A rule between rows, which the database enforces. The database adapter maps names of constraints to these values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConstraintConflict {
    /// The slug is already in use in its scope.
    DuplicateSlug,
    /// The asset already has a version with this label.
    DuplicateVersionLabel,
    /// A release that is neither superseded nor retired binds a version of the asset.
    AssetInUse,
    /// The asset is already granted to this principal or workspace.
    DuplicateGrant,
    /// The release already has a binding in this role.
    DuplicateRole,
    /// The principal already has this role in the scope.
    DuplicateRoleBinding,
    /// Another tenant already uses this host name.
    HostTaken,
    /// A row to which the change refers no longer exists.
    MissingReference,
    /// Another knowledge base of the tenant already has an access contract with this name.
    ContractNameTaken,
    /// The access contract is revoked, but the new version declares it active.
    ContractRevoked,
    /// The share link is revoked or expired, or has no runs left.
    ShareLinkClosed,
    /// The scope already has a destination of this type and name.
    DuplicateDestination,
    /// The scope already has the maximum number of destinations.
    TooManyDestinations,
    /// Another subject is already pinned to this actor name.
    ActorNameTaken,
    /// The workspace already has a connection with this name.
    DuplicateConnection,
    /// An earlier refinement in the workspace used this key.
    RefinementKeyTaken,
}

impl ConstraintConflict {
    /// The stable code of the conflict.
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
