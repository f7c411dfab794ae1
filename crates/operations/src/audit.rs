//! The audit log: reading it, and the relay that gives facts their place.

use crate::{
    Failure, Services, Wake,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{Caller, Permission},
    audit::{AuditEvent, FactSequencer},
    id::WorkspaceId,
    store::{Listed, Paging},
};
use std::{sync::Arc, time::Duration};

/// How long facts gather after a wake, so that a busy server sequences many of them in one commit.
const GATHER: Duration = Duration::from_millis(25);
/// How long the sequencer sleeps when nobody wakes it: other processes commit facts too.
const POLL: Duration = Duration::from_millis(250);
/// How long it rests after a failure.
const REST: Duration = Duration::from_secs(1);

impl Services {
    /// Events of the tenant's log, newest first; of one workspace, or of all. An auditor of a namespace, a workspace or a
    /// workload reads those of its scope.
    ///
    /// # Errors
    /// When the caller may not read the log there.
    pub async fn list_audit_events(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: Paging,
    ) -> Result<Listed<AuditEvent>, Failure> {
        let operation = Operation::ListAuditEvents;
        let is_allowed = match workspace {
            Some(id) => gate::enter(caller, operation, &self.workspace_place(caller, id).await?).is_ok(),
            None => false,
        };
        let (scope, reach) = gate::enter_list(caller, operation)?;
        let reach = reach.filter(|_| !is_allowed);
        // That there is a log is no secret, only what it says. Of a workspace that is not the auditor's, its workloads may be.
        if workspace.is_some() && reach.as_ref().is_some_and(|reach| reach.workloads.is_empty()) {
            return Err(gate::refused(caller, Permission::AuditView));
        }
        Ok(self.stores.audit.list(scope, workspace, reach.as_ref(), page).await?)
    }
}

/// Gives waiting facts their place, for ever. Any number of processes may do it at once.
pub async fn sequence_forever(log: Arc<dyn FactSequencer>, wake: Arc<Wake>) {
    loop {
        match log.sequence().await {
            Ok(placed) => {
                if placed == 0 {
                    // Woken or not, it is time to look again.
                    let _ = tokio::time::timeout(POLL, wake.wait()).await;
                }
                tokio::time::sleep(GATHER).await;
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "facts could not be sequenced");
                tokio::time::sleep(REST).await;
            }
        }
    }
}
