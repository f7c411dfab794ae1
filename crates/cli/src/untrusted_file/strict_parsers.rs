//! Parses JSON and YAML strictly: refuses duplicate keys, and numbers that JSON cannot represent. The parsing
//! libraries accept both.

use crate::failure::{Finding, Position};
use fairway_domain::yaml_syntax;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The reason why a text is not a valid value.
#[derive(Debug)]
pub(super) struct Fault {
    position: Option<Position>,
    code: &'static str,
    message: &'static str,
}

/// Error messages of the visitor. The parsing libraries return errors only as text, so this module recognizes the
/// reason by these messages.
const DUPLICATE_KEY: &str = "a mapping contains a key twice";
const NOT_YAML: &str = "the text is not valid YAML here; an unclosed quote or bracket may begin above";
const NUMBER_OUT_OF_RANGE: &str = "a number is out of range";

impl Fault {
    const fn new(position: Position, code: &'static str, message: &'static str) -> Self {
        Self { position: Some(position), code, message }
    }

    pub(super) const fn syntax(position: Position) -> Self {
        Self::new(position, "yaml_syntax", NOT_YAML)
    }

    pub(super) const fn empty(position: Position) -> Self {
        Self::new(position, "yaml_syntax", "the text has no document")
    }

    pub(super) const fn second_document(position: Position) -> Self {
        Self::new(position, "yaml_syntax", "a second document begins here, and a file has one")
    }

    pub(super) const fn expansion(position: Position) -> Self {
        Self::new(position, "yaml_expansion", "the document is too large with its aliases expanded")
    }

    pub(super) const fn too_deep(position: Position) -> Self {
        Self::new(position, "yaml_too_deep", "the document is nested more than 64 levels deep")
    }

    pub(super) const fn tag(position: Position) -> Self {
        Self::new(position, "yaml_tag", "tags are not allowed")
    }

    pub(super) const fn key(position: Position) -> Self {
        Self::new(position, "yaml_key_no_text", "a key must be a string")
    }

    pub(super) const fn duplicate_key(position: Position) -> Self {
        Self::new(position, "yaml_duplicate_key", DUPLICATE_KEY)
    }

    /// Replaces the message and the position of a syntax error by those of its likely cause, if the text shows one.
    pub(super) fn diagnosed(self, text: &str) -> Self {
        let line = self.position.filter(|_| self.message == NOT_YAML).map(|position| position.line);
        let Some(cause) = line.and_then(|line| yaml_syntax::likely_cause(text, line)) else { return self };
        Self::new(Position { line: cause.line, column: cause.column }, self.code, cause.message)
    }

    pub(super) fn in_file(self, file: &str) -> Finding {
        Finding::whole(file, self.code, self.message).at(self.position)
    }
}

/// Parses JSON, and refuses duplicate keys and unrepresentable numbers.
pub(super) fn parse_json(text: &str) -> Result<Value, Fault> {
    let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let result: Result<StrictValue, serde_json::Error> = serde_json::from_str(text);
    result.map(|strict| strict.0).map_err(|error| Fault {
        position: Some(Position { line: to_u32(error.line().max(1)), column: to_u32(error.column().max(1)) }),
        code: "malformed_json",
        message: if error.to_string().starts_with(DUPLICATE_KEY) {
            DUPLICATE_KEY
        } else {
            "the text is not valid JSON"
        },
    })
}

/// Parses YAML, and refuses duplicate keys and unrepresentable numbers.
pub(super) fn parse_yaml(text: &str) -> Result<Value, Fault> {
    let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let result: Result<StrictValue, serde_yaml::Error> = serde_yaml::from_str(text);
    result.map(|strict| strict.0).map_err(|error| {
        let position = error.location().map(|location| Position {
            line: to_u32(location.line().max(1)),
            column: to_u32(location.column().max(1)),
        });
        let error_text = error.to_string();
        let (code, message) = if error_text.contains(DUPLICATE_KEY) {
            ("yaml_duplicate_key", DUPLICATE_KEY)
        } else if error_text.contains(NUMBER_OUT_OF_RANGE) {
            ("yaml_number", NUMBER_OUT_OF_RANGE)
        } else {
            ("yaml_syntax", NOT_YAML)
        };
        Fault { position: Some(position.unwrap_or(Position::START)), code, message }
    })
}

/// A value without duplicate keys.
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom(NUMBER_OUT_OF_RANGE))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(DUPLICATE_KEY));
            }
            let StrictValue(value) = members.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
