//! SQL functions and operators for typed queries: the database's clock, times relative to it, and lengths of texts.

use diesel::{IntoSql as _, data_types::PgInterval, dsl::AsExprOf, sql_types};
use std::time::Duration;

#[diesel::declare_sql_function]
extern "SQL" {
    /// The current time of the database's clock.
    #[sql_name = "fairway_now"]
    fn database_now() -> diesel::sql_types::Timestamptz;

    /// The length of a text in bytes.
    fn octet_length(text: diesel::sql_types::Text) -> diesel::sql_types::Integer;
}

diesel::infix_operator!(Earlier, " - ", sql_types::Timestamptz, backend: diesel::pg::Pg);
diesel::infix_operator!(Later, " + ", sql_types::Timestamptz, backend: diesel::pg::Pg);

fn interval(duration: Duration) -> AsExprOf<PgInterval, sql_types::Interval> {
    PgInterval::from_microseconds(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
        .into_sql::<sql_types::Interval>()
}

/// The time `duration` before now, by the database's clock.
pub(crate) fn time_ago(duration: Duration) -> Earlier<database_now, AsExprOf<PgInterval, sql_types::Interval>> {
    Earlier::new(database_now(), interval(duration))
}

/// The time `duration` after now, by the database's clock.
pub(crate) fn time_ahead(duration: Duration) -> Later<database_now, AsExprOf<PgInterval, sql_types::Interval>> {
    Later::new(database_now(), interval(duration))
}
