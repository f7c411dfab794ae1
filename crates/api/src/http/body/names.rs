//! Names that no request of a route may hold, anywhere and however they are written.
//!
//! They are looked for in the bytes as they came: twice the same name, escapes and nesting hide nothing from a reader that
//! takes every name as it comes.

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use std::{borrow::Cow, fmt, marker::PhantomData};

/// What a route does not let itself be told.
pub trait Names {
    /// Whether a request that holds a member of this name is refused for it.
    fn is_forbidden(name: &str) -> bool;
}

/// Whether a document holds a forbidden name. What is no JSON holds none: it is refused for that.
pub(super) fn hold<T: Names>(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Held<T>>(bytes).is_ok_and(|held| held.any)
}

struct Held<T> {
    any: bool,
    of: PhantomData<T>,
}

impl<'de, T: Names> Deserialize<'de> for Held<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Looking(PhantomData::<T>)).map(|any| Self { any, of: PhantomData })
    }
}

struct Looking<T>(PhantomData<T>);

impl<'de, T: Names> Visitor<'de> for Looking<T> {
    type Value = bool;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut any = false;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            any |= T::is_forbidden(&name);
            any |= map.next_value::<Held<T>>()?.any;
        }
        Ok(any)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<bool, A::Error> {
        let mut any = false;
        while let Some(held) = items.next_element::<Held<T>>()? {
            any |= held.any;
        }
        Ok(any)
    }

    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_str<E>(self, _: &str) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Actor;

    impl Names for Actor {
        fn is_forbidden(name: &str) -> bool {
            name == "actor"
        }
    }

    #[test]
    fn a_name_is_found_wherever_and_however_it_stands() {
        for body in [
            r#"{"actor":1}"#,
            r#"{"actor":null}"#,
            r#"{"actor":1,"actor":2}"#,
            r#"{"a":1,"a":2,"actor":2}"#,
            r#"{"\u0061ctor":1}"#,
            r#"{"a":{"actor":1}}"#,
            r#"{"a":[[{"actor":1}]]}"#,
            r#"[{"actor":1}]"#,
        ] {
            assert!(hold::<Actor>(body.as_bytes()), "{body}");
        }
        for body in
            [r#"{"a":"actor"}"#, r#"["actor"]"#, r#"{"a":1.5,"b":-1,"c":true,"d":null}"#, "{", r#"{"actor":1"#, ""]
        {
            assert!(!hold::<Actor>(body.as_bytes()), "{body}");
        }
    }
}
