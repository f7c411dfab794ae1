//! Accepts a delegated run: one admitted by a share link, without authentication, or on behalf of a user. The
//! statements are those of `accept.rs`; they also store how the run was admitted and count a use of the link. They are
//! separate, so that other runs do not pay for this part.

use super::accept::{
    admission_sql, insert_denial_sql, insert_lease_sql, insert_queue_sql, insert_run_sql, queue_full_condition,
    queue_room_condition, result_sql, revision_check_sql,
};
use fairway_domain::execution::Admission;

/// Counts a use of the share link. The idempotency key is claimed first, so a replayed request counts no use. A closed
/// link raises, which rolls the key back.
macro_rules! use_share_link_sql {
    ($from:literal, $link:literal) => {
        concat!("go AS MATERIALIZED (SELECT fairway_use_share_link($1, $2, ", $link, ") FROM ", $from, "), ")
    };
}

const RUN: &str = concat!(
    "WITH place ",
    revision_check_sql!(""),
    use_share_link_sql!("place", "$30"),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $30, $31, $32"),
    insert_lease_sql!(),
    result_sql!("place", "false")
);
const RUN_KEYED: &str = concat!(
    admission_sql!("", "claimed", "$33", "$34", "$35", "$36"),
    use_share_link_sql!("claimed", "$30"),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $30, $31, $32"),
    insert_lease_sql!(),
    result_sql!("place", "false")
);
const QUEUE: &str = concat!(
    "WITH place ",
    revision_check_sql!(queue_room_condition!()),
    use_share_link_sql!("place", "$28"),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $28, $29, $30"),
    insert_queue_sql!(),
    result_sql!("place", queue_full_condition!("place"))
);
const QUEUE_KEYED: &str = concat!(
    admission_sql!(queue_room_condition!(), "claimed", "$31", "$32", "$33", "$34"),
    use_share_link_sql!("claimed", "$28"),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $28, $29, $30"),
    insert_queue_sql!(),
    result_sql!("place", queue_full_condition!("place"))
);
// A denied run counts no use of the link.
const DENY: &str = concat!(
    admission_sql!(""),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $31, $32, $33"),
    insert_denial_sql!(),
    result_sql!("go", "false")
);
const DENY_KEYED: &str = concat!(
    admission_sql!("", "go", "$34", "$35", "$36", "$37"),
    insert_run_sql!(", share_link_id, result_token, delegate", ", $31, $32, $33"),
    insert_denial_sql!(),
    result_sql!("place", "false")
);

/// The SQL of an admission: without and with an idempotency key.
pub(super) const fn statements(admission: &Admission) -> (&'static str, &'static str) {
    match admission {
        // A script requires a role of the caller, so a delegated run is never one.
        Admission::Run { .. } | Admission::Script { .. } => (RUN, RUN_KEYED),
        Admission::Queue { .. } => (QUEUE, QUEUE_KEYED),
        Admission::Deny(_) => (DENY, DENY_KEYED),
    }
}
