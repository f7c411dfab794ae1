//! The backlog meter: a background task that measures pending deliveries and the lag of the projector, for metrics.

use crate::{Stores, services::SharedState};
use fairway_domain::{
    notification::backlog::{BacklogStore, NotificationMetricsObserver},
    store::StoreError,
};
use std::{sync::Arc, time::Duration};

/// Interval between measurements; Prometheus usually scrapes at a similar interval.
const INTERVAL: Duration = Duration::from_secs(15);

/// Measures the backlog of notifications for metrics.
pub struct BacklogMeter {
    backlog_store: Arc<dyn BacklogStore>,
    observer: Arc<dyn NotificationMetricsObserver>,
}

impl BacklogMeter {
    pub(crate) fn new(stores: &Stores, shared: &SharedState) -> Self {
        Self {
            backlog_store: Arc::clone(&stores.notification_backlog),
            observer: Arc::clone(&shared.notification_observer),
        }
    }

    /// Performs one measurement, and reports it to the observer.
    ///
    /// # Errors
    /// When the store fails. The observer then retains the last measurement.
    pub async fn measure(&self) -> Result<(), StoreError> {
        let backlog = self.backlog_store.outbox_backlog().await?;
        let lag = self.backlog_store.projector_lag().await?;
        self.observer.backlog_measured(&backlog, lag);
        Ok(())
    }
}

/// Measures the backlog in an endless loop.
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
