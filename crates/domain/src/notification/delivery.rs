//! Deliveries: their statuses, their errors, and the times of their attempts.

mod status;

pub use status::{DeliveryEvent, DeliveryStatus};

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{DeliveryId, DestinationId, FactId, WorkloadId, WorkspaceId},
    notification::{Channel, derived_identifier::EventKey, digest::DigestWindow, inbox::Notification},
    notification_category::NotificationCategory,
    store::{Change, Revision, aggregate},
    time::Timestamp,
};
use serde_json::json;
use std::time::Duration;

/// The maximum number of attempts for one delivery.
pub const MAX_ATTEMPTS: u32 = 8;
/// The delays in seconds after the first to the seventh failed attempt.
const DELAYS: [u64; MAX_ATTEMPTS as usize - 1] = [5, 30, 120, 600, 3_600, 14_400, 43_200];
/// The maximum delay before a further attempt. It also limits the delay that a receiver requests with `Retry-After`.
pub const MAX_DELIVERY_RETRY_DELAY: Duration = Duration::from_secs(43_200);

/// The destination or the person that receives a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeliveryTarget {
    /// A shared destination of a workspace or the organization.
    Destination(DestinationId),
    /// A person, at an address of the person's own.
    Person(ActorRef),
}

impl DeliveryTarget {
    /// The destination that receives the delivery; `None` for a person.
    #[must_use]
    pub const fn destination(&self) -> Option<DestinationId> {
        match self {
            Self::Destination(id) => Some(*id),
            Self::Person(_) => None,
        }
    }

    /// The person who receives the delivery; `None` for a destination.
    #[must_use]
    pub const fn person(&self) -> Option<&ActorRef> {
        match self {
            Self::Destination(_) => None,
            Self::Person(actor) => Some(actor),
        }
    }
}

/// A delivery that the projector adds to the outbox.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDelivery {
    /// The identifier of the delivery, which is derived from event, target and channel.
    pub delivery_id: DeliveryId,
    /// The channel of the delivery, which is never the inbox.
    pub channel: Channel,
    /// The destination or the person that receives the delivery.
    pub target: DeliveryTarget,
    /// The notification that the delivery contains.
    pub notification: Notification,
    /// The event that the notification reports. A digest has one line for each event.
    pub event: EventKey,
    /// The window of the digest to which the delivery belongs; `None` if it is sent individually.
    pub digest: Option<DigestWindow>,
    /// Whether the delivery is only made in the advanced tier.
    pub requires_advanced_tier: bool,
    /// The error of a delivery that is never attempted; `None` if it waits for an attempt.
    pub failure: Option<DeliveryError>,
}

/// A delivery outside the inbox, as people who monitor deliveries see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery(pub(crate) DeliveryRecord);

/// The fields of [`Delivery`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryRecord {
    /// The identifier of the delivery.
    pub delivery_id: DeliveryId,
    /// The channel of the delivery, which is never the inbox.
    pub channel: Channel,
    /// The destination or the person that receives the delivery.
    pub target: DeliveryTarget,
    /// The current status of the delivery.
    pub status: DeliveryStatus,
    /// The number of attempts that have been made.
    pub attempts: u32,
    /// The time of the next attempt; `None` unless the delivery is pending.
    pub next_attempt_at: Option<Timestamp>,
    /// The error of the newest failed attempt, if any.
    pub last_error: Option<DeliveryError>,
    /// The HTTP or SMTP status of the newest response, if any.
    pub last_response_status: Option<u16>,
    /// The category of the notification.
    pub category: NotificationCategory,
    /// The kind of the fact that caused the notification.
    pub event_kind: String,
    /// The identifier of the fact that caused the notification.
    pub event_id: FactId,
    /// The workspace of the fact, if any.
    pub workspace_id: Option<WorkspaceId>,
    /// The workload of the fact, if any.
    pub workload_id: Option<WorkloadId>,
    /// The time at which the fact occurred.
    pub created_at: Timestamp,
    /// The time at which the receiver accepted the delivery, if it did.
    pub sent_at: Option<Timestamp>,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(Delivery, DeliveryRecord);

