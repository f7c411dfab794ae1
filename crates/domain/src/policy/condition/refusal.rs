//! Refusals of conditions: their codes, and messages that contain the unknown name and the names that exist.

use super::{GLOBAL_FUNCTIONS, MAX_DEPTH, MAX_NODES, MAX_SOURCE_BYTES, MEMBER_FUNCTIONS, position};
use crate::policy::{
    pattern::{MAX_PATTERN, MAX_PATTERNS},
    variables,
};
use std::fmt;

/// The reason why a condition is refused. Lines and columns start at 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) enum ConditionRefusal {
    SourceTooLong,
    Syntax {
        line: usize,
        column: usize,
        /// The explanation of the syntax error, if its cause is known.
        explanation: Option<String>,
    },
    TooDeep,
    TooManyNodes,
    NestedMacros,
    TooCostly,
    UnknownVariable(UnknownName),
    /// A record does not have the selected field. The list contains the fields that it has; it is empty for a value
    /// without fields.
    UnknownField(UnknownName, &'static [&'static str]),
    UnknownFunction(UnknownName),
    Pattern,
    NotBoolean,
    Unsupported,
}

/// An unknown name in a condition, with its position in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) struct UnknownName {
    name: String,
    line: usize,
    column: usize,
}

/// The maximum length of a name in a message, in characters.
const MAX_SHOWN_NAME: usize = 64;

impl UnknownName {
    /// Finds the first occurrence of an unknown name in a source.
    pub(super) fn find(source: &str, name: &str) -> Self {
        let (line, column) = position(source, name);
        Self { name: name.to_owned(), line, column }
    }
}

impl fmt::Display for UnknownName {
    /// Writes the name without characters that identifiers cannot have. Terminals and pages show messages with it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_identifier_character = |character: &char| character.is_ascii_alphanumeric() || *character == '_';
        let printable_name: String = self.name.chars().filter(is_identifier_character).take(MAX_SHOWN_NAME).collect();
        write!(formatter, "`{printable_name}` at line {}, column {}", self.line, self.column)
    }
}

impl ConditionRefusal {
    pub(in crate::policy) const fn code(&self) -> &'static str {
        match self {
            Self::SourceTooLong => "policy_source_too_long",
            Self::Syntax { .. } => "policy_syntax",
            Self::TooDeep => "policy_too_deep",
            Self::TooManyNodes => "policy_too_many_nodes",
            Self::NestedMacros => "policy_nested_macros",
            Self::TooCostly => "policy_too_costly",
            Self::UnknownVariable(_) => "policy_unknown_variable",
            Self::UnknownField(..) => "policy_unknown_field",
            Self::UnknownFunction(_) => "policy_unknown_function",
            Self::Pattern => "policy_pattern",
            Self::NotBoolean => "policy_not_boolean",
            Self::Unsupported => "policy_unsupported",
        }
    }

    pub(in crate::policy) fn message(&self) -> String {
        match self {
            Self::SourceTooLong => format!("a condition has at most {MAX_SOURCE_BYTES} bytes"),
            Self::Syntax { line, column, explanation } => {
                let explanation = explanation.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
                format!("the condition is not valid CEL at line {line}, column {column}{explanation}")
            }
            Self::TooDeep => format!("a condition is at most {MAX_DEPTH} levels deep"),
            Self::TooManyNodes => format!("a condition has at most {MAX_NODES} nodes"),
            Self::NestedMacros => "a macro can be nested inside one other macro at most".to_owned(),
            Self::TooCostly => "evaluating the condition would take too many steps".to_owned(),
            Self::UnknownVariable(name) => {
                format!("unknown variable {name}; the variables are {}", variables::ROOT_VARIABLE_NAMES)
            }
            Self::UnknownField(name, []) => format!("unknown field {name}: this value has no fields"),
            Self::UnknownField(name, fields) => format!("unknown field {name}; the fields are {}", fields.join(", ")),
            Self::UnknownFunction(name) => format!(
                "unknown function {name}; the functions are {} and, after a value, {}",
                GLOBAL_FUNCTIONS.join(", "),
                MEMBER_FUNCTIONS.join(", ")
            ),
            Self::Pattern => format!(
                "`matches` takes a literal regular expression of at most {MAX_PATTERN} bytes that uses no look-around, \
                 no back references and little memory; a bundle has at most {MAX_PATTERNS}"
            ),
            Self::NotBoolean => "a condition is true or false, and this one can be neither".to_owned(),
            Self::Unsupported => "the condition uses a construct that is not supported".to_owned(),
        }
    }
}
