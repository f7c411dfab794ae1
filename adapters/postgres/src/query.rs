//! Statements with named input.
//!
//! Values enter a statement once, in the CTE `input`, whose columns have names; the SQL uses the names. The builder
//! numbers the parameters, so no SQL text of this crate does. One form serves one row and many: the columns of many rows
//! are arrays, which `input` unnests.

use crate::{database::Param, store_error};
use fairway_domain::{store::StoreError, tenant::TenantScope};
use std::{
    fmt::{self, Write as _},
    sync::OnceLock,
};
use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A value that PostgreSQL stores, with the SQL type of its column in `input`.
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

/// How many rows `input` has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One; its columns are values.
    One,
    /// Any number; its columns are arrays of equal length.
    Many,
}

/// A column of `input`.
struct Column<'v> {
    name: &'static str,
    sql_type: &'static str,
    value: Box<dyn ToSql + Sync + Send + 'v>,
}

/// The values of a statement, as the columns of the CTE `input`.
pub(crate) struct Input<'v> {
    shape: Shape,
    columns: Vec<Column<'v>>,
}

impl<'v> Input<'v> {
    /// One row; its first column is `tenant_id`.
    pub(crate) fn new(scope: TenantScope) -> Self {
        Self::one().with("tenant_id", scope.tenant().uuid())
    }

    /// One row without a tenant, for statements of background tasks over all tenants.
    pub(crate) fn one() -> Self {
        Self { shape: Shape::One, columns: Vec::with_capacity(32) }
    }

    /// Many rows.
    pub(crate) fn many() -> Self {
        Self { shape: Shape::Many, columns: Vec::with_capacity(32) }
    }

    /// Adds a column: a value of one row.
    #[must_use]
    pub(crate) fn with<T: SqlValue + 'v>(self, name: &'static str, value: T) -> Self {
        self.column(name, T::TYPE, Box::new(value))
    }

    /// Adds a column: a list in one row, or one value for each of many rows.
    #[must_use]
    pub(crate) fn with_all<T: SqlValue + 'v>(self, name: &'static str, values: Vec<T>) -> Self {
        self.column(name, T::ARRAY, Box::new(values))
    }

    /// Adds a column: a list that may be absent, in one row.
    #[must_use]
    pub(crate) fn with_list<T: SqlValue + 'v>(self, name: &'static str, values: Option<Vec<T>>) -> Self {
        self.column(name, T::ARRAY, Box::new(values))
    }

    fn column(mut self, name: &'static str, sql_type: &'static str, value: Box<dyn ToSql + Sync + Send + 'v>) -> Self {
        self.columns.push(Column { name, sql_type, value });
        self
    }

    /// The parameters, in the order of the columns.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.columns.iter().map(|column| &*column.value as Param<'_>).collect()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|column| column.name)
    }

    /// The definition of `input`.
    fn cte(&self) -> String {
        let mut sql = String::from("WITH input AS MATERIALIZED (SELECT ");
        if self.shape == Shape::Many {
            sql.push_str("* FROM unnest(");
        }
        for (index, Column { name, sql_type, .. }) in self.columns.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let number = index.saturating_add(1);
            // Writing to a string cannot fail.
            let _ = match self.shape {
                Shape::One => write!(sql, "{separator}${number}::{sql_type} AS {name}"),
                Shape::Many => write!(sql, "{separator}${number}::{sql_type}"),
            };
        }
        if self.shape == Shape::Many {
            let names: Vec<&str> = self.names().collect();
            let _ = write!(sql, ") AS input ({})", names.join(", "));
        }
        sql.push(')');
        sql
    }
}

/// SQL that a statement is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sql {
    Text(&'static str),
    Parts(&'static [&'static str]),
}

impl fmt::Display for Sql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Parts(parts) => parts.iter().try_for_each(|part| out.write_str(part)),
        }
    }
}

/// The text of a statement: made at its first use from the names of its input, and constant from then on.
#[derive(Debug)]
pub(crate) struct StatementText(OnceLock<(Vec<&'static str>, String)>);

impl StatementText {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    pub(crate) fn get(&self, input: &Input<'_>, body: impl FnOnce() -> String) -> Result<&str, StoreError> {
        let (names, sql) = self.0.get_or_init(|| (input.names().collect(), format!("{}{}", input.cte(), body())));
        // A text with the columns of another input would bind values to wrong names.
        if names.iter().copied().eq(input.names()) {
            Ok(sql)
        } else {
            Err(store_error::broken("a statement has two forms of input".into()))
        }
    }
}

/// A statement without a guard: a read, or a write that no decision precedes.
///
/// Its SQL is a `SELECT` that reads `input`, or CTEs after `input` and a `SELECT`. A read with `ORDER BY … LIMIT` compares
/// with `(SELECT tenant_id FROM input)`, because a join with `input` would hide the order of an index.
#[derive(Debug)]
pub(crate) struct Query {
    sql: Sql,
    text: StatementText,
}

impl Query {
    pub(crate) const fn new(sql: &'static str) -> Self {
        Self { sql: Sql::Text(sql), text: StatementText::new() }
    }

    /// A statement of parts that several statements share, such as lists of columns.
    pub(crate) const fn of_parts(parts: &'static [&'static str]) -> Self {
        Self { sql: Sql::Parts(parts), text: StatementText::new() }
    }

    /// The text for an input.
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let sql = self.sql.to_string();
            let separator = if sql.trim_start().starts_with("SELECT") { " " } else { ", " };
            format!("{separator}{sql}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope() -> TenantScope {
        TenantScope::for_background_task(Uuid::from_u128(7).into())
    }

    #[test]
    fn numbers_the_columns_of_one_row() {
        static FIND: Query = Query::new("SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
        let input = Input::new(scope()).with("thing_id", Uuid::nil()).with("label", None::<&str>);
        insta::assert_snapshot!(FIND.text(&input).unwrap(), @"WITH input AS MATERIALIZED (SELECT $1::uuid AS tenant_id, $2::uuid AS thing_id, $3::text AS label) SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
        assert_eq!(input.params().len(), 3);
    }

    #[test]
    fn unnests_the_columns_of_many_rows() {
        static LOAD: Query =
            Query::new("found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
        let input = Input::many().with_all("thing_id", vec![Uuid::nil()]).with_all("label", vec![Some("a")]);
        insta::assert_snapshot!(LOAD.text(&input).unwrap(), @"WITH input AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[]) AS input (thing_id, label)), found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
    }

    #[test]
    fn refuses_a_second_form_of_input() {
        static FIND: Query = Query::new("SELECT FROM input");
        let first = || Input::new(scope()).with("slug", "a").with("name", "b");
        assert!(FIND.text(&first()).is_ok() && FIND.text(&first()).is_ok());
        assert!(FIND.text(&Input::new(scope()).with("name", "b").with("slug", "a")).is_err());
        assert!(FIND.text(&Input::new(scope()).with("slug", "a")).is_err());
    }
}
