//! Rules for values of request bodies: the functions of `#[validate(custom(function = …))]`.
//!
//! Each rule calls a parser of the domain, so the code and the message of a refusal come from the domain.
//! Afterwards the handler creates the domain's value by the same parser.

use crate::{
    access::parse_principal,
    asset::{parse_label, parse_owner, parse_slug},
    error::FieldProblem,
    http::body::to_validation_error,
    memory::parse_session,
    note_field::parse_note,
    release::{parse_environment, parse_lane},
};
use validator::ValidationError;

/// Result of a rule that checks one value of a request body.
pub(crate) type RuleResult = Result<(), ValidationError>;

/// A limit of the domain as the type of `#[validate(length(…))]`.
pub(crate) const fn limit(value: usize) -> u64 {
    value as u64
}

/// Accepts a value that the domain accepts.
pub(crate) fn accept<T>(parsed: Result<T, FieldProblem>) -> RuleResult {
    parsed.map(drop).map_err(to_validation_error)
}

/// Accepts a value without problems.
pub(crate) fn accept_unless(problem: Option<FieldProblem>) -> RuleResult {
    problem.map_or(Ok(()), |problem| Err(to_validation_error(problem)))
}

pub(crate) fn slug(text: &str) -> RuleResult {
    accept(parse_slug(text))
}

pub(crate) fn environment(text: &str) -> RuleResult {
    accept(parse_environment(text))
}

pub(crate) fn owner(text: &str) -> RuleResult {
    accept(parse_owner(text))
}

pub(crate) fn principal(text: &str) -> RuleResult {
    accept(parse_principal(text))
}

pub(crate) fn version_label(text: &str) -> RuleResult {
    accept(parse_label(Some(text)))
}

pub(crate) fn note(text: &str) -> RuleResult {
    accept(parse_note("note", Some(text)))
}

pub(crate) fn lane(text: &str) -> RuleResult {
    accept(parse_lane(Some(text)))
}

pub(crate) fn session(text: &str) -> RuleResult {
    accept(parse_session(Some(text)))
}
