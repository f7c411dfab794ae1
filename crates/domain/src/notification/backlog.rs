//! The backlog of notifications, and the port through which a process observes it for its metrics.

use super::{Channel, ports::AttemptOutcome};
use crate::store::StoreError;
use async_trait::async_trait;
use std::time::Duration;

/// The deliveries of a channel that are pending or claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelBacklog {
    /// The channel of the counted deliveries.
    pub channel: Channel,
    /// The number of deliveries that wait for their next attempt or for the end of a digest window.
    pub pending: u64,
    /// The number of deliveries that a sender has claimed.
    pub claimed: u64,
    /// The age of the oldest waiting delivery.
    pub oldest_pending: Duration,
    /// The longest time by which the next attempt of a pending delivery is overdue; zero if none is overdue.
    pub longest_overdue: Duration,
}

/// The facts of all audit logs that the projector has not read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectorLag {
    /// The number of unread facts.
    pub facts: u64,
    /// The age of the oldest unread fact.
    pub age: Duration,
}

/// Measures the backlog of all tenants.
#[async_trait]
pub trait BacklogStore: Send + Sync {
    /// Measures the pending and claimed deliveries by channel; channels without such deliveries are absent. Counts
    /// at most 100,000 deliveries, which limits the cost.
    async fn outbox_backlog(&self) -> Result<Vec<ChannelBacklog>, StoreError>;
    /// Measures how far the projector lags behind the audit logs.
    async fn projector_lag(&self) -> Result<ProjectorLag, StoreError>;
}

/// Observes deliveries and their backlog, for the metrics of a process.
pub trait NotificationObserver: Send + Sync {
    /// Called after a delivery attempt of this process has ended.
    fn attempt_ended(&self, channel: Channel, outcome: &AttemptOutcome);
    /// Called after the backlog was measured.
    fn backlog_measured(&self, backlog: &[ChannelBacklog], lag: ProjectorLag);
}
