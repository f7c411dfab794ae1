//! The tables that typed queries join, and the SQL functions that they call.

use crate::schema::{
    approval, approval_note, asset, asset_version, asset_version_note, contract_revocation, contract_revocation_reason,
    execution, execution_result, execution_review, fact, fact_log, fact_order, identity, knowledge_chunk,
    knowledge_document, knowledge_document_text, knowledge_ingest, knowledge_pin, log_tree, namespace,
    notification_position, session, share_link, workload, workspace,
};
use diesel::{IntoSql as _, data_types::PgInterval, dsl::AsExprOf, sql_types};
use std::time::Duration;

diesel::allow_tables_to_appear_in_same_query!(approval, approval_note);
diesel::allow_tables_to_appear_in_same_query!(namespace, workload, workspace);
diesel::allow_tables_to_appear_in_same_query!(execution, share_link);
diesel::allow_tables_to_appear_in_same_query!(execution_result, execution_review);
diesel::allow_tables_to_appear_in_same_query!(fact, fact_order);
diesel::allow_tables_to_appear_in_same_query!(fact_log, log_tree);
diesel::allow_tables_to_appear_in_same_query!(fact_log, notification_position);
diesel::allow_tables_to_appear_in_same_query!(identity, session);
diesel::allow_tables_to_appear_in_same_query!(knowledge_chunk, knowledge_ingest);
diesel::allow_tables_to_appear_in_same_query!(knowledge_document, knowledge_document_text);
diesel::allow_tables_to_appear_in_same_query!(knowledge_ingest, knowledge_pin);
diesel::allow_tables_to_appear_in_same_query!(asset, asset_version, asset_version_note);
diesel::allow_tables_to_appear_in_same_query!(contract_revocation, contract_revocation_reason);

#[diesel::declare_sql_function]
extern "SQL" {
    /// The database's clock.
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

/// The time so long ago, by the database's clock.
pub(crate) fn time_ago(duration: Duration) -> Earlier<database_now, AsExprOf<PgInterval, sql_types::Interval>> {
    Earlier::new(database_now(), interval(duration))
}

/// The time so far ahead, by the database's clock.
pub(crate) fn time_ahead(duration: Duration) -> Later<database_now, AsExprOf<PgInterval, sql_types::Interval>> {
    Later::new(database_now(), interval(duration))
}
