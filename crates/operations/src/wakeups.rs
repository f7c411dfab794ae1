//! Wakeups within this process and between processes. They announce new work to workers, new events to streams, and
//! cancellations to runs. Receivers also poll, so a lost wakeup only delays them.

use crate::execution::active_runs::ActiveRuns;
use fairway_domain::{
    id::ExecutionId,
    wakeup::{Wakeup, WakeupBus},
};
use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};

/// Minimum interval between messages to other processes under load. Wakeups of one interval share a message.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(4);
/// Number of messages that are sent without delay after an idle period.
const BURST: u32 = 4;
/// Maximum number of wakeups in one message.
const MAX_PER_MESSAGE: usize = 150;
/// Maximum number of wakeups that wait for the next message. Further ones are dropped, because receivers also poll.
const MAX_OUTGOING: usize = 4_096;
/// Delay of the next attempt to receive after a failure.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Subscribers of this process, and wakeups that wait to be sent to other processes.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    work: Notify,
    subscribers: Mutex<HashMap<ExecutionId, watch::Sender<StoredProgress>>>,
    outgoing: Mutex<BTreeSet<Wakeup>>,
    outgoing_ready: Notify,
}

/// Publishes wakeups: to the subscribers and active runs of this process, and to other processes.
#[derive(Clone, Debug)]
pub(crate) struct WakeupSender {
    wakeups: Arc<Wakeups>,
    active_runs: Arc<ActiveRuns>,
}

impl WakeupSender {
    pub(crate) fn new(active_runs: Arc<ActiveRuns>) -> Self {
        Self { wakeups: Arc::default(), active_runs }
    }

    /// Returns the wakeups of this process, to which tasks subscribe.
    pub(crate) fn subscriptions(&self) -> Arc<Wakeups> {
        Arc::clone(&self.wakeups)
    }

    /// Publishes a wakeup to the subscribers of this process and of other processes.
    pub(crate) fn publish(&self, wakeup: Wakeup) {
        self.wakeups.publish(wakeup, &self.active_runs);
    }

    /// Delivers a wakeup to the subscribers of this process only, for an event that is irrelevant to other processes.
    pub(crate) fn deliver(&self, wakeup: Wakeup) {
        self.wakeups.deliver(wakeup, &self.active_runs);
    }
}

/// The progress of a run that wakeups have announced as stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoredProgress {
    Partial,
    End,
}

/// A subscription to the progress of a run; dropping it unsubscribes.
#[derive(Debug)]
pub struct RunSubscription {
    wakeups: Arc<Wakeups>,
    run: ExecutionId,
    /// The receiver; it is `None` only while the subscription is dropped.
    progress: Option<watch::Receiver<StoredProgress>>,
}

impl RunSubscription {
    /// Waits until a further event of the run is stored, at most for the given time. Returns at once if an event was
    /// stored since the last wait or the subscription.
    pub async fn wait_for_change(&mut self, max_wait: Duration) {
        if let Some(progress) = &mut self.progress {
            let _woken = tokio::time::timeout(max_wait, progress.changed()).await;
        }
    }

    /// Waits until a wakeup announces that the end of the run is stored, at most for the given time.
    pub(crate) async fn wait_for_end(&mut self, max_wait: Duration) {
        if let Some(progress) = &mut self.progress {
            let _woken =
                tokio::time::timeout(max_wait, progress.wait_for(|stored| *stored == StoredProgress::End)).await;
        }
    }
}

impl Drop for RunSubscription {
    fn drop(&mut self) {
        let mut subscribers = self.wakeups.subscribers();
        // The receiver is dropped under the lock. The last of several concurrent drops then finds no receiver, and
        // removes the entry.
        drop(self.progress.take());
        if subscribers.get(&self.run).is_some_and(|progress| progress.receiver_count() == 0) {
            subscribers.remove(&self.run);
        }
    }
}

impl Wakeups {
    fn subscribers(&self) -> MutexGuard<'_, HashMap<ExecutionId, watch::Sender<StoredProgress>>> {
        // A panic leaves the map consistent, because each change is a single call.
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outgoing(&self) -> MutexGuard<'_, BTreeSet<Wakeup>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to the progress of a run.
    #[must_use]
    pub(crate) fn subscribe(self: &Arc<Self>, run: ExecutionId) -> RunSubscription {
        let progress =
            self.subscribers().entry(run).or_insert_with(|| watch::Sender::new(StoredProgress::Partial)).subscribe();
        RunSubscription { wakeups: Arc::clone(self), run, progress: Some(progress) }
    }

    /// Waits for a wakeup about queued runs. Another worker may already have claimed them.
    pub(crate) async fn wait_for_work(&self) {
        self.work.notified().await;
    }

    /// Delivers a wakeup in this process, and sends it to other processes with the next message.
    pub(crate) fn publish(&self, wakeup: Wakeup, active_runs: &ActiveRuns) {
        self.deliver(wakeup, active_runs);
        let mut outgoing = self.outgoing();
        if outgoing.len() < MAX_OUTGOING {
            outgoing.insert(wakeup);
            self.outgoing_ready.notify_one();
        }
    }

    /// Delivers a wakeup to the subscribers of this process.
    pub(crate) fn deliver(&self, wakeup: Wakeup, active_runs: &ActiveRuns) {
        match wakeup {
            Wakeup::RunQueued => self.work.notify_one(),
            Wakeup::RunProgress(run) => self.record_progress(run, StoredProgress::Partial),
            Wakeup::RunEnded(run) => self.record_progress(run, StoredProgress::End),
            Wakeup::Recheck(run) => active_runs.recheck(run),
            Wakeup::RecheckAll => active_runs.recheck_all(),
        }
    }

