//! A deserializer that records each problem of a body and continues.

use super::{Diagnosis, FieldProblem, StructId, record_rule};
use crate::http::deserialize_error::{DeserializeError, one_of, truncate_path};
use fairway_domain::field_path::{push_index, push_member};
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess, VariantAccess, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

/// Placeholder for a value that must be an identifier.
const PLACEHOLDER_ID: &str = "00000000-0000-0000-0000-000000000000";

/// The path of a value, linked from the inside out.
#[derive(Clone, Copy)]
pub(super) enum ValuePath<'a> {
    Root,
    Member(&'a ValuePath<'a>, &'a str),
    Item(&'a ValuePath<'a>, usize),
}

impl ValuePath<'_> {
    /// The path as text, in the form of error responses.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(parent, name) => {
                let mut path = parent.path();
                push_member(&mut path, name);
                path
            }
            Self::Item(parent, index) => {
                let mut path = parent.path();
                push_index(&mut path, index);
                path
            }
        }
    }
}

/// A value to deserialize. Without a value, it yields a placeholder of any requested type.
#[derive(Clone, Copy)]
pub(super) struct RecordingDeserializer<'a> {
    pub(super) value: Option<&'a Value>,
    pub(super) at: &'a ValuePath<'a>,
    pub(super) notes: &'a Diagnosis,
}

impl<'a> RecordingDeserializer<'a> {
    /// The value, unless its type refused it in an earlier pass.
    fn value(&self) -> Option<&'a Value> {
        let value = self.value?;
        let refused_values = self.notes.refused.borrow();
        if refused_values.is_empty() {
            return Some(value);
        }
        match refused_values.get(&self.at.path()) {
            Some(problem) => {
                self.notes.add(|| problem.clone());
                None
            }
            None => Some(value),
        }
    }

    /// A placeholder at the same path.
    const fn placeholder(self) -> Self {
        Self { value: None, ..self }
    }

    fn record_result<V>(
        self,
        id: Option<StructId>,
        result: Result<V, DeserializeError>,
    ) -> Result<V, DeserializeError> {
        result.map_err(|error| record_rule(error, id, self))
    }

    /// Deserializes the value, and records a refusal by a rule of its type at this path.
    fn read<'de, S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DeserializeError> {
        self.record_result(None, seed.deserialize(self))
    }

    /// Converts the value to the requested type, and records a mismatch.
    fn value_as<F>(&self, convert: impl FnOnce(&'a Value) -> Option<F>) -> Option<F> {
        let value = self.value()?;
        let converted = convert(value);
        if converted.is_none() {
            self.notes.add_invalid(self.at);
        }
        converted
    }

    /// Reads an integer within bounds. A number such as `22.0` counts as an integer.
    fn bounded_integer(&self, minimum: i128, maximum: i128) -> i128 {
        let convert = |value: &Value| {
            let integer = value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
            let float = || value.as_f64().filter(|float| float.fract() == 0.0);
            let integer = integer.or_else(|| format!("{}", float()?).parse().ok());
            integer.filter(|integer| (minimum..=maximum).contains(integer))
        };
        self.value_as(convert).unwrap_or(1)
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident $type:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
            let integer = self.bounded_integer($type::MIN.into(), $type::MAX.into());
            self.record_result(None, visitor.$visit($type::try_from(integer).unwrap_or(1)))
        }
    )*};
}

