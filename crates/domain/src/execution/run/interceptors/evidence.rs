//! Evidence of the guardrails and hooks of a run.

use super::{Interception, Run};
use crate::{
    guardrail::{GuardrailOutcome, GuardrailResult},
    hook::{self, Hook, HookError, HookHandler, HookResponse},
};
use serde_json::{Map, Value, json};

impl<'a> Run<'a> {
    /// Records the findings of a guardrail check as evidence. A check that passed without findings is not recorded.
    pub(super) fn record_guardrail(&mut self, interception: &Interception<'a>, result: &GuardrailResult) {
        if result.findings.is_empty() && result.outcome == GuardrailOutcome::Passed {
            return;
        }
        let findings: Vec<Value> = result.findings.iter().map(crate::guardrail::GuardrailFinding::to_json).collect();
        let body = Map::from_iter([
            ("stage".to_owned(), json!(result.stage.as_str())),
            (
                "step_id".to_owned(),
                json!(interception.continuation.active_step().map(|active_step| &active_step.step.id)),
            ),
            ("verdict".to_owned(), json!(result.outcome.as_str())),
            ("masked".to_owned(), json!(result.is_changed)),
            ("findings".to_owned(), Value::Array(findings)),
        ]);
        self.record_evidence("guardrail", "guardrail.json", body);
    }

    pub(super) fn record_hook(
        &mut self,
        hook: &Hook,
        result: &Result<HookResponse, HookError>,
        interception: &Interception<'a>,
    ) {
        let handler = match &hook.handler {
            HookHandler::Policy(_) => "policy",
            HookHandler::Http(_) => "http",
            HookHandler::Unavailable => "unavailable",
        };
        let mode = match hook.mode {
            hook::EnforcementMode::Enforce => "enforce",
            hook::EnforcementMode::Observe => "observe",
        };
        let response = result.as_ref().ok();
        let body = Map::from_iter([
            ("hook".to_owned(), json!(hook.asset.as_ref())),
            ("event".to_owned(), json!(hook.event.as_str())),
            ("subject".to_owned(), json!(interception.subject)),
            ("handler".to_owned(), json!(handler)),
            ("mode".to_owned(), json!(mode)),
            ("decision".to_owned(), json!(response.map(|response| response.decision.as_str()))),
            ("reason_code".to_owned(), json!(response.and_then(|response| response.reason_code.as_deref()))),
            ("error".to_owned(), json!(result.as_ref().err().map(|error| error.code()))),
        ]);
        self.record_evidence("hook", "hook.json", body);
    }
}
