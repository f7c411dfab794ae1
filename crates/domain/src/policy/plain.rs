//! The fast path for simple conditions: comparisons of run data with literals, combined with `&&`, `||` and `!`,
//! evaluated without the interpreter.
//!
//! Most rules have this form, and the interpreter needs a dozen allocations for each. The fast path answers only if
//! both operands exist and have the same type. Other cases (missing inputs, nulls, mixed number types) go to the
//! interpreter with the whole condition, so that CEL semantics stay authoritative. A test compares both paths.
//!
//! Work is bounded by the source: each comparison has a literal operand, and ends with the shorter operand.

use super::{PolicyInput, condition::Condition};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, Expr, LiteralValue},
};
use serde_json::Value;
use std::cmp::Ordering;

/// A condition in fast-path form.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Plain {
    Both(Box<Self>, Box<Self>),
    Either(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Truth(Read),
    Compare(Read, Comparison, Literal),
    Among(Read, Vec<Literal>),
}

/// An operand from run data.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Read {
    /// An input member, by path.
    Input(Vec<String>),
    /// A text that every run has.
    Known(Known),
}

/// Texts that every run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
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
    Whole(i64),
    Fraction(f64),
    Truth(bool),
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

    /// The operator with exchanged operands.
    const fn turned(self) -> Self {
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

impl Plain {
    /// Converts a condition, if it has fast-path form.
    pub(super) fn of(condition: &Condition) -> Option<Self> {
        match condition {
            Condition::Always | Condition::Never => None,
            Condition::Expression(expression) => Self::read(expression),
        }
    }

    fn read(node: &IdedExpr) -> Option<Self> {
        if let Expr::Call(call) = &node.expr
            && call.target.is_none()
        {
            return Self::call(call);
        }
        read(node).map(Self::Truth)
    }

    fn call(call: &CallExpr) -> Option<Self> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            ("_&&_", [left, right]) => Some(Self::Both(Box::new(Self::read(left)?), Box::new(Self::read(right)?))),
            ("_||_", [left, right]) => Some(Self::Either(Box::new(Self::read(left)?), Box::new(Self::read(right)?))),
            ("!_", [inner]) => Some(Self::Not(Box::new(Self::read(inner)?))),
            ("@in", [item, list]) => {
                let Expr::List(list) = &list.expr else { return None };
                if !list.optional_indices.is_empty() {
                    return None;
                }
                let literals: Option<Vec<Literal>> = list.elements.iter().map(literal).collect();
                Some(Self::Among(read(item)?, literals?))
            }
            (function, [left, right]) => {
                let relation = Comparison::parse(function)?;
                match (read(left), literal(right)) {
                    (Some(read), Some(literal)) => Some(Self::Compare(read, relation, literal)),
                    _ => Some(Self::Compare(read(right)?, relation.turned(), literal(left)?)),
                }
            }
            _ => None,
        }
    }

    /// Whether the condition holds; `None` defers to the interpreter.
    pub(super) fn holds(&self, input: &PolicyInput<'_>) -> Option<bool> {
        match self {
            Self::Both(left, right) => match left.holds(input)? {
                true => right.holds(input),
                false => Some(false),
            },
            Self::Either(left, right) => match left.holds(input)? {
                true => Some(true),
                false => right.holds(input),
            },
            Self::Not(inner) => inner.holds(input).map(|holds| !holds),
            Self::Truth(read) => match read.value(input)? {
                OperandValue::Truth(truth) => Some(truth),
                OperandValue::Text(_) | OperandValue::Whole(_) | OperandValue::Fraction(_) => None,
            },
            Self::Compare(read, relation, literal) => {
                read.value(input)?.compare(literal).map(|ordering| relation.holds(ordering))
            }
            Self::Among(read, literals) => {
                let found = read.value(input)?;
                let mut among = false;
                for literal in literals {
                    among |= found.compare(literal)?.is_eq();
                }
                Some(among)
            }
        }
    }
}