/// The delivery has not failed, so a person cannot retry it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("only a failed delivery can be retried, and this one is {}", .0.as_str())]
pub struct DeliveryNotFailed(pub DeliveryStatus);

impl Delivery {
    /// Returns a failed delivery to the outbox for one further attempt, which is due at once.
    ///
    /// # Errors
    /// If the delivery did not fail.
    pub fn retry(&self, stamp: &Stamp) -> Result<Change<Self>, DeliveryNotFailed> {
        let status = self.status.after(DeliveryEvent::RetriedByHand).ok_or(DeliveryNotFailed(self.status))?;
        let next = Self(DeliveryRecord {
            status,
            next_attempt_at: Some(stamp.at),
            revision: self.revision.next(),
            ..self.0.clone()
        });
        let subject = FactSubject { kind: "notification_delivery", id: self.delivery_id.uuid() };
        let detail = json!({
            "event_id": self.event_id,
            "channel": self.channel.as_str(),
            "destination_id": self.target.destination(),
            "attempts": self.attempts,
        });
        let fact = Fact::new(FactKind::DeliveryRetried, subject, self.workspace_id, stamp, detail);
        Ok(Change::replace(next, self.revision, fact))
    }
}

/// The reason why a delivery attempt failed. The reasons form a closed set, so no text of a receiver is stored or
/// shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The destination or the recipient has no address for the channel.
    #[error("there is no address to deliver to")]
    NoAddress,
    /// The operator has not configured a mail server.
    #[error("the server has no mail server")]
    MailNotConfigured,
    /// The egress guard, which checks outgoing requests, does not permit the address.
    #[error("the address may not be reached")]
    AddressRefused,
    /// The secret cannot be read, or does not have the expected form.
    #[error("the secret cannot be used")]
    SecretUnavailable,
    /// The connection could not be established or was lost.
    #[error("the connection failed")]
    ConnectionFailed,
    /// The receiver did not respond in time.
    #[error("the receiver did not answer in time")]
    TimedOut,
    /// The receiver responded with a redirection, which is never followed.
    #[error("the receiver redirected the request")]
    Redirected,
    /// The receiver responded that it refuses the message.
    #[error("the receiver refused the request")]
    Rejected,
    /// The receiver responded with an error of its own.
    #[error("the receiver failed")]
    ReceiverFailed,
}

impl DeliveryError {
    /// Every error.
    pub const ALL: [Self; 9] = [
        Self::NoAddress,
        Self::MailNotConfigured,
        Self::AddressRefused,
        Self::SecretUnavailable,
        Self::ConnectionFailed,
        Self::TimedOut,
        Self::Redirected,
        Self::Rejected,
        Self::ReceiverFailed,
    ];

    /// The wire form, such as `no_address`; also the form in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoAddress => "no_address",
            Self::MailNotConfigured => "mail_not_configured",
            Self::AddressRefused => "address_refused",
            Self::SecretUnavailable => "secret_unavailable",
            Self::ConnectionFailed => "connection_failed",
            Self::TimedOut => "timed_out",
            Self::Redirected => "redirected",
            Self::Rejected => "rejected",
            Self::ReceiverFailed => "receiver_failed",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.as_str() == text)
    }

    /// The error that an HTTP status means; `None` for a success.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        match status {
            200..=299 => None,
            300..=399 => Some(Self::Redirected),
            408 | 504 => Some(Self::TimedOut),
            400..=499 => Some(Self::Rejected),
            _ => Some(Self::ReceiverFailed),
        }
    }

    /// Whether further attempts are useless until a person changes the destination or the configuration of the server.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::NoAddress | Self::MailNotConfigured | Self::AddressRefused => true,
            Self::SecretUnavailable
            | Self::ConnectionFailed
            | Self::TimedOut
            | Self::Redirected
            | Self::Rejected
            | Self::ReceiverFailed => false,
        }
    }
}

/// Whether a delivery is attempted again after a failed attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryDecision {
    /// The delivery is attempted again after this delay.
    Retry(Duration),
    /// The delivery is not attempted again.
    GiveUp,
}

