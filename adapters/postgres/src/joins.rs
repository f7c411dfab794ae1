//! The tables that typed queries join, and the SQL functions that they call.

use crate::schema::{
    asset, asset_version, asset_version_note, contract_revocation, contract_revocation_reason, execution, fact,
    fact_order, namespace, share_link, workload, workspace,
};

diesel::allow_tables_to_appear_in_same_query!(namespace, workload, workspace);
diesel::allow_tables_to_appear_in_same_query!(execution, share_link);
diesel::allow_tables_to_appear_in_same_query!(fact, fact_order);
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
