//! The fast path for simple conditions, which are evaluated without the CEL interpreter. Such a condition compares data
//! of the run with literals, and combines the comparisons with `&&`, `||` and `!`.
//!
//! Most rules have this form, and the interpreter makes a dozen allocations for each rule. The fast path returns a
//! result only if both operands exist and have the same type. In all other cases (missing inputs, nulls, mixed number
//! types), the interpreter evaluates the whole condition, so that CEL semantics remain authoritative. A test compares
//! the results of the fast path and the interpreter.
//!
//! The length of the source limits the work: one operand of each comparison is a literal, and a comparison ends with
//! the shorter operand.

use super::{PolicyInput, condition::Condition};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, Expr, LiteralValue},
};
use serde_json::Value;
use std::cmp::Ordering;

/// A condition in fast-path form.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum FastPath {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    IsTrue(Operand),
    Compare(Operand, Comparison, Literal),
    In(Operand, Vec<Literal>),
}

/// An operand that comes from the data of a run.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Operand {
    /// The member of the inputs at this path.
    Input(Vec<String>),
    /// A text that is present in every run.
    Builtin(BuiltinText),
}

/// The texts that are present in every run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BuiltinText {
    ActorRef,
    ActorType,
    WorkloadSlug,
    WorkloadOwner,
    WorkloadId,
    ReleaseId,
    ReleaseState,
    ReleaseEnvironment,
    Environment,
    Lane,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Literal {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
}

/// A comparison operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Comparison {
    fn parse(function: &str) -> Option<Self> {
        match function {
            "_==_" => Some(Self::Equal),
            "_!=_" => Some(Self::Unequal),
            "_<_" => Some(Self::Less),
            "_<=_" => Some(Self::AtMost),
            "_>_" => Some(Self::Greater),
            "_>=_" => Some(Self::AtLeast),
            _ => None,
        }
    }

    /// The equivalent operator for exchanged operands.
    const fn swapped(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::Unequal => Self::Unequal,
            Self::Less => Self::Greater,
            Self::AtMost => Self::AtLeast,
            Self::Greater => Self::Less,
            Self::AtLeast => Self::AtMost,
        }
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

impl FastPath {
    /// Converts a condition to its fast-path form; `None` if the condition is not simple enough.
    pub(super) fn compile(condition: &Condition) -> Option<Self> {
        match condition {
            Condition::Always | Condition::Never => None,
            Condition::Expression(expression) => Self::compile_node(expression),
        }
    }

    fn compile_node(node: &IdedExpr) -> Option<Self> {
        if let Expr::Call(call) = &node.expr
            && call.target.is_none()
        {
            return Self::compile_call(call);
        }
        parse_operand(node).map(Self::IsTrue)
    }

    fn compile_call(call: &CallExpr) -> Option<Self> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => {
                Some(Self::And(Box::new(Self::compile_node(left)?), Box::new(Self::compile_node(right)?)))
            }
            ("_||_", [left, right]) => {
                Some(Self::Or(Box::new(Self::compile_node(left)?), Box::new(Self::compile_node(right)?)))
            }
            ("!_", [inner]) => Some(Self::Not(Box::new(Self::compile_node(inner)?))),
            ("@in", [item, list]) => {
                let Expr::List(list) = &list.expr else { return None };
                if !list.optional_indices.is_empty() {
                    return None;
                }
                let literals: Option<Vec<Literal>> = list.elements.iter().map(parse_literal).collect();
                Some(Self::In(parse_operand(item)?, literals?))
            }
            (function, [left, right]) => {
                let comparison = Comparison::parse(function)?;
                match (parse_operand(left), parse_literal(right)) {
                    (Some(operand), Some(literal)) => Some(Self::Compare(operand, comparison, literal)),
                    _ => Some(Self::Compare(parse_operand(right)?, comparison.swapped(), parse_literal(left)?)),
                }
            }
            _ => None,
        }
    }

    /// Whether the condition holds; `None` if the interpreter must evaluate it.
    pub(super) fn evaluate(&self, input: &PolicyInput<'_>) -> Option<bool> {
        match self {
            Self::And(left, right) => match left.evaluate(input)? {
                true => right.evaluate(input),
                false => Some(false),
            },
            Self::Or(left, right) => match left.evaluate(input)? {
                true => Some(true),
                false => right.evaluate(input),
            },
            Self::Not(inner) => inner.evaluate(input).map(|holds| !holds),
            Self::IsTrue(operand) => match operand.value(input)? {
                OperandValue::Bool(truth) => Some(truth),
                OperandValue::Text(_) | OperandValue::Int(_) | OperandValue::Double(_) => None,
            },
            Self::Compare(operand, comparison, literal) => {
                operand.value(input)?.compare(literal).map(|ordering| comparison.holds(ordering))
            }
            Self::In(operand, literals) => {
                let value = operand.value(input)?;
                let mut is_listed = false;
                for literal in literals {
                    is_listed |= value.compare(literal)?.is_eq();
                }
                Some(is_listed)
            }
        }
    }
}

