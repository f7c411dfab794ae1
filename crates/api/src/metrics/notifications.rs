//! Metrics of notifications: delivery attempts of this process, and the backlog of the database.
//!
//! INVARIANT: the labels are channels, statuses and outcomes, which are closed sets.

use fairway_domain::notification::{
    Channel,
    backlog::{ChannelBacklog, NotificationMetricsObserver, ProjectorLag},
    delivery::DeliveryStatus,
    ports::AttemptOutcome,
};
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, core::Collector};

/// Outcomes of a delivery attempt.
const OUTCOMES: [&str; 3] = ["sent", "retried", "failed"];

/// The metrics of notifications. Clones share the values.
#[derive(Clone, Debug)]
pub struct NotificationMetrics {
    attempts: IntCounterVec,
    deliveries: IntGaugeVec,
    oldest: GaugeVec,
    overdue: GaugeVec,
    lag_facts: IntGauge,
    lag_seconds: Gauge,
}

/// The channels that have deliveries: all but the inbox.
fn channels() -> impl Iterator<Item = Channel> {
    Channel::ALL.into_iter().filter(|channel| *channel != Channel::Portal)
}

impl NotificationMetrics {
    /// Creates and registers the metrics.
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let attempts = Opts::new("fairway_notification_attempts_total", "Attempts to deliver of this process.");
        let attempts = IntCounterVec::new(attempts, &["channel", "outcome"])?;
        let deliveries =
            Opts::new("fairway_notification_deliveries", "Deliveries in the database that have not ended.");
        let deliveries = IntGaugeVec::new(deliveries, &["channel", "status"])?;
        let oldest = Opts::new("fairway_notification_oldest_pending_seconds", "Age of the oldest pending delivery.");
        let oldest = GaugeVec::new(oldest, &["channel"])?;
        let overdue =
            Opts::new("fairway_notification_overdue_seconds", "Time since the attempt of a pending delivery was due.");
        let overdue = GaugeVec::new(overdue, &["channel"])?;
        let lag_facts = IntGauge::new("fairway_projector_lag_facts", "Facts that the projector has not read.")?;
        let lag_seconds =
            Gauge::new("fairway_projector_lag_seconds", "Age of the oldest fact that the projector has not read.")?;
        let collectors: [Box<dyn Collector>; 6] = [
            Box::new(attempts.clone()),
            Box::new(deliveries.clone()),
            Box::new(oldest.clone()),
            Box::new(overdue.clone()),
            Box::new(lag_facts.clone()),
            Box::new(lag_seconds.clone()),
        ];
        for collector in collectors {
            registry.register(collector)?;
        }
        let metrics = Self { attempts, deliveries, oldest, overdue, lag_facts, lag_seconds };
        // All series exist from the start, so that a count of zero differs from a missing metric.
        for (channel, outcome) in channels().flat_map(|channel| OUTCOMES.map(|outcome| (channel, outcome))) {
            metrics.attempts.with_label_values(&[channel.as_str(), outcome]).reset();
        }
        metrics.backlog_measured(&[], ProjectorLag::default());
        Ok(metrics)
    }
}

impl NotificationMetricsObserver for NotificationMetrics {
    fn attempt_ended(&self, channel: Channel, outcome: &AttemptOutcome) {
        let [sent, retried, failed] = OUTCOMES;
        let outcome = match outcome {
            AttemptOutcome::Sent(_) => sent,
            AttemptOutcome::Retry(..) => retried,
            AttemptOutcome::Failed(_) => failed,
        };
        self.attempts.with_label_values(&[channel.as_str(), outcome]).inc();
    }

    fn backlog_measured(&self, backlog: &[ChannelBacklog], lag: ProjectorLag) {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        for channel in channels() {
            let channel_backlog = backlog.iter().find(|candidate| candidate.channel == channel);
            let count = |status: DeliveryStatus, count: u64| {
                self.deliveries.with_label_values(&[channel.as_str(), status.as_str()]).set(gauge(count));
            };
            count(DeliveryStatus::Pending, channel_backlog.map_or(0, |backlog| backlog.pending));
            count(DeliveryStatus::Claimed, channel_backlog.map_or(0, |backlog| backlog.claimed));
            let seconds = |duration: Option<std::time::Duration>| duration.unwrap_or_default().as_secs_f64();
            let channel = [channel.as_str()];
            self.oldest.with_label_values(&channel).set(seconds(channel_backlog.map(|backlog| backlog.oldest_pending)));
            self.overdue
                .with_label_values(&channel)
                .set(seconds(channel_backlog.map(|backlog| backlog.longest_overdue)));
        }
        self.lag_facts.set(gauge(lag.facts));
        self.lag_seconds.set(lag.age.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use fairway_domain::notification::{delivery::DeliveryError, message::SendFailure};
    use std::time::Duration;

    #[test]
    fn measures_attempts_and_the_last_backlog_by_channel() {
        let metrics = Metrics::new().unwrap();
        let observer = metrics.notifications();
        let failure = SendFailure::without_response(DeliveryError::TimedOut);
        observer.attempt_ended(Channel::Webhook, &AttemptOutcome::Sent(Some(204)));
        observer.attempt_ended(Channel::Email, &AttemptOutcome::Failed(failure));
        observer.attempt_ended(Channel::Email, &AttemptOutcome::Retry(failure, Duration::from_secs(5)));
        let backlog = |channel| ChannelBacklog {
            channel,
            pending: 7,
            claimed: 2,
            oldest_pending: Duration::from_secs(90),
            longest_overdue: Duration::from_millis(1_500),
        };
        observer.backlog_measured(&[backlog(Channel::Paging)], ProjectorLag::default());
        let lag = ProjectorLag { facts: 12, age: Duration::from_secs(3) };
        observer.backlog_measured(&[backlog(Channel::ChatB)], lag);
        let text = metrics.render().unwrap();
        for line in [
            r#"fairway_notification_attempts_total{channel="webhook",outcome="sent"} 1"#,
            r#"fairway_notification_attempts_total{channel="email",outcome="failed"} 1"#,
            r#"fairway_notification_attempts_total{channel="email",outcome="retried"} 1"#,
            r#"fairway_notification_attempts_total{channel="paging",outcome="sent"} 0"#,
            r#"fairway_notification_deliveries{channel="chat_b",status="pending"} 7"#,
            r#"fairway_notification_deliveries{channel="chat_b",status="claimed"} 2"#,
            r#"fairway_notification_deliveries{channel="paging",status="pending"} 0"#,
            r#"fairway_notification_oldest_pending_seconds{channel="chat_b"} 90"#,
            r#"fairway_notification_overdue_seconds{channel="chat_b"} 1.5"#,
            r#"fairway_notification_overdue_seconds{channel="paging"} 0"#,
            "fairway_projector_lag_facts 12",
            "fairway_projector_lag_seconds 3",
        ] {
            assert!(text.lines().any(|candidate| candidate == line), "{line}\n{text}");
        }
        assert!(!text.contains("portal"), "the inbox has no deliveries");
    }
}
