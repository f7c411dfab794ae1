//! The audit log: the list of events, and the sequencer, a background task that assigns each fact its index.

use crate::{
    Failure, SequencerWakeup, Stores,
    access::{Operation, ScopeResolver, authorize},
    services::CommonOperations,
};
use fairway_domain::{
    access::{Caller, Permission},
    audit::{AuditEvent, AuditFilter, AuditStore, FactSequencer},
    store::{Page, PageRequest},
};
use std::{sync::Arc, time::Duration};

/// Time for which facts accumulate after a wakeup, so that one commit sequences many facts.
const BATCH_WINDOW: Duration = Duration::from_millis(25);
/// Poll interval without a wakeup. It bounds the delay of facts that other processes commit.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Delay of the next attempt after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Reads the audit log.
#[derive(Clone)]
pub struct AuditLog {
    audit_store: Arc<dyn AuditStore>,
    scope_resolver: Arc<ScopeResolver>,
}

impl AuditLog {
    pub(crate) fn new(stores: &Stores, common: &CommonOperations) -> Self {
        Self { audit_store: Arc::clone(&stores.audit), scope_resolver: Arc::clone(&common.scope_resolver) }
    }
}

impl AuditLog {
    /// Lists events of the tenant's log, newest first; those of one workspace if the filter names it. An auditor of a
    /// namespace, workspace or workload may list the events of that scope.
    ///
    /// # Errors
    /// When the caller may not read the log in that scope.
    pub async fn list_audit_events(
        &self,
        caller: &Caller,
        filter: AuditFilter,
        page: PageRequest,
    ) -> Result<Page<AuditEvent>, Failure> {
        let operation = Operation::ListAuditEvents;
        let AuditFilter { workspace, subject: _ } = filter;
        let is_allowed = match workspace {
            Some(id) => {
                authorize::authorize(caller, operation, &self.scope_resolver.workspace_position(caller, id).await?)
                    .is_ok()
            }
            None => false,
        };
        let (scope, visible_scopes) = authorize::authorize_list(caller, operation)?;
        let visible_scopes = visible_scopes.filter(|_| !is_allowed);
        // Every member knows that the log exists, so a missing permission is 403. An auditor of single workloads may
        // not list a whole workspace.
        if workspace.is_some()
            && visible_scopes.as_ref().is_some_and(|visible_scopes| visible_scopes.workloads.is_empty())
        {
            return Err(authorize::missing_permission(caller, Permission::AuditView));
        }
        Ok(self.audit_store.list(scope, filter, visible_scopes.as_ref(), page).await?)
    }
}

/// Assigns pending facts their index in an endless loop. Several processes may run this task concurrently.
pub async fn run_sequencer(log: Arc<dyn FactSequencer>, wake: Arc<SequencerWakeup>) {
    loop {
        match log.sequence().await {
            Ok(placed) => {
                if placed == 0 {
                    // After the timeout, the loop polls without a wakeup.
                    let _ = tokio::time::timeout(POLL_INTERVAL, wake.wait()).await;
                } else {
                    wake.notify_sequenced();
                }
                tokio::time::sleep(BATCH_WINDOW).await;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to sequence facts; retrying in 1 s");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}
