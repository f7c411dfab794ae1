//! Tools for agents: another way to what the routes do, with the same rights and the same evidence.

use crate::{
    Failure, RunRefusal, Services, ToolRefusal,
    access::{Claims, IdentityMode, Operation, gate},
    execution::{Answer, ExecuteRequest, admission},
};
use fairway_domain::{
    access::{Caller, Permission},
    evidence::EvidenceRecord,
    execution::dispatch::Dispatch,
    id::{ExecutionId, RequestId, WorkspaceId},
    idempotency::RequestKey,
    store::{Listed, Paging},
    tool::{BuiltIn, ToolCall},
    workload::{Workload, ports::RuntimeFilter},
};
use serde_json::{Map, Value};
use std::time::Duration;

/// What a deployment gives to runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deployed {
    /// Where runs run.
    pub dispatch: Dispatch,
    /// How long a synchronous run may keep its caller waiting.
    pub sync_wait: Duration,
    /// How long a run may take.
    pub execution_deadline: Duration,
    /// How long a person may take to review an answer.
    pub review_deadline: Duration,
    /// Most runs of a tenant that may wait in line.
    pub queue_cap: u32,
}

impl Services {
    /// Runs a workload as a tool does: as executing it does, but whoever calls is told in the tool's own words that nobody
    /// knows whether it was accepted.
    ///
    /// # Errors
    /// Those of executing it.
    pub async fn execute_flow(
        &self,
        caller: (IdentityMode, &Claims, RequestId),
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<Answer, Failure> {
        match self.execute(caller, request, key).await {
            Err(Failure::Run(RunRefusal::Unsettled(id))) => Err(ToolRefusal::Lost(id).into()),
            run => run,
        }
    }

    /// What stands behind a run, to whoever may use tools where it ran and may see executions there.
    ///
    /// # Errors
    /// Not found when the caller may not see executions there; when it may not use tools there.
    pub async fn inspect_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<EvidenceRecord, Failure> {
        let record = self.evidence(caller, id).await?;
        let place = self.place_of_run(caller, &record.execution).await?;
        match gate::enter(caller, Operation::CallTool, &place) {
            // Who reads evidence there knows that there is something.
            Err(Failure::NotFound) => Err(gate::refused(caller, Permission::ExecutionRun)),
            entered => entered.map(|_| record),
        }
    }

    /// Workloads with a form that the caller may run as it is, newest first: of one workspace if named, else of all that
    /// the caller sees. A page may hold fewer than it has room for while the list goes on.
    ///
    /// # Errors
    /// When the caller sees no workloads at all, or the named workspace is not found.
    pub async fn runnable_workloads(
        &self,
        caller: &Caller,
        workspace: Option<WorkspaceId>,
        page: Paging,
    ) -> Result<Listed<Workload>, Failure> {
        let (scope, reach) = self.enter_list_of(caller, Operation::ReadManifest, workspace).await?;
        let filter = RuntimeFilter { workspace, reach, ..RuntimeFilter::default() };
        let mut found = self.stores.workloads.list_runtime(scope, &filter, page).await?;
        let may_run = |workload: &Workload| {
            admission::run(caller, None, workload).is_ok() && admission::starts(None, workload).is_ok()
        };
        found.rows.retain(may_run);
        Ok(found)
    }

    /// Lets a caller look at what a deployment is, from a workspace.
    ///
    /// # Errors
    /// When the caller sees no workloads at all; not found when it sees none there.
    pub async fn deployed(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
    ) -> Result<Deployed, Failure> {
        self.enter_list_of(caller, operation, Some(workspace)).await?;
        let settings = &self.settings;
        Ok(Deployed {
            dispatch: settings.dispatch,
            sync_wait: settings.sync_wait,
            execution_deadline: settings.execution_deadline,
            review_deadline: settings.review_deadline,
            queue_cap: settings.queue_cap,
        })
    }
}

/// Reads the arguments of a tool.
///
/// # Errors
/// With everything that its schema does not allow.
pub fn read(tool: BuiltIn, arguments: Map<String, Value>) -> Result<ToolCall, Failure> {
    ToolCall::read(tool, arguments).map_err(|problems| ToolRefusal::Arguments(problems).into())
}
