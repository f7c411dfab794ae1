//! The sender: a background task that sends the deliveries of the outbox.

use crate::{Stores, clock_and_ids::ClockAndIds, services::SharedState};
use fairway_domain::{
    notification::{
        delivery::{AfterFailure, after_failure},
        message::{MessageSender, SendFailure},
        ports::{AttemptOutcome, ClaimedDelivery, DeliveryClaim, OutboxStore},
    },
    store::StoreError,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, task::JoinSet};
use uuid::Uuid;

/// Maximum attempts of this process at the same time.
const MAX_IN_FLIGHT: usize = 256;
/// Attempts of one lane at the same time, so that a receiver that does not answer delays its own lane alone.
const MAX_PER_LANE: u32 = 8;
/// Maximum deliveries of one claim.
const MAX_CLAIMED: usize = 128;
/// Time after which another sender may claim a delivery again: an attempt takes at most 10 s.
const LEASE: Duration = Duration::from_secs(60);
/// Poll interval without a wakeup: other processes project too, and attempts become due.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Number of attempts to store an outcome. Afterwards the lease ends, and the message is sent again.
const STORE_ATTEMPTS: u32 = 5;

/// Sends deliveries.
pub struct NotificationSender {
    context: ClockAndIds,
    outbox_store: Arc<dyn OutboxStore>,
    message_sender: Arc<dyn MessageSender>,
    outbox_wakeup: Arc<Notify>,
    /// Attempts in progress by lane.
    lanes: Mutex<HashMap<Uuid, u32>>,
}

impl NotificationSender {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            outbox_store: Arc::clone(&stores.outbox),
            message_sender: Arc::clone(&shared.message_sender),
            outbox_wakeup: Arc::clone(&shared.outbox_wakeup),
            lanes: Mutex::default(),
        }
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Uuid, u32>> {
        // The counts stay consistent after a panic elsewhere: each update is one call.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims due deliveries of lanes that are not busy.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim(&self, room: usize) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let busy = self.lanes().iter().filter(|(_, count)| **count >= MAX_PER_LANE).map(|(lane, _)| *lane).collect();
        let claim = DeliveryClaim {
            claim_id: self.context.new_id(),
            limit: u32::try_from(room.min(MAX_CLAIMED)).unwrap_or(0),
            per_lane: MAX_PER_LANE,
            busy_lanes: busy,
            lease: LEASE,
        };
        let claimed = self.outbox_store.claim(&claim).await?;
        let mut lanes = self.lanes();
        for delivery in &claimed {
            let count = lanes.entry(delivery.lane).or_default();
            *count = count.saturating_add(1);
        }
        drop(lanes);
        Ok(claimed)
    }

    /// Sends a claimed delivery and stores the outcome.
    pub async fn attempt(&self, claimed: ClaimedDelivery) {
        let sent = self.message_sender.send(&claimed.outgoing).await;
        let outcome = match sent {
            Ok(status) => AttemptOutcome::Sent(status),
            Err(failure) => self.after(&claimed, failure),
        };
        self.store(&claimed, outcome).await;
        let mut lanes = self.lanes();
        if let Some(count) = lanes.get_mut(&claimed.lane) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                lanes.remove(&claimed.lane);
            }
        }
    }

    fn after(&self, claimed: &ClaimedDelivery, failure: SendFailure) -> AttemptOutcome {
        let [random, ..] = self.context.ids.salt();
        match after_failure(claimed.attempt, failure.error, random, failure.retry_after) {
            AfterFailure::Retry(delay) => AttemptOutcome::Retry(failure, delay),
            AfterFailure::GiveUp => {
                let message = &claimed.outgoing.message;
                tracing::warn!(
                    tenant_id = %message.tenant,
                    delivery_id = %message.delivery_id,
                    channel = claimed.outgoing.channel.as_str(),
                    attempt = claimed.attempt,
                    error = failure.error.as_str(),
                    "a delivery failed for good"
                );
                AttemptOutcome::Failed(failure)
            }
        }
    }

    async fn store(&self, claimed: &ClaimedDelivery, outcome: AttemptOutcome) {
        for attempt in 1..=STORE_ATTEMPTS {
            match self.outbox_store.finish(claimed, outcome).await {
                Ok(()) => return,
                Err(error) if attempt < STORE_ATTEMPTS => {
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        "failed to store the outcome of a delivery; retrying in 1 s"
                    );
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        delivery_id = %claimed.outgoing.message.delivery_id,
                        "failed to store the outcome of a delivery; it is sent again after its lease"
                    );
                }
            }
        }
    }
}

/// Sends deliveries, forever. Any number of processes may run it concurrently.
pub async fn run_notification_sender(sender: Arc<NotificationSender>) {
    let mut attempts = JoinSet::new();
    loop {
        while attempts.try_join_next().is_some() {}
        let room = MAX_IN_FLIGHT.saturating_sub(attempts.len());
        let claimed = if room == 0 { Ok(Vec::new()) } else { sender.claim(room).await };
        match claimed {
            Ok(claimed) if claimed.is_empty() => tokio::select! {
                // A finished attempt makes room in its lane.
                Some(_) = attempts.join_next() => {}
                () = sender.outbox_wakeup.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            },
            Ok(claimed) => {
                for delivery in claimed {
                    let sender = Arc::clone(&sender);
                    attempts.spawn(async move { sender.attempt(delivery).await });
                }
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to claim deliveries; retrying in 1 s");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
