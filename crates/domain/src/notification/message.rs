//! The messages that channels deliver, and the port that sends them.

use crate::{
    id::{DeliveryId, FactId, TenantId, WorkloadId, WorkspaceId},
    notification::{Channel, Severity, delivery::DeliveryError},
    notification_category::NotificationCategory,
    slug::Slug,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::time::Duration;

/// One line of a digest, which represents one notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestLine {
    /// The urgency of the notification.
    pub severity: Severity,
    /// The title, which is one line of text.
    pub title: String,
    /// The body, with further codes and identifiers.
    pub body: String,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
}

/// The content of a delivery. All attempts send the same content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The identifier of the delivery, by which receivers recognize repeated attempts.
    pub delivery_id: DeliveryId,
    /// The tenant to which the notification belongs.
    pub tenant: TenantId,
    /// The category of the notification.
    pub category: NotificationCategory,
    /// The urgency of the notification.
    pub severity: Severity,
    /// The title, which is one line of text.
    pub title: String,
    /// The body, with further codes and identifiers.
    pub body: String,
    /// The link to the console page about the subject: a path, which the sender completes to a full address.
    pub link: Option<String>,
    /// The kind of the fact.
    pub event_kind: String,
    /// The identifier of the fact.
    pub event_id: FactId,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment of the fact, if any.
    pub environment: Option<String>,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
    /// The first notifications of a digest, oldest first; empty for a single notification.
    pub lines: Vec<DigestLine>,
    /// The number of notifications in the digest that `lines` omits.
    pub omitted_lines: usize,
}

/// The receiver of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Receiver {
    /// A shared destination.
    Destination {
        /// The configuration of the destination, without secrets.
        configuration: Map<String, Value>,
        /// The reference to the destination's secret.
        secret_ref: Option<String>,
    },
    /// The e-mail address of a person; `None` if no identity provider has verified an address.
    Mailbox(Option<String>),
    /// The chat of a person, given by a reference to its secret address; `None` if the person's profile names no
    /// chat.
    Chat(Option<String>),
}

/// A message with everything that is needed to send it.
#[derive(Clone, PartialEq, Debug)]
pub struct OutgoingMessage {
    /// The slug of the tenant, which selects the namespace in which secret references are resolved.
    pub tenant_slug: Slug,
    /// The channel that delivers the message.
    pub channel: Channel,
    /// The receiver of the message.
    pub receiver: Receiver,
    /// The content to send.
    pub message: Message,
}

/// A failed attempt to send a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendFailure {
    /// The reason of the failure.
    pub error: DeliveryError,
    /// The HTTP or SMTP status of the response, if a response arrived.
    pub status: Option<u16>,
    /// The delay that the receiver requests before the next attempt.
    pub retry_after: Option<Duration>,
}

impl SendFailure {
    /// A failure for which no response of the receiver exists.
    #[must_use]
    pub const fn without_response(error: DeliveryError) -> Self {
        Self { error, status: None, retry_after: None }
    }
}

/// The port that sends messages through a channel.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends a message once, and waits for the receiver's response. Returns the status of the response, if any.
    ///
    /// # Errors
    /// If the receiver did not accept the message. The error contains no text of the receiver.
    async fn send(&self, outgoing: &OutgoingMessage) -> Result<Option<u16>, SendFailure>;
}
