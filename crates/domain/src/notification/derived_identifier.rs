//! Identifiers that are derived from content. A repeated projection derives the same identifiers and writes the same
//! rows again.

use crate::{
    id::{DeliveryId, FactId, NotificationId, SuppressedDecisionId, TenantId},
    notification::{Channel, digest::DigestWindow, preference::SuppressionReason},
    notification_category::NotificationCategory,
};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The bits of a UUIDv7 that contain its time in milliseconds since 1970.
const TIME_MASK: u128 = 0xffff_ffff_ffff << 80;
/// The version bits (7) and the variant bits of a UUIDv7 (RFC 9562).
const VERSION_AND_VARIANT: u128 = 0x7 << 76 | 0b10 << 62;
/// The bits of a UUIDv7 that contain neither time nor version nor variant.
const RANDOM_MASK: u128 = !(TIME_MASK | 0xf << 76 | 0b11 << 62);

/// The event that a notification reports: one fact, or several facts that collapse into one notification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventKey(Uuid);

impl EventKey {
    /// The key of the event that consists of this fact.
    #[must_use]
    pub const fn of_fact(fact: FactId) -> Self {
        Self(fact.uuid())
    }

    /// The key of the event that collapses all denials of unidentified callers for one workload within one hour.
    #[must_use]
    pub fn of_denials(workload: Uuid, hour_millis: u64) -> Self {
        let millis = hour_millis.to_be_bytes();
        Self(derive(hour_millis, &[b"denials", workload.as_bytes(), &millis]))
    }

    /// Whether the event consists of this fact only.
    #[must_use]
    pub fn is_of_fact(self, fact: FactId) -> bool {
        self.0 == fact.uuid()
    }

    /// The UUID that represents the event.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }

    fn millis(self) -> u64 {
        u64::try_from(self.0.as_u128() >> 80).unwrap_or(0)
    }

    /// The identifier of the notification about this event for a recipient.
    #[must_use]
    pub fn notification_id(self, recipient: &str) -> NotificationId {
        derive(self.millis(), &[b"notification", self.0.as_bytes(), recipient.as_bytes()]).into()
    }

    /// The identifier of the record that a notification about this event was suppressed for a recipient.
    #[must_use]
    pub fn suppressed_decision_id(
        self,
        recipient: &str,
        category: NotificationCategory,
        reason: SuppressionReason,
    ) -> SuppressedDecisionId {
        let (category, reason) = (category.as_str().as_bytes(), reason.as_str().as_bytes());
        derive(self.millis(), &[b"suppressed", self.0.as_bytes(), recipient.as_bytes(), category, reason]).into()
    }

    /// The identifier of the delivery of this event to a destination or a person on a channel.
    #[must_use]
    pub fn delivery_id(self, target: &str, channel: Channel) -> DeliveryId {
        let parts = [b"delivery".as_slice(), self.0.as_bytes(), target.as_bytes(), channel.as_str().as_bytes()];
        derive(self.millis(), &parts).into()
    }

    /// The identifier of the fact that a notification about this event was suppressed.
    #[must_use]
    pub fn suppression_fact_id(self, decision: SuppressedDecisionId) -> FactId {
        derive(self.millis(), &[b"suppression fact", decision.uuid().as_bytes()]).into()
    }
}

/// The identifier of a digest, for a recipient, channel, category and window. `generation` changes when a setting is
/// turned off, so that later notifications start another digest. The end of the window is included, because windows of
/// two time zones can start at the same time. Otherwise a change of the zone could add lines to a digest that was
/// already sent.
#[must_use]
pub fn digest_delivery_id(
    (tenant, generation): (TenantId, u64),
    recipient: &str,
    channel: Channel,
    category: NotificationCategory,
    window: &DigestWindow,
) -> DeliveryId {
    let (tenant, start_millis) = (tenant.uuid(), window.start_millis());
    let parts: [&[u8]; 9] = [
        b"digest",
        tenant.as_bytes(),
        &generation.to_be_bytes(),
        recipient.as_bytes(),
        channel.as_str().as_bytes(),
        category.as_str().as_bytes(),
        window.kind.as_str().as_bytes(),
        &start_millis.to_be_bytes(),
        &window.end_millis().to_be_bytes(),
    ];
    derive(start_millis, &parts).into()
}

/// A UUIDv7 with this time, whose other bits are a digest of the parts. The length of each part precedes it, so that
/// different lists of parts have different digests.
fn derive(millis: u64, parts: &[&[u8]]) -> Uuid {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let random = digest.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    Uuid::from_u128((u128::from(millis) << 80 & TIME_MASK) | VERSION_AND_VARIANT | (random & RANDOM_MASK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_keep_the_time_of_their_event_and_differ_by_recipient() {
        let fact = Uuid::from_u128(0x0190_1234_5678_7abc_8def_0123_4567_89ab);
        let event = EventKey::of_fact(fact.into());
        let ada = event.notification_id("user:ada").uuid();
        assert_eq!(ada, event.notification_id("user:ada").uuid());
        assert_ne!(ada, event.notification_id("user:bob").uuid());
        assert_eq!(ada.as_u128() >> 80, fact.as_u128() >> 80, "the month decides the partition");
        assert_eq!((ada.get_version_num(), ada.get_variant()), (7, uuid::Variant::RFC4122));
        let decision = |reason| event.suppressed_decision_id("user:ada", NotificationCategory::Incidents, reason);
        assert_ne!(decision(SuppressionReason::PreferenceOff), decision(SuppressionReason::DefaultProfileOff));
    }

    #[test]
    fn digests_of_windows_that_begin_together_differ_by_their_end() {
        let at = |text: &str| crate::time::Timestamp::parse(text).unwrap();
        let digest = |end: &str| {
            let (kind, start) = (crate::notification::digest::DigestKind::Hourly, at("2026-04-04T15:00:00Z"));
            let window = DigestWindow { kind, start, end: at(end) };
            let log = (Uuid::from_u128(1).into(), 0);
            digest_delivery_id(log, "user:ada", Channel::Email, NotificationCategory::Incidents, &window)
        };
        assert_eq!(digest("2026-04-04T16:00:00Z"), digest("2026-04-04T16:00:00Z"));
        // The hourly windows of UTC and Australia/Lord_Howe that start at 15:00 UTC end at different times.
        assert_ne!(digest("2026-04-04T16:00:00Z"), digest("2026-04-04T15:30:00Z"));
    }

    #[test]
    fn denials_of_one_workload_and_hour_share_a_key() {
        let (workload, hour) = (Uuid::from_u128(1), 3_600_000);
        assert_eq!(EventKey::of_denials(workload, hour), EventKey::of_denials(workload, hour));
        assert_ne!(EventKey::of_denials(workload, hour), EventKey::of_denials(workload, 2 * hour));
        assert_ne!(EventKey::of_denials(workload, hour), EventKey::of_denials(Uuid::from_u128(2), hour));
    }
}
