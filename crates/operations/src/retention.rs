//! Retention: scheduled deletion of data whose lifetime has ended.

use crate::{Services, asset::GarbageCollectionReport};
use std::time::Duration;

/// Interval between two retention passes.
const INTERVAL: Duration = Duration::from_secs(60 * 60);

/// Deletes expired data in an endless loop. Several processes may run this task concurrently.
pub async fn run_retention(services: Services) {
    loop {
        match services.keyed_requests.delete_expired_keys().await {
            Ok(keys) => tracing::info!(keys, "deleted expired idempotency keys"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete expired idempotency keys; retrying in 1 h"
                );
            }
        }
        match services.rate_limits.delete_idle_clients().await {
            Ok(counters) => tracing::info!(counters, "deleted expired rate limit counters"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete expired rate limit counters; retrying in 1 h"
                );
            }
        }
        match services.sessions.delete_expired_sessions().await {
            Ok(sessions) => tracing::info!(sessions, "deleted ended browser sessions"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete ended browser sessions; retrying in 1 h"
                );
            }
        }
        match services.memories.delete_expired_or_revoked().await {
            Ok(turns) => tracing::info!(turns, "deleted expired conversation turns"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete expired conversation turns; retrying in 1 h"
                );
            }
        }
        match services.artifacts.collect_garbage_when_due().await {
            Ok(Some(GarbageCollectionReport { listed, deleted })) if deleted > 0 => {
                tracing::info!(listed, deleted, "deleted unreferenced artifacts");
            }
            Ok(Some(_) | None) => {}
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "failed to delete unreferenced artifacts; retrying within 7 h"
                );
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
