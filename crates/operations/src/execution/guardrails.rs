//! Evaluation of guardrails, hooks and schema checks of runs.

use super::run::MAX_INLINE_BYTES;
use crate::{
    blocking::{ProcessorWait, run_blocking},
    execution::engine::RunEngine,
};
use fairway_domain::{
    asset::content::embedded_schema::SchemaRejection,
    execution::{http_call::HttpCall, run::SchemaCheck},
    guardrail::{GuardrailCheck, GuardrailResult},
    hook::{HookError, HookResponse},
    id::ExecutionId,
    tenant::TenantScope,
};
use std::sync::Arc;

impl RunEngine {
    /// Evaluates guardrails on the serving thread; returns `None` if the evaluation would take long.
    pub(super) fn check_guardrails_inline(&self, looking: &GuardrailCheck) -> Option<GuardrailResult> {
        if looking.estimated_bytes() > MAX_INLINE_BYTES {
            return None;
        }
        looking.run_briefly(&self.settings.redactor)
    }

    /// Checks a value against a schema on the blocking pool. If no processor becomes free in time, the value is
    /// rejected.
    pub(super) async fn check_schema(&self, scope: TenantScope, check: SchemaCheck) -> Result<(), SchemaRejection> {
        match run_blocking(scope, ProcessorWait::Run, move || check.run()).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    ?error,
                    "failed to check a value against its schema; rejecting the value"
                );
                Err(SchemaRejection::BudgetExceeded)
            }
        }
    }

    /// Evaluates guardrails on the blocking pool; returns `None` if the evaluation fails.
    pub(super) async fn check_guardrails(
        &self,
        scope: TenantScope,
        looking: GuardrailCheck,
    ) -> Option<GuardrailResult> {
        let redactor = Arc::clone(&self.settings.redactor);
        let looked = run_blocking(scope, ProcessorWait::Run, move || looking.run(&redactor)).await;
        looked
            .inspect_err(|error| {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    ?error,
                    "failed to evaluate guardrails; treating the result as unknown"
                )
            })
            .ok()
    }

    /// Calls a hook once. A resumed run repeats the call with the same call name.
    pub(super) async fn call_hook(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        call: &HttpCall,
    ) -> Result<HookResponse, HookError> {
        HookResponse::parse(self.send_http_call(scope, execution, call).await.map_err(HookError::Call)?)
    }
}
