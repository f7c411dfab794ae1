//! The run engine executes a run to its end: it calls models, tools and hooks, and stores the progress.

mod lease;
mod model_call;
mod progress;
mod stream_sink;

pub(super) use progress::{CheckpointPolicy, MAX_RETRY_DELAY, MIN_RETRY_DELAY, ProgressRecorder, Replay};

use super::{large_runs::LargeRuns, retrieval::RetrievalContext};
use crate::{
    Settings, Stores, commit_context::CommitContext, idempotency::MAX_ATTEMPTS, knowledge::KnowledgeBases,
    services::SharedState, wakeups::WakeupSender,
};
use fairway_domain::{
    asset::content::tool::RepeatSafety,
    audit::AuditStore,
    execution::{
        http_call::HttpCaller,
        ports::{ExecutionReadStore, LeaseStore, RunStore},
        progress::StoredStepResponse,
        provider::Provider,
        run::{History, Interruption, Run, RunEffect},
        run_metrics_observer::RunMetricsObserver,
        script::ScriptGateway,
        tool::{McpError, ToolFailure, ToolRequest, ToolResult, ToolTarget},
    },
    knowledge::contract::AccessMode,
    memory::ports::MemoryStore,
    tenant::TenantStore,
    workload::ports::WorkloadStore,
};
use std::sync::Arc;

/// Maximum number of attempts to decide on a run. Afterwards the request is refused, or a queued run remains for a
/// later claim.
pub(super) const MAX_DECISION_ATTEMPTS: usize = MAX_ATTEMPTS + 1;

/// Performs the effects of runs: it calls models, tools and hooks, retrieves documents, accesses memory, and commits
/// progress.
pub(crate) struct RunEngine {
    pub(super) context: CommitContext,
    pub(super) code_gateway: Arc<dyn ScriptGateway>,
    pub(super) http_caller: Arc<dyn HttpCaller>,
    pub(super) large_runs: Arc<LargeRuns>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) run_metrics_observer: Arc<dyn RunMetricsObserver>,
    pub(super) settings: Arc<Settings>,
    pub(super) wakeup_sender: WakeupSender,
    pub(super) audit_store: Arc<dyn AuditStore>,
    pub(super) execution_store: Arc<dyn ExecutionReadStore>,
    pub(super) run_store: Arc<dyn RunStore>,
    pub(super) lease_store: Arc<dyn LeaseStore>,
    pub(super) memory_store: Arc<dyn MemoryStore>,
    pub(super) tenant_store: Arc<dyn TenantStore>,
    pub(super) workload_store: Arc<dyn WorkloadStore>,
    pub(super) knowledge_bases: Arc<KnowledgeBases>,
}

impl RunEngine {
    pub(crate) fn new(stores: &Stores, shared: &SharedState, knowledge_bases: &Arc<KnowledgeBases>) -> Self {
        Self {
            context: shared.context.clone(),
            code_gateway: Arc::clone(&shared.code_gateway),
            http_caller: Arc::clone(&shared.http_caller),
            large_runs: Arc::clone(&shared.large_runs),
            provider: Arc::clone(&shared.provider),
            run_metrics_observer: Arc::clone(&shared.run_metrics_observer),
            settings: Arc::clone(&shared.settings),
            wakeup_sender: shared.wakeups.clone(),
            audit_store: Arc::clone(&stores.audit),
            execution_store: Arc::clone(&stores.executions),
            run_store: Arc::clone(&stores.runs),
            lease_store: Arc::clone(&stores.leases),
            memory_store: Arc::clone(&stores.memory),
            tenant_store: Arc::clone(&stores.tenants),
            workload_store: Arc::clone(&stores.workloads),
            knowledge_bases: Arc::clone(knowledge_bases),
        }
    }
}

/// Executes a run to its end. Dropping the future interrupts the current call; the run keeps the steps that it
/// completed.
/// # Errors
/// The interruption, when the run must stop before its end.
pub(super) async fn run_to_end(
    run: &mut Run<'_>,
    first: RunEffect,
    recorder: &mut ProgressRecorder<'_>,
    reader: &RetrievalContext<'_>,
) -> Result<(), Interruption> {
    let mut next_effect = Some(first);
    while let Some(effect) = next_effect {
        next_effect = recorder.perform(run, effect, reader).await?;
    }
    Ok(())
}

