//! Deserializes a JSON value more strictly than `serde_json`: an array never becomes a struct.
//!
//! Exceptions are internally tagged and untagged enums and flattened structs, because serde buffers their values.
//! Inside such a buffer an array can still become a struct, and problems have no exact path.

use crate::http::deserialize_error::{DeserializeError, is_nonstandard_uuid};
use serde::{
    Deserializer,
    de::{
        DeserializeSeed, EnumAccess, Error as _, IntoDeserializer as _, VariantAccess, Visitor,
        value::{MapDeserializer, SeqDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::Value;

/// A strict deserializer of a JSON value.
#[derive(Clone, Copy)]
pub(super) struct StrictValue<'a>(pub(super) &'a Value);

impl<'de> serde::de::IntoDeserializer<'de, DeserializeError> for StrictValue<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for StrictValue<'_> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(integer), _, _) => visitor.visit_u64(integer),
                (None, Some(integer), _) => visitor.visit_i64(integer),
                (None, None, Some(float)) => visitor.visit_f64(float),
                (None, None, None) => Err(DeserializeError::Invalid),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(StrictValue));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(members) => {
                let mut members = MapDeserializer::new(members.iter().map(|(key, value)| (&**key, StrictValue(value))));
                let value = visitor.visit_map(&mut members)?;
                members.end()?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                visitor.visit_some(self)
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        if self.0.is_object() { self.deserialize_any(visitor) } else { Err(DeserializeError::Invalid) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(Variant { name, content: None }),
            Value::Object(members) => {
                let mut members = members.iter();
                match (members.next(), members.next()) {
                    (Some((name, content)), None) => visitor.visit_enum(Variant { name, content: Some(content) }),
                    (Some(_) | None, _) => Err(DeserializeError::Invalid),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Err(DeserializeError::Invalid),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.0.as_str().is_some_and(is_nonstandard_uuid) {
            Err(DeserializeError::Invalid)
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_integer(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_integer(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_integer(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        self.deserialize_integer(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i128 u8 u128 f32 f64 char string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

impl StrictValue<'_> {
    /// Deserializes an integer. By JSON Schema (2020-12, 4.2.3) a number with a fraction of zero is an integer: `22.0`.
    fn deserialize_integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        let float = self.0.as_f64().filter(|_| self.0.is_f64());
        let integer =
            float.filter(|float| float.fract() == 0.0).and_then(|float| format!("{float}").parse::<i64>().ok());
        match integer {
            Some(integer) => visitor.visit_i64(integer),
            None => self.deserialize_any(visitor),
        }
    }
}

/// An enum variant: `"name"`, or `{"name": content}`.
struct Variant<'a> {
    name: &'a str,
    content: Option<&'a Value>,
}

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = DeserializeError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), DeserializeError> {
        let name: StrDeserializer<'_, DeserializeError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl Variant<'_> {
    fn content(&self) -> Result<StrictValue<'_>, DeserializeError> {
        self.content.map(StrictValue).ok_or(DeserializeError::Invalid)
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        match self.content {
            None | Some(Value::Null) => Ok(()),
            Some(_) => Err(DeserializeError::custom("this variant has no content")),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, DeserializeError> {
        seed.deserialize(self.content()?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, DeserializeError> {
        self.content()?.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        self.content()?.deserialize_struct("", fields, visitor)
    }
}
