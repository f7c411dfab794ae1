//! Guardrails and hooks of runs: looks are worked out, and hooks are asked.

use super::run::SHORT_WORK;
use crate::{
    Services,
    aside::{Deadline, aside},
};
use fairway_domain::{
    execution::outward::OutwardCall,
    guardrail::{Looked, Looking},
    hook::{HookAnswer, HookError},
    tenant::TenantScope,
};
use std::sync::Arc;

impl Services {
    /// Looks, beside the threads that serve where that is long work; `None` where it came to no end.
    pub(super) async fn look(&self, scope: TenantScope, looking: Looking) -> Option<Looked> {
        if looking.work() <= SHORT_WORK {
            return Some(looking.look(&self.settings.redactor));
        }
        let redactor = Arc::clone(&self.settings.redactor);
        let looked = aside((scope, Deadline::Run), move || looking.look(&redactor)).await;
        looked.inspect_err(|error| tracing::error!(?error, "guardrails came to no end")).ok()
    }

    /// Asks a hook once. Where a run goes on elsewhere it is asked again, under the same name.
    pub(super) async fn ask_hook(&self, scope: TenantScope, call: &OutwardCall) -> Result<HookAnswer, HookError> {
        HookAnswer::read(self.call_outward(scope, call).await.map_err(HookError::Call)?)
    }
}
