//! The sender: a background task that sends the deliveries of the outbox.

use crate::{Stores, commit_context::CommitContext, services::SharedState};
use fairway_domain::{
    id::{DeliveryId, TenantId},
    notification::{
        backlog::NotificationObserver,
        delivery::{AfterFailure, after_failure},
        message::{MessageSender, SendFailure},
        ports::{AttemptOutcome, ClaimResult, ClaimedDelivery, DeliveryClaim, OutboxStore},
    },
    store::StoreError,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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
/// Maximum lanes of one tenant in one claim.
const LANES_PER_TENANT: u32 = 4;
/// Attempts at the same time that every tenant can have, however many tenants have some.
const MIN_TENANT_SHARE: usize = 32;
/// Interval in which a stopping server looks for the end of its attempts.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
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
    context: CommitContext,
    outbox_store: Arc<dyn OutboxStore>,
    message_sender: Arc<dyn MessageSender>,
    outbox_wakeup: Arc<Notify>,
    observer: Arc<dyn NotificationObserver>,
    /// Attempts in progress.
    attempts: Mutex<HashMap<DeliveryId, Attempt>>,
    is_stopping: AtomicBool,
    /// Held by a claim until its deliveries are attempts in progress, so that the drain misses none of them.
    claiming: tokio::sync::Mutex<()>,
}

/// An attempt in progress.
#[derive(Clone, Copy)]
struct Attempt {
    tenant: TenantId,
    lane: Uuid,
    claim: Uuid,
}

impl NotificationSender {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            context: shared.context.clone(),
            outbox_store: Arc::clone(&stores.outbox),
            message_sender: Arc::clone(&shared.message_sender),
            outbox_wakeup: Arc::clone(&shared.outbox_wakeup),
            observer: Arc::clone(&shared.notification_observer),
            attempts: Mutex::default(),
            is_stopping: AtomicBool::new(false),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<DeliveryId, Attempt>> {
        // The map stays consistent after a panic elsewhere: each update is one call.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims due deliveries of lanes that are not busy, of tenants that do not have their share of the attempts.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim(&self, room: usize) -> Result<ClaimResult, StoreError> {
        let _claiming = self.claiming.lock().await;
        if self.is_stopping.load(Ordering::Relaxed) {
            return Ok(ClaimResult::default());
        }
        let (lanes, tenants) = self.attempts_in_progress();
        let share = MAX_IN_FLIGHT.checked_div(tenants.len().saturating_add(1)).unwrap_or(0).max(MIN_TENANT_SHARE);
        let busy_tenants = tenants.into_iter().filter(|(_, count)| *count >= share).map(|(tenant, _)| tenant);
        let claim = DeliveryClaim {
            claim_id: self.context.new_id(),
            limit: u32::try_from(room.min(MAX_CLAIMED)).unwrap_or(0),
            per_lane: MAX_PER_LANE,
            in_progress: lanes.into_iter().collect(),
            lanes_per_tenant: LANES_PER_TENANT,
            busy_tenants: busy_tenants.collect(),
            lease: LEASE,
        };
        let claimed = self.outbox_store.claim(&claim).await?;
        let mut attempts = self.attempts();
        for delivery in &claimed.deliveries {
            let message = &delivery.outgoing.message;
            let attempt = Attempt { tenant: message.tenant, lane: delivery.lane, claim: delivery.claim_id };
            attempts.insert(message.delivery_id, attempt);
        }
        drop(attempts);
        Ok(claimed)
    }

    /// The numbers of attempts in progress by lane, and by tenant.
    fn attempts_in_progress(&self) -> (HashMap<Uuid, u32>, HashMap<TenantId, usize>) {
        let (mut lanes, mut tenants) = (HashMap::<Uuid, u32>::new(), HashMap::<TenantId, usize>::new());
        for attempt in self.attempts().values() {
            let (lane, tenant) = (lanes.entry(attempt.lane).or_default(), tenants.entry(attempt.tenant).or_default());
            (*lane, *tenant) = (lane.saturating_add(1), tenant.saturating_add(1));
        }
        (lanes, tenants)
    }

    /// Claims nothing more, and waits for the attempts in progress. What has not ended after the grace is returned, so that
    /// another sender attempts it at once; a message that its receiver has accepted meanwhile is then sent twice.
    pub async fn drain(&self, grace: Duration) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let ended = async {
            drop(self.claiming.lock().await);
            while !self.attempts().is_empty() {
                tokio::time::sleep(DRAIN_INTERVAL).await;
            }
        };
        if tokio::time::timeout(grace, ended).await.is_ok() {
            return;
        }
        let left: Vec<_> = self.attempts().iter().map(|(id, attempt)| (attempt.tenant, *id, attempt.claim)).collect();
        if let Err(error) = self.outbox_store.release(&left).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to return the deliveries in progress; they are sent again when their leases end"
            );
        }
    }

    /// Sends a claimed delivery and stores the outcome.
    pub async fn attempt(&self, claimed: ClaimedDelivery) {
        // A panic must not leave the attempt counted, because the lane would lose its place for good.
        let _ended = scopeguard::guard(claimed.outgoing.message.delivery_id, |delivery| {
            self.attempts().remove(&delivery);
        });
        let sent = self.message_sender.send(&claimed.outgoing).await;
        let outcome = match sent {
            Ok(status) => AttemptOutcome::Sent(status),
            Err(failure) => self.after(&claimed, failure),
        };
        self.observer.attempt_ended(claimed.outgoing.channel, &outcome);
        self.store(&claimed, outcome).await;
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
                        delivery_id = %claimed.outgoing.message.delivery_id,
                        attempt,
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
        let is_stopping = sender.is_stopping.load(Ordering::Relaxed);
        let room = if is_stopping { 0 } else { MAX_IN_FLIGHT.saturating_sub(attempts.len()) };
        let claimed = if room == 0 { Ok(ClaimResult::default()) } else { sender.claim(room).await };
        match claimed {
            Ok(ClaimResult { deliveries, passed_over: 0 }) if deliveries.is_empty() => tokio::select! {
                // A finished attempt makes room in its lane.
                Some(_) = attempts.join_next() => {}
                () = sender.outbox_wakeup.notified() => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            },
            Ok(claimed) => {
                for delivery in claimed.deliveries {
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

#[cfg(test)]
mod tests;
