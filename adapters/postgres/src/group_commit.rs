//! Group commit: concurrent commits of one kind share a statement. A commit with a large payload runs alone and
//! immediately. Semaphores limit the number of large commits per kind and in total, so that connections remain for
//! other statements.

use crate::{
    coalesce::{BatchOperation, Coalescer, NoResult},
    database::{STATEMENT_TIMEOUT, TASK_STATEMENT_BYTES},
    store_error::{missing_batch_response, outcome_unknown, unavailable},
};
use async_trait::async_trait;
use fairway_domain::store::{CommitError, StoreError, StoreFault};
use futures_util::future::join_all;
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Maximum payload of a commit in a batch, in bytes. A full batch has at most 1 MiB, which PostgreSQL receives in
/// about the time that one flush of the write-ahead log takes.
const MAX_BATCHED_BYTES: usize = 16 << 10;
/// Maximum number of concurrent large commits of one kind.
const MAX_LARGE_COMMITS: usize = 2;

/// Permits that large commits of several kinds share. This type has two instances: one for the ends of runs, and
/// one for all other kinds. Together their permits cover half of the connections, so that the other half remains
/// for small statements. For a pool of fewer than four connections, each instance has one permit. Clones share the
/// permits.
#[derive(Clone)]
pub(crate) struct LargeCommitPermits(Arc<Semaphore>);

impl LargeCommitPermits {
    /// Creates the permits for all kinds except run ends, for a pool of `connections`.
    pub(crate) fn for_connections(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new((connections / 2).saturating_sub(max_run_ends(connections)).max(1))))
    }

    /// Creates the permits for the ends of runs, for a pool of `connections`. They are separate, because a run's
    /// values stay in memory until its end is stored. Ends therefore must not wait for commits that start runs.
    pub(crate) fn for_run_ends(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_run_ends(connections))))
    }
}

/// Maximum number of concurrent large ends of runs, for a pool of `connections`.
fn max_run_ends(connections: usize) -> usize {
    (connections / 4).clamp(1, MAX_LARGE_COMMITS)
}

/// The permits of a large commit: the permit of its kind, and the shared permit.
pub(crate) type LargeCommitGuard<'c> = (SemaphorePermit<'c>, SemaphorePermit<'c>);

/// A kind of commit that one statement performs for many items.
#[async_trait]
pub(crate) trait BatchCommitter: Send + Sync + 'static {
    /// The input of one commit.
    type Item: Send + Sync;
    /// The result of a successful commit.
    type Output: Send;
    /// Name of the commit in logs and traces.
    const LABEL: &'static str;

    /// Whether `item` can join `batch`, the items selected before it. An item that must see the row of an earlier
    /// item runs alone, and so does an item that could refuse the whole batch.
    fn is_batchable(item: &Self::Item, batch: &[&Self::Item]) -> bool;

    /// Total bytes of those texts of the item that can be large, such as inputs and outputs.
    fn payload_bytes(item: &Self::Item) -> usize;

    /// Commits a batch in one statement. Returns one result for each item, in order. `None` means that one item
    /// made PostgreSQL reject the statement and roll it back, so nothing was written.
    async fn commit_batch(
        &self,
        items: &[&Self::Item],
    ) -> Result<Option<Vec<Result<Self::Output, CommitError>>>, StoreError>;

    /// Commits one item in its own statement.
    async fn commit_one(&self, item: &Self::Item) -> Result<Self::Output, CommitError>;
}

/// Adapts a [`BatchCommitter`] to a [`BatchOperation`], with permits for large commits.
pub(crate) struct GroupCommit<C> {
    committer: C,
    large_permits: Semaphore,
    shared_large_permits: LargeCommitPermits,
}

impl<C> GroupCommit<C> {
    pub(crate) fn new(committer: C, shared_large_permits: &LargeCommitPermits) -> Self {
        Self {
            committer,
            large_permits: Semaphore::const_new(MAX_LARGE_COMMITS),
            shared_large_permits: shared_large_permits.clone(),
        }
    }
}

#[async_trait]
impl<C: BatchCommitter> BatchOperation for GroupCommit<C> {
    type Item = C::Item;
    type Output = Result<C::Output, CommitError>;
    const LABEL: &'static str = C::LABEL;

