//! What a channel delivers, and the port that sends it.

use crate::{
    fact_category::FactCategory,
    id::{DeliveryId, FactId, TenantId, WorkloadId, WorkspaceId},
    notification::{Channel, Severity, delivery::DeliveryError},
    slug::Slug,
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use std::time::Duration;

/// One notification of a digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DigestLine {
    /// The severity.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// Further codes and identifiers.
    pub body: String,
    /// When the fact occurred.
    pub created_at: Timestamp,
}

/// The content of a delivery. All attempts send the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The delivery, which receivers use to recognize repetitions.
    pub delivery_id: DeliveryId,
    /// The tenant.
    pub tenant: TenantId,
    /// The category.
    pub category: FactCategory,
    /// The severity.
    pub severity: Severity,
    /// One line.
    pub title: String,
    /// Further codes and identifiers.
    pub body: String,
    /// The console's page about the subject: its path, or its address once a sender has completed it.
    pub link: Option<String>,
    /// The kind of the fact.
    pub event_kind: String,
    /// The fact.
    pub event_id: FactId,
    /// The workspace, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload, if any.
    pub workload_id: Option<WorkloadId>,
    /// The environment, if any.
    pub environment: Option<String>,
    /// When the fact occurred.
    pub created_at: Timestamp,
    /// The first notifications of a digest, oldest first; empty for a single notification.
    pub lines: Vec<DigestLine>,
    /// The number of notifications of a digest beyond these.
    pub omitted_lines: usize,
}

/// Where a message goes.
#[derive(Clone, PartialEq, Debug)]
pub enum Receiver {
    /// A shared destination.
    Destination {
        /// Its configuration without secrets.
        configuration: Map<String, Value>,
        /// The reference to its secret.
        secret_ref: Option<String>,
    },
    /// The e-mail address of a person; `None` if its identity provider verified none.
    Mailbox(Option<String>),
    /// The chat of a person, whose address is a secret; `None` if its profile names none.
    Chat(Option<String>),
}

/// A message on its way.
#[derive(Clone, PartialEq, Debug)]
pub struct OutgoingMessage {
    /// The slug of the tenant, in whose namespace secrets are resolved.
    pub tenant_slug: Slug,
    /// The channel.
    pub channel: Channel,
    /// Where it goes.
    pub receiver: Receiver,
    /// What it says.
    pub message: Message,
}

/// A failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct SendFailure {
    /// Why it failed.
    pub error: DeliveryError,
    /// The status of the response, if one arrived.
    pub status: Option<u16>,
    /// How long the receiver asks to wait.
    pub retry_after: Option<Duration>,
}

impl SendFailure {
    /// A failure without a response.
    #[must_use]
    pub const fn without_response(error: DeliveryError) -> Self {
        Self { error, status: None, retry_after: None }
    }
}

/// Sends messages.
#[async_trait]
pub trait MessageSender: Send + Sync {
    /// Sends a message once, and waits for the receiver's response.
    ///
    /// # Errors
    /// When the receiver did not accept it. No text of the receiver is part of the error.
    async fn send(&self, outgoing: &OutgoingMessage) -> Result<Option<u16>, SendFailure>;
}
