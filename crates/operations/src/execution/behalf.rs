//! Running on behalf of somebody else: a service whose word is taken says who a run is for.

use super::admission;
use crate::{
    Failure, RunRefusal, Services,
    access::{Operation, gate},
    workload::place_of,
};
use fairway_domain::{
    access::{ActorKind, ActorRef, Caller},
    release::lane::Lane,
    tenant::TenantScope,
    workload::Workload,
};

impl Services {
    /// Whether the word of this service on behalf of others is taken.
    #[must_use]
    pub fn is_internal_client(&self, actor: &ActorRef) -> bool {
        actor.kind() == ActorKind::Service && self.settings.internal_clients.contains(actor)
    }

    /// Lets a service run a workload for somebody: both need the right to run it, and to choose its lane where one is chosen,
    /// and who it is for has to be bound to the workload itself.
    ///
    /// # Errors
    /// Not found when one of them does not see the workload; when one of them lacks a right; when who it is for is not bound.
    pub(super) async fn enter_on_behalf(
        &self,
        (client, subject): (&Caller, &Caller),
        chosen: Option<Lane>,
        workload: &Workload,
    ) -> Result<(), Failure> {
        let place = place_of(client, workload);
        for caller in [client, subject] {
            gate::enter(caller, Operation::ReadWorkload, &place)?;
            gate::enter(caller, Operation::ExecuteWorkload, &place)?;
            admission::lane(caller, None, chosen, workload)?;
        }
        let scope = TenantScope::of(subject);
        let bound = self.stores.principal_bindings.find(scope, workload.workload_id, &subject.actor).await?;
        bound.map(|_| ()).ok_or_else(|| RunRefusal::PrincipalNotBound.into())
    }
}
