//! Batch loads: concurrent reads by key share one statement.

use crate::{
    failure::unsettled,
    gather::{Batch, Coalescer},
};
use async_trait::async_trait;
use fairway_domain::store::{StoreError, StoreFault};
use std::{collections::HashMap, hash::Hash, slice, sync::Arc};

/// A read by key that one statement does for many keys.
#[async_trait]
pub(crate) trait Look: Send + Sync + 'static {
    /// The lookup key.
    type Key: Clone + Eq + Hash + Send + Sync;
    /// The value of a key.
    type Found: Clone + Send + Sync;
    /// Name of the read in traces.
    const WHAT: &'static str;

    /// Reads the values of distinct keys. Missing keys are absent from the map.
    async fn look(&self, keys: &[Self::Key]) -> Result<HashMap<Self::Key, Self::Found>, StoreError>;
}

/// Runs a [`BatchLoader`] as a [`BatchOperation`].
pub(crate) struct Looks<L>(pub(crate) L);

/// The value of one key, or the fault of the shared statement: a [`StoreError`] cannot be cloned.
type SharedResult<T> = Result<Option<T>, StoreFault>;

#[async_trait]
impl<L: Look> Batch for Looks<L> {
    type Item = L::Key;
    type Answer = SharedResult<L::Found>;
    const WHAT: &'static str = L::WHAT;

    async fn together(&self, keys: Vec<L::Key>) -> Vec<SharedResult<L::Found>> {
        let found = self.0.look(&distinct(&keys)).await;
        keys.iter()
            .map(|key| found.as_ref().map(|found| found.get(key).cloned()).map_err(|error| error.fault))
            .collect()
    }
}

impl<L: Look> Coalescer<Looks<L>> {
    /// Reads the value of a key. The read starts after this call.
    ///
    /// # Errors
    /// When the statement fails or times out.
    pub(crate) async fn now(self: &Arc<Self>, key: L::Key) -> Result<Option<L::Found>, StoreError> {
        match self.ask(key.clone()).await {
            Some(Ok(found)) => Ok(found),
            // A read of its own returns the error with its source.
            Some(Err(StoreFault::Broken)) => {
                let again = self.waiting.during(self.batch.0.look(slice::from_ref(&key))).await;
                Ok(again?.remove(&key))
            }
            // A retry would double the wait.
            Some(Err(StoreFault::Unavailable)) | None => Err(unsettled()),
        }
    }
}

fn distinct<K: Clone + PartialEq>(keys: &[K]) -> Vec<K> {
    let mut distinct: Vec<K> = Vec::new();
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(key.clone());
        }
    }
    distinct
}
