//! Request coalescing: one statement serves all requests that arrive while the previous statement runs.
//!
//! Requests that arrive while a batch is in flight form the next batch. Under load, many requests share one round
//! trip, one plan and one flush of the write-ahead log. Without load, a request waits for its own statement only.
//!
//! A statement starts only after all of its requests have arrived. A read that revalidates a cache therefore never
//! returns a state older than the request.

use crate::{database::STATEMENT_TIMEOUT, statement_waits::StatementsInFlight};
use async_trait::async_trait;
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{sync::oneshot, time::timeout};
use tracing::Instrument as _;

/// Maximum number of items in one batch.
const MAX_BATCH: usize = 64;
/// Maximum number of times that the leader yields to collect followers before its first batch.
const MAX_YIELDS: usize = 16;

/// An operation that runs for many items in one statement.
#[async_trait]
pub(crate) trait BatchOperation: Send + Sync + 'static {
    /// The input of one request.
    type Item: Send;
    /// The result of one request.
    type Output: Send;
    /// Name of the operation in logs and traces.
    const LABEL: &'static str;

    /// Runs the batch. Returns one result for each item, in the order of the items.
    async fn run_batch(&self, items: Vec<Self::Item>) -> Vec<Self::Output>;
}

/// Collects requests into batches and runs one batch at a time.
pub(crate) struct Coalescer<B: BatchOperation> {
    pub(crate) operation: B,
    state: Mutex<State<B>>,
    pub(crate) in_flight: StatementsInFlight,
}

/// The reason why a request has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoResult {
    /// The item is in no batch and will never be in one.
    NotStarted,
    /// A batch that contains the item has started. PostgreSQL may execute its statement, now or later.
    Started,
}

/// A request whose item is not yet in a batch.
struct PendingRequest<B: BatchOperation> {
    item: B::Item,
    /// Sends the result to the waiting request.
    sender: oneshot::Sender<B::Output>,
    /// Set when the item becomes part of a batch.
    is_started: Arc<AtomicBool>,
}

struct State<B: BatchOperation> {
    is_running: bool,
    queue: VecDeque<PendingRequest<B>>,
}

impl<B: BatchOperation> Coalescer<B> {
    /// Creates a coalescer. Pending requests are counted in `in_flight`.
    pub(crate) fn new(operation: B, in_flight: &StatementsInFlight) -> Arc<Self> {
        let state = Mutex::new(State { is_running: false, queue: VecDeque::new() });
        Arc::new(Self { operation, state, in_flight: in_flight.clone() })
    }

    /// Submits an item and waits for its result. The time-out includes the wait for earlier batches, so that queued
    /// requests fail as early as those in flight when PostgreSQL does not respond.
    ///
    /// # Errors
    /// After [`STATEMENT_TIMEOUT`], or if the batch task ended early.
    pub(crate) async fn submit(self: &Arc<Self>, item: B::Item) -> Result<B::Output, NoResult> {
        let (sender, receiver) = oneshot::channel();
        let is_started = Arc::new(AtomicBool::new(false));
        if let Some(leader) = self.enqueue(PendingRequest { item, sender, is_started: Arc::clone(&is_started) }) {
            // The batches run in a separate task, because the leader's request may be cancelled while its followers
            // still wait.
            tokio::spawn(leader.run_batches());
        }
        // A batch belongs to several traces, so each request's trace has a span for the time that the request
        // waited.
        let span = tracing::debug_span!("batch wait", otel.kind = "client", db.query.summary = B::LABEL);
        match self.in_flight.track(timeout(STATEMENT_TIMEOUT, receiver).instrument(span)).await {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(_)) | Err(_) => Err(self.no_result(&is_started)),
        }
    }

    /// Whether a batch contains the item of a request that has no result. The caller must drop the request's
    /// receiver first, because batches skip items without a receiver.
    fn no_result(&self, is_started: &AtomicBool) -> NoResult {
        let _state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if is_started.load(Ordering::Relaxed) { NoResult::Started } else { NoResult::NotStarted }
    }

    /// Queues an item. If no batch task runs, returns a new leader, which the caller must spawn.
    ///
    /// The leader is created here and not in the spawned task. A runtime that shuts down drops spawned tasks before
    /// they run. The drop of the leader then fails the queued requests, and the next request starts a new batch
    /// task.
    fn enqueue(self: &Arc<Self>, request: PendingRequest<B>) -> Option<Leader<B>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.queue.push_back(request);
        let is_first = !mem::replace(&mut state.is_running, true);
        is_first.then(|| Leader { coalescer: Arc::clone(self), is_finished: false })
    }

    /// Yields to other tasks that are about to submit, so that their items join the first batch. One event often
    /// wakes several requests. Returns as soon as a yield adds no item.
    async fn yield_to_followers(&self) {
        let mut previous_len = 0;
        for _ in 0..MAX_YIELDS {
            tokio::task::yield_now().await;
            let queue_len = self.state.lock().unwrap_or_else(PoisonError::into_inner).queue.len();
            if queue_len == previous_len {
                return;
            }
            previous_len = queue_len;
        }
    }

    fn next_batch(&self) -> Vec<PendingRequest<B>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Items of cancelled requests are dropped before a statement contains them.
        state.queue.retain(|request| !request.sender.is_closed());
        state.is_running = !state.queue.is_empty();
        let batch_len = state.queue.len().min(MAX_BATCH);
        state.queue.drain(..batch_len).inspect(|request| request.is_started.store(true, Ordering::Relaxed)).collect()
    }
}

/// Runs batches until the queue is empty. If this value is dropped earlier, all queued requests fail.
struct Leader<B: BatchOperation> {
    coalescer: Arc<Coalescer<B>>,
    is_finished: bool,
}

impl<B: BatchOperation> Leader<B> {
    async fn run_batches(mut self) {
        self.coalescer.yield_to_followers().await;
        loop {
            let (items, senders): (Vec<B::Item>, Vec<oneshot::Sender<B::Output>>) =
                self.coalescer.next_batch().into_iter().map(|request| (request.item, request.sender)).unzip();
            if items.is_empty() {
                self.is_finished = true;
                return;
            }
            for (sender, result) in senders.into_iter().zip(self.coalescer.operation.run_batch(items).await) {
                // Sending fails if the request was cancelled; this is ignored.
                let _cancelled = sender.send(result);
            }
        }
    }
}

impl<B: BatchOperation> Drop for Leader<B> {
    fn drop(&mut self) {
        if !self.is_finished {
            let mut state = self.coalescer.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_running = false;
            state.queue.clear();
        }
    }
}

impl<B: BatchOperation> fmt::Debug for Coalescer<B> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Coalescer")
    }
}

#[cfg(test)]
mod tests;
