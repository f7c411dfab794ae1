//! The backlog of notifications: unfinished deliveries and unread facts. Ports measure the backlog and report it as
//! metrics.

use super::{Channel, ports::AttemptOutcome};
use crate::store::StoreError;
use async_trait::async_trait;
use std::time::Duration;

/// The unfinished deliveries of one channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelBacklog {
    /// The channel of the deliveries.
    pub channel: Channel,
    /// The number of deliveries that wait for their next attempt, or for the end of a digest's window.
    pub pending: u64,
    /// The number of deliveries that a sender has claimed.
    pub claimed: u64,
    /// The age of the oldest pending delivery.
    pub oldest_pending: Duration,
    /// The longest time by which the next attempt of a pending delivery is late; zero if none is late.
    pub longest_overdue: Duration,
}

/// The facts that the projector has not read yet, over the audit logs of all tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectorLag {
    /// The number of facts that the projector has not read.
    pub facts: u64,
    /// The age of the oldest fact that the projector has not read.
    pub age: Duration,
}

/// The port that measures the backlog of all tenants.
#[async_trait]
pub trait BacklogStore: Send + Sync {
    /// Measures the pending and claimed deliveries of each channel. Channels without such deliveries are absent. It
    /// counts at most 100,000 deliveries, which limits the cost.
    async fn outbox_backlog(&self) -> Result<Vec<ChannelBacklog>, StoreError>;
    /// Measures how far the projector is behind the audit logs.
    async fn projector_lag(&self) -> Result<ProjectorLag, StoreError>;
}

/// The port that reports deliveries and their backlog to the metrics of the process.
pub trait NotificationMetricsObserver: Send + Sync {
    /// Called after this process made a delivery attempt.
    fn attempt_ended(&self, channel: Channel, outcome: &AttemptOutcome);
    /// Called after this process measured the backlog.
    fn backlog_measured(&self, backlog: &[ChannelBacklog], lag: ProjectorLag);
}
