//! The tables that typed queries join, and the SQL functions that they call.

use crate::schema::{execution, share_link, workload, workspace};

diesel::allow_tables_to_appear_in_same_query!(workload, workspace);
diesel::allow_tables_to_appear_in_same_query!(execution, share_link);

#[diesel::declare_sql_function]
extern "SQL" {
    /// The database's clock.
    #[sql_name = "fairway_now"]
    fn database_now() -> diesel::sql_types::Timestamptz;
}
