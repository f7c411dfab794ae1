use super::*;
use crate::policy::{MAX_DECISION_STEPS, pattern::Patterns};
use crate::policy::{PolicyActor, PolicyRelease, PolicyWorkload, variables::Evaluation};
use proptest::prelude::*;
use serde_json::{Map, json};

/// The results of a condition on the fast path and in the interpreter.
fn evaluate_both_paths(condition: &str, inputs: &Map<String, Value>) -> (Option<bool>, Option<bool>) {
    let mut patterns = Patterns::default();
    let compiled = Condition::compile(condition, &mut patterns).unwrap();
    let Condition::Expression(expression) = &compiled else { panic!("{condition} is a constant") };
    let groups = ["staff".to_owned()];
    let input = PolicyInput {
        actor: PolicyActor { reference: "user:ada", kind: "user", groups: &groups, roles: &[] },
        workload: PolicyWorkload { slug: "desk", owner_ref: "team:x", workload_id: "w" },
        release: PolicyRelease { release_id: "r", state: "active", environment: "production" },
        inputs,
        environment: "production",
        lane: "standard",
        now: serde_json::from_value(json!("2026-03-01T12:30:00Z")).unwrap(),
    };
    let names = compiled.variables().into_iter().collect();
    let interpreted = Evaluation::new(&input, &names, &patterns, MAX_DECISION_STEPS).try_evaluate(expression).ok();
    (FastPath::compile(&compiled).and_then(|fast_path| fast_path.evaluate(&input)), interpreted)
}

fn inputs() -> Map<String, Value> {
    let Value::Object(inputs) = json!({
        "t": "de", "n": 7, "f": 0.5, "w": 2.0, "big": u64::MAX, "yes": true, "no": false, "nothing": null,
        "list": ["de"], "deep": {"t": "x", "n": 1},
    }) else {
        panic!("an object")
    };
    inputs
}

#[test]
fn evaluates_simple_conditions_on_fast_path() {
    let cases = [
        ("inputs.n > 6 && inputs.t == 'de' && inputs.t in ['at', 'de']", true),
        ("7 >= inputs.n || inputs.missing", true),
        ("!(inputs.deep.n != 1)", true),
        ("inputs.yes && !inputs.no", true),
        ("inputs.f < 0.25", false),
        ("lane == 'standard' && actor.ref in ['user:eve']", false),
        ("release.state != 'active'", false),
        ("inputs.n in []", false),
        ("inputs.t < 'df'", true),
    ];
    for (condition, expected) in cases {
        assert_eq!(evaluate_both_paths(condition, &inputs()), (Some(expected), Some(expected)), "{condition}");
    }
}

#[test]
fn defers_ambiguous_conditions_to_interpreter() {
    for condition in [
        "inputs.missing == 1",
        "inputs.nothing == 'x'",
        "inputs.n == 7.0",
        "inputs.w == 2",
        "inputs.big > 1",
        "inputs.t == 1",
        "inputs.n in [1, 'x']",
        "inputs.list == 'de'",
        "inputs.t.x == 'de'",
        "has(inputs.t)",
        "has(inputs.missing)",
        "size(inputs.t) == 2",
        "inputs.t == inputs.t",
        "'staff' in actor.groups",
        "inputs['t'] == 'de'",
        "inputs.t",
        "inputs.n == 1u",
    ] {
        assert_eq!(evaluate_both_paths(condition, &inputs()).0, None, "{condition}");
    }
}

/// The benchmark compares these two conditions: the fast path evaluates one of them, and the interpreter the other.
#[test]
fn late_deferral_is_evaluated_by_interpreter() {
    let inputs = inputs();
    assert_eq!(evaluate_both_paths("inputs.t == 'at'", &inputs), (Some(false), Some(false)));
    assert_eq!(evaluate_both_paths("(inputs.t == 'at') || inputs.f == 1", &inputs), (None, Some(false)));
}

fn condition() -> impl Strategy<Value = String> {
    let operand = prop::sample::select(vec![
        "inputs.t",
        "inputs.n",
        "inputs.f",
        "inputs.w",
        "inputs.big",
        "inputs.yes",
        "inputs.no",
        "inputs.nothing",
        "inputs.list",
        "inputs.deep",
        "inputs.deep.t",
        "inputs.deep.n",
        "inputs.missing",
        "inputs.t.x",
        "actor.ref",
        "lane",
        "environment",
        "workload.slug",
    ]);
    let literal = prop::sample::select(vec![
        "'de'",
        "'x'",
        "''",
        "'standard'",
        "7",
        "1",
        "-1",
        "0",
        "0.5",
        "2.0",
        "true",
        "false",
        "null",
        "7u",
    ]);
    let operator = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let comparison = (operand.clone(), operator, literal.clone(), any::<bool>()).prop_map(
        |(operand, operator, literal, is_swapped)| {
            if is_swapped {
                format!("{literal} {operator} {operand}")
            } else {
                format!("{operand} {operator} {literal}")
            }
        },
    );
    let membership = (operand.clone(), prop::collection::vec(literal, 0..4))
        .prop_map(|(operand, literals)| format!("{operand} in [{}]", literals.join(", ")));
    let leaf = prop_oneof![4 => comparison, 2 => membership, 1 => operand.prop_map(str::to_owned)];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left}) && ({right})")),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| format!("({left}) || ({right})")),
            inner.prop_map(|inner| format!("!({inner})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn fast_path_agrees_with_interpreter(condition in condition()) {
        let (fast_path, interpreted) = evaluate_both_paths(&condition, &inputs());
        if fast_path.is_some() {
            prop_assert_eq!(fast_path, interpreted, "{}", condition);
        }
    }
}
