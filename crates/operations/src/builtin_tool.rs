//! Built-in tools for agents: operations of the HTTP API with the same permissions and the same evidence.

use crate::{
    Failure, RunRefusal, ToolRefusal,
    access::{IdentityClaims, IdentityMode, Operation, authorize},
    execution::{ExecuteRequest, ExecuteResponse, ExecutionReader, Executions},
};
use fairway_domain::{
    access::{Caller, Permission},
    evidence::RunEvidence,
    id::{ExecutionId, RequestId},
    idempotency::RequestKey,
    offered_tool::{BuiltinTool, OfferedToolCall},
};
use serde_json::{Map, Value};

impl Executions {
    /// Executes a workload for a tool call. If the server cannot determine whether the run was accepted, the caller
    /// receives the refusal of a tool whose response was lost. Everything else equals [`Executions::execute`].
    ///
    /// # Errors
    /// The errors of [`Executions::execute`].
    pub async fn execute_flow(
        &self,
        mode: IdentityMode,
        claims: &IdentityClaims,
        request_id: RequestId,
        request: &ExecuteRequest,
        key: Option<&RequestKey>,
    ) -> Result<ExecuteResponse, Failure> {
        match self.execute(mode, claims, request_id, request, key).await {
            Err(Failure::Run(RunRefusal::AcceptanceUnknown(id))) => Err(ToolRefusal::ResponseLost(id).into()),
            run => run,
        }
    }
}

impl ExecutionReader {
    /// Returns the evidence of a run. The caller must have the permissions to use tools and to view executions in the
    /// run's scope.
    ///
    /// # Errors
    /// Not found when the caller may not view executions in that scope; forbidden when the caller may not use tools
    /// in that scope.
    pub async fn inspect_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<RunEvidence, Failure> {
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
pub fn parse_tool_call(tool: BuiltinTool, arguments: Map<String, Value>) -> Result<OfferedToolCall, Failure> {
    OfferedToolCall::parse_builtin(tool, arguments).map_err(|problems| ToolRefusal::InvalidArguments(problems).into())
}
