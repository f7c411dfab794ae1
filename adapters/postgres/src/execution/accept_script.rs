//! Accepts a script. The statement is that of `accept.rs`, plus the fact of the run: the log contains every script
//! before a sandbox or gateway receives it.

use super::accept::{admission_sql, insert_run_sql, result_sql, revision_check_sql};

macro_rules! insert_script_sql {
    () => {
        "lease AS (
            INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at, script)
            SELECT $1, $7, $27, make_interval(secs => $28), fairway_now() + make_interval(secs => $28),
                fairway_now() + make_interval(secs => $29), true
            FROM go
         ),
         told AS (
            INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
            SELECT $1, $30, $8, $31, $32, $33 FROM go
         ),
         waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT $1, $30 FROM go) "
    };
}

/// Without an idempotency key.
pub(super) const SCRIPT: &str =
    concat!(admission_sql!(""), insert_run_sql!(), insert_script_sql!(), result_sql!("go", "false"));
/// With an idempotency key.
pub(super) const SCRIPT_KEYED: &str = concat!(
    admission_sql!("", "go", "$34", "$35", "$36", "$37"),
    insert_run_sql!(),
    insert_script_sql!(),
    result_sql!("place", "false")
);
