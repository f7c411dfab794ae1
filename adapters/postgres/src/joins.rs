//! The tables that typed queries join.

use crate::schema::{workload, workspace};

diesel::allow_tables_to_appear_in_same_query!(workload, workspace);
