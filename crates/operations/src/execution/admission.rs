//! Who may see and run what by which way: by a right of its own, because the workload is public, or by a share link.

use crate::{
    Failure, Services,
    access::{Operation, gate},
    share_link::Pass,
    workload::place_of,
};
use fairway_domain::{
    access::{ActorKind, Caller, Permission},
    execution::{Execution, Guest},
    id::ExecutionId,
    release::lane::Lane,
    share_link::{ResultToken, TokenRefusal, is_guest},
    tenant::TenantScope,
    throttle::{ClientAddress, Counted},
    workload::{Workload, interface::AccessMode},
};

/// Lets a caller see a runtime interface. A link that is brought decides alone; whom else a workload is reached by links
/// for is told by what it wants to do there.
pub(crate) fn see(
    caller: &Caller,
    pass: Option<&Pass>,
    workload: &Workload,
    operation: Operation,
) -> Result<TenantScope, Failure> {
    match (pass, workload.access_mode()) {
        (Some(pass), _) => Ok(pass.opens(caller, workload).map(|()| TenantScope::of(caller))?),
        (None, AccessMode::Public | AccessMode::LinkShared) => Ok(TenantScope::of(caller)),
        (None, AccessMode::Authenticated) => gate::enter(caller, operation, &place_of(caller, workload)),
    }
}

/// Lets a caller that sees a workload run it, as far as rights go.
pub(crate) fn run(caller: &Caller, pass: Option<&Pass>, workload: &Workload) -> Result<(), Failure> {
    match (pass, workload.access_mode()) {
        (Some(_), _) | (None, AccessMode::Public | AccessMode::LinkShared) => Ok(()),
        (None, AccessMode::Authenticated) => {
            gate::enter(caller, Operation::ExecuteWorkload, &place_of(caller, workload)).map(|_| ())
        }
    }
}

/// Whether what a caller brings shows it an interface.
pub(crate) const fn is_shown(pass: Option<&Pass>, workload: AccessMode) -> Result<(), TokenRefusal> {
    match (pass, workload) {
        (None, AccessMode::LinkShared) => Err(TokenRefusal::Required),
        (Some(_), _) | (None, AccessMode::Public | AccessMode::Authenticated) => Ok(()),
    }
}

/// Whether what a caller brings starts a run.
pub(crate) fn starts(pass: Option<&Pass>, workload: &Workload) -> Result<(), TokenRefusal> {
    is_shown(pass, workload.access_mode())?;
    pass.map_or(Ok(()), Pass::starts_a_run)
}

/// The lane that a run asks for: the one that its caller chooses, which takes a permission, else that of the link, else
/// that of the caller's binding, else the general one.
pub(crate) fn lane(
    caller: &Caller,
    pass: Option<&Pass>,
    chosen: Option<Lane>,
    workload: &Workload,
) -> Result<Lane, Failure> {
    let Some(chosen) = chosen else {
        let of_link = pass.and_then(|pass| pass.link().lane);
        return Ok(of_link.or_else(|| caller.lanes.lane(workload.workload_id)).unwrap_or(Lane::Standard));
    };
    match gate::enter(caller, Operation::ChooseLane, &place_of(caller, workload)) {
        // It was let in, so it is told what is missing.
        Err(Failure::NotFound) => Err(gate::refused(caller, Permission::ReleaseTransition)),
        entered => entered.map(|_| chosen),
    }
}

/// What a run was let in by, and the token that reads it where nobody else could say whose it is.
pub(crate) fn guest(services: &Services, caller: &Caller, pass: Option<&Pass>) -> (Guest, Option<ResultToken>) {
    let nameless = caller.actor.kind() == ActorKind::Anonymous;
    let token = nameless.then(|| ResultToken::of(services.ids.secret()));
    let share_link = pass.map(|pass| pass.link().share_link_id);
    (Guest { share_link, result_token: token.as_ref().map(ResultToken::hash), delegate: None }, token)
}

impl Services {
    /// Counts a request to a public workload, whoever sends it.
    ///
    /// # Errors
    /// When its client asks too often.
    pub(crate) async fn count_visit(
        &self,
        scope: TenantScope,
        workload: &Workload,
        address: Option<ClientAddress>,
    ) -> Result<(), Failure> {
        let (AccessMode::Public, Some(address)) = (workload.access_mode(), address) else { return Ok(()) };
        self.count(scope, Counted::Visits(workload.workload_id, address), self.settings.public_rate).await
    }

    /// Why a link that was open when its request came lets no run in any more.
    pub(crate) async fn closed_link(
        &self,
        scope: TenantScope,
        workload: &Workload,
        pass: &Pass,
    ) -> Result<TokenRefusal, Failure> {
        let id = pass.link().share_link_id;
        let seen = self.stores.share_links.find(scope, workload.workload_id, id).await?;
        let seen = seen.ok_or(Failure::Token(TokenRefusal::Invalid))?;
        // What is closed stays closed.
        seen.starts_a_run().err().ok_or(Failure::Contended)
    }

    /// The run of an earlier request with the same key. Somebody without a name is not shown what came of it: the key may
    /// be another's.
    pub(crate) async fn run_of_key(
        &self,
        scope: TenantScope,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Execution, Failure> {
        if !is_guest(caller.actor.kind()) {
            return self.read_execution(caller, id, None).await;
        }
        let state = self.stores.executions.state(scope, id).await?.ok_or(Failure::NotFound)?;
        Ok(Execution { output: None, ..state.execution })
    }
}
