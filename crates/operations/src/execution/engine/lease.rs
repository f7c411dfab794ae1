//! Renewal of the leases of runs.

use super::RunEngine;
use fairway_domain::{
    access::ActorRef,
    execution::{dispatch::LeaseRef, ports::LeaseState, run::Interruption},
    tenant::TenantScope,
};
use std::sync::OnceLock;
use tokio::sync::Notify;

impl RunEngine {
    /// Renews the lease of a run whenever a third of its duration has passed or `recheck` is notified. Returns only
    /// when the run must stop.
    pub(in crate::execution) async fn renew_lease(
        &self,
        scope: TenantScope,
        lease_ref: LeaseRef,
        recheck: &Notify,
        cancelled_by: &OnceLock<ActorRef>,
    ) -> Interruption {
        let interval = self.settings.lease / 3;
        loop {
            let _renewal_or_recheck = tokio::time::timeout(interval, recheck.notified()).await;
            match self.lease_store.renew(scope, lease_ref.execution_id, lease_ref.lease).await {
                Ok(LeaseState::Held) => {}
                Ok(LeaseState::Lost) => return Interruption::LeaseLost,
                Ok(LeaseState::WorkloadStopped) => return Interruption::WorkloadStopped,
                Ok(LeaseState::Cancelled(actor)) => {
                    cancelled_by.get_or_init(|| actor);
                    return Interruption::Cancelled;
                }
                Err(error) => {
                    tracing::warn!(
                        tenant_id = %scope.tenant(),
                        execution_id = %lease_ref.execution_id,
                        error = &error as &dyn std::error::Error,
                        "failed to renew a lease; retrying within a third of its duration"
                    );
                }
            }
        }
    }
}
