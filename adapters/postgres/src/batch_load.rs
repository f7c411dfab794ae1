//! Batch loads: concurrent reads by key share one statement.

use crate::{
    coalesce::{BatchOperation, Coalescer},
    store_error::{missing_batch_response, unavailable},
};
use async_trait::async_trait;
use fairway_domain::store::{StoreError, StoreFault};
use std::{collections::HashMap, hash::Hash, slice, sync::Arc};

/// A read by key that serves many keys with one statement.
#[async_trait]
pub(crate) trait BatchLoader: Send + Sync + 'static {
    /// The lookup key.
    type Key: Clone + Eq + Hash + Send + Sync;
    /// The value of a key.
    type Value: Clone + Send + Sync;
    /// Name of the read in traces.
    const LABEL: &'static str;

    /// Reads the values of distinct keys. Missing keys are absent from the map.
    async fn load_batch(&self, keys: &[Self::Key]) -> Result<HashMap<Self::Key, Self::Value>, StoreError>;
}

/// Adapts a [`BatchLoader`] to a [`BatchOperation`].
pub(crate) struct BatchLoadOperation<L>(pub(crate) L);

/// The value of one key, or the fault of the shared statement. All requests receive a copy of the fault, because a
/// [`StoreError`] cannot be cloned.
type SharedResult<T> = Result<Option<T>, StoreFault>;

#[async_trait]
impl<L: BatchLoader> BatchOperation for BatchLoadOperation<L> {
    type Item = L::Key;
    type Output = SharedResult<L::Value>;
    const LABEL: &'static str = L::LABEL;

    async fn run_batch(&self, keys: Vec<L::Key>) -> Vec<SharedResult<L::Value>> {
        let found = self.0.load_batch(&distinct(&keys)).await;
        keys.iter()
            .map(|key| found.as_ref().map(|found| found.get(key).cloned()).map_err(|error| error.fault))
            .collect()
    }
}

impl<L: BatchLoader> Coalescer<BatchLoadOperation<L>> {
    /// Reads the value of a key. The read starts after this call.
    ///
    /// # Errors
    /// When the statement fails or times out.
    pub(crate) async fn load(self: &Arc<Self>, key: L::Key) -> Result<Option<L::Value>, StoreError> {
        match self.submit(key.clone()).await {
            Ok(Ok(found)) => Ok(found),
            // The key is read again alone, to return the error with its source.
            Ok(Err(StoreFault::Inconsistent)) => {
                let reloaded = self.in_flight.track(self.operation.0.load_batch(slice::from_ref(&key))).await;
                Ok(reloaded?.remove(&key))
            }
            // These faults are returned without a second read, which would double the wait.
            Ok(Err(StoreFault::Unavailable | StoreFault::OutcomeUnknown)) | Err(_) => {
                Err(unavailable(missing_batch_response()))
            }
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
