//! Inbox notifications. Their recipient reads, marks and archives them.

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{FactId, NotificationId, TenantId, WorkloadId, WorkspaceId},
    notification::Severity,
    notification_category::NotificationCategory,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;

/// The status of a notification in the inbox of its recipient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InboxStatus {
    /// The recipient has not read the notification.
    Unread,
    /// The recipient has read the notification.
    Read,
    /// The recipient has archived the notification.
    Archived,
}

impl InboxStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Unread, Self::Read, Self::Archived];

    /// The wire form, such as `unread`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Read => "read",
            Self::Archived => "archived",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// A notification in the inbox of one recipient.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification(pub(crate) NotificationRecord);

/// The fields of [`Notification`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationRecord {
    /// The identifier of the notification.
    pub notification_id: NotificationId,
    /// The recipient, in whose inbox the notification is.
    pub recipient: ActorRef,
    /// Whether the recipient has read or archived the notification.
    pub status: InboxStatus,
    /// The category of the notification.
    pub category: NotificationCategory,
    /// The urgency of the notification.
    pub severity: Severity,
    /// The title, which is one line of text.
    pub title: String,
    /// The body, which contains further codes and identifiers.
    pub body: String,
    /// The path of the console page about the subject of the fact, if there is such a page.
    pub link: Option<String>,
    /// The kind of the fact that caused the notification.
    pub event_kind: String,
    /// The identifier of the fact that caused the notification.
    pub event_id: FactId,
    /// The index of the fact in the tenant's audit log.
    pub log_index: u64,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment of the fact, if any.
    pub environment: Option<String>,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
    /// The time at which the recipient marked the notification as read. The mark as unread clears this time.
    pub read_at: Option<Timestamp>,
    /// The change counter, which increments with each change of the status.
    pub revision: Revision,
}

aggregate!(Notification, NotificationRecord);

impl Notification {
    /// Changes the status; `None` if the notification already has it. The status `read` sets `read_at` unless it is
    /// set, and `unread` clears it. The fact proves that the recipient has seen the notification.
    #[must_use]
    pub fn set_status(&self, status: InboxStatus, stamp: &Stamp) -> Option<Change<Self>> {
        if status == self.status {
            return None;
        }
        let read_at = match status {
            InboxStatus::Unread => None,
            InboxStatus::Read => Some(self.read_at.unwrap_or(stamp.at)),
            InboxStatus::Archived => self.read_at,
        };
        let subject = FactSubject { kind: "notification", id: self.notification_id.uuid() };
        let detail = json!({
            "status": status.as_str(), "event_id": self.event_id, "workload_id": self.workload_id,
        });
        let fact = Fact::new(FactKind::NotificationMarked, subject, self.workspace_id, stamp, detail);
        let next = Self(NotificationRecord { status, read_at, revision: self.revision.next(), ..self.0.clone() });
        Some(Change::replace(next, self.revision, fact))
    }
}

/// Builds the fact that a recipient marked all of its notifications as read.
#[must_use]
pub fn inbox_all_read_fact(tenant: TenantId, stamp: &Stamp) -> Fact {
    let subject = FactSubject { kind: "tenant", id: tenant.uuid() };
    Fact::new(FactKind::InboxRead, subject, None, stamp, json!({}))
}
