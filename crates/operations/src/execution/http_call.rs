//! HTTP and MCP calls of tools and hooks, with the secrets of the tenant.

use super::{
    engine::{MAX_RETRY_DELAY, MIN_RETRY_DELAY},
    retrieval::RetrievalContext,
};
use crate::execution::engine::RunEngine;
use fairway_domain::{
    asset::content::mcp_server::ToolPin,
    audit::Stamp,
    execution::{
        http_call::{HttpCall, HttpCallError},
        run::Interruption,
        tool::{McpCall, McpError},
    },
    hook::{HookError, HookResponse},
    id::ExecutionId,
    slug::Slug,
    tenant::TenantScope,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

impl RunEngine {
    /// Sends an HTTP call once.
    pub(super) async fn send_http_call(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        call: &HttpCall,
    ) -> Result<Value, HttpCallError> {
        self.http_caller.call(&self.secret_namespace(scope, execution).await?, call).await
    }

    /// Calls a hook once. The call name identifies the call to the hook; a resumed run repeats the call with the same
    /// name.
    pub(super) async fn call_hook(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        call: &HttpCall,
    ) -> Result<HookResponse, HookError> {
        HookResponse::parse(self.send_http_call(scope, execution, call).await.map_err(HookError::Call)?)
    }

    /// Calls a tool of an MCP server once, provided that the tool's current description matches the pin.
    pub(super) async fn call_mcp_tool(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        call: &McpCall,
    ) -> Result<Value, McpError> {
        self.http_caller.call_tool(&self.secret_namespace(scope, execution).await?, call).await
    }

    /// Returns the namespace in which the secret references of a tenant resolve. It is the tenant's slug.
    async fn secret_namespace(&self, scope: TenantScope, execution: ExecutionId) -> Result<Slug, HttpCallError> {
        let tenant = self.tenant_store.find(scope).await.map_err(|error| {
            tracing::warn!(
                tenant_id = %scope.tenant(),
                execution_id = %execution,
                error = &error as &dyn std::error::Error,
                "failed to read the tenant for an HTTP call; failing the call"
            );
            HttpCallError::TenantUnresolved
        })?;
        Ok(tenant.ok_or(HttpCallError::TenantUnresolved)?.into_record().slug)
    }

    /// Commits the fact that a tool differs from its pin. Retries for at most the duration of a lease, because the
    /// run must not continue without this fact.
    pub(super) async fn record_tool_drift(
        &self,
        call: &McpCall,
        found_pin: Option<&ToolPin>,
        execution: ExecutionId,
        reader: &RetrievalContext<'_>,
    ) -> Result<(), Interruption> {
        let (actor, request_id) = reader.sender.clone();
        let stamp = Stamp { fact_id: self.context.new_id(), at: self.context.clock.now(), actor, request_id };
        let fact = call.drifted_fact(found_pin, execution, reader.workspace, &stamp);
        let deadline = Instant::now() + self.settings.lease;
        let (mut pause, mut attempt) = (MIN_RETRY_DELAY, 0_u32);
        loop {
            attempt = attempt.saturating_add(1);
            match self.audit_store.commit_fact(reader.scope, fact.clone()).await {
                Ok(()) => {
                    self.context.notify_facts();
                    return Ok(());
                }
                Err(error) if Instant::now() + pause < deadline => {
                    tracing::warn!(
                        tenant_id = %reader.scope.tenant(),
                        execution_id = %execution,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to record that an MCP tool differs from its pin; retrying with backoff"
                    );
                    sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
                Err(error) => {
                    tracing::error!(
                        tenant_id = %reader.scope.tenant(),
                        execution_id = %execution,
                        attempt,
                        error = &error as &dyn std::error::Error,
                        "failed to record that an MCP tool differs from its pin; after the lease expires, a worker \
                         resumes the run or recovery ends it"
                    );
                    return Err(Interruption::LeaseLost);
                }
            }
        }
    }
}