    async fn run_batch(&self, items: Vec<C::Item>) -> Vec<Result<C::Output, CommitError>> {
        let mut batch_items: Vec<&C::Item> = Vec::with_capacity(items.len());
        let batched: Vec<bool> = items
            .iter()
            .map(|item| {
                let is_batched = C::is_batchable(item, &batch_items);
                batch_items.extend(is_batched.then_some(item));
                is_batched
            })
            .collect();
        let batch = if batch_items.len() > 1 { self.committer.commit_batch(&batch_items).await } else { Ok(None) };
        if let Err(error) = &batch {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                kind = C::LABEL,
                items = batch_items.len(),
                fault = ?error.fault,
                "group commit failed; failing its requests"
            );
        }
        let is_rolled_back = matches!(batch, Ok(None));
        let is_unavailable = matches!(batch, Err(StoreError { fault: StoreFault::Unavailable, .. }));
        let mut results = batch.ok().flatten().unwrap_or_default().into_iter();
        let commits = items.iter().zip(batched).map(|(item, is_batched)| {
            let result = if is_batched { results.next() } else { None };
            async move {
                match result {
                    Some(result) => result,
                    None if is_rolled_back || !is_batched => self.committer.commit_one(item).await,
                    None if is_unavailable => Err(CommitError::Store(unavailable(missing_batch_response()))),
                    // The batch was sent, but its response is missing or unreadable, so its outcome is unknown.
                    None => Err(CommitError::Store(outcome_unknown(missing_batch_response()))),
                }
            }
        });
        // The commits run concurrently, because the next batch waits until all of them have ended.
        join_all(commits).await
    }
}

impl<C: BatchCommitter> Coalescer<GroupCommit<C>> {
    /// Commits an item: in a batch if its payload is small, alone if it is large.
    pub(crate) async fn commit(self: &Arc<Self>, item: C::Item) -> Result<C::Output, CommitError> {
        let bytes = C::payload_bytes(&item);
        self.commit_with_size(bytes, || item).await
    }

    /// Like [`Self::commit`], for an item with a payload of `bytes`. `build_item` builds the item after the permit is
    /// acquired, so that large items that wait do not occupy memory.
    pub(crate) async fn commit_with_size(
        self: &Arc<Self>,
        bytes: usize,
        build_item: impl FnOnce() -> C::Item + Send,
    ) -> Result<C::Output, CommitError> {
        if let Some(_permit) = self.acquire_large_permit(bytes).await? {
            let item = build_item();
            return self
                .in_flight
                .track(TASK_STATEMENT_BYTES.scope(bytes, self.operation.committer.commit_one(&item)))
                .await;
        }
        match self.submit(build_item()).await {
            Ok(result) => result,
            Err(NoResult::NotStarted) => Err(CommitError::Store(unavailable(missing_batch_response()))),
            Err(NoResult::Started) => Err(CommitError::Store(outcome_unknown(missing_batch_response()))),
        }
    }

    /// Acquires the permits of a large commit; `None` for a small one. The caller holds them during the commit.
    ///
    /// # Errors
    /// `Unavailable` after [`STATEMENT_TIMEOUT`]; the commit has not started.
    pub(crate) async fn acquire_large_permit(&self, bytes: usize) -> Result<Option<LargeCommitGuard<'_>>, CommitError> {
        if bytes <= MAX_BATCHED_BYTES {
            return Ok(None);
        }
        let permits = async {
            let of_kind = self.operation.large_permits.acquire().await.ok()?;
            Some((of_kind, self.operation.shared_large_permits.0.acquire().await.ok()?))
        };
        match self.in_flight.track(timeout(STATEMENT_TIMEOUT, permits)).await {
            Ok(permits) => Ok(permits),
            Err(elapsed) => Err(CommitError::Store(unavailable(Box::new(elapsed)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_commits_leave_half_of_the_connections() {
        for connections in 4..=64 {
            let permits =
                [LargeCommitPermits::for_connections(connections), LargeCommitPermits::for_run_ends(connections)];
            let permit_count: usize = permits.iter().map(|permits| permits.0.available_permits()).sum();
            assert!(permits.iter().all(|permits| permits.0.available_permits() > 0), "{connections}");
            assert!(permit_count <= connections / 2, "{permit_count} of {connections}");
        }
    }
}
