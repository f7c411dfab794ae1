//! The memory budget for the values of a run.
//!
//! A short flow can create huge values. A step that repeats the previous output sixty times multiplies its size by
//! sixty. The output of six such steps exceeds the memory of any machine. A deadline cannot interrupt these steps,
//! because they await nothing. Each reference is therefore charged before its value is copied.

use serde_json::Value;

/// The overhead of a value beyond its text, in bytes. It is the size of two list slots, because a growing list can
/// allocate twice the capacity that it needs.
const VALUE_OVERHEAD: usize = 2 * size_of::<Value>();
/// The overhead of an object member beyond the text of its key and its value, in bytes.
const MEMBER_OVERHEAD: usize = 64;
/// The maximum nesting of values. Serializing, comparing and dropping a value are recursive, and each step can wrap the
/// previous output in one more level. A stored answer gets a few more levels, and its parser accepts at most 127.
pub const MAX_NESTING: usize = 120;

/// The remaining budget for the values of a run, in bytes. A value costs the larger of its size in memory and its
/// size as JSON text.
#[derive(Debug)]
pub struct ValueBudget {
    remaining: usize,
}

/// The values of a run exceed the budget, or a value is nested too deeply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the values of the run exceed its memory limit")]
pub struct ValueLimitExceeded;

impl ValueBudget {
    /// A budget of this number of bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self { remaining: bytes }
    }

    /// The number of bytes that can still be charged.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Charges a top-level value.
    ///
    /// # Errors
    /// When the budget is exhausted, or the value is nested too deeply.
    pub fn charge(&mut self, value: &Value) -> Result<(), ValueLimitExceeded> {
        self.charge_at(value, 0)
    }

    /// Charges a value that is nested `depth` levels deep. Stops when the budget is exhausted.
    pub(super) fn charge_at(&mut self, value: &Value, depth: usize) -> Result<(), ValueLimitExceeded> {
        self.charge_level(depth)?;
        match value {
            Value::String(text) => self.charge_text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.charge_at(item, depth + 1)),
            Value::Object(members) => members.iter().try_for_each(|(key, member)| {
                self.charge_key(key)?;
                self.charge_at(member, depth + 1)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    /// Charges the fixed overhead of a value that is nested `depth` levels deep, without its contents.
    pub(super) fn charge_level(&mut self, depth: usize) -> Result<(), ValueLimitExceeded> {
        if depth >= MAX_NESTING { Err(ValueLimitExceeded) } else { self.deduct(VALUE_OVERHEAD) }
    }

    pub(super) fn charge_key(&mut self, key: &str) -> Result<(), ValueLimitExceeded> {
        self.deduct(MEMBER_OVERHEAD)?;
        self.charge_text(key)
    }

    /// Charges the length of a text as JSON, in which a control character becomes six bytes.
    pub(super) fn charge_text(&mut self, text: &str) -> Result<(), ValueLimitExceeded> {
        let json_length = |byte: u8| match byte {
            b'"' | b'\\' | 0x08..=0x0a | 0x0c | 0x0d => 2,
            0x00..=0x1f => 6,
            _ => 1,
        };
        // A text costs at least its length, so an oversized text is refused without reading it.
        if text.len() > self.remaining {
            return Err(ValueLimitExceeded);
        }
        self.deduct(text.bytes().map(json_length).sum())
    }

    /// Charges a number of bytes.
    ///
    /// # Errors
    /// When the budget is exhausted.
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), ValueLimitExceeded> {
        self.deduct(bytes)
    }

    fn deduct(&mut self, bytes: usize) -> Result<(), ValueLimitExceeded> {
        self.remaining = self.remaining.checked_sub(bytes).ok_or(ValueLimitExceeded)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn cost_of(value: &Value) -> usize {
        let mut budget = ValueBudget::new(1 << 20);
        budget.charge(value).unwrap();
        (1 << 20) - budget.remaining()
    }

    #[test]
    fn charges_exact_cost() {
        let value = json!({ "a": ["b", 1, null], "c\n": "\u{1}\"" });
        let needed = cost_of(&value);
        assert!(ValueBudget::new(needed).charge(&value).is_ok());
        assert_eq!(ValueBudget::new(needed - 1).charge(&value), Err(ValueLimitExceeded));
    }

    #[test]
    fn limits_nesting_depth() {
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(ValueBudget::new(1 << 20).charge(&nested(MAX_NESTING)).is_ok());
        assert_eq!(ValueBudget::new(1 << 20).charge(&nested(MAX_NESTING + 1)), Err(ValueLimitExceeded));
    }

    #[test]
    fn deepest_value_survives_storage() {
        let stored = json!({ "output": [(1..MAX_NESTING).fold(json!(1), |inner, _| json!([inner]))], "metadata": {} });
        assert_eq!(serde_json::from_str::<Value>(&stored.to_string()).unwrap(), stored);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[\\x00-\\x7f\u{e9}\u{1f600}]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map("\\PC{0,8}", inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_text_never_exceeds_charge(value in any_value()) {
            prop_assert!(value.to_string().len() <= cost_of(&value), "{}", value);
        }
    }
}
