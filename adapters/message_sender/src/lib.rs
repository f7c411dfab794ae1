//! The message sender: delivers notifications as webhooks, e-mails, chat messages and on-call alerts, through the
//! egress guard.
//!
//! Only the status of a receiver's response leaves this crate, because a response may repeat the secret that was
//! sent.

mod chat;
mod email;
mod http_delivery;
mod on_call_alert;
mod webhook;

pub use email::{MailEncryption, MailServer, MailServerRefusal};

use async_trait::async_trait;
use fairway_domain::{
    clock::Clock,
    notification::{
        Channel,
        delivery::DeliveryError,
        destination::configuration_redaction::REDACTED,
        message::{MessageSender, NotificationMessage, OutgoingMessage, Receiver, SendFailure},
    },
    secret::{Secret, SecretReader, SecretRef},
    slug::Slug,
};
use fairway_egress::{EndpointClient, Guard};
use moka::sync::Cache;
use serde_json::{Map, Value};
use std::{fmt, sync::Arc, time::Duration};

/// Maximum time until a receiver has accepted or refused a message.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for reading the rest of a response, after its status has determined the outcome.
const RESPONSE_REST_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of endpoints whose open connections are cached.
const MAX_ENDPOINTS: u64 = 256;

/// Sends messages through the egress guard.
#[derive(Clone)]
pub struct GuardedSender {
    guard: Guard,
    secrets: Arc<dyn SecretReader>,
    clock: Arc<dyn Clock>,
    mail_server: Option<Arc<MailServer>>,
    /// The public address of the Fairway server, without a trailing slash.
    public_url: Option<Arc<str>>,
    endpoints: Cache<String, EndpointClient>,
}

impl fmt::Debug for GuardedSender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GuardedSender").field("guard", &self.guard).finish_non_exhaustive()
    }
}

impl GuardedSender {
    /// Creates a sender that uses this guard and this source of secrets. Without a mail server, e-mail deliveries
    /// fail.
    #[must_use]
    pub fn new(
        guard: Guard,
        secrets: Arc<dyn SecretReader>,
        clock: Arc<dyn Clock>,
        mail_server: Option<MailServer>,
    ) -> Self {
        let mail_server = mail_server.map(Arc::new);
        Self { guard, secrets, clock, mail_server, public_url: None, endpoints: Cache::new(MAX_ENDPOINTS) }
    }

    /// Sets the address of the server to whose console messages link. Without an address, messages contain no link.
    #[must_use]
    pub fn with_public_url(mut self, url: Option<&str>) -> Self {
        self.public_url = url.map(|url| url.trim_end_matches('/').into());
        self
    }

    /// Returns the message with its link as an absolute address.
    fn make_link_absolute(&self, message: &NotificationMessage) -> NotificationMessage {
        let link = self.public_url.as_ref().zip(message.link.as_ref()).map(|(url, path)| format!("{url}{path}"));
        NotificationMessage { link, ..message.clone() }
    }

    async fn secret(&self, tenant: &Slug, reference: &str) -> Result<Secret, SendFailure> {
        let unavailable = || SendFailure::without_response(DeliveryError::SecretUnavailable);
        let secret_ref = SecretRef::parse(reference).map_err(|_| unavailable())?;
        self.secrets.read(tenant, &secret_ref).await.map_err(|error| {
            tracing::warn!(
                tenant = tenant.as_str(),
                secret_ref = reference,
                code = error.code(),
                "failed to read the secret of a destination; failing this attempt to send"
            );
            unavailable()
        })
    }

