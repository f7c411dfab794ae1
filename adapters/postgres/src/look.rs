//! Reads by key, one statement for everybody who asks at the same time.

use crate::{
    failure::unsettled,
    gather::{Batch, Gather},
};
use async_trait::async_trait;
use fairway_domain::store::{StoreError, StoreFault};
use std::{collections::HashMap, hash::Hash, slice, sync::Arc};

/// What can be looked up for many keys at once.
#[async_trait]
pub(crate) trait Look: Send + Sync + 'static {
    /// What it is looked up by.
    type Key: Clone + Eq + Hash + Send + Sync;
    /// What is found.
    type Found: Clone + Send + Sync;
    /// What is looked up, for traces.
    const WHAT: &'static str;

    /// What is there, by key.
    async fn look(&self, keys: &[Self::Key]) -> Result<HashMap<Self::Key, Self::Found>, StoreError>;
}

/// The statements of one kind of look-up.
pub(crate) struct Looks<L>(pub(crate) L);

/// What was found, or the fact that the shared statement failed: errors cannot be shared.
type Shared<T> = Result<Option<T>, StoreFault>;

#[async_trait]
impl<L: Look> Batch for Looks<L> {
    type Item = L::Key;
    type Answer = Shared<L::Found>;
    const WHAT: &'static str = L::WHAT;

    async fn together(&self, keys: Vec<L::Key>) -> Vec<Shared<L::Found>> {
        let found = self.0.look(&distinct(&keys)).await;
        keys.iter()
            .map(|key| found.as_ref().map(|found| found.get(key).cloned()).map_err(|error| error.fault))
            .collect()
    }
}

impl<L: Look> Gather<Looks<L>> {
    /// What is there, read after this call.
    pub(crate) async fn now(self: &Arc<Self>, key: L::Key) -> Result<Option<L::Found>, StoreError> {
        match self.ask(key.clone()).await {
            Some(Ok(found)) => Ok(found),
            // Whoever asks again gets an error of its own, which says what is wrong.
            Some(Err(StoreFault::Broken)) => {
                let again = self.waiting.during(self.batch.0.look(slice::from_ref(&key))).await;
                Ok(again?.remove(&key))
            }
            // To ask again now would be to wait twice.
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
