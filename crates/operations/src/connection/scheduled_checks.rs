//! Scheduled checks: a background task checks every active connection with an endpoint once a day, so that an outage
//! is detected without a request.

use super::Connections;
use crate::Failure;
use fairway_domain::{
    access::ActorRef, audit::Stamp, connection::DueCheck, id::ConnectionCheckId, store::CommitError,
    tenant::TenantScope,
};
use futures_util::StreamExt as _;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Interval between two queries for due checks.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of checks that one query returns.
const PAGE: u32 = 200;
/// Maximum number of concurrent checks in a process, so that a slow endpoint delays few others.
const CONCURRENT_CHECKS: usize = 8;
/// Name of the system actor that records the checks.
const ACTOR: &str = "clock";

/// Performs due checks in an endless loop. Several processes may run this task concurrently.
pub async fn run_connection_checks(connections: Arc<Connections>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        if let Err(error) = connections.run_due_checks().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to list connections to check; retrying in 60 s"
            );
        }
    }
}

impl Connections {
    /// Checks each due connection once. Returns the number of recorded checks.
    ///
    /// # Errors
    /// When the due connections cannot be read.
    pub async fn run_due_checks(&self) -> Result<u64, Failure> {
        let due = self.connection_task_store.due_checks(PAGE).await?;
        let check_count = AtomicU64::new(0);
        let check = async |due: DueCheck| match self.record_due_check(due).await {
            Ok(is_recorded) => {
                check_count.fetch_add(u64::from(is_recorded), Ordering::Relaxed);
            }
            // A failure must not stop the checks of other connections.
            Err(error) => tracing::warn!(
                tenant_id = %due.tenant,
                connection_id = %due.connection_id,
                error = &error as &dyn std::error::Error,
                "failed to check a connection; retrying in 60 s"
            ),
        };
        futures_util::stream::iter(due).for_each_concurrent(CONCURRENT_CHECKS, check).await;
        let check_count = check_count.into_inner();
        if check_count > 0 {
            self.context.notify_facts();
        }
        Ok(check_count)
    }

    async fn record_due_check(&self, due: DueCheck) -> Result<bool, Failure> {
        let scope = TenantScope::for_background_task(due.tenant);
        let stored = self.connection_store.find(scope, due.connection_id).await?;
        // Another process may have checked or changed the connection since the query.
        let Some(connection) = stored.filter(|connection| connection.revision == due.revision) else {
            return Ok(false);
        };
        let (health, code) = super::health_of(self.probe(scope, &connection).await?);
        let (actor, request_id) = (ActorRef::system(ACTOR), self.context.new_id());
        let stamp = Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor, request_id };
        let check_id: ConnectionCheckId = self.context.new_id();
        let change = connection.record_check(check_id, health, code, &stamp);
        match self.connection_store.commit_check(scope, change, None).await {
            // The connection changed during the check, or another process has checked it.
            Err(CommitError::Stale) => Ok(false),
            committed => {
                committed?;
                Ok(true)
            }
        }
    }
}
