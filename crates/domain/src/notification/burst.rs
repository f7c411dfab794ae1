//! Bursts: in the advanced tier, a person receives the first notifications of a category individually. Further
//! notifications within a few minutes are collected into one message.

use crate::{
    access::ActorRef,
    id::TenantId,
    notification::{
        Channel,
        delivery::{DeliveryTarget, NewDelivery},
        derived_identifier::digest_delivery_id,
        digest::{DigestKind, DigestWindow},
    },
    notification_category::NotificationCategory,
    time::Timestamp,
};
use std::collections::HashMap;

/// The maximum number of notifications that a person receives individually within one window. It applies to each
/// category and channel.
pub const MAX_SINGLE_DELIVERIES: u32 = 3;
/// The length of a burst's window, in microseconds.
const WINDOW_MICROS: i64 = 5 * 60 * 1_000_000;

/// The recipient, channel and category of notifications that are counted together.
pub type BurstKey = (ActorRef, Channel, NotificationCategory);

/// The window that contains this time; `None` outside the range of timestamps.
#[must_use]
pub fn window(at: Timestamp) -> Option<DigestWindow> {
    DigestWindow::of_length(DigestKind::Burst, WINDOW_MICROS, at)
}

/// The number of individual deliveries in one window, by person, channel and category.
#[derive(Debug)]
pub struct BurstCounts {
    tenant: TenantId,
    generation: u64,
    window: DigestWindow,
    singles: HashMap<BurstKey, u32>,
}

impl BurstCounts {
    /// Creates the counts of a window. `singles` counts the deliveries that are already queued in this generation of
    /// the tenant's settings.
    #[must_use]
    pub const fn new(tenant: TenantId, generation: u64, window: DigestWindow, singles: HashMap<BurstKey, u32>) -> Self {
        Self { tenant, generation, window, singles }
    }

    /// Moves deliveries to people beyond [`MAX_SINGLE_DELIVERIES`] into one message, which is due at the end of the
    /// window. Deliveries to destinations, of a chosen digest, or without an address stay unchanged. So do collapsed
    /// facts, because they share one identifier and cause only one delivery.
    pub fn combine_excess_deliveries(&mut self, deliveries: &mut [NewDelivery]) {
        let is_single = |delivery: &NewDelivery| {
            delivery.digest.is_none()
                && delivery.failure.is_none()
                && delivery.event.is_of_fact(delivery.notification.event_id)
        };
        for delivery in deliveries.iter_mut().filter(|delivery| is_single(delivery)) {
            let DeliveryTarget::Person(person) = &delivery.target else { continue };
            let category = delivery.notification.category;
            let count = self.singles.entry((person.clone(), delivery.channel, category)).or_default();
            if *count < MAX_SINGLE_DELIVERIES {
                *count = count.saturating_add(1);
                continue;
            }
            let name = person.to_string();
            let log = (self.tenant, self.generation);
            delivery.delivery_id = digest_delivery_id(log, &name, delivery.channel, category, &self.window);
            delivery.digest = Some(self.window);
            delivery.requires_advanced_tier = true;
        }
    }
}
