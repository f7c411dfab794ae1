//! Query parameters of a request.

use super::deserialize_error::{self, DeserializeError, is_nonstandard_uuid};
use crate::error::{ApiError, FieldProblem};
use actix_web::{FromRequest, HttpRequest, dev::Payload};
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, IntoDeserializer, Visitor,
        value::{MapDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{
    collections::BTreeMap,
    future::{Ready, ready},
    ops::Deref,
    str::FromStr,
};

pub(crate) const SHARE_TOKEN_PARAMETER: &str = "token";

/// Extracts the query as a `T`. Parameters that `T` does not have are ignored.
///
/// Errors, all 422 with the parameter's name: invalid percent-encoding or UTF-8, a NUL, an invalid value, or a
/// repeated parameter. A repeated parameter is refused, because a proxy and this server could each use another
/// value.
#[derive(Debug)]
pub struct Query<T>(T);

impl<T> Query<T> {
    /// Returns the deserialized parameters.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(parse_query(request.query_string()).map(Self).map_err(ApiError::invalid_field))
    }
}

/// Deserializes a query as a `T`.
///
/// # Errors
/// With the first invalid parameter.
pub fn parse_query<T: DeserializeOwned>(query: &str) -> Result<T, FieldProblem> {
    deserialize_parameters(&parameters(query)?)
}

pub(super) fn deserialize_parameters<'a, T: DeserializeOwned>(
    parameters: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<T, FieldProblem> {
    let members = parameters.into_iter().map(|(name, value)| (&**name, ParameterValue(value)));
    serde_path_to_error::deserialize(MapDeserializer::new(members)).map_err(deserialize_error::to_field_problem)
}

/// The decoded parameters by name.
pub(crate) fn parameters(query: &str) -> Result<BTreeMap<String, String>, FieldProblem> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(name).ok_or_else(|| FieldProblem::invalid(""))?;
        let value = match decode(value) {
            Some(value) => value,
            // A share token that cannot be decoded is refused like every other wrong token. No token contains `%`, and
            // every text that cannot be decoded does.
            None if name == SHARE_TOKEN_PARAMETER => value.to_owned(),
            None => return Err(FieldProblem::invalid(name)),
        };
        if parameters.insert(name.clone(), value).is_some() {
            return Err(FieldProblem::new(name, "invalid", "this parameter occurs more than once"));
        }
    }
    Ok(parameters)
}

/// Decodes form encoding: `+` for a space, `%` and two digits for a byte. `None` if it is malformed, not UTF-8, or
/// contains a NUL.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut remaining = text.bytes();
    while let Some(byte) = remaining.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => hex_digit(remaining.next()?)? << 4 | hex_digit(remaining.next()?)?,
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Deserializer of one parameter's text.
struct ParameterValue<'a>(&'a str);

impl ParameterValue<'_> {
    fn parse<N: FromStr>(&self) -> Result<N, DeserializeError> {
        // `parse` would accept a leading plus sign.
        if self.0.starts_with('+') {
            return Err(DeserializeError::Invalid);
        }
        self.0.parse().map_err(|_| DeserializeError::Invalid)
    }
}

impl<'de> IntoDeserializer<'de, DeserializeError> for ParameterValue<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
            visitor.$visit(self.parse()?)
        }
    )*};
}

impl<'de> Deserializer<'de> for ParameterValue<'_> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_str(self.0)
    }

    numbers! {
        deserialize_bool visit_bool, deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32,
        deserialize_u64 visit_u64, deserialize_i8 visit_i8, deserialize_i16 visit_i16, deserialize_i32 visit_i32,
        deserialize_i64 visit_i64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_some(self)
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
        let name: StrDeserializer<'_, DeserializeError> = self.0.into_deserializer();
        visitor.visit_enum(name)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if is_nonstandard_uuid(self.0) { Err(DeserializeError::Invalid) } else { visitor.visit_str(self.0) }
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use uuid::Uuid;

    #[derive(Deserialize, PartialEq, Debug, Default)]
    struct Filter {
        q: Option<String>,
        limit: Option<u32>,
        depth: Option<i64>,
        exact: Option<bool>,
        kind: Option<Kind>,
        workspace_id: Option<Uuid>,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        PolicyBundle,
    }

    #[derive(Deserialize, Debug)]
    struct Required {
        workspace_id: Uuid,
    }

    #[test]
    fn deserializes_parameters() {
        assert_eq!(parse_query::<Filter>("").unwrap(), Filter::default());
        let text = "q=a%20b%2Bc+d%C3%A9&&limit=5&depth=-3&exact=true&kind=policy_bundle&other=1";
        let expected = Filter {
            q: Some("a b+c dé".to_owned()),
            limit: Some(5),
            depth: Some(-3),
            exact: Some(true),
            kind: Some(Kind::PolicyBundle),
            workspace_id: None,
        };
        assert_eq!(parse_query::<Filter>(text).unwrap(), expected);
        assert_eq!(parse_query::<Filter>("q").unwrap().q.unwrap(), "");
        let id = Uuid::now_v7();
        assert_eq!(parse_query::<Required>(&format!("workspace_id={id}")).unwrap().workspace_id, id);
    }

    #[test]
    fn reports_the_invalid_parameter() {
        for (text, path) in [
            ("limit=1&limit=2", "limit"),
            ("limit=1&l%69mit=2", "limit"),
            ("limit=", "limit"),
            ("limit=-1", "limit"),
            ("limit=%2B1", "limit"),
            ("limit=1000000000000", "limit"),
            ("limit=1e1", "limit"),
            ("exact=yes", "exact"),
            ("kind=nothing", "kind"),
            ("workspace_id=x", "workspace_id"),
            ("workspace_id=00000000000070008000000000000001", "workspace_id"),
            ("workspace_id=%7B00000000-0000-7000-8000-000000000001%7D", "workspace_id"),
            ("workspace_id=urn:uuid:00000000-0000-7000-8000-000000000001", "workspace_id"),
            ("q=%ff", "q"),
            ("q=%00", "q"),
            ("q=%2", "q"),
            ("q=%+1", "q"),
            ("%ff=1", ""),
        ] {
            let problem = parse_query::<Filter>(text).unwrap_err();
            assert_eq!((problem.path.as_str(), problem.code), (path, "invalid"), "{text}");
        }
        let problem = parse_query::<Required>("q=1").unwrap_err();
        assert_eq!((problem.path.as_str(), problem.code), ("workspace_id", "missing"));
    }
}
