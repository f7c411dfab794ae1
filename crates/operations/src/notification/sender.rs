//! The sender: a background task that claims the deliveries of the outbox and sends their messages.

use crate::{Stores, commit_context::CommitContext, services::SharedState};
use fairway_domain::{
    id::{DeliveryId, TenantId},
    notification::{
        backlog::NotificationMetricsObserver,
        delivery::{RetryDecision, decide_retry},
        message::{MessageSender, SendFailure},
        ports::{AttemptOutcome, ClaimResult, ClaimedDelivery, DeliveryClaimRef, DeliveryClaimRequest, OutboxStore},
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

/// Maximum number of concurrent attempts of this process.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of concurrent attempts of one lane. A lane contains the deliveries of one receiver, so an
/// unresponsive receiver delays only its own lane.
const MAX_PER_LANE: u32 = 8;
/// Maximum number of deliveries in one claim.
const MAX_CLAIMED: usize = 128;
/// Maximum number of lanes of one tenant from which one claim takes deliveries.
const LANES_PER_TENANT: u32 = 4;
/// Number of concurrent attempts that each tenant may have, however many tenants have deliveries.
const MIN_TENANT_SHARE: usize = 32;
/// Interval at which a shutdown checks for the end of active attempts.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which another sender may claim a delivery again. It exceeds the maximum duration of an attempt, 10
/// seconds.
const LEASE: Duration = Duration::from_secs(60);
/// Poll interval if no wakeup arrives. Polling finds deliveries of other processes, and delayed attempts that are now
/// due.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay after a failure of the store.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of attempts to store the outcome of an attempt. Afterwards its lease expires, and the message is sent
/// again.
const STORE_ATTEMPTS: u32 = 5;

/// Claims deliveries and sends their messages.
pub struct NotificationSender {
    context: CommitContext,
    outbox_store: Arc<dyn OutboxStore>,
    message_sender: Arc<dyn MessageSender>,
    outbox_wakeup: Arc<Notify>,
    observer: Arc<dyn NotificationMetricsObserver>,
    /// Active attempts of this process, by delivery.
    attempts: Mutex<HashMap<DeliveryId, Attempt>>,
    is_stopping: AtomicBool,
    /// A claim holds this lock until its deliveries are in `attempts`, so that a drain misses none of them.
    claiming: tokio::sync::Mutex<()>,
}

/// An active attempt to deliver a message.
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
        // A panic leaves the map consistent, because each change is a single call.
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims due deliveries, at most one for each free slot. The claim skips lanes with the maximum number of
    /// attempts, and tenants that have used their share of the attempts.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn claim(&self, free_slots: usize) -> Result<ClaimResult, StoreError> {
        let _claiming = self.claiming.lock().await;
        if self.is_stopping.load(Ordering::Relaxed) {
            return Ok(ClaimResult::default());
        }
        let (lanes, tenants) = self.attempts_in_progress();
        let share = MAX_IN_FLIGHT.checked_div(tenants.len().saturating_add(1)).unwrap_or(0).max(MIN_TENANT_SHARE);
        let busy_tenants = tenants.into_iter().filter(|(_, count)| *count >= share).map(|(tenant, _)| tenant);
        let claim = DeliveryClaimRequest {
            claim_id: self.context.new_id(),
            limit: u32::try_from(free_slots.min(MAX_CLAIMED)).unwrap_or(0),
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

    /// Returns the numbers of active attempts by lane and by tenant.
    fn attempts_in_progress(&self) -> (HashMap<Uuid, u32>, HashMap<TenantId, usize>) {
        let (mut lanes, mut tenants) = (HashMap::<Uuid, u32>::new(), HashMap::<TenantId, usize>::new());
        for attempt in self.attempts().values() {
            let (lane, tenant) = (lanes.entry(attempt.lane).or_default(), tenants.entry(attempt.tenant).or_default());
            (*lane, *tenant) = (lane.saturating_add(1), tenant.saturating_add(1));
        }
        (lanes, tenants)
    }

    /// Stops claiming, and waits for the active attempts. Deliveries whose attempts have not ended after `grace` are
    /// released, so that another sender attempts them at once. If a receiver nevertheless accepts the message of such
    /// an attempt, it receives the message twice.
    pub async fn drain(&self, grace: Duration) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let attempts_ended = async {
            drop(self.claiming.lock().await);
            while !self.attempts().is_empty() {
                tokio::time::sleep(DRAIN_INTERVAL).await;
            }
        };
        if tokio::time::timeout(grace, attempts_ended).await.is_ok() {
            return;
        }
        let claim_of = |(delivery_id, attempt): (&DeliveryId, &Attempt)| DeliveryClaimRef {
            tenant: attempt.tenant,
            delivery_id: *delivery_id,
            claim_id: attempt.claim,
        };
        let remaining: Vec<_> = self.attempts().iter().map(claim_of).collect();
        if let Err(error) = self.outbox_store.release(&remaining).await {
            tracing::warn!(
                deliveries = remaining.len(),
                error = &error as &dyn std::error::Error,
                "failed to release active deliveries; they are sent again when their leases expire"
            );
        }
    }

    /// Sends a claimed delivery and stores the outcome.
    pub async fn attempt(&self, claimed: ClaimedDelivery) {
        // The guard removes the attempt even after a panic. Otherwise the attempt would permanently count against the
        // limit of its lane.
        let _attempt_guard = scopeguard::guard(claimed.outgoing.message.delivery_id, |delivery| {
            self.attempts().remove(&delivery);
        });
        let result = self.message_sender.send(&claimed.outgoing).await;
        let outcome = match result {
            Ok(status) => AttemptOutcome::Sent(status),
            Err(failure) => self.outcome_of_failure(&claimed, failure),
        };
        self.observer.attempt_ended(claimed.outgoing.channel, &outcome);
        self.store(&claimed, outcome).await;
    }

    fn outcome_of_failure(&self, claimed: &ClaimedDelivery, failure: SendFailure) -> AttemptOutcome {
        let [random, ..] = self.context.ids.salt();
        let message = &claimed.outgoing.message;
        match decide_retry(claimed.attempt, failure.error, random, failure.retry_after) {
            RetryDecision::Retry(delay) => {
                tracing::info!(
                    tenant_id = %message.tenant,
                    delivery_id = %message.delivery_id,
                    channel = claimed.outgoing.channel.as_str(),
                    attempt = claimed.attempt,
                    error = failure.error.as_str(),
                    delay_s = delay.as_secs(),
                    "failed to send a notification; retrying with backoff"
                );
                AttemptOutcome::Retry(failure, delay)
            }
            RetryDecision::GiveUp => {
                tracing::warn!(
                    tenant_id = %message.tenant,
                    delivery_id = %message.delivery_id,
                    channel = claimed.outgoing.channel.as_str(),
                    attempt = claimed.attempt,
                    error = failure.error.as_str(),
                    "failed to send a notification; not retrying"
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
                        tenant_id = %claimed.outgoing.message.tenant,
                        delivery_id = %claimed.outgoing.message.delivery_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store the outcome of a delivery; retrying in 1 s"
                    );
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => {
                    tracing::warn!(
                        tenant_id = %claimed.outgoing.message.tenant,
                        delivery_id = %claimed.outgoing.message.delivery_id,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to store the outcome of a delivery; the message is sent again when its lease expires"
                    );
                }
            }
        }
    }
}

/// Sends due deliveries in an endless loop. Several processes may run this task concurrently.
pub async fn run_notification_sender(sender: Arc<NotificationSender>) {
    let mut attempts = JoinSet::new();
    loop {
        while attempts.try_join_next().is_some() {}
        let is_stopping = sender.is_stopping.load(Ordering::Relaxed);
        let free_slots = if is_stopping { 0 } else { MAX_IN_FLIGHT.saturating_sub(attempts.len()) };
        let claimed = if free_slots == 0 { Ok(ClaimResult::default()) } else { sender.claim(free_slots).await };
        match claimed {
            Ok(ClaimResult { deliveries, skipped: 0 }) if deliveries.is_empty() => tokio::select! {
                // An attempt ended, so its lane may have another one.
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
