//! Access to workloads and runs by a permission, as a guest of a public workload, or by a share link.

use crate::{
    Failure,
    access::{Operation, authorize},
    execution::{execute::Executions, execution_reader::ExecutionReader},
    share_link::VerifiedLink,
    workload::position_of,
};
use fairway_domain::{
    access::{ActorKind, Caller, Permission},
    execution::{AdditionalAccess, Execution},
    id::{ExecutionId, IdSource},
    release::lane::Lane,
    share_link::{ResultToken, ShareTokenRefusal, is_guest},
    tenant::TenantScope,
    workload::{Workload, interface::AccessMode},
};

/// Authorizes a caller to see a runtime interface. If the request presents a share link, only the link decides. For a
/// link-shared workload without a link, this check succeeds; the attempted operation then refuses the request.
pub(crate) fn authorize_interface_view(
    caller: &Caller,
    presented_link: Option<&VerifiedLink>,
    workload: &Workload,
    operation: Operation,
) -> Result<TenantScope, Failure> {
    match (presented_link, workload.effective_access_mode()) {
        (Some(presented_link), _) => {
            Ok(presented_link.check_belongs_to(caller, workload).map(|()| TenantScope::for_caller(caller))?)
        }
        (None, AccessMode::Public | AccessMode::LinkShared) => Ok(TenantScope::for_caller(caller)),
        (None, AccessMode::Authenticated) => authorize::authorize(caller, operation, &position_of(caller, workload)),
    }
}

/// Authorizes a caller to run a workload that it sees.
pub(crate) fn authorize_run(
    caller: &Caller,
    presented_link: Option<&VerifiedLink>,
    workload: &Workload,
) -> Result<(), Failure> {
    match (presented_link, workload.effective_access_mode()) {
        (Some(_), _) | (None, AccessMode::Public | AccessMode::LinkShared) => Ok(()),
        (None, AccessMode::Authenticated) => {
            authorize::authorize(caller, Operation::ExecuteWorkload, &position_of(caller, workload)).map(|_| ())
        }
    }
}

/// Checks that the request presents a share link if the workload requires one.
pub(crate) const fn check_link_presence(
    presented_link: Option<&VerifiedLink>,
    workload: AccessMode,
) -> Result<(), ShareTokenRefusal> {
    match (presented_link, workload) {
        (None, AccessMode::LinkShared) => Err(ShareTokenRefusal::Required),
        (Some(_), _) | (None, AccessMode::Public | AccessMode::Authenticated) => Ok(()),
    }
}

/// Checks that the request may start a run with the share link that it presents.
pub(crate) fn check_link_allows_start(
    presented_link: Option<&VerifiedLink>,
    workload: &Workload,
) -> Result<(), ShareTokenRefusal> {
    check_link_presence(presented_link, workload.effective_access_mode())?;
    presented_link.map_or(Ok(()), VerifiedLink::check_starts_run)
}

/// Selects the lane of a run: the requested lane, which requires a permission. Without a request it is the lane of the
/// share link, else the lane of the caller's binding, else `standard`.
pub(crate) fn select_lane(
    caller: &Caller,
    presented_link: Option<&VerifiedLink>,
    requested_lane: Option<Lane>,
    workload: &Workload,
) -> Result<Lane, Failure> {
    let Some(requested_lane) = requested_lane else {
        let link_lane = presented_link.and_then(|presented_link| presented_link.link().lane);
        return Ok(link_lane.or_else(|| caller.lanes.lane(workload.workload_id)).unwrap_or(Lane::Standard));
    };
    match authorize::authorize(caller, Operation::ChooseLane, &position_of(caller, workload)) {
        // The caller already sees the workload, so the refusal may name the missing permission.
        Err(Failure::NotFound) => Err(authorize::missing_permission(caller, Permission::ReleaseTransition)),
        authorization => authorization.map(|_| requested_lane),
    }
}

/// Returns the share link of a guest's run with the hash of its result token. An anonymous submitter also receives the
/// result token itself.
pub(crate) fn guest_access(
    ids: &dyn IdSource,
    caller: &Caller,
    presented_link: Option<&VerifiedLink>,
) -> (AdditionalAccess, Option<ResultToken>) {
    let is_anonymous = caller.actor.kind() == ActorKind::Anonymous;
    let token = is_anonymous.then(|| ResultToken::from_random_bytes(ids.secret()));
    let share_link = presented_link.map(|presented_link| presented_link.link().share_link_id);
    (AdditionalAccess { share_link, result_token: token.as_ref().map(ResultToken::hash), delegate: None }, token)
}

impl Executions {
    /// Returns the refusal for a share link that closed after its request arrived.
    pub(crate) async fn closed_link_refusal(
        &self,
        scope: TenantScope,
        workload: &Workload,
        presented_link: &VerifiedLink,
    ) -> Result<ShareTokenRefusal, Failure> {
        let id = presented_link.link().share_link_id;
        let share_link = self.share_link_store.find(scope, workload.workload_id, id).await?;
        let share_link = share_link.ok_or(Failure::ShareToken(ShareTokenRefusal::Invalid))?;
        // A closed link never reopens. If the link is open, another concurrent change made the attempt stale.
        share_link.check_can_start_run().err().ok_or(Failure::Contended)
    }
}

impl ExecutionReader {
    /// Returns the run that an earlier request with the same idempotency key started. A guest receives no output,
    /// because the key may belong to another client.
    pub(crate) async fn run_of_key(
        &self,
        scope: TenantScope,
        caller: &Caller,
        id: ExecutionId,
    ) -> Result<Execution, Failure> {
        if !is_guest(caller.actor.kind()) {
            return self.read_execution(caller, id, None).await;
        }
        let state = self.execution_store.find_state(scope, id).await?.ok_or(Failure::NotFound)?;
        Ok(Execution { output: None, ..state.execution })
    }
}
