//! How much the values of one run may take together.
//!
//! A flow is short and what it makes can be long: a step that writes the output before it sixty times grows it sixtyfold,
//! and six such steps in a row are more than any machine has. Nothing of that waits for anything, so no deadline ends it.
//! Whatever a reference copies is therefore paid for before it is copied.

use serde_json::Value;

/// What one value takes beside its text: two of its slots, because a list that grows may have twice the slots it needs.
const VALUE: usize = 2 * size_of::<Value>();
/// What a member of an object takes beside its key's text and its value.
const MEMBER: usize = 64;
/// Most values inside one another. Whoever writes, compares or drops a value goes down in it, and each step of a flow
/// can wrap the output before it once more. What is stored wraps an answer again, and is read back by a parser that goes
/// 127 deep.
pub const MAX_NESTING: usize = 120;

/// What is left of the room for the values of one run, in bytes: as much as a value takes in memory or as JSON text,
/// whichever is more.
#[derive(Debug)]
pub struct Allowance {
    left: usize,
}

/// The values of a run take more room than they have, or one is nested too deep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the values of the run take more room than a run has")]
pub struct Exhausted;

impl Allowance {
    /// Room of so many bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// How much is left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Takes what a value needs that stands by itself.
    ///
    /// # Errors
    /// When there is not as much, or the value is nested too deep.
    pub fn take_for(&mut self, value: &Value) -> Result<(), Exhausted> {
        self.take_at(value, 0)
    }

    /// Takes what a value needs that stands `above` levels deep in another. Goes no further than there is room.
    pub(super) fn take_at(&mut self, value: &Value, above: usize) -> Result<(), Exhausted> {
        self.take_level(above)?;
        match value {
            Value::String(text) => self.take_text(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.take_at(item, above + 1)),
            Value::Object(members) => members.iter().try_for_each(|(key, member)| {
                self.take_key(key)?;
                self.take_at(member, above + 1)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    /// Takes what a value needs beside what is in it.
    pub(super) fn take_level(&mut self, above: usize) -> Result<(), Exhausted> {
        if above >= MAX_NESTING { Err(Exhausted) } else { self.take(VALUE) }
    }

    pub(super) fn take_key(&mut self, key: &str) -> Result<(), Exhausted> {
        self.take(MEMBER)?;
        self.take_text(key)
    }

    /// Takes what a text needs as JSON: an answer is stored as that, and there a control character has six.
    pub(super) fn take_text(&mut self, text: &str) -> Result<(), Exhausted> {
        let written = |byte: u8| match byte {
            b'"' | b'\\' | 0x08..=0x0a | 0x0c | 0x0d => 2,
            0x00..=0x1f => 6,
            _ => 1,
        };
        // No byte needs less than one, so a text that is too long need not be looked at.
        if text.len() > self.left {
            return Err(Exhausted);
        }
        self.take(text.bytes().map(written).sum())
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// When there are not as many.
    pub fn take_bytes(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.take(bytes)
    }

    fn take(&mut self, bytes: usize) -> Result<(), Exhausted> {
        self.left = self.left.checked_sub(bytes).ok_or(Exhausted)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn room(value: &Value) -> usize {
        let mut allowance = Allowance::of(1 << 20);
        allowance.take_for(value).unwrap();
        (1 << 20) - allowance.left()
    }

    #[test]
    fn there_is_room_for_as_much_as_there_is_and_no_byte_more() {
        let value = json!({ "a": ["b", 1, null], "c\n": "\u{1}\"" });
        let needed = room(&value);
        assert!(Allowance::of(needed).take_for(&value).is_ok());
        assert_eq!(Allowance::of(needed - 1).take_for(&value), Err(Exhausted));
    }

    #[test]
    fn values_are_nested_so_deep_and_no_deeper() {
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert!(Allowance::of(1 << 20).take_for(&nested(MAX_NESTING)).is_ok());
        assert_eq!(Allowance::of(1 << 20).take_for(&nested(MAX_NESTING + 1)), Err(Exhausted));
    }

    #[test]
    fn what_there_is_room_for_is_read_back_as_it_is_stored() {
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
        fn a_value_never_takes_more_as_text_than_was_taken_for_it(value in any_value()) {
            prop_assert!(value.to_string().len() <= room(&value), "{}", value);
        }
    }
}
