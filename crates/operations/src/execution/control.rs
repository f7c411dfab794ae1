//! Guardrails and hooks of runs: looks are worked out, and hooks are asked.

use super::run::SHORT_WORK;
use crate::{
    Services,
    aside::{Deadline, aside},
};
use fairway_domain::{
    asset::content::embedded::SchemaRejection,
    execution::{outward::OutwardCall, run::SchemaCheck},
    guardrail::{Looked, Looking},
    hook::{HookAnswer, HookError},
    tenant::TenantScope,
};
use std::sync::Arc;

impl Services {
    /// Looks on the thread that serves; `None` where that is long work.
    pub(super) fn look_briefly(&self, looking: &Looking) -> Option<Looked> {
        if looking.work() > SHORT_WORK {
            return None;
        }
        looking.look_briefly(&self.settings.redactor)
    }

    /// Checks a value against a schema beside the threads that serve. Where no processor becomes free, nobody knows whether
    /// the value fits.
    pub(super) async fn check_schema(&self, scope: TenantScope, check: SchemaCheck) -> Result<(), SchemaRejection> {
        match aside((scope, Deadline::Run), move || check.run()).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::error!(?error, "failed to check a value against its schema; the value is refused");
                Err(SchemaRejection::BudgetExceeded)
            }
        }
    }

    /// Looks beside the threads that serve; `None` where it came to no end.
    pub(super) async fn look(&self, scope: TenantScope, looking: Looking) -> Option<Looked> {
        let redactor = Arc::clone(&self.settings.redactor);
        let looked = aside((scope, Deadline::Run), move || looking.look(&redactor)).await;
        looked.inspect_err(|error| tracing::error!(?error, "guardrails came to no end")).ok()
    }

    /// Asks a hook once. Where a run goes on elsewhere it is asked again, under the same name.
    pub(super) async fn ask_hook(&self, scope: TenantScope, call: &OutwardCall) -> Result<HookAnswer, HookError> {
        HookAnswer::read(self.call_outward(scope, call).await.map_err(HookError::Call)?)
    }
}
