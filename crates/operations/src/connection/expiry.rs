//! Expiry notices of connection credentials. A background task creates each notice once, by the clock of the database.

use super::Connections;
use crate::Failure;
use fairway_domain::{
    access::ActorRef, audit::Stamp, connection::expiry_notice::DueNotice, store::CommitError, tenant::TenantScope,
};
use std::{sync::Arc, time::Duration};

/// Interval between two queries for due notices.
const INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of notices that one query returns.
const PAGE: u32 = 200;
/// Name of the system actor that creates notices.
const ACTOR: &str = "clock";

/// Creates due expiry notices in an endless loop. Several processes may run this task concurrently.
pub async fn run_expiry_notices(connections: Arc<Connections>) {
    loop {
        if let Err(error) = connections.create_due_notices().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "failed to create expiry notices of connections; retrying in 60 s"
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

impl Connections {
    /// Creates each due expiry notice once. Returns the number of created notices.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn create_due_notices(&self) -> Result<u64, Failure> {
        let mut created = 0_u64;
        loop {
            let due = self.connection_task_store.due_expiry_notices(PAGE).await?;
            let created_before = created;
            for notice in &due {
                match self.create_notice(*notice).await {
                    Ok(is_created) => created = created.saturating_add(u64::from(is_created)),
                    // A failure must not delay the notices of other connections.
                    Err(error) => tracing::warn!(
                        tenant_id = %notice.tenant,
                        connection_id = %notice.connection_id,
                        error = &error as &dyn std::error::Error,
                        "failed to create the expiry notice of a connection; retrying within 60 s"
                    ),
                }
            }
            // A notice whose commit was stale remains due, and the next query returns it again. Without progress, the
            // loop ends.
            if created == created_before {
                break;
            }
        }
        if created > 0 {
            self.context.notify_facts();
        }
        Ok(created)
    }

    async fn create_notice(&self, due: DueNotice) -> Result<bool, Failure> {
        let scope = TenantScope::for_background_task(due.tenant);
        let Some(connection) = self.connection_store.find(scope, due.connection_id).await? else { return Ok(false) };
        let (actor, request_id) = (ActorRef::system(ACTOR), self.context.new_id());
        let stamp = Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor, request_id };
        let Some(change) = connection.record_expiry_notice(due.days, &stamp) else { return Ok(false) };
        match self.connection_task_store.commit_expiry_notice(scope, change).await {
            Err(CommitError::Stale) => Ok(false),
            committed => {
                committed?;
                Ok(true)
            }
        }
    }
}
