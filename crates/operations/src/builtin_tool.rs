//! Built-in tools for agents: the operations of the HTTP API with the same rights and the same evidence.

use crate::{
    Failure, RunRefusal, ToolRefusal,
    access::{Claims, IdentityMode, Operation, authorize},
    execution::{ExecuteRequest, ExecuteResult, ExecutionReader, Executions},
};
use fairway_domain::{
    access::{Caller, Permission},
    evidence::EvidenceRecord,
    execution::dispatch::DispatchPolicy,
    id::{ExecutionId, RequestId, WorkspaceId},
    idempotency::RequestKey,
    tool::{BuiltinTool, ToolCall},
};
use serde_json::{Map, Value};
use std::time::Duration;

/// Settings of a deployment that apply to runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeploymentRunSettings {
    /// Where runs execute.
    pub dispatch: DispatchPolicy,
    /// How long a synchronous run may block its caller.
    pub sync_wait: Duration,
    /// How long a run may take in total.
    pub execution_deadline: Duration,
    /// How long a reviewer has to review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
}

impl Executions {
    /// Executes a workload for a tool call. Differs from executing it only in the refusal when the outcome of
    /// acceptance is unknown.
    ///
    /// # Errors
    /// Those of executing it.
    pub async fn execute_flow(
        &self,
        mode: IdentityMode,
        claims: &Claims,
        request_id: RequestId,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<ExecuteResult, Failure> {
        match self.execute(mode, claims, request_id, request, key).await {
            Err(Failure::Run(RunRefusal::AcceptanceUnknown(id))) => Err(ToolRefusal::ResponseLost(id).into()),
            run => run,
        }
    }

    /// The deployment's settings for runs, authorized for a workspace.
    ///
    /// # Errors
    /// When the caller sees no workloads at all; not found when it sees none in that workspace.
    pub async fn deployment_settings(
        &self,
        caller: &Caller,
        operation: Operation,
        workspace: WorkspaceId,
    ) -> Result<DeploymentRunSettings, Failure> {
        self.scope_resolver.authorize_list_of(caller, operation, Some(workspace)).await?;
        let settings = &self.settings;
        Ok(DeploymentRunSettings {
            dispatch: settings.dispatch,
            sync_wait: settings.sync_wait,
            execution_deadline: settings.execution_deadline,
            review_deadline: settings.review_deadline,
            queue_cap: settings.queue_cap,
        })
    }
}

impl ExecutionReader {
    /// The evidence of a run, for a caller that may use tools and see executions in the run's scope.
    ///
    /// # Errors
    /// Not found when the caller may not see executions there; forbidden when it may not use tools there.
    pub async fn inspect_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<EvidenceRecord, Failure> {
        let record = self.read_evidence(caller, id).await?;
        let position = self.position_of_run(caller, &record.execution).await?;
        match authorize::authorize(caller, Operation::CallTool, &position) {
            // A caller that reads the evidence already knows that the run exists.
            Err(Failure::NotFound) => Err(authorize::missing_permission(caller, Permission::ExecutionRun)),
            entered => entered.map(|_| record),
        }
    }
}

/// Parses the arguments of a tool.
///
/// # Errors
/// With every violation of the tool's schema.
pub fn parse_call(tool: BuiltinTool, arguments: Map<String, Value>) -> Result<ToolCall, Failure> {
    ToolCall::parse(tool, arguments).map_err(|problems| ToolRefusal::InvalidArguments(problems).into())
}
