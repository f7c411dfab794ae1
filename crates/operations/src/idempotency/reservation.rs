//! Reservations of idempotency keys. Some requests perform slow work outside the database before they commit. Such a
//! request reserves its key under a lease, so that a repeated request does not start the same work concurrently.

use crate::{Failure, idempotency::KeyedRequests};
use fairway_domain::{
    idempotency::{IdempotencyStore, RequestKey},
    tenant::TenantScope,
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{runtime::Handle, time::sleep};
use uuid::Uuid;

/// A reserved key. Dropping it releases the key, even if the client has disconnected.
struct Reservation {
    keys: Arc<dyn IdempotencyStore>,
    scope: TenantScope,
    /// The reserved key; `None` after its release.
    key: Option<RequestKey>,
    resource: Uuid,
}

impl Reservation {
    /// Renews the lease whenever a third of its duration has passed. The future never completes.
    async fn renew_lease(&self, lease: Duration) -> Infallible {
        loop {
            sleep(lease / 3).await;
            let Some(key) = &self.key else { continue };
            if let Err(error) = self.keys.renew_reservation(self.scope, key, self.resource, lease).await {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    tenant_id = %self.scope.tenant(),
                    resource_id = %self.resource,
                    error,
                    "failed to renew the reservation of an idempotency key; retrying after a third of its lease"
                );
            }
        }
    }

    async fn release(mut self) {
        if let Some(key) = self.key.take() {
            release(self.keys.as_ref(), self.scope, &key, self.resource).await;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let (Some(key), Ok(runtime)) = (self.key.take(), Handle::try_current()) else { return };
        let (keys, scope, resource) = (Arc::clone(&self.keys), self.scope, self.resource);
        runtime.spawn(async move { release(keys.as_ref(), scope, &key, resource).await });
    }
}

async fn release(keys: &dyn IdempotencyStore, scope: TenantScope, key: &RequestKey, resource: Uuid) {
    if let Err(error) = keys.release_reservation(scope, key, resource).await {
        let error: &dyn std::error::Error = &error;
        tracing::warn!(
            tenant_id = %scope.tenant(),
            resource_id = %resource,
            error,
            "failed to release an idempotency key; the key becomes free when its lease expires"
        );
    }
}

impl KeyedRequests {
    /// Performs work that ends with the commit of `resource`, and reserves the key meanwhile. The commit completes the
    /// reservation; without a commit, the key is released.
    ///
    /// # Errors
    /// The errors of the work; also when another request with this key is in progress or has committed.
    pub(crate) async fn with_reserved_key<T>(
        &self,
        scope: TenantScope,
        key: Option<&RequestKey>,
        resource: Uuid,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(key) = key else { return work.await };
        let (keys, lease) = (Arc::clone(&self.key_store), self.settings.lease);
        // The guard exists before the statement is sent. The key is therefore released even if the client disconnects
        // while the statement runs.
        let mut reservation = Reservation { keys, scope, key: Some(key.clone()), resource };
        if !reservation.keys.reserve(scope, key, resource, lease).await? {
            reservation.key = None;
            let earlier_outcome = self.earlier_outcome(scope, Some(key)).await?;
            return Err(earlier_outcome.map_or(Failure::KeyInProgress, |_| Failure::KeyTaken));
        }
        let outcome = tokio::select! {
            outcome = work => outcome,
            never = reservation.renew_lease(lease) => match never {},
        };
        // The key is released before the response, so that the client can use the key again at once.
        reservation.release().await;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use async_trait::async_trait;
    use fairway_domain::{access::ActorRef, idempotency::KeyState, store::StoreError};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::{sync::Notify, time::timeout};

    const LEASE: Duration = Duration::from_secs(30);

    /// Store that counts the renewals and releases of a reservation.
    #[derive(Default)]
    struct Keys {
        renewal_count: AtomicUsize,
        release_count: AtomicUsize,
        release: Notify,
    }

    #[async_trait]
    impl IdempotencyStore for Keys {
        async fn key_state(&self, _: TenantScope, _: &RequestKey) -> Result<KeyState, StoreError> {
            Ok(KeyState::Reserved)
        }

        async fn reserve(&self, _: TenantScope, _: &RequestKey, _: Uuid, _: Duration) -> Result<bool, StoreError> {
            Ok(true)
        }

        async fn renew_reservation(
            &self,
            _: TenantScope,
            _: &RequestKey,
            _: Uuid,
            lease: Duration,
        ) -> Result<(), StoreError> {
            assert_eq!(lease, LEASE);
            self.renewal_count.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        async fn release_reservation(&self, _: TenantScope, _: &RequestKey, _: Uuid) -> Result<(), StoreError> {
            self.release_count.fetch_add(1, Ordering::Relaxed);
            self.release.notify_one();
            Ok(())
        }

        async fn delete_expired(&self) -> Result<u64, StoreError> {
            Ok(0)
        }
    }

    fn reservation(keys: &Arc<Keys>) -> Reservation {
        let key = RequestKey {
            key: "k".to_owned(),
            caller: ActorRef::system("test"),
            route: "POST /v1/things".to_owned(),
            body_digest: [0; 32],
        };
        let scope = TenantScope::for_background_task(Uuid::from_u128(1).into());
        Reservation { keys: keys.clone(), scope, key: Some(key), resource: Uuid::from_u128(2) }
    }

    #[tokio::test(start_paused = true)]
    async fn renews_the_lease_every_third_of_its_duration() {
        let keys = Arc::new(Keys::default());
        let reservation = reservation(&keys);
        let outcome = timeout(LEASE - Duration::from_secs(1), reservation.renew_lease(LEASE)).await;
        assert!(outcome.is_err());
        assert_eq!(keys.renewal_count.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn releases_the_key_once_on_completion_and_on_drop() {
        let keys = Arc::new(Keys::default());
        reservation(&keys).release().await;
        keys.release.notified().await;
        drop(reservation(&keys));
        keys.release.notified().await;
        assert_eq!(keys.release_count.load(Ordering::Relaxed), 2);
    }
}
