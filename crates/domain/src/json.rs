//! A strict JSON parser for texts that two programs must interpret alike (RFC 7493). It refuses duplicate names, lone
//! surrogates, integers that would be rounded, and trailing text. It also refuses deep nesting, and NUL characters,
//! which PostgreSQL cannot store. It parses request bodies, and model responses that must be JSON.

mod parse_memory_bound;

pub use parse_memory_bound::max_heap_bytes;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::{cell::Cell, fmt};

/// The maximum nesting of arrays and objects.
const MAX_DEPTH: usize = 64;
/// The maximum number of values in a text, at all depths together.
const MAX_VALUES: usize = 100_000;
/// The maximum memory of the parsed values, in bytes. A limit on the length of the text does not suffice, because
/// values need much more memory than their text: `{"a":1}` needs a hundred times as much. A request can have several
/// copies of its values at once.
const MAX_HEAP_BYTES: usize = 8 << 20;
/// The memory of a value without its heap allocations, in bytes.
const VALUE_BYTES: usize = size_of::<Value>();
/// The overhead of an allocation, in bytes.
const ALLOCATION_BYTES: usize = 16;
/// The lowest magnitude at which the parser may have converted an integer to a float: 2^63, the magnitude of the
/// smallest 64-bit integer.
const INTEGER_BOUND: f64 = 9_223_372_036_854_775_808.0;
/// The memory of a node in the map of an object. A node has room for eleven members; if the keys arrive in order, six
/// of them are used.
const MAP_NODE_BYTES: usize = 11 * (size_of::<String>() + VALUE_BYTES) + ALLOCATION_BYTES;
const MAP_NODE_MEMBERS: usize = 6;

/// The reason why a text is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonRefusal {
    /// The text is not valid JSON, programs could interpret it differently, or it contains a value that cannot be
    /// stored.
    #[error("the text is not JSON that the parser accepts")]
    Malformed,
    /// The text has too many values, or its values need too much memory.
    #[error("the text has too many values or takes too much memory")]
    TooLarge,
}

/// Parses one JSON value of at most 100,000 values, 64 levels and 8 MiB of memory.
///
/// # Errors
/// See [`JsonRefusal`].
pub fn read(bytes: &[u8]) -> Result<Value, JsonRefusal> {
    read_measured(bytes).map(|(value, _)| value)
}

/// Parses like [`read`], and also returns the estimated memory of the value, in bytes.
///
/// # Errors
/// See [`JsonRefusal`].
pub fn read_measured(bytes: &[u8]) -> Result<(Value, usize), JsonRefusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| JsonRefusal::Malformed)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let budget = Budget {
        values: Cell::new(MAX_VALUES),
        heap_bytes: Cell::new(MAX_HEAP_BYTES),
        may_be_rounded: Cell::new(false),
    };
    let value = StrictVisitor { depth: MAX_DEPTH, budget: &budget }
        .deserialize(&mut reader)
        .map_err(|_| if budget.is_spent() { JsonRefusal::TooLarge } else { JsonRefusal::Malformed })?;
    reader.end().map_err(|_| JsonRefusal::Malformed)?;
    // The parser converts an integer that does not fit into 64 bits to a float, and loses digits. Only the text shows
    // that the number was an integer.
    if budget.may_be_rounded.get() && contains_wide_integer(text) {
        return Err(JsonRefusal::Malformed);
    }
    Ok((value, MAX_HEAP_BYTES.saturating_sub(budget.heap_bytes.get())))
}

/// Whether this well-formed JSON text contains an integer that does not fit into 64 bits.
fn contains_wide_integer(text: &str) -> bool {
    let mut quoted = false;
    for piece in text.split('"') {
        if !quoted && number_tokens(piece).any(is_wide_integer) {
            return true;
        }
        // Inside a string, a quotation mark after an odd number of backslashes is escaped and does not end the
        // string.
        let escaped = quoted && piece.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        quoted = escaped || !quoted;
    }
    false
}

fn number_tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !matches!(character, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
        .filter(|token| !token.is_empty())
}

fn is_wide_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.parse::<i64>().is_err()
        && number.parse::<u64>().is_err()
        && !digits.is_empty()
}

/// The values and memory that parsing a document may still use.
struct Budget {
    values: Cell<usize>,
    heap_bytes: Cell<usize>,
    /// Whether a parsed float may have been an integer in the text.
    may_be_rounded: Cell<bool>,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.values.get() == 0 || self.heap_bytes.get() == 0
    }

    fn spend<E: serde::de::Error>(&self, values: usize, heap_bytes: usize) -> Result<(), E> {
        self.values.set(self.values.get().saturating_sub(values));
        self.heap_bytes.set(self.heap_bytes.get().saturating_sub(heap_bytes));
        if self.is_spent() { Err(E::custom("over budget")) } else { Ok(()) }
    }
}

/// Parses one value within the budget; its contents may nest `depth` levels deep.
#[derive(Clone, Copy)]
struct StrictVisitor<'c> {
    depth: usize,
    budget: &'c Budget,
}

