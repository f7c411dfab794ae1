//! Script runs. The server sends each script to the runtime gateway at most once. No worker resumes a script run,
//! because a worker cannot determine whether the script was sent.

use super::run::ActiveRun;
use crate::{RunRefusal, execution::execute::Executions};
use fairway_domain::{
    execution::{
        ExecutionOutcome, Status,
        run::FinishedRun,
        script::{
            GatewayFailure, MAX_CONCURRENT_PER_TENANT_AND_PROCESS, PreparedGateway, SandboxProfile, SandboxRefusal,
            Script, ScriptLimits, ScriptOutcome, ScriptRequest, ScriptRun,
        },
    },
    id::TenantId,
    idempotency::RequestKey,
    tenant::TenantScope,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::timeout};

/// Returns the limits of a script from the bound sandbox profile; without a profile, the maximum limits apply.
pub(super) fn limits_of(profile: Option<&SandboxProfile>, script: &Script) -> Result<ScriptLimits, RunRefusal> {
    let limits = profile.map_or(Ok(ScriptLimits::MAXIMUM), |profile| profile.limits(script.language));
    limits.map_err(|refusal| match refusal {
        SandboxRefusal::LanguageNotAllowed => RunRefusal::LanguageNotAllowed,
        SandboxRefusal::RuntimeUnavailable => RunRefusal::SandboxUnavailable,
    })
}

/// The work that a run performs under its lease.
pub(super) enum RunWork {
    /// Executes the steps of the run plan.
    Steps,
    /// Executes a script in the runtime gateway.
    Script(PreparedScript),
}

/// A script with its limits and slot, ready for execution. If it is dropped, the script is not executed.
pub(super) struct PreparedScript {
    script: Script,
    limits: ScriptLimits,
    /// The gateway that is prepared for this script. It is `None` if another request with the same key prepared one,
    /// because at most one of these requests executes the script.
    gateway: Option<Box<dyn PreparedGateway>>,
    /// The tenant's script slot, which is released at the end of the run.
    _slot: ScriptSlot,
}

/// The script slots of this process, by tenant.
#[derive(Debug, Default)]
pub(crate) struct ScriptSlots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    slots: HashMap<TenantId, Vec<Slot>>,
    /// Number that identifies the next slot.
    next_number: u64,
}

/// A slot of one request, or of all requests with the same idempotency key. At most one of these requests is
/// accepted; the others receive the run of the accepted one.
#[derive(Debug)]
struct Slot {
    number: u64,
    key: Option<RequestKey>,
    /// Number of requests that use the slot.
    holders: usize,
}

/// The use of a tenant's script slot by one request. Dropping it frees the slot if no other request uses the slot.
#[derive(Debug)]
pub(crate) struct ScriptSlot {
    scripts: Arc<ScriptSlots>,
    tenant: TenantId,
    number: u64,
    sharing: Sharing,
}

/// Whether another request with the same key uses the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sharing {
    /// No other request used the slot when this request acquired it.
    Exclusive,
    /// Another request with the same key already used the slot, and has a prepared gateway.
    SameKey,
}

impl Slot {
    /// Whether a request with this key shares the slot. This check ignores the body digest, because the statement that
    /// claims the key compares it.
    fn is_shared_by(&self, key: &RequestKey) -> bool {
        let key_identity = |key: &RequestKey| (key.key.clone(), key.caller.clone(), key.route.clone());
        self.key.as_ref().is_some_and(|slot_key| key_identity(slot_key) == key_identity(key))
    }
}

impl ScriptSlots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acquires a script slot of a tenant, or shares the slot of a request with the same key.
    pub(super) fn acquire(
        self: &Arc<Self>,
        tenant: TenantId,
        key: Option<&RequestKey>,
    ) -> Result<ScriptSlot, RunRefusal> {
        let slot = |number: u64, sharing| ScriptSlot { scripts: Arc::clone(self), tenant, number, sharing };
        let mut state = self.state();
        let State { slots, next_number } = &mut *state;
        let slots = slots.entry(tenant).or_default();
        if let Some(shared) = slots.iter_mut().find(|slot| key.is_some_and(|key| slot.is_shared_by(key))) {
            shared.holders = shared.holders.saturating_add(1);
            return Ok(slot(shared.number, Sharing::SameKey));
        }
        if slots.len() >= MAX_CONCURRENT_PER_TENANT_AND_PROCESS {
            return Err(RunRefusal::TooManyScripts);
        }
        let number = *next_number;
        *next_number = number.wrapping_add(1);
        slots.push(Slot { number, key: key.cloned(), holders: 1 });
        Ok(slot(number, Sharing::Exclusive))
    }
}

impl Drop for ScriptSlot {
    fn drop(&mut self) {
        let mut state = self.scripts.state();
        let Some(slots) = state.slots.get_mut(&self.tenant) else { return };
        if let Some(slot) = slots.iter_mut().find(|slot| slot.number == self.number) {
            slot.holders = slot.holders.saturating_sub(1);
        }
        slots.retain(|slot| slot.holders > 0);
        if slots.is_empty() {
            state.slots.remove(&self.tenant);
        }
    }
}