impl Plain {
    /// Whether the fast path answers for every run: only always-present texts are compared, and only with texts.
    pub(super) fn always_answers(&self) -> bool {
        match self {
            Self::Both(left, right) | Self::Either(left, right) => left.always_answers() && right.always_answers(),
            Self::Not(inner) => inner.always_answers(),
            Self::Truth(_) => false,
            Self::Compare(Read::Known(_), _, literal) => matches!(literal, Literal::Text(_)),
            Self::Among(Read::Known(_), literals) => literals.iter().all(|literal| matches!(literal, Literal::Text(_))),
            Self::Compare(Read::Input(_), _, _) | Self::Among(Read::Input(_), _) => false,
        }
    }
}

fn literal(node: &IdedExpr) -> Option<Literal> {
    let Expr::Literal(literal) = &node.expr else { return None };
    match literal {
        LiteralValue::String(text) => Some(Literal::Text(text.inner().to_owned())),
        LiteralValue::Int(whole) => Some(Literal::Whole(*whole.inner())),
        LiteralValue::Double(fraction) => Some(Literal::Fraction(*fraction.inner())),
        LiteralValue::Boolean(truth) => Some(Literal::Truth(*truth.inner())),
        LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::UInt(_) => None,
    }
}

fn read(node: &IdedExpr) -> Option<Read> {
    let (mut fields, mut node) = (Vec::new(), node);
    loop {
        match &node.expr {
            // `has(inputs.x)` is also a selection, with a different meaning.
            Expr::Select(select) if !select.test => {
                fields.push(select.field.as_str());
                node = &select.operand;
            }
            Expr::Ident(root) => {
                fields.reverse();
                return match (root.as_str(), fields.as_slice()) {
                    ("inputs", [_, ..]) => Some(Read::Input(fields.into_iter().map(str::to_owned).collect())),
                    (root, fields) => known(root, fields).map(Read::Known),
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

fn known(root: &str, fields: &[&str]) -> Option<Known> {
    match (root, fields) {
        ("actor", ["ref"]) => Some(Known::ActorRef),
        ("actor", ["type"]) => Some(Known::ActorType),
        ("workload", ["slug"]) => Some(Known::WorkloadSlug),
        ("workload", ["owner_ref"]) => Some(Known::WorkloadOwner),
        ("workload", ["workload_id"]) => Some(Known::WorkloadId),
        ("release", ["release_id"]) => Some(Known::ReleaseId),
        ("release", ["state"]) => Some(Known::ReleaseState),
        ("release", ["environment"]) => Some(Known::ReleaseEnvironment),
        ("environment", []) => Some(Known::Environment),
        ("lane", []) => Some(Known::Lane),
        _ => None,
    }
}

/// A comparable value of a run.
#[derive(Clone, Copy)]
enum OperandValue<'a> {
    Text(&'a str),
    Whole(i64),
    Fraction(f64),
    Truth(bool),
}

impl Read {
    fn value<'a>(&self, input: &PolicyInput<'a>) -> Option<OperandValue<'a>> {
        let path = match self {
            Self::Known(known) => return Some(OperandValue::Text(known.text(input))),
            Self::Input(path) => path,
        };
        let (first, rest) = path.split_first()?;
        let mut value = input.inputs.get(first)?;
        for field in rest {
            value = value.as_object()?.get(field)?;
        }
        match value {
            Value::String(text) => Some(OperandValue::Text(text)),
            Value::Bool(truth) => Some(OperandValue::Truth(*truth)),
            // The interpreter's three number types; unsigned ones are deferred to it.
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Some(OperandValue::Whole(whole)),
                None if number.is_u64() => None,
                None => number.as_f64().map(OperandValue::Fraction),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl Known {
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
    /// Compares the value with a literal of the same type; `None` for other types.
    fn compare(self, literal: &Literal) -> Option<Ordering> {
        match (self, literal) {
            (OperandValue::Text(found), Literal::Text(literal)) => Some(found.cmp(literal.as_str())),
            (OperandValue::Whole(found), Literal::Whole(literal)) => Some(found.cmp(literal)),
            (OperandValue::Fraction(found), Literal::Fraction(literal)) => found.partial_cmp(literal),
            (OperandValue::Truth(found), Literal::Truth(literal)) => Some(found.cmp(literal)),
            (OperandValue::Text(_) | OperandValue::Whole(_) | OperandValue::Fraction(_) | OperandValue::Truth(_), _) => None,
        }
    }
}

#[cfg(test)]
mod tests;