    fn record_progress(&self, run: ExecutionId, progress: StoredProgress) {
        if let Some(subscribers) = self.subscribers().get(&run) {
            // Wakeups may arrive in another order than their events. A stored end is therefore never replaced by
            // partial progress.
            subscribers.send_modify(|stored| {
                *stored = if *stored == StoredProgress::End { StoredProgress::End } else { progress }
            });
        }
    }

    fn next_message(&self) -> Vec<Wakeup> {
        let mut outgoing = self.outgoing();
        if outgoing.len() <= MAX_PER_MESSAGE {
            return mem::take(&mut *outgoing).into_iter().collect();
        }
        let message: Vec<Wakeup> = outgoing.iter().copied().take(MAX_PER_MESSAGE).collect();
        outgoing.retain(|wakeup| !message.contains(wakeup));
        message
    }
}

/// Exchanges wakeups with other processes in an endless loop: sends the wakeups of this process, and delivers the
/// received ones.
pub(crate) async fn run_exchange(wakeups: Arc<Wakeups>, active_runs: Arc<ActiveRuns>, bus: Arc<dyn WakeupBus>) {
    tokio::join!(run_publisher(&wakeups, bus.as_ref()), run_receiver(&wakeups, &active_runs, bus.as_ref()));
}

async fn run_publisher(wakeups: &Wakeups, bus: &dyn WakeupBus) {
    // Earliest time of the next message if all messages kept the interval. Up to [`BURST`] messages may be sent before
    // it.
    let mut budget_time = Instant::now();
    loop {
        let message = wakeups.next_message();
        if message.is_empty() {
            wakeups.outgoing_ready.notified().await;
            continue;
        }
        budget_time = budget_time.max(Instant::now()) + MESSAGE_INTERVAL;
        if let Err(error) = bus.publish(&message).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "failed to publish wakeups; receivers will poll");
        }
        sleep_until(budget_time.checked_sub(MESSAGE_INTERVAL * BURST).unwrap_or(budget_time)).await;
    }
}

async fn run_receiver(wakeups: &Wakeups, active_runs: &ActiveRuns, bus: &dyn WakeupBus) {
    loop {
        match bus.receive().await {
            Ok(received) => received.into_iter().for_each(|wakeup| wakeups.deliver(wakeup, active_runs)),
            Err(error) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "failed to receive wakeups; retrying in 500 ms"
                );
                sleep(RETRY_DELAY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn event_between_subscription_and_wait_wakes_the_subscriber() {
        let (wakeups, active_runs) = (Arc::new(Wakeups::default()), ActiveRuns::default());
        let run = ExecutionId::from(Uuid::from_u128(1));
        let mut subscription = wakeups.subscribe(run);
        wakeups.publish(Wakeup::RunProgress(run), &active_runs);
        let long = Duration::from_secs(60);
        let started_at = Instant::now();
        subscription.wait_for_change(long).await;
        assert!(started_at.elapsed() < long);
    }

    #[tokio::test]
    async fn only_the_end_wakes_a_wait_for_the_end() {
        let (wakeups, active_runs) = (Arc::new(Wakeups::default()), ActiveRuns::default());
        let run = ExecutionId::from(Uuid::from_u128(1));
        let mut subscription = wakeups.subscribe(run);
        wakeups.publish(Wakeup::RunProgress(run), &active_runs);
        let short = Duration::from_millis(50);
        let started_at = Instant::now();
        subscription.wait_for_end(short).await;
        assert!(started_at.elapsed() >= short);
        wakeups.publish(Wakeup::RunEnded(run), &active_runs);
        wakeups.publish(Wakeup::RunProgress(run), &active_runs);
        let (started_at, long) = (Instant::now(), Duration::from_secs(60));
        subscription.wait_for_end(long).await;
        assert!(started_at.elapsed() < long);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn concurrent_unsubscribes_remove_the_entry() {
        let wakeups = Arc::new(Wakeups::default());
        for number in 0..2_000 {
            let run = ExecutionId::from(Uuid::from_u128(number));
            let (first, second) = (wakeups.subscribe(run), wakeups.subscribe(run));
            let (first, second) = (tokio::spawn(async { drop(first) }), tokio::spawn(async { drop(second) }));
            first.await.unwrap();
            second.await.unwrap();
        }
        assert_eq!(wakeups.subscribers().len(), 0);
    }

    #[test]
    fn unsubscribing_keeps_other_subscribers() {
        let wakeups = Arc::new(Wakeups::default());
        let run = ExecutionId::from(Uuid::from_u128(1));
        let (first, second) = (wakeups.subscribe(run), wakeups.subscribe(run));
        drop(first);
        assert_eq!(wakeups.subscribers().len(), 1);
        drop(second);
        assert_eq!(wakeups.subscribers().len(), 0);
    }

    #[test]
    fn messages_are_bounded_and_send_each_wakeup_once() {
        let (wakeups, active_runs) = (Wakeups::default(), ActiveRuns::default());
        for number in 0..(MAX_PER_MESSAGE as u128 + 10) {
            wakeups.publish(Wakeup::RunProgress(Uuid::from_u128(number).into()), &active_runs);
            wakeups.publish(Wakeup::RunQueued, &active_runs);
        }
        assert_eq!(wakeups.next_message().len(), MAX_PER_MESSAGE);
        assert_eq!(wakeups.next_message().len(), 11);
        assert_eq!(wakeups.next_message().len(), 0);
    }
}