/// Status, outcome, error code and message of a script run whose process was lost.
pub(super) const LOST_SCRIPT_END: (Status, ExecutionOutcome, &str, &str) = (
    Status::Unknown,
    ExecutionOutcome::Unknown,
    GatewayFailure::Lost.code(),
    "it is unknown whether the script ran: the process that waited for it ended",
);

impl ActiveRun {
    /// Executes the script and waits for its result. If the deadline or an interruption stops the run first, the result
    /// of the script is not awaited.
    pub(super) async fn run_script(&self, prepared: PreparedScript, recheck: &Notify) -> FinishedRun {
        let engine = &self.engine;
        let PreparedScript { script, limits, gateway, _slot } = prepared;
        let gateway = gateway.unwrap_or_else(|| engine.code_gateway.prepare(script.language, limits));
        let request = ScriptRequest { execution_id: self.acceptance.execution_id, script: &script, limits };
        let started_at = engine.context.clock.now();
        let outcome = tokio::select! {
            result = timeout(self.time_left, gateway.run(request)) => {
                let timeout_outcome = |_| engine.code_gateway.interrupted_script_behaviour().timeout_outcome();
                result.map_or_else(timeout_outcome, ScriptOutcome::Returned)
            }
            interruption = self.renew_lease(recheck) => ScriptOutcome::Interrupted(interruption),
        };
        let finished_at = engine.context.clock.now();
        let script_run = ScriptRun { request, gateway: engine.code_gateway.name(), outcome, started_at, finished_at };
        script_run.into_finished_run(self.decision.clone(), engine.context.new_id())
    }
}

impl Executions {
    /// Prepares a script in a script slot. The gateway starts its preparation while the run is being stored, and
    /// receives the script only afterwards.
    pub(super) fn prepare_script(
        &self,
        scope: TenantScope,
        script: &Script,
        limits: ScriptLimits,
        key: Option<&RequestKey>,
    ) -> Result<RunWork, RunRefusal> {
        let slot = self.scripts.acquire(scope.tenant(), key)?;
        let gateway = (slot.sharing == Sharing::Exclusive).then(|| self.code_gateway.prepare(script.language, limits));
        Ok(RunWork::Script(PreparedScript { script: script.clone(), limits, gateway, _slot: slot }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, caller: &str, body: u8) -> RequestKey {
        let caller = fairway_domain::access::ActorRef::parse(caller).unwrap();
        RequestKey { key: key.to_owned(), caller, route: "POST /v1/runtime/code".to_owned(), body_digest: [body; 32] }
    }

    #[test]
    fn limits_scripts_per_tenant() {
        let scripts = Arc::new(ScriptSlots::default());
        let (full_tenant, other_tenant) =
            (TenantId::from(uuid::Uuid::from_u128(1)), TenantId::from(uuid::Uuid::from_u128(2)));
        let mut slots: Vec<ScriptSlot> =
            (0..MAX_CONCURRENT_PER_TENANT_AND_PROCESS).map(|_| scripts.acquire(full_tenant, None).unwrap()).collect();
        assert_eq!(scripts.acquire(full_tenant, None).unwrap_err(), RunRefusal::TooManyScripts);
        drop(scripts.acquire(other_tenant, None).unwrap());
        slots.pop();
        slots.push(scripts.acquire(full_tenant, None).unwrap());
        drop(slots);
        assert!(scripts.state().slots.is_empty(), "tenants without active scripts are removed");
    }

    #[test]
    fn requests_with_one_key_share_one_script_slot() {
        let scripts = Arc::new(ScriptSlots::default());
        let tenant = TenantId::from(uuid::Uuid::from_u128(1));
        let acquire = |request_key: &RequestKey| scripts.acquire(tenant, Some(request_key));
        let mut same_key_slots: Vec<_> = (0..9).map(|body| acquire(&key("k", "user:ada", body)).unwrap()).collect();
        let other_keys = [key("k", "user:bea", 0), key("l", "user:ada", 0), key("m", "user:ada", 0)];
        let other_slots = other_keys.map(|other_key| acquire(&other_key).unwrap());
        assert_eq!(acquire(&key("n", "user:ada", 0)).unwrap_err(), RunRefusal::TooManyScripts);
        // The slot remains in use until the last of the requests with its key releases it.
        same_key_slots.truncate(1);
        same_key_slots.push(acquire(&key("k", "user:ada", 0)).unwrap());
        assert_eq!(acquire(&key("n", "user:ada", 0)).unwrap_err(), RunRefusal::TooManyScripts);
        drop(same_key_slots);
        drop(acquire(&key("n", "user:ada", 0)).unwrap());
        drop(other_slots);
        assert!(scripts.state().slots.is_empty());
    }
}