/// Decides whether a delivery is attempted again after failed attempt number `attempts`, counted from 1. `random`
/// selects the second half of the delay (jitter), so that deliveries that failed together are spread. `retry_after` is
/// the delay that the receiver asks for.
#[must_use]
pub fn decide_retry(attempts: u32, error: DeliveryError, random: u8, retry_after: Option<Duration>) -> RetryDecision {
    if error.is_permanent() || attempts >= MAX_ATTEMPTS {
        return RetryDecision::GiveUp;
    }
    let step = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some(seconds) = DELAYS.get(step) else { return RetryDecision::GiveUp };
    let millis = seconds.saturating_mul(1_000);
    let jitter = (millis / 2).saturating_mul(u64::from(random)) / u64::from(u8::MAX);
    let delay = Duration::from_millis((millis / 2).saturating_add(jitter)).max(Duration::from_secs(5));
    RetryDecision::Retry(delay.max(retry_after.unwrap_or_default()).min(MAX_DELIVERY_RETRY_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(attempts: u32, random: u8, retry_after: Option<u64>) -> Option<Duration> {
        let requested_delay = retry_after.map(Duration::from_secs);
        match decide_retry(attempts, DeliveryError::ReceiverFailed, random, requested_delay) {
            RetryDecision::Retry(delay) => Some(delay),
            RetryDecision::GiveUp => None,
        }
    }

    #[test]
    fn eight_attempts_wait_five_seconds_to_twelve_hours() {
        let delays: Vec<_> = (1..=MAX_ATTEMPTS).map(|attempt| delay(attempt, u8::MAX, None)).collect();
        assert_eq!(delays.iter().filter(|delay| delay.is_some()).count(), 7);
        assert_eq!(delays[0], Some(Duration::from_secs(5)));
        assert_eq!(delays[6], Some(MAX_DELIVERY_RETRY_DELAY));
        assert_eq!(delays[7], None, "the eighth attempt is the last");
        assert!(delays[..7].windows(2).all(|pair| pair[0] < pair[1]), "{delays:?}");
    }

    #[test]
    fn jitter_spreads_the_second_half_of_each_delay() {
        for attempt in 2..MAX_ATTEMPTS {
            let (first, last) = (delay(attempt, 0, None).unwrap(), delay(attempt, u8::MAX, None).unwrap());
            assert_eq!(first * 2, last, "attempt {attempt}");
            let middle = delay(attempt, 128, None).unwrap();
            assert!(first < middle && middle < last);
        }
    }

    #[test]
    fn receiver_may_ask_for_a_longer_delay_within_the_maximum() {
        assert_eq!(delay(1, 0, Some(60)), Some(Duration::from_secs(60)));
        assert_eq!(delay(4, u8::MAX, Some(1)), Some(Duration::from_secs(600)));
        assert_eq!(delay(1, 0, Some(u64::MAX)), Some(MAX_DELIVERY_RETRY_DELAY));
        assert_eq!(delay(MAX_ATTEMPTS, 0, Some(1)), None);
    }

    #[test]
    fn permanent_errors_end_a_delivery_at_once() {
        for error in DeliveryError::ALL {
            let permanent = [DeliveryError::NoAddress, DeliveryError::MailNotConfigured, DeliveryError::AddressRefused]
                .contains(&error);
            assert_eq!(decide_retry(1, error, 0, None) == RetryDecision::GiveUp, permanent, "{error:?}");
            assert_eq!(DeliveryError::parse(error.as_str()), Some(error));
        }
    }

    #[test]
    fn statuses_map_to_errors() {
        for (status, expected) in [
            (200, None),
            (204, None),
            (301, Some(DeliveryError::Redirected)),
            (307, Some(DeliveryError::Redirected)),
            (404, Some(DeliveryError::Rejected)),
            (408, Some(DeliveryError::TimedOut)),
            (410, Some(DeliveryError::Rejected)),
            (429, Some(DeliveryError::Rejected)),
            (500, Some(DeliveryError::ReceiverFailed)),
            (504, Some(DeliveryError::TimedOut)),
            (999, Some(DeliveryError::ReceiverFailed)),
        ] {
            assert_eq!(DeliveryError::of_status(status), expected, "{status}");
        }
    }
}
