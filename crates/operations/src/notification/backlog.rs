//! The meter of the backlog: a background task that measures the outbox and the projector for the metrics.

use crate::{Stores, services::SharedState};
use fairway_domain::{
    notification::backlog::{BacklogStore, NotificationObserver},
    store::StoreError,
};
use std::{sync::Arc, time::Duration};

/// Interval of measurements. Prometheus scrapes about as often.
const INTERVAL: Duration = Duration::from_secs(15);

/// Measures the backlog of notifications.
pub struct BacklogMeter {
    backlog_store: Arc<dyn BacklogStore>,
    observer: Arc<dyn NotificationObserver>,
}

impl BacklogMeter {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            backlog_store: Arc::clone(&stores.notification_backlog),
            observer: Arc::clone(&shared.notification_observer),
        }
    }

    /// Measures once.
    ///
    /// # Errors
    /// When the store fails; the last measurement stays.
    pub async fn measure(&self) -> Result<(), StoreError> {
        let backlog = self.backlog_store.outbox_backlog().await?;
        let lag = self.backlog_store.projector_lag().await?;
        self.observer.backlog_measured(&backlog, lag);
        Ok(())
    }
}

/// Measures the backlog, forever.
pub async fn run_backlog_meter(meter: Arc<BacklogMeter>) {
    loop {
        if let Err(error) = meter.measure().await {
            tracing::info!(
                error = &error as &dyn std::error::Error,
                "failed to measure the backlog of notifications; retrying in 15 s"
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
