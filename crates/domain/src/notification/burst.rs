//! Bursts: in the advanced tier, a person gets the first notifications of a category at once, and what follows within
//! minutes in one message.

use crate::{
    access::ActorRef,
    fact_category::FactCategory,
    id::TenantId,
    notification::{
        Channel,
        delivery::{DeliveryTarget, NewDelivery},
        derived_identifier::digest_delivery,
        digest::{DigestKind, DigestWindow},
    },
    time::Timestamp,
};
use std::collections::HashMap;

/// How many notifications of a category a person gets one by one on a channel, in one window.
pub const MAX_SINGLE_DELIVERIES: u32 = 3;
/// Microseconds of a window.
const WINDOW_MICROS: i64 = 5 * 60 * 1_000_000;

/// What counts together: a person's notifications of one category on one channel.
pub type BurstKey = (ActorRef, Channel, FactCategory);

/// The window of a moment; `None` outside the range of timestamps.
#[must_use]
pub fn window(at: Timestamp) -> Option<DigestWindow> {
    DigestWindow::of_length(DigestKind::Burst, WINDOW_MICROS, at)
}

/// The single deliveries of the present window.
#[derive(Debug)]
pub struct BurstCounts {
    tenant: TenantId,
    generation: u64,
    window: DigestWindow,
    singles: HashMap<BurstKey, u32>,
}

impl BurstCounts {
    /// Counts of a window, of which `singles` were queued before, in this generation of the tenant's settings.
    #[must_use]
    pub const fn new(tenant: TenantId, generation: u64, window: DigestWindow, singles: HashMap<BurstKey, u32>) -> Self {
        Self { tenant, generation, window, singles }
    }

    /// Collects personal deliveries beyond [`MAX_SINGLE_DELIVERIES`] into one that is due when the window ends.
    /// Deliveries to destinations, of chosen digests and without an address stay as they are, and so do those of
    /// collapsed facts: they share one identifier, so a person gets one of them in any case.
    pub fn collect(&mut self, deliveries: &mut [NewDelivery]) {
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
            delivery.delivery_id = digest_delivery(log, &name, delivery.channel, category, &self.window);
            delivery.digest = Some(self.window);
            delivery.requires_advanced_tier = true;
        }
    }
}