impl<'de, 'a> Deserializer<'de> for RecordingDeserializer<'a> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let result = match self.value() {
            None | Some(Value::Null) => visitor.visit_unit(),
            Some(Value::Bool(value)) => visitor.visit_bool(*value),
            Some(Value::Number(number)) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(integer), _, _) => visitor.visit_u64(integer),
                (None, Some(integer), _) => visitor.visit_i64(integer),
                (None, None, float) => visitor.visit_f64(float.unwrap_or_default()),
            },
            Some(Value::String(text)) => visitor.visit_str(text),
            Some(Value::Array(items)) => visitor.visit_seq(Items::of(items, self)),
            Some(Value::Object(members)) => visitor.visit_map(Members::of(Some(members), self, None)),
        };
        self.record_result(None, result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let value = self.value_as(Value::as_bool).unwrap_or_default();
        self.record_result(None, visitor.visit_bool(value))
    }

    whole_numbers! {
        deserialize_i8 visit_i8 i8
        deserialize_i16 visit_i16 i16
        deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64
        deserialize_u8 visit_u8 u8
        deserialize_u16 visit_u16 u16
        deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let value = self.value_as(Value::as_f64).unwrap_or(1.0);
        self.record_result(None, visitor.visit_f64(value))
    }

    /// Identifiers are the only request types that deserialize borrowed text, so any other text is a mismatch.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let is_identifier = |text: &&str| text.len() == PLACEHOLDER_ID.len() && uuid::Uuid::try_parse(text).is_ok();
        let text = self.value_as(|value| value.as_str().filter(is_identifier));
        self.record_result(None, visitor.visit_str(text.unwrap_or(PLACEHOLDER_ID)))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let text = self.value_as(Value::as_str).unwrap_or_default();
        self.record_result(None, visitor.visit_str(text))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.value {
            None | Some(Value::Null) => visitor.visit_none(),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_)) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let items = self.value_as(Value::as_array);
        self.record_result(None, visitor.visit_seq(Items::of(items.map(Vec::as_slice).unwrap_or_default(), self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let members = self.value_as(Value::as_object);
        self.record_result(None, visitor.visit_map(Members::of(members, self, None)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let members = self.value_as(Value::as_object);
        let struct_id = (name, fields.as_ptr().addr());
        self.record_result(Some(struct_id), visitor.visit_map(Members::of(members, self, Some((struct_id, fields)))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let is_variant = |name: &str| variants.contains(&name);
        let variant = match self.value() {
            Some(Value::String(name)) if is_variant(name) => Some(Variant { name, content: self.placeholder() }),
            Some(Value::Object(members)) => {
                let (mut members, is_single) = (members.iter(), members.len() == 1);
                let first = members.next().filter(|(name, _)| is_single && is_variant(name));
                first.map(|(name, content)| Variant { name, content: Self { value: Some(content), ..self } })
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => None,
        };
        if variant.is_none() && self.value.is_some_and(Value::is_string) {
            self.notes.add(|| FieldProblem::new(truncate_path(self.at.path()), "invalid", one_of(variants)));
        } else if variant.is_none() && self.value.is_some() {
            self.notes.add_invalid(self.at);
        }
        let fallback = || Variant { name: variants.first().copied().unwrap_or_default(), content: self.placeholder() };
        self.record_result(None, visitor.visit_enum(variant.unwrap_or_else(fallback)))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

/// The items of an array.
struct Items<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
    parent: RecordingDeserializer<'a>,
}

impl<'a> Items<'a> {
    fn of(items: &'a [Value], parent: RecordingDeserializer<'a>) -> Self {
        Self { items: items.iter().enumerate(), parent }
    }
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = DeserializeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DeserializeError> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let at = ValuePath::Item(self.parent.at, index);
        RecordingDeserializer { value: Some(value), at: &at, notes: self.parent.notes }.read(seed).map(Some)
    }
}

/// The members of an object. Members unknown to the struct are left out; required members that are absent are
/// added.
struct Members<'a> {
    members: Option<serde_json::map::Iter<'a>>,
    required: Vec<&'static str>,
    known_fields: Option<&'static [&'static str]>,
    next: Option<(&'a str, Option<&'a Value>)>,
    parent: RecordingDeserializer<'a>,
}

impl<'a> Members<'a> {
    fn of(
        members: Option<&'a Map<String, Value>>,
        parent: RecordingDeserializer<'a>,
        struct_type: Option<(StructId, &'static [&'static str])>,
    ) -> Self {
        let notes = parent.notes;
        let is_required = |id: StructId, field| notes.required.borrow().contains(&(id, field));
        let is_absent = |field: &str| members.is_none_or(|members| !members.contains_key(field));
        let mut required = Vec::new();
        if let Some((id, fields)) = struct_type {
            let absent = fields.iter().copied().filter(|field| is_absent(field) && is_required(id, field));
            required.extend(absent);
            // A value of another type is already recorded as invalid.
            if members.is_some() {
                for field in &required {
                    notes.add(|| FieldProblem::missing(truncate_path(ValuePath::Member(parent.at, field).path())));
                }
            }
        }
        required.reverse();
        let known_fields =
            struct_type.filter(|(id, _)| notes.strict_types.borrow().contains(id)).map(|(_, fields)| fields);
        Self { members: members.map(Map::iter), required, known_fields, next: None, parent }
    }

    fn advance(&mut self) -> Option<(&'a str, Option<&'a Value>)> {
        for (name, value) in self.members.as_mut()?.by_ref() {
            if self.known_fields.is_none_or(|fields| fields.contains(&name.as_str())) {
                return Some((name.as_str(), Some(value)));
            }
            let (notes, at) = (self.parent.notes, self.parent.at);
            notes.add(|| {
                let path = truncate_path(ValuePath::Member(at, name).path());
                FieldProblem::new(path, "unknown_field", "there is no such field")
            });
        }
        None
    }
}

impl<'de> MapAccess<'de> for Members<'_> {
    type Error = DeserializeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DeserializeError> {
        self.next = self.advance().or_else(|| self.required.pop().map(|field| (field, None)));
        let Some((name, _)) = self.next else { return Ok(None) };
        let name: StrDeserializer<'_, DeserializeError> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DeserializeError> {
        let (name, value) = self.next.take().ok_or(DeserializeError::Invalid)?;
        let at = ValuePath::Member(self.parent.at, name);
        RecordingDeserializer { value, at: &at, notes: self.parent.notes }.read(seed)
    }
}

/// A variant of an enum, with its content.
struct Variant<'a> {
    name: &'a str,
    content: RecordingDeserializer<'a>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = DeserializeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DeserializeError> {
        let name: StrDeserializer<'_, DeserializeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl Variant<'_> {
    /// Reads the content at the path of the variant.
    fn with_content<V>(
        &self,
        read: impl FnOnce(RecordingDeserializer<'_>) -> Result<V, DeserializeError>,
    ) -> Result<V, DeserializeError> {
        let at = ValuePath::Member(self.content.at, self.name);
        read(RecordingDeserializer { at: &at, ..self.content })
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        if self.content.value.is_some_and(|value| !value.is_null()) {
            self.content.notes.add_invalid(self.content.at);
        }
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DeserializeError> {
        self.with_content(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DeserializeError> {
        self.with_content(|content| content.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        self.with_content(|content| content.deserialize_struct("", fields, visitor))
    }
}
