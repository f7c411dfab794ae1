//! Commits that wait at the same time, in one statement.

use crate::{
    failure::unsettled,
    gather::{Batch, Gather},
};
use async_trait::async_trait;
use fairway_domain::store::{CommitError, StoreError};
use futures_util::future::join_all;
use std::sync::Arc;

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

    /// Commits them in one statement, and answers in the same order. `None`: PostgreSQL refused all of them because of
    /// one, and nothing happened.
    async fn together(&self, items: &[&Self::Item])
    -> Result<Option<Vec<Result<Self::Done, CommitError>>>, StoreError>;

    /// Commits one by itself.
    async fn alone(&self, item: &Self::Item) -> Result<Self::Done, CommitError>;
}

/// The statements of one kind of commit.
pub(crate) struct Commits<C>(pub(crate) C);

#[async_trait]
impl<C: Commit> Batch for Commits<C> {
    type Item = C::Item;
    type Answer = Result<C::Done, CommitError>;

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
        let together = if sharing.len() > 1 { self.0.together(&sharing).await } else { Ok(None) };
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
                    None if refused || !shared => self.0.alone(item).await,
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
    /// Commits, in one statement with what waits at the same time.
    pub(crate) async fn commit(self: &Arc<Self>, item: C::Item) -> Result<C::Done, CommitError> {
        match self.ask(item).await {
            Some(answer) => answer,
            None => Err(CommitError::Store(unsettled())),
        }
    }
}