impl FastPath {
    /// Whether the fast path returns a result for every run. This is the case if it compares only texts that every run
    /// has, and only with text literals.
    pub(super) fn is_total(&self) -> bool {
        match self {
            Self::And(left, right) | Self::Or(left, right) => left.is_total() && right.is_total(),
            Self::Not(inner) => inner.is_total(),
            Self::IsTrue(_) => false,
            Self::Compare(Operand::Builtin(_), _, literal) => matches!(literal, Literal::Text(_)),
            Self::In(Operand::Builtin(_), literals) => {
                literals.iter().all(|literal| matches!(literal, Literal::Text(_)))
            }
            Self::Compare(Operand::Input(_), _, _) | Self::In(Operand::Input(_), _) => false,
        }
    }
}

fn parse_literal(node: &IdedExpr) -> Option<Literal> {
    let Expr::Literal(literal) = &node.expr else { return None };
    match literal {
        LiteralValue::String(text) => Some(Literal::Text(text.inner().to_owned())),
        LiteralValue::Int(whole) => Some(Literal::Int(*whole.inner())),
        LiteralValue::Double(fraction) => Some(Literal::Double(*fraction.inner())),
        LiteralValue::Boolean(truth) => Some(Literal::Bool(*truth.inner())),
        LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => None,
    }
}

fn parse_operand(node: &IdedExpr) -> Option<Operand> {
    let (mut fields, mut node) = (Vec::new(), node);
    loop {
        match &node.expr {
            // The test `has(inputs.x)` is also represented as a selection, but does not read the field's value.
            Expr::Select(select) if !select.test => {
                fields.push(select.field.as_str());
                node = &select.operand;
            }
            Expr::Ident(root) => {
                fields.reverse();
                return match (root.as_str(), fields.as_slice()) {
                    ("inputs", [_, ..]) => Some(Operand::Input(fields.into_iter().map(str::to_owned).collect())),
                    (root, fields) => builtin_text(root, fields).map(Operand::Builtin),
                };
            }
            Expr::Unspecified
            | Expr::Call(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Select(_)
            | Expr::Struct(_) => return None,
        }
    }
}

fn builtin_text(root: &str, fields: &[&str]) -> Option<BuiltinText> {
    match (root, fields) {
        ("actor", ["ref"]) => Some(BuiltinText::ActorRef),
        ("actor", ["type"]) => Some(BuiltinText::ActorType),
        ("workload", ["slug"]) => Some(BuiltinText::WorkloadSlug),
        ("workload", ["owner_ref"]) => Some(BuiltinText::WorkloadOwner),
        ("workload", ["workload_id"]) => Some(BuiltinText::WorkloadId),
        ("release", ["release_id"]) => Some(BuiltinText::ReleaseId),
        ("release", ["state"]) => Some(BuiltinText::ReleaseState),
        ("release", ["environment"]) => Some(BuiltinText::ReleaseEnvironment),
        ("environment", []) => Some(BuiltinText::Environment),
        ("lane", []) => Some(BuiltinText::Lane),
        _ => None,
    }
}

/// A value of a run that can be compared with a literal.
#[derive(Clone, Copy)]
enum OperandValue<'a> {
    Text(&'a str),
    Int(i64),
    Double(f64),
    Bool(bool),
}

impl Operand {
    fn value<'a>(&self, input: &PolicyInput<'a>) -> Option<OperandValue<'a>> {
        let path = match self {
            Self::Builtin(builtin) => return Some(OperandValue::Text(builtin.text(input))),
            Self::Input(path) => path,
        };
        let (first, rest) = path.split_first()?;
        let mut value = input.inputs.get(first)?;
        for field in rest {
            value = value.as_object()?.get(field)?;
        }
        match value {
            Value::String(text) => Some(OperandValue::Text(text)),
            Value::Bool(truth) => Some(OperandValue::Bool(*truth)),
            // The interpreter has three number types. Numbers beyond `i64` are left to it.
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Some(OperandValue::Int(whole)),
                None if number.is_u64() => None,
                None => number.as_f64().map(OperandValue::Double),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl BuiltinText {
    const fn text<'a>(self, input: &PolicyInput<'a>) -> &'a str {
        match self {
            Self::ActorRef => input.actor.reference,
            Self::ActorType => input.actor.kind,
            Self::WorkloadSlug => input.workload.slug,
            Self::WorkloadOwner => input.workload.owner_ref,
            Self::WorkloadId => input.workload.workload_id,
            Self::ReleaseId => input.release.release_id,
            Self::ReleaseState => input.release.state,
            Self::ReleaseEnvironment => input.release.environment,
            Self::Environment => input.environment,
            Self::Lane => input.lane,
        }
    }
}

impl OperandValue<'_> {
    /// Compares the value with a literal; `None` if their types differ.
    fn compare(self, literal: &Literal) -> Option<Ordering> {
        match (self, literal) {
            (OperandValue::Text(value), Literal::Text(literal)) => Some(value.cmp(literal.as_str())),
            (OperandValue::Int(value), Literal::Int(literal)) => Some(value.cmp(literal)),
            (OperandValue::Double(value), Literal::Double(literal)) => value.partial_cmp(literal),
            (OperandValue::Bool(value), Literal::Bool(literal)) => Some(value.cmp(literal)),
            (OperandValue::Text(_) | OperandValue::Int(_) | OperandValue::Double(_) | OperandValue::Bool(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
