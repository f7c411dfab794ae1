//! Delegation: a trusted service runs a workload on behalf of another principal.

use super::run_access;
use crate::{
    Failure, RunRefusal,
    access::{IdentityClaims, IdentityMode, Operation, authorize},
    execution::execute::Executions,
    workload::position_of,
};
use fairway_domain::{
    access::{
        ActorKind, ActorRef, Caller,
        delegation::{DelegationRefusal, DelegationTrust},
        on_behalf_of_fields::OnBehalfOfFields,
    },
    release::lane::Lane,
    tenant::{DEFAULT_TENANT_ID, TenantScope},
    workload::Workload,
};

impl Executions {
    /// Returns whether this service may act on behalf of other principals. The configuration names services of the
    /// default tenant. With verified identities, the same name in another tenant is a different service.
    #[must_use]
    pub fn is_delegating_client(&self, claims: &IdentityClaims) -> bool {
        let is_tenant_trusted = match self.settings.identity {
            IdentityMode::Local => true,
            IdentityMode::Oidc => claims.tenant == Some(DEFAULT_TENANT_ID.into()),
        };
        is_tenant_trusted
            && claims.actor.kind() == ActorKind::Service
            && self.settings.delegating_clients.contains(&claims.actor)
    }

    /// Returns the principal that the on-behalf-of fields name; `None` if the request has none of these fields.
    ///
    /// # Errors
    /// When the client is not a delegating service, or a field is missing or invalid.
    pub fn delegated_subject(
        &self,
        mode: IdentityMode,
        client: &IdentityClaims,
        fields: &OnBehalfOfFields,
    ) -> Result<Option<ActorRef>, DelegationRefusal> {
        let trust =
            if self.is_delegating_client(client) { DelegationTrust::Trusted } else { DelegationTrust::Untrusted };
        fields.delegated_principal(trust, mode.as_str())
    }

    /// Authorizes a delegated run. The service and the principal both need the permissions to run the workload and to
    /// choose a lane. The principal must also be bound to the workload.
    ///
    /// # Errors
    /// Not found when the service or the principal does not see the workload; forbidden when the service or the
    /// principal lacks a permission; refused when the principal has no binding.
    pub(super) async fn authorize_delegation(
        &self,
        client: &Caller,
        subject: &Caller,
        requested_lane: Option<Lane>,
        workload: &Workload,
    ) -> Result<(), Failure> {
        let position = position_of(client, workload);
        for caller in [client, subject] {
            authorize::authorize(caller, Operation::ReadWorkload, &position)?;
            authorize::authorize(caller, Operation::ExecuteWorkload, &position)?;
            run_access::select_lane(caller, None, requested_lane, workload)?;
        }
        let scope = TenantScope::for_caller(subject);
        let binding = self.principal_binding_store.find(scope, workload.workload_id, &subject.actor).await?;
        binding.map(|_| ()).ok_or_else(|| RunRefusal::PrincipalNotBound.into())
    }
}
