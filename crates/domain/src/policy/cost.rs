//! An upper bound of the evaluation steps of an expression for data of a given size, computed without evaluation.
//!
//! The estimate visits the expression once and rounds up. It assumes that each loop iterates over the largest
//! collection, and that each text is the largest text. One step is approximately the visit of a node, or the comparison
//! of 32 bytes.

use super::pattern::Patterns;
use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue},
};

/// The maximum estimated steps of a condition for data of the assumed size. A new version with a more costly condition
/// is refused.
pub(super) const MAX_ESTIMATED_STEPS: u64 = 500_000;
/// The number of text bytes that one step processes.
const BYTES_PER_STEP: u64 = 32;

/// The size of the data that an expression evaluates.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct DataSize {
    /// The number of values, members and items at all depths.
    pub(super) values: u64,
    /// The number of text bytes, including keys.
    pub(super) bytes: u64,
}

impl DataSize {
    /// The data size that the check of a new version assumes: a form with a hundred fields, or a page of text.
    pub(super) const ASSUMED: Self = Self { values: 100, bytes: 4_096 };

    fn to_size(self) -> Size {
        Size { items: self.values, weight: self.values.saturating_add(self.bytes / BYTES_PER_STEP) }
    }
}

/// The size of a value: the number of iterations of a loop over it, and the cost of comparing or copying it.
#[derive(Clone, Copy)]
struct Size {
    items: u64,
    weight: u64,
}

impl Size {
    const SCALAR: Self = Self { items: 0, weight: 1 };

    fn combined(self, other: Self) -> Self {
        Self { items: self.items.saturating_add(other.items), weight: self.weight.saturating_add(other.weight) }
    }
}

#[derive(Clone, Copy)]
struct Estimate {
    steps: u64,
    size: Size,
}

/// The maximum number of steps to evaluate `expression` for data of this size. A search costs the weight of its pattern
/// for each byte; an unknown pattern costs one step for each byte.
pub(super) fn estimate_steps(expression: &IdedExpr, data: DataSize, patterns: &Patterns) -> u64 {
    Estimator { data: data.to_size(), patterns, loop_variables: Vec::new() }.estimate(expression).steps
}

/// Computes the estimate. INVARIANT: the recursion is bounded, because expressions have at most the maximum depth of a
/// condition.
struct Estimator<'e> {
    data: Size,
    patterns: &'e Patterns,
    loop_variables: Vec<(&'e str, Size)>,
}

impl<'e> Estimator<'e> {
    fn estimate(&mut self, node: &'e IdedExpr) -> Estimate {
        match &node.expr {
            Expr::Literal(literal) => Estimate { steps: 1, size: literal_size(literal) },
            Expr::Ident(name) => Estimate { steps: 1, size: self.variable(name) },
            Expr::Select(select) => {
                let operand = self.estimate(&select.operand);
                Estimate { steps: operand.steps.saturating_add(1), size: operand.size }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => self.collection(&list.elements.iter().collect::<Vec<_>>()),
            Expr::Map(map) => {
                let mut parts = Vec::new();
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) => parts.extend([&entry.key, &entry.value]),
                        EntryExpr::StructField(field) => parts.push(&field.value),
                    }
                }
                self.collection(&parts)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => Estimate { steps: u64::MAX, size: Size::SCALAR },
        }
    }

    fn variable(&self, name: &str) -> Size {
        let binding = self.loop_variables.iter().rev().find(|(variable, _)| *variable == name);
        binding.map_or(self.data, |(_, size)| *size)
    }

    /// Estimates a collection literal. Creating it copies its parts, and a loop can iterate over the collection or over
    /// one of its parts.
    fn collection(&mut self, parts: &[&'e IdedExpr]) -> Estimate {
        let mut largest = 0_u64;
        let mut collection = Estimate { steps: 1, size: Size { items: 0, weight: 1 } };
        for part in parts {
            let part = self.estimate(part);
            collection.steps = collection.steps.saturating_add(part.steps).saturating_add(part.size.weight);
            collection.size.weight = collection.size.weight.saturating_add(part.size.weight);
            largest = largest.max(part.size.items);
        }
        collection.size.items = largest.max(u64::try_from(parts.len()).unwrap_or(u64::MAX));
        collection
    }

    fn call(&mut self, call: &'e CallExpr) -> Estimate {
        let mut parts: Vec<Estimate> = Vec::with_capacity(call.args.len() + 1);
        for part in call.target.iter().map(AsRef::as_ref).chain(&call.args) {
            parts.push(self.estimate(part));
        }
        let operand_steps = parts.iter().fold(1_u64, |sum, part| sum.saturating_add(part.steps));
        let combined = parts.iter().fold(Size { items: 0, weight: 0 }, |sum, part| sum.combined(part.size));
        let min_weight = parts.iter().map(|part| part.size.weight).min().unwrap_or(0);
        let (own_steps, size) = match call.func_name.as_str() {
            "_&&_" | "_||_" | "!_" | "@not_strictly_false" => (0, Size::SCALAR),
            "_?_:_" => (0, combined),
            "_[_]" => (1, parts.first().map_or(Size::SCALAR, |container| container.size)),
            // A comparison ends at the end of the shorter operand.
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => (min_weight, Size::SCALAR),
            "_+_" => (combined.weight, combined),
            "matches" => {
                let steps = combined.weight.saturating_mul(BYTES_PER_STEP);
                (steps.saturating_mul(self.pattern_weight(&call.args)), Size::SCALAR)
            }
            "string" | "dyn" => (combined.weight, combined),
            _ => (combined.weight, Size::SCALAR),
        };
        Estimate { steps: operand_steps.saturating_add(own_steps), size }
    }

    /// The steps that a `matches` call needs for each byte of its text.
    fn pattern_weight(&self, arguments: &[IdedExpr]) -> u64 {
        match arguments {
            [IdedExpr { expr: Expr::Literal(LiteralValue::String(pattern)), .. }] => {
                self.patterns.weight(pattern.inner())
            }
            _ => 1,
        }
    }

    fn comprehension(&mut self, comprehension: &'e ComprehensionExpr) -> Estimate {
        let range = self.estimate(&comprehension.iter_range);
        let start = self.estimate(&comprehension.accu_init);
        // The accumulator is extended in place, so an iteration costs only the added item.
        self.loop_variables.push((&comprehension.accu_var, Size { items: 0, weight: 0 }));
        // Each item can itself be any collection of the data, but all items together have the weight of the whole
        // range. The average weight suffices for the sum, because steps grow at most linearly with the weight.
        let weight = range.size.weight.div_ceil(range.size.items.max(1));
        let item = Size { items: range.size.items.max(self.data.items), weight };
        self.loop_variables.push((&comprehension.iter_var, item));
        let condition = self.estimate(&comprehension.loop_cond);
        let step = self.estimate(&comprehension.loop_step);
        let result = self.estimate(&comprehension.result);
        self.loop_variables.truncate(self.loop_variables.len().saturating_sub(2));
        let steps_per_item = condition.steps.saturating_add(step.steps).saturating_add(1);
        let steps = [range.steps, start.steps, range.size.items.saturating_mul(steps_per_item), result.steps]
            .into_iter()
            .fold(0_u64, u64::saturating_add);
        let weight = range.size.items.saturating_mul(step.size.weight).saturating_add(1);
        Estimate { steps, size: Size { items: range.size.items.max(step.size.items), weight } }
    }
}

fn literal_size(literal: &LiteralValue) -> Size {
    let bytes = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => 0,
    };
    Size { items: 0, weight: 1 + u64::try_from(bytes).unwrap_or(u64::MAX) / BYTES_PER_STEP }
}
