//! Wakeups of inbox streams: a projection wakes the streams of its tenant alone.

use fairway_domain::id::TenantId;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// The streams of this process, by tenant.
#[derive(Debug, Default)]
pub(crate) struct InboxWakeups(Mutex<HashMap<TenantId, watch::Sender<()>>>);

impl InboxWakeups {
    /// Reports that facts of a tenant were projected.
    pub(crate) fn notify(&self, tenant: TenantId) {
        let mut streams = self.streams();
        // The entry of a tenant whose last stream has ended goes with the next projection.
        if streams.get(&tenant).is_some_and(|stream| stream.send(()).is_err()) {
            streams.remove(&tenant);
        }
    }

    /// Follows the projections of a tenant from now on.
    pub(crate) fn subscribe(&self, tenant: TenantId) -> InboxChanges {
        InboxChanges(self.streams().entry(tenant).or_default().subscribe())
    }

    fn streams(&self) -> MutexGuard<'_, HashMap<TenantId, watch::Sender<()>>> {
        // Each update is one call, so the map stays consistent after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The projections of this process since the last wait.
pub struct InboxChanges(watch::Receiver<()>);

impl InboxChanges {
    /// Waits until this process has projected further facts of the tenant since the last wait, or the time is over: other
    /// processes project too.
    pub async fn wait(&mut self, most: Duration) {
        let _ = tokio::time::timeout(most, self.0.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[tokio::test]
    async fn projection_wakes_the_streams_of_its_tenant_alone() {
        let wakeups = InboxWakeups::default();
        let [one, other] = [1, 2].map(|number| TenantId::from(Uuid::from_u128(number)));
        let (mut first, mut second, third) = (wakeups.subscribe(one), wakeups.subscribe(one), wakeups.subscribe(other));
        wakeups.notify(one);
        for stream in [&mut first, &mut second] {
            stream.0.changed().await.unwrap();
        }
        assert!(!third.0.has_changed().unwrap());
        drop(third);
        wakeups.notify(other);
        assert_eq!(wakeups.streams().len(), 1);
    }
}
