//! Why steps do not succeed, and what of that can be caught.

use crate::{
    execution::RunError,
    flow::{allowance::Exhausted, reference::Unresolvable},
    knowledge::contract::ContractDecision,
    prompt::PromptRefusal,
};

/// Why a step did not succeed.
pub(super) enum StepFailure {
    /// A failure that `on_failure` may catch.
    Failed(RunError),
    /// A denial, which nothing catches.
    Denied,
    /// The contract of a knowledge base, which nothing catches either.
    RefusedByContract,
    /// A guardrail or a hook, which nothing catches: what they are there for is not undone by a step.
    Stopped(RunError),
    /// The run has no room left. Nothing catches that either: there is none for the step that would.
    NoRoom,
}

impl From<Exhausted> for StepFailure {
    fn from(_: Exhausted) -> Self {
        Self::NoRoom
    }
}

impl From<Unresolvable> for StepFailure {
    fn from(refusal: Unresolvable) -> Self {
        match refusal {
            Unresolvable::Missing(_) => Self::of("reference_missing", "a value that a step refers to does not exist"),
            Unresolvable::TooLarge(_) => Self::NoRoom,
        }
    }
}

impl RunError {
    /// The run has no room left.
    pub(super) fn no_room() -> Self {
        Self::new("value_too_large", "the values of the run take more room than a run has")
    }
}

impl StepFailure {
    pub(super) fn of(code: &str, message: &str) -> Self {
        Self::Failed(RunError::new(code, message))
    }

    pub(super) fn of_prompt(refusal: PromptRefusal) -> Self {
        let offset = refusal.offset().and_then(|offset| u32::try_from(offset).ok());
        Self::Failed(RunError { offset, ..RunError::new(refusal.code(), &refusal.to_string()) })
    }

    pub(super) fn code(&self) -> String {
        match self {
            Self::Failed(error) | Self::Stopped(error) => error.code.clone(),
            Self::Denied => "policy_denied".to_owned(),
            Self::RefusedByContract => ContractDecision::REFUSED.to_owned(),
            Self::NoRoom => "value_too_large".to_owned(),
        }
    }
}
