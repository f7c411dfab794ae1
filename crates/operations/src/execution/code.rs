//! Scripts: runs that are handed to the runtime gateway, once. They are let in like every other run; nobody takes one up
//! that was let in, because nobody knows whether it was handed over.

use super::{admission, run::Running};
use crate::{
    Failure, RunRefusal, Services,
    access::{Operation, gate},
    share_link::Pass,
    workload::place_of,
};
use fairway_domain::{
    access::Caller,
    execution::{
        Outcome, Status,
        code::{Came, CodeRequest, GatewayFailure, MOST_AT_ONCE, PreparedGateway, RanScript, Script},
        run::{Closed, Cut, Outside},
    },
    id::{TenantId, WorkspaceId},
    tenant::TenantScope,
    workload::Workload,
};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{sync::Notify, time::timeout};

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub enum Asks {
    /// What its release says, with these field names and values.
    Inputs(Map<String, Value>),
    /// A script.
    Script {
        /// What it says.
        script: Script,
        /// The workspace that the caller takes the workload for one of.
        workspace: WorkspaceId,
    },
}

impl Asks {
    /// Lets a caller see what it wants to run.
    pub(super) fn see(
        &self,
        caller: &Caller,
        pass: Option<&Pass>,
        workload: &Workload,
    ) -> Result<TenantScope, Failure> {
        match self {
            Self::Inputs(_) => admission::see(caller, pass, workload, Operation::ReadWorkload),
            Self::Script { workspace, .. } if *workspace != workload.workspace_id => Err(Failure::NotFound),
            Self::Script { .. } => gate::enter(caller, Operation::ReadWorkload, &place_of(caller, workload)),
        }
    }

    /// Lets a caller that sees a workload run it, as far as rights go. Neither a link nor a public workload lets scripts in.
    pub(super) fn enter(&self, caller: &Caller, pass: Option<&Pass>, workload: &Workload) -> Result<(), Failure> {
        match self {
            Self::Inputs(_) => admission::run(caller, pass, workload),
            Self::Script { .. } => gate::enter(caller, Operation::RunCode, &place_of(caller, workload)).map(|_| ()),
        }
    }

    /// The inputs that the run gets: held against the workload's form where it has one, and anything where it has none. A
    /// script is no form.
    pub(super) fn inputs(&self, workload: &Workload) -> Result<Cow<'_, Map<String, Value>>, Failure> {
        match (self, &workload.interface_config) {
            (Self::Inputs(inputs), Some(interface)) => interface.admit(inputs).map(Cow::Owned).map_err(Failure::Inputs),
            (Self::Inputs(inputs), None) => Ok(Cow::Borrowed(inputs)),
            (Self::Script { script, .. }, _) => Ok(Cow::Owned(script.inputs())),
        }
    }
}

/// What a run does under its lease.
pub(super) enum Work {
    /// Takes the steps of its plan.
    Steps,
    /// Waits for a script.
    Script(ReadyScript),
}

/// A script that can be handed over. Nobody was handed it yet: whoever drops it has run nothing.
pub(super) struct ReadyScript {
    script: Script,
    /// Who is going to be handed it.
    gateway: Box<dyn PreparedGateway>,
    /// Its place among those of its tenant, given back when the script is over.
    _place: ScriptPlace,
}

/// The scripts that this process waits for at present, by tenant.
#[derive(Debug, Default)]
pub(crate) struct Scripts(Mutex<HashMap<TenantId, usize>>);

/// A place among the scripts of a tenant, until it is dropped.
#[derive(Debug)]
pub(crate) struct ScriptPlace {
    scripts: Arc<Scripts>,
    tenant: TenantId,
}

impl Scripts {
    fn book(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more script of a tenant.
    pub(super) fn enter(self: &Arc<Self>, tenant: TenantId) -> Result<ScriptPlace, RunRefusal> {
        let mut book = self.book();
        let taken = book.entry(tenant).or_default();
        if *taken >= MOST_AT_ONCE {
            return Err(RunRefusal::TooManyScripts);
        }
        *taken += 1;
        Ok(ScriptPlace { scripts: Arc::clone(self), tenant })
    }
}

impl Drop for ScriptPlace {
    fn drop(&mut self) {
        let mut book = self.scripts.book();
        if let Some(taken) = book.get_mut(&self.tenant) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                book.remove(&self.tenant);
            }
        }
    }
}

/// How a script ends whose process went away.
pub(super) const LOST: (Status, Outcome, &str, &str) = (
    Status::Unknown,
    Outcome::Unknown,
    GatewayFailure::Lost.code(),
    "whether the script ran is not known: the process that waited for it went away",
);

impl Running {
    /// Hands the script over and waits for what comes of it, unless its run is stopped before.
    pub(super) async fn script(&self, ready: ReadyScript, look: &Notify) -> Closed {
        let services = &self.services;
        let ReadyScript { script, gateway, _place } = ready;
        let request = CodeRequest { execution_id: self.acceptance.execution_id, script: &script };
        let began = services.clock.now();
        let came = tokio::select! {
            in_time = timeout(self.time_left, gateway.run(request)) => {
                in_time.map_or(Came::Cut(Cut::Overdue), Came::Answered)
            }
            cut = self.keep_lease(look) => Came::Cut(cut),
        };
        let over = services.clock.now();
        let outside = Outside {
            clock: services.clock.as_ref(),
            ids: services.ids.as_ref(),
            redactor: &services.settings.redactor,
        };
        let ran = RanScript { request, gateway: services.gateway.name(), came, began, over };
        ran.close(self.decision.clone(), outside)
    }
}

impl Services {
    /// The work of a script, for which there must be a place. Its gateway gets ready from here on, while the run is written
    /// down, and is handed nothing before it is.
    pub(super) fn work(&self, scope: TenantScope, script: &Script) -> Result<Work, RunRefusal> {
        let place = self.scripts.enter(scope.tenant())?;
        let gateway = self.gateway.prepare(script.language);
        Ok(Work::Script(ReadyScript { script: script.clone(), gateway, _place: place }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_four_places_and_takes_none_of_others() {
        let scripts = Arc::new(Scripts::default());
        let (one, other) = (TenantId::from(uuid::Uuid::from_u128(1)), TenantId::from(uuid::Uuid::from_u128(2)));
        let mut held: Vec<ScriptPlace> = (0..MOST_AT_ONCE).map(|_| scripts.enter(one).unwrap()).collect();
        assert_eq!(scripts.enter(one).unwrap_err(), RunRefusal::TooManyScripts);
        drop(scripts.enter(other).unwrap());
        held.pop();
        held.push(scripts.enter(one).unwrap());
        drop(held);
        assert!(scripts.book().is_empty(), "nothing is remembered of tenants that run no script");
    }
}
