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

/// One line of a digest, which stands for one notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestLine {
    /// The urgency of the notification.
    pub severity: Severity,
    /// The title, which is one line of text.
    pub title: String,
    /// The body, which contains further codes and identifiers.
    pub body: String,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
}

/// The content of a delivery, which is the same in all attempts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotificationMessage {
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
    /// The body, which contains further codes and identifiers.
    pub body: String,
    /// The path of the console page about the subject. The sender completes it to a full address.
    pub link: Option<String>,
    /// The kind of the fact that caused the notification.
    pub event_kind: String,
    /// The identifier of the fact that caused the notification.
    pub event_id: FactId,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment of the fact, if any.
    pub environment: Option<String>,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
    /// The first notifications of a digest, oldest first; empty for an individual notification.
    pub lines: Vec<DigestLine>,
    /// The number of further notifications in the digest, which `lines` omits.
    pub omitted_lines: usize,
}

/// The address at which a message is received.
#[derive(Clone, PartialEq, Debug)]
pub enum Receiver {
    /// A shared destination of a workspace or the organization.
    Destination {
        /// The configuration of the destination, without secrets.
        configuration: Map<String, Value>,
        /// The reference to the secret of the destination, if it has one.
        secret_ref: Option<String>,
    },
    /// The e-mail address of a person; `None` if no identity provider verified one.
    Mailbox(Option<String>),
    /// The chat of a person: a reference to its secret address. `None` if the profile of the person names no chat.
    Chat(Option<String>),
}

/// A message, with the data that a sender needs.
#[derive(Clone, PartialEq, Debug)]
pub struct OutgoingMessage {
    /// The slug of the tenant, which selects the secrets to which references can resolve.
    pub tenant_slug: Slug,
    /// The channel that delivers the message.
    pub channel: Channel,
    /// The address at which the message is received.
    pub receiver: Receiver,
    /// The content of the message.
    pub message: NotificationMessage,
}

/// A failed attempt to send a message, with the details that the retry decision needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendFailure {
    /// The reason why the attempt failed.
    pub error: DeliveryError,
    /// The HTTP or SMTP status of the response, if a response arrived.
    pub status: Option<u16>,
    /// The delay that the receiver asked for before the next attempt, if any.
    pub retry_after: Option<Duration>,
}

impl SendFailure {
    /// Creates a failure without a response of the receiver.
    #[must_use]
    pub const fn without_response(error: DeliveryError) -> Self {
        Self { error, status: None, retry_after: None }
    }
}

/// The port that sends messages.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends a message once and waits for the response of the receiver. Returns the status of the response, if there is
    /// one.
    ///
    /// # Errors
    /// If the receiver did not accept the message. The error contains no text of the receiver.
    async fn send(&self, outgoing: &OutgoingMessage) -> Result<Option<u16>, SendFailure>;
}
