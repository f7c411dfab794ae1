//! Wakeups of inbox streams. A projection wakes only the streams of the tenant whose facts it projected.

use fairway_domain::id::TenantId;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Wakeup channels of this process's inbox streams, by tenant.
#[derive(Debug, Default)]
pub(crate) struct InboxWakeups(Mutex<HashMap<TenantId, watch::Sender<()>>>);

impl InboxWakeups {
    /// Wakes the streams of a tenant after facts of the tenant were projected.
    pub(crate) fn notify(&self, tenant: TenantId) {
        let mut streams = self.streams();
        // Sending fails if the tenant's last stream has ended, and its channel is then removed.
        if streams.get(&tenant).is_some_and(|stream| stream.send(()).is_err()) {
            streams.remove(&tenant);
        }
    }

    /// Subscribes to the wakeups of a tenant. Only facts that are projected after this call wake the subscription.
    pub(crate) fn subscribe(&self, tenant: TenantId) -> ProjectionSubscription {
        ProjectionSubscription(self.streams().entry(tenant).or_default().subscribe())
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<TenantId, watch::Sender<()>>> {
        // A panic leaves the map consistent, because each change is a single call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subscription to the projections of a tenant in this process.
pub struct ProjectionSubscription(watch::Receiver<()>);

impl ProjectionSubscription {
    /// Waits until this process has projected further facts of the tenant since the last wait, or `max_wait` has
    /// elapsed. The limit is needed because facts that other processes project cause no wakeup here.
    pub async fn wait(&mut self, max_wait: Duration) {
        let _ = tokio::time::timeout(max_wait, self.0.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn projection_wakes_only_the_streams_of_its_tenant() {
        let wakeups = InboxWakeups::default();
        let [tenant, other_tenant] = [1, 2].map(|number| TenantId::from(Uuid::from_u128(number)));
        let (mut first, mut second, third) =
            (wakeups.subscribe(tenant), wakeups.subscribe(tenant), wakeups.subscribe(other_tenant));
        wakeups.notify(tenant);
        for stream in [&mut first, &mut second] {
            stream.0.changed().await.unwrap();
        }
        assert!(!third.0.has_changed().unwrap());
        drop(third);
        wakeups.notify(other_tenant);
        assert_eq!(wakeups.streams().len(), 1);
    }
}
