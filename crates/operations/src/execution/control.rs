//! Guardrails and hooks of runs.

use super::run::MAX_INLINE_BYTES;
use crate::{
    Services,
    aside::{WorkDeadline, aside},
};
use fairway_domain::{
    asset::content::embedded::SchemaRejection,
    execution::{outward::OutwardCall, run::SchemaCheck},
    guardrail::{Looked, Looking},
    hook::{HookResponse, HookError},
    tenant::TenantScope,
};
use std::sync::Arc;

impl Services {
    /// Evaluates guardrails on the serving thread; `None` if that is long work.
    pub(super) fn look_briefly(&self, looking: &Looking) -> Option<Looked> {
        if looking.work() > MAX_INLINE_BYTES {
            return None;
        }
        looking.look_briefly(&self.settings.redactor)
    }

    /// Checks a value against a schema on the blocking pool. Without a free processor, the value is rejected.
    pub(super) async fn check_schema(&self, scope: TenantScope, check: SchemaCheck) -> Result<(), SchemaRejection> {
        match aside((scope, WorkDeadline::Run), move || check.run()).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::error!(?error, "failed to check a value against its schema; the value is refused");
                Err(SchemaRejection::BudgetExceeded)
            }
        }
    }

    /// Evaluates guardrails on the blocking pool; `None` if the evaluation failed.
    pub(super) async fn look(&self, scope: TenantScope, looking: Looking) -> Option<Looked> {
        let redactor = Arc::clone(&self.settings.redactor);
        let looked = aside((scope, WorkDeadline::Run), move || looking.look(&redactor)).await;
        looked
            .inspect_err(|error| {
                tracing::error!(?error, "failed to evaluate guardrails; treating the result as unknown")
            })
            .ok()
    }

    /// Calls a hook once. A resumed run calls it again with the same name.
    pub(super) async fn call_hook(&self, scope: TenantScope, call: &OutwardCall) -> Result<HookResponse, HookError> {
        HookResponse::read(self.send_call(scope, call).await.map_err(HookError::Call)?)
    }
}