    async fn send_to(&self, outgoing: &OutgoingMessage) -> Result<Option<u16>, SendFailure> {
        let OutgoingMessage { tenant_slug, channel, receiver, message } = outgoing;
        let message = &self.make_link_absolute(message);
        match channel {
            Channel::Email => {
                let address = match receiver {
                    Receiver::Destination { configuration, .. } => member(configuration, "address"),
                    Receiver::Mailbox(address) => address.as_deref(),
                    Receiver::Chat(_) => None,
                };
                let address = address.ok_or(SendFailure::without_response(DeliveryError::NoAddress))?;
                let not_configured = SendFailure::without_response(DeliveryError::MailNotConfigured);
                let server = self.mail_server.as_ref().ok_or(not_configured)?;
                server.send(address, message).await
            }
            Channel::ChatA | Channel::ChatB | Channel::ChatC => {
                let (configuration, secret_ref) = parts_of(receiver);
                // A chat's address often contains its credential, so the address may be stored as a secret.
                let address = match (member(configuration, "url"), secret_ref) {
                    (Some(url), _) => url.to_owned(),
                    (None, Some(reference)) => self.secret(tenant_slug, reference).await?.expose().trim().to_owned(),
                    (None, None) => return Err(without_address(configuration)),
                };
                let body = chat::body(member(configuration, "format"), &address, message);
                self.post(message.delivery_id, &address, http_delivery::Request::json(&body)).await
            }
            Channel::Paging => {
                let (configuration, secret_ref) = parts_of(receiver);
                let (address, key) = self.address_and_key(tenant_slug, configuration, secret_ref).await?;
                let key = key.ok_or(SendFailure::without_response(DeliveryError::SecretUnavailable))?;
                let body = on_call_alert::body(key.expose().trim(), message);
                self.post(message.delivery_id, &address, http_delivery::Request::json(&body)).await
            }
            Channel::Webhook => {
                let (configuration, secret_ref) = parts_of(receiver);
                let (address, key) = self.address_and_key(tenant_slug, configuration, secret_ref).await?;
                let request = webhook::request(message, key.as_ref(), self.clock.now())?;
                self.post(message.delivery_id, &address, request).await
            }
            Channel::Portal => Err(SendFailure::without_response(DeliveryError::NoAddress)),
        }
    }

    /// The address of a destination, and its signing or routing key if it has one.
    async fn address_and_key(
        &self,
        tenant: &Slug,
        configuration: &Map<String, Value>,
        secret_ref: Option<&str>,
    ) -> Result<(String, Option<Secret>), SendFailure> {
        let address = member(configuration, "url").ok_or_else(|| without_address(configuration))?.to_owned();
        let key = match secret_ref {
            Some(reference) => Some(self.secret(tenant, reference).await?),
            None => None,
        };
        Ok((address, key))
    }
}

/// A text of a configuration. A text that was redacted, even in part, counts as absent, because it is no longer the
/// address that the administrator entered.
fn member<'c>(configuration: &'c Map<String, Value>, name: &str) -> Option<&'c str> {
    let text = configuration.get(name)?.as_str()?;
    (!text.is_empty() && !text.contains(REDACTED)).then_some(text)
}

/// The failure of a delivery without an address. A redacted address contained a credential, so it fails like an
/// address with a credential: as refused.
fn without_address(configuration: &Map<String, Value>) -> SendFailure {
    let is_redacted = configuration.get("url").and_then(Value::as_str).is_some_and(|url| url.contains(REDACTED));
    SendFailure::without_response(if is_redacted { DeliveryError::AddressRefused } else { DeliveryError::NoAddress })
}

/// The configuration of a receiver, and the reference to its secret.
fn parts_of(receiver: &Receiver) -> (&Map<String, Value>, Option<&str>) {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    match receiver {
        Receiver::Destination { configuration, secret_ref } => (configuration, secret_ref.as_deref()),
        Receiver::Chat(secret_ref) => (&EMPTY, secret_ref.as_deref()),
        Receiver::Mailbox(_) => (&EMPTY, None),
    }
}

#[async_trait]
impl MessageSender for GuardedSender {
    async fn send(&self, outgoing: &OutgoingMessage) -> Result<Option<u16>, SendFailure> {
        let timed_out = SendFailure::without_response(DeliveryError::TimedOut);
        // This limit exceeds the timeout of the request plus the timeout of the response's rest. A response that ends
        // slowly therefore does not hide that the receiver accepted the message.
        tokio::time::timeout(TIMEOUT + 2 * RESPONSE_REST_TIMEOUT, self.send_to(outgoing))
            .await
            .map_err(|_| timed_out)?
    }
}
