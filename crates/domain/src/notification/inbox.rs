//! Inbox notifications: what a recipient reads, marks and archives.

use crate::{
    access::ActorRef,
    fact_category::FactCategory,
    id::{FactId, NotificationId, WorkloadId, WorkspaceId},
    notification::Severity,
    store::{Revision, aggregate},
    time::Timestamp,
};

/// The status of an inbox notification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InboxStatus {
    /// Not read yet.
    Unread,
    /// Read.
    Read,
    /// Put away.
    Archived,
}

impl InboxStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Unread, Self::Read, Self::Archived];

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Read => "read",
            Self::Archived => "archived",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A notification of one recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification(pub(crate) NotificationRecord);

/// The fields of [`Notification`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationRecord {
    /// Its identifier.
    pub notification_id: NotificationId,
    /// The recipient.
    pub recipient: ActorRef,
    /// The status.
    pub status: InboxStatus,
    /// The category.
    pub category: FactCategory,
    /// The severity.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// Further codes and identifiers.
    pub body: String,
    /// The kind of the fact that it is about.
    pub event_kind: String,
    /// That fact.
    pub event_id: FactId,
    /// The index of the fact in the tenant's log.
    pub log_index: u64,
    /// The workspace, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment, if any.
    pub environment: Option<String>,
    /// When the fact occurred.
    pub created_at: Timestamp,
    /// When it was first read.
    pub read_at: Option<Timestamp>,
    /// Increments with each change of the status.
    pub revision: Revision,
}

aggregate!(Notification, NotificationRecord);

/// The next status of a notification, and the revision on which it is based.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a decision changes nothing until a store commits it"]
pub struct StatusChange {
    /// The notification afterwards.
    pub next: Notification,
    /// The revision on which the decision is based.
    pub decided_on: Revision,
}

impl Notification {
    /// Sets the status; `None` if the notification has it already. Reading sets `read_at` once; marking as unread clears
    /// it.
    ///
    /// It writes no fact: the status of an inbox is a person's own, and governs nothing.
    #[must_use]
    pub fn set_status(&self, status: InboxStatus, at: Timestamp) -> Option<StatusChange> {
        if status == self.status {
            return None;
        }
        let read_at = match status {
            InboxStatus::Unread => None,
            InboxStatus::Read => Some(self.read_at.unwrap_or(at)),
            InboxStatus::Archived => self.read_at,
        };
        let next = Self(NotificationRecord { status, read_at, revision: self.revision.next(), ..self.0.clone() });
        Some(StatusChange { next, decided_on: self.revision })
    }
}
