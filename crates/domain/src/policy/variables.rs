//! The CEL variables of conditions, and their values for a run.

use super::{
    PolicyInput,
    cost::{self, DataSize},
    pattern::Patterns,
};
use cel::{
    Context, Env, IdedExpr,
    objects::{Key, Map as CelMap},
};
use chrono::{DateTime, FixedOffset, Utc};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, LazyLock},
};

/// The maximum number of steps of a decision, for all its conditions together. When they are used up, the remaining
/// conditions count as failed.
pub const MAX_DECISION_STEPS: u64 = 2_000_000;

const ACTOR: [&str; 4] = ["ref", "type", "groups", "roles"];
const WORKLOAD: [&str; 3] = ["slug", "owner_ref", "workload_id"];
const RELEASE: [&str; 3] = ["release_id", "state", "environment"];

/// The names of all root variables, for messages.
pub(super) const ROOT_VARIABLE_NAMES: &str = "actor, workload, release, inputs, environment, lane and now";

/// Whether the name is that of a root variable.
pub(super) fn is_root_variable(name: &str) -> bool {
    is_record(name) || matches!(name, "inputs" | "environment" | "lane" | "now")
}

/// Whether the variable is a record, which has a fixed set of fields.
pub(super) fn is_record(name: &str) -> bool {
    matches!(name, "actor" | "workload" | "release")
}

/// The fields of a variable: an empty list for a text or a time; `None` if the variable may have any field.
pub(super) fn fields_of_variable(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "actor" => Some(&ACTOR),
        "workload" => Some(&WORKLOAD),
        "release" => Some(&RELEASE),
        "environment" | "lane" | "now" => Some(&[]),
        _ => None,
    }
}

/// The CEL standard library without optional values. It is created once, and all policies share it.
static STANDARD: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::default().with_optional_support(false).with_stdlib()));

/// The values and the remaining steps with which the conditions of a decision are evaluated.
pub(super) struct Evaluation {
    context: Context<'static, 'static>,
    patterns: Patterns,
    data: DataSize,
    steps_left: u64,
    is_exhausted: bool,
}

impl Evaluation {
    /// Converts the values of those variables that the conditions read.
    pub(super) fn new(input: &PolicyInput<'_>, names: &BTreeSet<String>, patterns: &Patterns, steps: u64) -> Self {
        let mut data = DataSize::default();
        let mut context = Context::with_env(Arc::clone(&STANDARD));
        patterns.register(&mut context);
        for name in names {
            let value = match name.as_str() {
                "actor" => record([
                    ("ref", text(input.actor.reference, &mut data)),
                    ("type", text(input.actor.kind, &mut data)),
                    ("groups", texts(input.actor.groups, &mut data)),
                    ("roles", texts(input.actor.roles, &mut data)),
                ]),
                "workload" => record([
                    ("slug", text(input.workload.slug, &mut data)),
                    ("owner_ref", text(input.workload.owner_ref, &mut data)),
                    ("workload_id", text(input.workload.workload_id, &mut data)),
                ]),
                "release" => record([
                    ("release_id", text(input.release.release_id, &mut data)),
                    ("state", text(input.release.state, &mut data)),
                    ("environment", text(input.release.environment, &mut data)),
                ]),
                "environment" => text(input.environment, &mut data),
                "lane" => text(input.lane, &mut data),
                "now" => cel::Value::Timestamp(now_value(input)),
                "inputs" => object(input.inputs, &mut data),
                // This is the name of a loop variable, whose value the loop itself sets.
                _ => continue,
            };
            context.add_variable_from_value(name.as_str(), value);
        }
        Self { context, patterns: patterns.clone(), data, steps_left: steps, is_exhausted: false }
    }

    /// The steps that remain; zero after an expression exceeded them.
    pub(super) const fn steps_left(&self) -> u64 {
        if self.is_exhausted { 0 } else { self.steps_left }
    }

    /// Evaluates whether the expression is true.
    ///
    /// # Errors
    /// When the expression fails, is not boolean, or exceeds the remaining steps.
    pub(super) fn try_evaluate(&mut self, expression: &IdedExpr) -> Result<bool, EvaluationError> {
        let Some(remaining) = self.steps_left.checked_sub(cost::estimate_steps(expression, self.data, &self.patterns))
        else {
            self.is_exhausted = true;
            return Err(EvaluationError::Other);
        };
        self.steps_left = remaining;
        match cel::Value::resolve(expression, &self.context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Err(cel::ExecutionError::NoSuchKey(name)) => Err(EvaluationError::MissingField(name.to_string())),
            Ok(_) | Err(_) => Err(EvaluationError::Other),
        }
    }
}

/// The reason why an expression yields no boolean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum EvaluationError {
    /// The expression reads a field with this name that the input does not have.
    MissingField(String),
    /// The types do not match, a function failed, or the steps are used up.
    Other,
}

fn now_value(input: &PolicyInput<'_>) -> DateTime<FixedOffset> {
    let micros = i64::try_from(input.now.micros()).unwrap_or(i64::MAX);
    DateTime::<Utc>::from_timestamp_micros(micros).unwrap_or(DateTime::<Utc>::MAX_UTC).fixed_offset()
}

fn record<const N: usize>(fields: [(&str, cel::Value); N]) -> cel::Value {
    let map: HashMap<Key, cel::Value> = fields.into_iter().map(|(name, value)| (Key::from(name), value)).collect();
    cel::Value::Map(CelMap { map: Arc::new(map) })
}

fn count(data: &mut DataSize, bytes: usize) {
    data.values = data.values.saturating_add(1);
    data.bytes = data.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
}

fn text(text: &str, data: &mut DataSize) -> cel::Value {
    count(data, text.len());
    cel::Value::String(Arc::new(text.to_owned()))
}

fn texts(list: &[String], data: &mut DataSize) -> cel::Value {
    cel::Value::List(Arc::new(list.iter().map(|item| text(item, data)).collect()))
}

fn object(members: &Map<String, Value>, data: &mut DataSize) -> cel::Value {
    let mut map = HashMap::with_capacity(members.len());
    for (key, member) in members {
        count(data, key.len());
        map.insert(Key::from(key.as_str()), value(member, data));
    }
    cel::Value::Map(CelMap { map: Arc::new(map) })
}

/// Converts a JSON value to a CEL value. Whole numbers become `int`, so that arithmetic with integer literals works;
/// numbers that are too large for it become `uint`.
fn value(json: &Value, data: &mut DataSize) -> cel::Value {
    match json {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => {
            count(data, 0);
            if let Some(integer) = number.as_i64() {
                cel::Value::Int(integer)
            } else if let Some(integer) = number.as_u64() {
                cel::Value::UInt(integer)
            } else {
                cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
            }
        }
        Value::String(string) => text(string, data),
        Value::Array(items) => {
            data.values = data.values.saturating_add(u64::try_from(items.len()).unwrap_or(u64::MAX));
            cel::Value::List(Arc::new(items.iter().map(|item| value(item, data)).collect()))
        }
        Value::Object(members) => object(members, data),
    }
}
