//! The list of events of the audit log.

mod sequencer;

use crate::{
    Failure, Stores,
    access::{Operation, ScopeResolver, authorize},
    services::CommonOperations,
};
use fairway_domain::{
    access::{Caller, Permission},
    audit::{AuditEvent, AuditFilter, AuditStore},
    store::{Page, PageRequest},
};
pub use sequencer::run_sequencer;
use std::sync::Arc;

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
        // not list the events of a whole workspace.
        if workspace.is_some()
            && visible_scopes.as_ref().is_some_and(|visible_scopes| visible_scopes.workloads.is_empty())
        {
            return Err(authorize::missing_permission(caller, Permission::AuditView));
        }
        Ok(self.audit_store.list(scope, filter, visible_scopes.as_ref(), page).await?)
    }
}
