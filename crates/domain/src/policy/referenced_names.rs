//! The names that a condition reads: the inputs that it requires, and the fields that a failure may name.

use super::condition::Condition;
use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue},
};
use std::collections::BTreeSet;

/// The CEL variable with the inputs of a run.
const INPUTS: &str = "inputs";
/// The maximum length of a field name that a failure reports, in bytes.
const MAX_NAME: usize = 128;

impl Condition {
    /// The inputs that the condition reads, as `inputs.x` or `inputs["x"]`, without testing that they exist. A test is
    /// `has(inputs.x)` or `"x" in inputs` anywhere in the condition.
    pub(super) fn required_inputs(&self) -> BTreeSet<String> {
        let Self::Expression(expression) = self else { return BTreeSet::new() };
        let (mut read_names, mut tested_names) = (BTreeSet::new(), BTreeSet::new());
        walk(expression, &mut |node| match &node.expr {
            Expr::Select(select) if is_inputs(&select.operand) => {
                let names = if select.test { &mut tested_names } else { &mut read_names };
                names.insert(select.field.clone());
            }
            Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                ("_[_]", [container, key]) if is_inputs(container) => read_names.extend(text_literal(key)),
                ("@in", [key, container]) if is_inputs(container) => tested_names.extend(text_literal(key)),
                _ => {}
            },
            Expr::Unspecified
            | Expr::Comprehension(_)
            | Expr::Ident(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Select(_)
            | Expr::Struct(_) => {}
        });
        read_names.into_iter().filter(|name| !tested_names.contains(name)).collect()
    }

    /// Whether the source of the condition contains this field name. Only such names are reported, because other names
    /// are data of a run.
    pub(super) fn mentions_field(&self, name: &str) -> bool {
        let Self::Expression(expression) = self else { return false };
        let mut is_mentioned = false;
        walk(expression, &mut |node| {
            is_mentioned |= match &node.expr {
                Expr::Select(select) => select.field == name,
                Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
                    ("_[_]", [_, key]) => text_literal(key).is_some_and(|key| key == name),
                    _ => false,
                },
                Expr::Unspecified
                | Expr::Comprehension(_)
                | Expr::Ident(_)
                | Expr::List(_)
                | Expr::Literal(_)
                | Expr::Map(_)
                | Expr::Struct(_) => false,
            };
        });
        is_mentioned && name.len() <= MAX_NAME
    }
}

fn is_inputs(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name == INPUTS)
}

fn text_literal(node: &IdedExpr) -> Option<String> {
    let Expr::Literal(LiteralValue::String(text)) = &node.expr else { return None };
    Some(text.inner().to_owned())
}

/// Visits every node of an expression. The recursion is bounded by the depth of the expression.
fn walk(node: &IdedExpr, visit: &mut impl FnMut(&IdedExpr)) {
    visit(node);
    match &node.expr {
        Expr::Select(select) => walk(&select.operand, visit),
        Expr::Call(call) => {
            let target = call.target.iter().map(AsRef::as_ref);
            target.chain(&call.args).for_each(|child| walk(child, visit));
        }
        Expr::List(list) => list.elements.iter().for_each(|child| walk(child, visit)),
        Expr::Map(map) => {
            for entry in &map.entries {
                if let EntryExpr::MapEntry(entry) = &entry.expr {
                    walk(&entry.key, visit);
                    walk(&entry.value, visit);
                }
            }
        }
        Expr::Comprehension(comprehension) => {
            let parts = [
                &comprehension.iter_range,
                &comprehension.accu_init,
                &comprehension.loop_cond,
                &comprehension.loop_step,
                &comprehension.result,
            ];
            parts.into_iter().for_each(|child| walk(child, visit));
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::Patterns;
    use super::*;

    fn compile(condition: &str) -> Condition {
        Condition::compile(condition, &mut Patterns::default()).unwrap()
    }

    #[test]
    fn required_inputs_are_read_without_a_test_for_their_presence() {
        for (condition, expected) in [
            ("always", &[][..]),
            ("environment == 'dev'", &[]),
            ("inputs.a == 1 && inputs['b'] == 2", &["a", "b"]),
            ("inputs.a.b == 1 || size(inputs.c) > 2", &["a", "c"]),
            ("has(inputs.a) && inputs.a == 1", &[]),
            ("'a' in inputs && inputs.a == 1 && inputs.b", &["b"]),
            ("inputs.list.all(x, x == inputs.d)", &["d", "list"]),
            ("[inputs.e] == [1] && {'k': inputs.f} == {'k': 1}", &["e", "f"]),
            ("inputs[environment] == 1", &[]),
        ] {
            assert_eq!(compile(condition).required_inputs().iter().collect::<Vec<_>>(), expected, "{condition}");
        }
    }

    #[test]
    fn only_names_of_the_source_are_reportable() {
        let condition = compile("inputs.a.b == 1 && inputs['c'][inputs.d] == 'e'");
        for (name, expected) in [("a", true), ("b", true), ("c", true), ("d", true), ("e", false), ("x", false)] {
            assert_eq!(condition.mentions_field(name), expected, "{name}");
        }
        let long = "n".repeat(MAX_NAME + 1);
        assert!(!compile(&format!("inputs.{long} == 1")).mentions_field(&long));
    }
}