impl ProgressRecorder<'_> {
    /// Performs an effect of a run and returns the next effect, or `None` if the run has ended.
    async fn perform(
        &mut self,
        run: &mut Run<'_>,
        effect: RunEffect,
        reader: &RetrievalContext<'_>,
    ) -> Result<Option<RunEffect>, Interruption> {
        let engine = self.engine;
        Ok(Some(match effect {
            RunEffect::Ended => return Ok(None),
            RunEffect::CallModel(request) => {
                let answer = self.call_model(run, &request).await?;
                run.on_model(engine.context.moment(), answer)
            }
            RunEffect::CheckContracts => {
                let decisions = engine.contract_decisions_for(reader, AccessMode::Retrieve).await;
                run.on_contract_decisions(engine.context.moment(), decisions)
            }
            RunEffect::LoadHistory => {
                let history = self.recall(reader).await;
                run.on_history(engine.context.moment(), history)
            }
            RunEffect::RetrieveDocuments(lookup) => {
                self.checkpoint(run).await?;
                let documents = engine.execute_retrieval(reader, &lookup).await;
                run.on_documents(engine.context.moment(), documents)
            }
            RunEffect::CallTool(request) => {
                let result = self.call_tool(run, &request, reader).await?;
                run.on_tool(engine.context.moment(), result)
            }
            RunEffect::CheckGuardrails(check) => {
                let mut result = engine.check_guardrails_inline(&check);
                if result.is_none() {
                    // A guardrail check may take long. The last answer is stored before it, so that a crash does not
                    // lose the answer.
                    self.store_pending_answer().await?;
                    result = engine.check_guardrails(reader.scope, self.lease.execution_id, *check).await;
                }
                run.on_guardrail(engine.context.moment(), result)
            }
            RunEffect::CheckSchema(check) => {
                self.store_pending_answer().await?;
                let checked = engine.check_schema(reader.scope, self.lease.execution_id, *check).await;
                run.on_schema_check(engine.context.moment(), checked)
            }
            RunEffect::CallHook(call) => {
                self.checkpoint(run).await?;
                let response = engine.call_hook(reader.scope, self.lease.execution_id, &call).await;
                run.on_hook(engine.context.moment(), response)
            }
            RunEffect::Reserve => {
                self.reserve_run_memory().await?;
                run.on_reservation(engine.context.moment())
            }
        }))
    }

    /// Calls a tool, unless the stored progress contains its result. After a resume, an earlier worker may already have
    /// sent the call. A tool that is not repeatable is then not called again.
    async fn call_tool(
        &mut self,
        run: &mut Run<'_>,
        request: &ToolRequest,
        reader: &RetrievalContext<'_>,
    ) -> Result<ToolResult, Interruption> {
        let step = run.awaiting_step().map(|step| step.id.clone());
        let (execution, is_replaying) = (self.lease.execution_id, self.is_replaying);
        if let Some(stored_result) =
            self.take_stored_response(step.as_deref()).and_then(StoredStepResponse::into_tool_result)
        {
            return Ok(stored_result);
        }
        let result = if is_replaying && request.repeat_safety == RepeatSafety::Unsafe {
            Err(ToolFailure::OutcomeUnknown)
        } else {
            // Progress is stored before the call. A worker that resumes the run can then detect that the tool may
            // already have been called.
            self.checkpoint(run).await?;
            match &request.target {
                ToolTarget::Http(call) => {
                    self.engine.send_http_call(self.scope, execution, call).await.map_err(ToolFailure::Call)
                }
                ToolTarget::Mcp(call) => match self.engine.call_mcp_tool(self.scope, execution, call).await {
                    Err(McpError::Drifted(found)) => {
                        self.engine.record_tool_drift(call, found.as_ref(), execution, reader).await?;
                        Err(ToolFailure::Drifted(found))
                    }
                    Err(McpError::Call(error)) => Err(ToolFailure::Call(error)),
                    Ok(result) => Ok(result),
                },
            }
        };
        self.pending_answer = step.map(|step| StoredStepResponse::from_tool_result(&step, &result));
        Ok(result)
    }

    /// Reads the run's conversation. If the run replays stored answers, the conversation counts as reloaded, because
    /// the stored answers were generated from an earlier read.
    async fn recall(&self, reader: &RetrievalContext<'_>) -> History {
        match self.engine.recall(reader).await {
            History::Loaded(decisions, recalled) if !self.replay.answers.is_empty() => {
                History::Reloaded(decisions, recalled)
            }
            history @ (History::Loaded(..) | History::Reloaded(..) | History::Unavailable) => history,
        }
    }
}