impl StrictVisitor<'_> {
    fn nested<E: serde::de::Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("nested too deeply"))?;
        Ok(Self { depth, ..self })
    }
}

fn reject_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("a text contains NUL")) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.budget.spend(1, VALUE_BYTES)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.abs() >= INTEGER_BOUND {
            self.budget.may_be_rounded.set(true);
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        reject_nul(text)?;
        self.budget.spend(0, text.len() + ALLOCATION_BYTES)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let nested = self.nested()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(nested)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let nested = self.nested()?;
        let mut object = Map::new();
        // Escapes in keys are already decoded here, so `"a"` and `"\u0061"` count as equal.
        while let Some(key) = members.next_key::<String>()? {
            reject_nul(&key)?;
            let node = if object.len().is_multiple_of(MAP_NODE_MEMBERS) { MAP_NODE_BYTES } else { 0 };
            self.budget.spend(0, key.len() + ALLOCATION_BYTES + node)?;
            let value = members.next_value_seed(nested)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("duplicate name in an object"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// Generates JSON values that include texts with escapes, empty containers, and objects of several map nodes.
    pub(super) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a\"\\\\{},:é\n]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 120, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map("[a-d\"{]{0,3}", inner, 0..20)
                    .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    #[test]
    fn accepts_unambiguous_json() {
        let text = r#" {"a": [null, true, -1, 18446744073709551615, 1.5, 1e2, "é\ud83d\ude00\u0001"], "": {}} "#;
        let expected = json!({"a": [null, true, -1, 18_446_744_073_709_551_615_u64, 1.5, 100.0, "é😀\u{1}"], "": {}});
        assert_eq!(read(text.as_bytes()).unwrap(), expected);
        // Floats of any magnitude are accepted, and so are strings of any digits.
        let text = r#"{"18446744073709551616": [1e20, 18446744073709551616.0, "\\\"18446744073709551616, -1E+300"]}"#;
        assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn rejects_ambiguous_or_malformed_json() {
        for text in [
            &b""[..],
            b"  ",
            b"\xef\xbb\xbf{}",
            b"{\"a\": 1, \"a\": 2}",
            b"{\"a\": 1, \"\\u0061\": 2}",
            b"{\"x\": {\"a\": 1, \"b\": 2, \"a\": 1}}",
            b"\"\\ud800\"",
            b"\"\\udc00\\ud800\"",
            b"{\"\\ud800\": 1}",
            b"\"\\u0000\"",
            b"{\"\\u0000\": 1}",
            b"\"\x00\"",
            b"\"\xff\"",
            b"{\"\xc3\x28\": 1}",
            b"[1,]",
            b"{\"a\": [\"x\", 18446744073709551616]}",
            b"-9223372036854775809",
            b"[\"\\\\\", 100000000000000000000]",
            b"{\"a\": 1,}",
            b"NaN",
            b"Infinity",
            b"1e400",
            b"01",
            b"+1",
            b"'a'",
            b"{} {}",
            b"{}x",
            b"[1",
            b"/* a */ {}",
        ] {
            let refusal = read(text).unwrap_err();
            assert_eq!(refusal, JsonRefusal::Malformed, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn bounds_the_number_of_values() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(read(list(MAX_VALUES - 2).as_bytes()).is_ok());
        assert_eq!(read(list(MAX_VALUES).as_bytes()).unwrap_err(), JsonRefusal::TooLarge);
        let members: Vec<String> = (0..MAX_VALUES).map(|index| format!("\"{index}\":0")).collect();
        let object = format!("{{{}}}", members.join(","));
        assert_eq!(read(object.as_bytes()).unwrap_err(), JsonRefusal::TooLarge);
        assert_eq!(read(b"[1,").unwrap_err(), JsonRefusal::Malformed);
    }

    #[test]
    fn bounds_heap_bytes() {
        let list = |item: &str, count: usize| format!("[{}{item}]", format!("{item},").repeat(count - 1));
        assert!(read(list("{\"a\":1}", 10_000).as_bytes()).is_ok());
        assert!(read(list(&format!("\"{}\"", "x".repeat(70)), 50_000).as_bytes()).is_ok());
        assert!(read(format!("\"{}\"", "x".repeat(4 << 20)).as_bytes()).is_ok());
        for (item, count) in [("{\"a\":1}", 20_000), ("{\"a\":{}}", 20_000), ("[\"a\",{\"a\":\"\"}]", 20_000)] {
            assert_eq!(read(list(item, count).as_bytes()).unwrap_err(), JsonRefusal::TooLarge, "{item}");
        }
        assert_eq!(read(format!("\"{}\"", "x".repeat(MAX_HEAP_BYTES)).as_bytes()).unwrap_err(), JsonRefusal::TooLarge);
    }

    #[test]
    fn bounds_nesting_depth() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(read(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(read(nested(100_000).as_bytes()).is_err());
        let objects = format!("{}1{}", "{\"a\":".repeat(MAX_DEPTH + 1), "}".repeat(MAX_DEPTH + 1));
        assert!(read(objects.as_bytes()).is_err());
    }
}
