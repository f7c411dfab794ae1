//! Commits that wait at the same time, in one statement. What is heavy waits with nobody: it goes by itself and at once,
//! as few at a time as leave connections for the rest, of a kind and of all kinds together.

use crate::{
    database::{ANSWER, STATEMENT_BYTES},
    failure::{unavailable, unsettled},
    gather::{Batch, Gather},
};
use async_trait::async_trait;
use fairway_domain::store::{CommitError, StoreError};
use futures_util::future::join_all;
use std::sync::Arc;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// Most bytes of texts that a commit brings into a statement with others: together they bring a mebibyte at most, which
/// PostgreSQL takes in the time of a flush.
const LIGHT: usize = 16 << 10;
/// Most commits of a kind that go by themselves at the same time because they are heavy.
const HEAVY_AT_ONCE: usize = 2;

/// Permits for the heavy commits of all kinds together. With those of ends they take half of the connections, so that as
/// many are left for small statements; a pool of fewer than four connections has one permit of each. Clones share the
/// permits.
#[derive(Clone)]
pub(crate) struct HeavyPermits(Arc<Semaphore>);

impl HeavyPermits {
    /// The permits of a pool of so many connections, for all kinds but the ends of runs.
    pub(crate) fn of(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new((connections / 2).saturating_sub(ends_at_once(connections)).max(1))))
    }

    /// The permits of ends alone. A run holds its values until its end is stored, so ends never wait behind what begins runs.
    pub(crate) fn of_ends(connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(ends_at_once(connections))))
    }
}

/// Heavy ends of runs at a time in a pool of so many connections.
fn ends_at_once(connections: usize) -> usize {
    (connections / 4).clamp(1, HEAVY_AT_ONCE)
}

/// The turn of a heavy commit: among those of its kind, and among those of all kinds.
pub(crate) type HeavyTurn<'c> = (SemaphorePermit<'c>, SemaphorePermit<'c>);

/// A kind of commit that can be made for many at once.
#[async_trait]
pub(crate) trait Commit: Send + Sync + 'static {
    /// What asks to be committed.
    type Item: Send + Sync;
    /// What is answered when it was.
    type Done: Send;
    /// What happens to them, for the log.
    const WHAT: &'static str;

    /// Whether an item can share a statement with those in front of it. What has parts that few have goes by itself,
    /// because every statement would pay for them; so does what needs to find the row of one in front.
    fn shares(item: &Self::Item, in_front: &[&Self::Item]) -> bool;

    /// What it weighs: the bytes of those of its texts that may be long.
    fn weight(item: &Self::Item) -> usize;

    /// Commits them in one statement, and answers in the same order. `None`: PostgreSQL refused all of them because of
    /// one, and nothing happened.
    async fn together(&self, items: &[&Self::Item])
    -> Result<Option<Vec<Result<Self::Done, CommitError>>>, StoreError>;

    /// Commits one by itself.
    async fn alone(&self, item: &Self::Item) -> Result<Self::Done, CommitError>;
}

/// The statements of one kind of commit.
pub(crate) struct Commits<C> {
    pub(crate) one: C,
    heavy: Semaphore,
    heavy_of_all_kinds: HeavyPermits,
}

impl<C> Commits<C> {
    pub(crate) fn of(one: C, heavy: &HeavyPermits) -> Self {
        Self { one, heavy: Semaphore::const_new(HEAVY_AT_ONCE), heavy_of_all_kinds: heavy.clone() }
    }
}

#[async_trait]
impl<C: Commit> Batch for Commits<C> {
    type Item = C::Item;
    type Answer = Result<C::Done, CommitError>;
    const WHAT: &'static str = C::WHAT;

    async fn together(&self, items: Vec<C::Item>) -> Vec<Result<C::Done, CommitError>> {
        let mut sharing: Vec<&C::Item> = Vec::with_capacity(items.len());
        let shares: Vec<bool> = items
            .iter()
            .map(|item| {
                let shares = C::shares(item, &sharing);
                sharing.extend(shares.then_some(item));
                shares
            })
            .collect();
        let together = if sharing.len() > 1 { self.one.together(&sharing).await } else { Ok(None) };
        if let Err(error) = &together {
            tracing::warn!(error = error as &dyn std::error::Error, "{} could not be committed together", C::WHAT);
        }
        let refused = matches!(together, Ok(None));
        let mut made = together.ok().flatten().unwrap_or_default().into_iter();
        let answers = items.iter().zip(shares).map(|(item, shared)| {
            let made = if shared { made.next() } else { None };
            async move {
                match made {
                    Some(answer) => answer,
                    None if refused || !shared => self.one.alone(item).await,
                    // It may have happened.
                    None => Err(CommitError::Store(unsettled())),
                }
            }
        });
        // At the same time: while these last, everybody else waits.
        join_all(answers).await
    }
}

impl<C: Commit> Gather<Commits<C>> {
    /// Commits: what is light in one statement with what waits at the same time, what is heavy by itself.
    pub(crate) async fn commit(self: &Arc<Self>, item: C::Item) -> Result<C::Done, CommitError> {
        let bytes = C::weight(&item);
        self.commit_with(bytes, || item).await
    }

    /// The same for an item that weighs `bytes`. What is heavy is made when its turn has come: those that wait hold no
    /// copy.
    pub(crate) async fn commit_with(
        self: &Arc<Self>,
        bytes: usize,
        make: impl FnOnce() -> C::Item + Send,
    ) -> Result<C::Done, CommitError> {
        if let Some(_turn) = self.turn(bytes).await? {
            let item = make();
            return self.waiting.during(STATEMENT_BYTES.scope(bytes, self.batch.one.alone(&item))).await;
        }
        match self.ask(make()).await {
            Some(answer) => answer,
            None => Err(CommitError::Store(unsettled())),
        }
    }

    /// The turn of what is heavy, for as long as it is held. What has not got one in time has not begun.
    pub(crate) async fn turn(&self, bytes: usize) -> Result<Option<HeavyTurn<'_>>, CommitError> {
        if bytes <= LIGHT {
            return Ok(None);
        }
        let turn = async {
            let of_kind = self.batch.heavy.acquire().await.ok()?;
            Some((of_kind, self.batch.heavy_of_all_kinds.0.acquire().await.ok()?))
        };
        match self.waiting.during(timeout(ANSWER, turn)).await {
            Ok(turn) => Ok(turn),
            Err(elapsed) => Err(CommitError::Store(unavailable(Box::new(elapsed)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_commits_leave_half_of_the_connections() {
        for connections in 4..=64 {
            let permits = [HeavyPermits::of(connections), HeavyPermits::of_ends(connections)];
            let taken: usize = permits.iter().map(|permits| permits.0.available_permits()).sum();
            assert!(permits.iter().all(|permits| permits.0.available_permits() > 0), "{connections}");
            assert!(taken <= connections / 2, "{taken} of {connections}");
        }
    }
}
