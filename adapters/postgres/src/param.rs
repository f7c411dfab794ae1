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

    /// Wraps the elements of an array that may be null.
    pub(crate) fn optional_array<T: SqlValue + 'v>(values: Option<Vec<T>>) -> Self {
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
