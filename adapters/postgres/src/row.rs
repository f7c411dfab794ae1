//! Decodes rows into domain values. A value that the domain cannot parse means that the store is inconsistent.

use crate::store_error;
use fairway_domain::{
    access::ActorRef,
    slug::Slug,
    store::{Revision, StoreError},
    time::Timestamp,
};
use serde_json::error::Category;
use time::OffsetDateTime;
use tokio_postgres::types::FromSql;
use uuid::Uuid;

#[derive(Debug, thiserror::Error)]
#[error("column `{0}` is missing or holds an unknown value")]
struct UnknownValue(&'static str);

/// A stored JSON text has an unexpected shape. The message of `serde_json` is dropped, because it quotes stored
/// values.
#[derive(Debug, thiserror::Error)]
#[error("a stored JSON text has an unexpected shape ({category:?} error at line {line}, column {column})")]
struct UnexpectedShape {
    category: Category,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for UnexpectedShape {
    fn from(error: serde_json::Error) -> Self {
        Self { category: error.classify(), line: error.line(), column: error.column() }
    }
}

/// A row of a result. Reading a column fails with an inconsistent store if the column is missing or its value
/// cannot be parsed.
#[derive(Debug)]
pub(crate) struct Row(tokio_postgres::Row);

impl From<tokio_postgres::Row> for Row {
    fn from(row: tokio_postgres::Row) -> Self {
        Self(row)
    }
}

impl Row {
    /// The size of the row as received, in bytes.
    pub(crate) fn raw_size_bytes(&self) -> usize {
        self.0.raw_size_bytes()
    }

    pub(crate) fn column<'a, T: FromSql<'a>>(&'a self, name: &'static str) -> Result<T, StoreError> {
        self.0.try_get(name).map_err(|error| store_error::inconsistent(Box::new(error)))
    }

    pub(crate) fn id<T: From<Uuid>>(&self, name: &'static str) -> Result<T, StoreError> {
        self.column::<Uuid>(name).map(T::from)
    }

    pub(crate) fn optional_id<T: From<Uuid>>(&self, name: &'static str) -> Result<Option<T>, StoreError> {
        Ok(self.column::<Option<Uuid>>(name)?.map(T::from))
    }

    pub(crate) fn timestamp(&self, name: &'static str) -> Result<Timestamp, StoreError> {
        self.column::<OffsetDateTime>(name).map(Timestamp::new)
    }

    pub(crate) fn optional_timestamp(&self, name: &'static str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.column::<Option<OffsetDateTime>>(name)?.map(Timestamp::new))
    }

    pub(crate) fn revision(&self, name: &'static str) -> Result<Revision, StoreError> {
        self.column::<i64>(name).map(Revision::new)
    }

    pub(crate) fn slug(&self, name: &'static str) -> Result<Slug, StoreError> {
        require_decoded(name, Slug::parse(self.column(name)?).ok())
    }

    pub(crate) fn actor(&self, name: &'static str) -> Result<ActorRef, StoreError> {
        require_decoded(name, ActorRef::parse(self.column(name)?).ok())
    }

    /// Parses a text column with a parser of the domain.
    pub(crate) fn parse_column<T>(
        &self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        require_decoded(name, parse(self.column(name)?))
    }
}

/// Returns a decoded value. `None` means that the domain could not parse the column `name`; the store then counts as
/// inconsistent.
pub(crate) fn require_decoded<T>(name: &'static str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| store_error::inconsistent(Box::new(UnknownValue(name))))
}

/// Parses a stored JSON text. A text of an unexpected shape means that the store is inconsistent.
pub(crate) fn parse_json<'a, T: serde::Deserialize<'a>>(text: &'a str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| store_error::inconsistent(Box::new(UnexpectedShape::from(error))))
}

/// Reads the column `count` of the first row.
pub(crate) fn read_count(rows: &[Row]) -> Result<u64, StoreError> {
    let first = require_decoded("count", rows.first())?;
    require_decoded("count", u64::try_from(first.column::<i64>("count")?).ok())
}
