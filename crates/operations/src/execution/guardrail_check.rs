//! Evaluation of guardrails on the values of runs.

use super::run::MAX_INLINE_BYTES;
use crate::{
    blocking::{ProcessorWait, run_blocking},
    execution::engine::RunEngine,
};
use fairway_domain::{
    guardrail::{GuardrailCheck, GuardrailResult},
    id::ExecutionId,
    tenant::TenantScope,
};
use std::sync::Arc;

impl RunEngine {
    /// Evaluates guardrails on the serving thread; returns `None` for a value that is too large for it.
    pub(super) fn check_guardrails_inline(&self, check: &GuardrailCheck) -> Option<GuardrailResult> {
        if check.bytes_to_inspect() > MAX_INLINE_BYTES {
            return None;
        }
        check.run_briefly(&self.settings.redactor)
    }

    /// Evaluates guardrails on the blocking pool; returns `None` if the evaluation fails.
    pub(super) async fn check_guardrails(
        &self,
        scope: TenantScope,
        execution: ExecutionId,
        check: GuardrailCheck,
    ) -> Option<GuardrailResult> {
        let redactor = Arc::clone(&self.settings.redactor);
        let result = run_blocking(scope, ProcessorWait::Run, move || check.run(&redactor)).await;
        result
            .inspect_err(|error| {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    execution_id = %execution,
                    error = error as &dyn std::error::Error,
                    "failed to evaluate guardrails; blocking the value as guardrail_unavailable"
                )
            })
            .ok()
    }
}
