//! The audit log: reading it, and the relay that gives facts their place.

use crate::{
    Failure, Services, Wake,
    access::{Operation, gate},
};
use fairway_domain::{
    access::{Caller, Permission, Place},
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
    /// Events of the tenant's log, newest first; of one workspace, or of all.
    ///
    /// # Errors
    /// When the caller may not read the log there.
    pub async fn list_audit_events(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: Paging,
    ) -> Result<Listed<AuditEvent>, Failure> {
        let place = match workspace {
            Some(id) => self.workspace_place(caller, id).await?,
            None => Place::tenant(caller.tenant),
        };
        let scope = match gate::enter(caller, Operation::ListAuditEvents, &place) {
            // That there is a log is no secret, only what it says.
            Err(Failure::NotFound) => return Err(Failure::Forbidden(Permission::AuditView)),
            entered => entered?,
        };
        Ok(self.stores.audit.list(scope, workspace, page).await?)
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
