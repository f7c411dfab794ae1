//! Failures of steps, and whether the flow can catch them.

use crate::{
    execution::RunError,
    flow::{Step, reference::ResolveError, value_budget::ValueLimitExceeded},
    knowledge::contract::ContractDecision,
    prompt::PromptRefusal,
};

pub(super) enum StepFailure {
    /// A failure that the step's `on_failure` can catch.
    Failed(RunError),
    /// A policy denied the run. The flow cannot catch this.
    Denied,
    /// An access contract refused a query. The flow cannot catch this.
    RefusedByContract,
    /// A guardrail or hook blocked a value. The flow cannot catch this, because another step must not undo it.
    Blocked(RunError),
    /// The value budget of the run is exhausted. The flow cannot catch this, because the handler step would have no
    /// memory either.
    ValueTooLarge,
}

impl From<ValueLimitExceeded> for StepFailure {
    fn from(_: ValueLimitExceeded) -> Self {
        Self::ValueTooLarge
    }
}

impl From<ResolveError> for StepFailure {
    fn from(refusal: ResolveError) -> Self {
        match refusal {
            ResolveError::Missing(_) => {
                Self::failed("reference_missing", "a value that a step refers to does not exist")
            }
            ResolveError::TooLarge(_) => Self::ValueTooLarge,
        }
    }
}

impl RunError {
    /// The error of a run that exceeded its value budget.
    pub(super) fn value_too_large() -> Self {
        Self::new("value_too_large", "the values of the run exceed its memory limit")
    }
}

impl StepFailure {
    pub(super) fn failed(code: &str, message: &str) -> Self {
        Self::Failed(RunError::new(code, message))
    }

    /// The failure of a step whose prompt cannot be rendered. `flow_step` is the step if the release binds a flow. The
    /// message then says whether the flow causes a missing argument.
    pub(super) fn from_prompt(refusal: &PromptRefusal, flow_step: Option<&Step>) -> Self {
        let offset = refusal.offset().and_then(|offset| u32::try_from(offset).ok());
        let message = match refusal {
            PromptRefusal::ArgumentMissing { name, .. } => format!("{refusal}: {}", missing_cause(name, flow_step)),
            PromptRefusal::MalformedToken { .. }
            | PromptRefusal::UnknownAsset { .. }
            | PromptRefusal::CrossWorkspace { .. }
            | PromptRefusal::NestedReference { .. }
            | PromptRefusal::CommandNotAllowed { .. }
            | PromptRefusal::ArgumentType { .. }
            | PromptRefusal::TooLarge { .. }
            | PromptRefusal::NotATemplate => refusal.to_string(),
        };
        Self::Failed(RunError { offset, ..RunError::new(refusal.code(), &message) })
    }

    pub(super) fn code(&self) -> String {
        match self {
            Self::Failed(error) | Self::Blocked(error) => error.code.clone(),
            Self::Denied => "policy_denied".to_owned(),
            Self::RefusedByContract => ContractDecision::REFUSED_CODE.to_owned(),
            Self::ValueTooLarge => "value_too_large".to_owned(),
        }
    }
}

/// The reason why a prompt argument has no value, as a text for people.
fn missing_cause(name: &str, flow_step: Option<&Step>) -> String {
    match flow_step {
        None => "the run has no value for an input of this name".to_owned(),
        Some(step) if step.prompt_arguments().any(|argument| argument == name) => {
            format!("the step `{}` of the flow passes null for it", step.id)
        }
        Some(step) => {
            format!("the step `{}` of the flow does not pass it, and the run has no input of this name", step.id)
        }
    }
}
