//! Parameters of statements, and the SQL types of their values.

use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A statement parameter as the driver accepts it.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// A parameter value that a statement owns until it is sent.
#[derive(Debug)]
pub(crate) struct ParamValue<'v>(Box<dyn ToSql + Sync + Send + 'v>);

impl<'v> ParamValue<'v> {
    /// Wraps a single value.
    pub(crate) fn new<T: SqlValue + 'v>(value: T) -> Self {
        Self(Box::new(value))
    }

    /// Wraps the elements of an array.
    pub(crate) fn array<T: SqlValue + 'v>(values: Vec<T>) -> Self {
        Self(Box::new(values))
    }

    pub(crate) fn param(&self) -> Param<'_> {
        &*self.0
    }
}

/// A value of a parameter, with the SQL type of its column in `input`.
pub(crate) trait SqlValue: ToSql + Sync + Send {
    /// The SQL type.
    const TYPE: &'static str;
    /// The SQL type of an array of these values.
    const ARRAY: &'static str;
}

macro_rules! sql_values {
    ($($type:ty => $name:literal),* $(,)?) => {$(
        impl SqlValue for $type {
            const TYPE: &'static str = $name;
            const ARRAY: &'static str = concat!($name, "[]");
        }
    )*};
}

sql_values! {
    bool => "boolean",
    i16 => "smallint",
    i32 => "integer",
    i64 => "bigint",
    f32 => "real",
    f64 => "double precision",
    &str => "text",
    String => "text",
    &String => "text",
    Uuid => "uuid",
    OffsetDateTime => "timestamptz",
    &[u8] => "bytea",
    Vec<u8> => "bytea",
    &Vec<u8> => "bytea",
    serde_json::Value => "jsonb",
    &serde_json::Value => "jsonb",
}

impl<T: SqlValue> SqlValue for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const ARRAY: &'static str = T::ARRAY;
}

/// Encodes texts as an array literal of PostgreSQL, for a column that has a list in each row. Such a column cannot be
/// an array parameter, because `unnest` would flatten it, and PostgreSQL reads literals faster than the elements of
/// JSON arrays. `None` becomes null.
pub(crate) fn array_literal<T: AsRef<str>>(texts: impl IntoIterator<Item = Option<T>>) -> String {
    let mut literal = String::from("{");
    for (position, text) in texts.into_iter().enumerate() {
        if position > 0 {
            literal.push(',');
        }
        let Some(text) = text else {
            literal.push_str("NULL");
            continue;
        };
        literal.push('"');
        for character in text.as_ref().chars() {
            if matches!(character, '"' | '\\') {
                literal.push('\\');
            }
            literal.push(character);
        }
        literal.push('"');
    }
    literal.push('}');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_texts_in_array_literals() {
        assert_eq!(array_literal::<&str>([]), "{}");
        let texts = [Some("a"), Some(""), Some("NULL"), None, Some(r#"{b, "c\"}"#)];
        assert_eq!(array_literal(texts), r#"{"a","","NULL",NULL,"{b, \"c\\\"}"}"#);
    }
}
