//! Built-in tools for agents: operations of the HTTP API with the same permissions and the same evidence.

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
    /// Where runs execute: in the accepting process or from the queue.
    pub dispatch: DispatchPolicy,
    /// Maximum time for which a synchronous run blocks its caller.
    pub sync_wait: Duration,
    /// Maximum total time of a run.
    pub execution_deadline: Duration,
    /// Time within which a reviewer must review an answer.
    pub review_deadline: Duration,
    /// Maximum number of queued runs of one tenant.
    pub queue_cap: u32,
}

impl Executions {
    /// Executes a workload for a tool call. If the outcome of the acceptance is unknown, the refusal is that of a
    /// tool whose response was lost. Everything else equals [`Executions::execute`].
    ///
    /// # Errors
    /// The errors of [`Executions::execute`].
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

    /// Returns the deployment's settings for runs, after authorization in a workspace.
    ///
    /// # Errors
    /// When the caller sees no workloads at all; not found when the caller sees none in that workspace.
    pub async fn deployment_run_settings(
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
    /// Returns the evidence of a run. The caller must have the permissions to use tools and to view executions in the
    /// run's scope.
    ///
    /// # Errors
    /// Not found when the caller may not view executions in that scope; forbidden when the caller may not use tools
    /// in that scope.
    pub async fn inspect_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<EvidenceRecord, Failure> {
        let record = self.read_evidence(caller, id).await?;
        let position = self.position_of_run(caller, &record.execution).await?;
        match authorize::authorize(caller, Operation::CallTool, &position) {
            // The caller may read the evidence, so the refusal may reveal that the run exists.
            Err(Failure::NotFound) => Err(authorize::missing_permission(caller, Permission::ExecutionRun)),
            authorization => authorization.map(|_| record),
        }
    }
}

/// Parses the arguments of a tool.
///
/// # Errors
/// When the arguments violate the tool's schema; the refusal lists every violation.
pub fn parse_tool_call(tool: BuiltinTool, arguments: Map<String, Value>) -> Result<ToolCall, Failure> {
    ToolCall::parse(tool, arguments).map_err(|problems| ToolRefusal::InvalidArguments(problems).into())
}
