//! The backlog of notifications, and the port through which a process observes it for its metrics.

use super::{Channel, ports::AttemptOutcome};
use crate::store::StoreError;
use async_trait::async_trait;
use std::time::Duration;

/// The deliveries of a channel that have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelBacklog {
    /// The channel.
    pub channel: Channel,
    /// The number of deliveries that wait for an attempt, and for the end of a digest's window.
    pub pending: u64,
    /// The number of deliveries that a sender works on.
    pub claimed: u64,
    /// The age of the oldest waiting delivery.
    pub oldest_pending: Duration,
    /// The time since the attempt of a waiting delivery was due; zero if none is.
    pub longest_overdue: Duration,
}

/// The facts of all logs that the projector has not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectorLag {
    /// Their number.
    pub facts: u64,
    /// The age of the oldest.
    pub age: Duration,
}

/// Measures the backlog of all tenants.
#[async_trait]
pub trait BacklogStore: Send + Sync {
    /// The deliveries that have not ended, by channel. Channels without any are left out. At most 100,000 deliveries are
    /// counted, which bounds the cost.
    async fn outbox_backlog(&self) -> Result<Vec<ChannelBacklog>, StoreError>;
    /// How far the projector is behind the logs.
    async fn projector_lag(&self) -> Result<ProjectorLag, StoreError>;
}

/// Observes deliveries and their backlog.
pub trait NotificationObserver: Send + Sync {
    /// An attempt of this process has ended.
    fn attempt_ended(&self, channel: Channel, outcome: &AttemptOutcome);
    /// The backlog was measured.
    fn backlog_measured(&self, backlog: &[ChannelBacklog], lag: ProjectorLag);
}
