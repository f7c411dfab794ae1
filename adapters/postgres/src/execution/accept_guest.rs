//! Accepting a run of somebody who was let in by a share link or without a name: the statements of `accept.rs`, which
//! keep what the run was let in by, and count a use of the link. They are apart because every other run would pay for
//! that part.

use super::accept::{fact_sql, go_sql, lease_sql, place_sql, run_sql};
use fairway_domain::execution::Admission;

/// The key is claimed first: a request that is known counts no use. A link that starts no run raises, and takes the key
/// with it.
macro_rules! used_sql {
    ($from:literal) => {
        concat!("go AS MATERIALIZED (SELECT fairway_use_share_link($1, $2, $29) FROM ", $from, "), ")
    };
}

const RUN: &str = concat!(
    "WITH place ",
    place_sql!(),
    used_sql!("place"),
    run_sql!(", share_link_id, result_token", ", $29, $30"),
    lease_sql!(),
    "SELECT (SELECT count(*) FROM place) AS places, (SELECT count(*) FROM go) AS gone"
);
const RUN_KEYED: &str = concat!(
    go_sql!("claimed", "$31", "$32", "$33", "$34"),
    used_sql!("claimed"),
    run_sql!(", share_link_id, result_token", ", $29, $30"),
    lease_sql!(),
    "SELECT (SELECT count(*) FROM place) AS places, (SELECT count(*) FROM go) AS gone"
);
// A denial costs no use.
const DENY: &str = concat!(
    go_sql!(),
    run_sql!(", share_link_id, result_token", ", $30, $31"),
    fact_sql!(),
    "SELECT count(*) AS places, count(*) AS gone FROM go"
);
const DENY_KEYED: &str = concat!(
    go_sql!("go", "$32", "$33", "$34", "$35"),
    run_sql!(", share_link_id, result_token", ", $30, $31"),
    fact_sql!(),
    "SELECT (SELECT count(*) FROM place) AS places, (SELECT count(*) FROM go) AS gone"
);

/// The statement without a key, and the one with it.
pub(super) const fn statements(admission: &Admission) -> (&'static str, &'static str) {
    match admission {
        Admission::Run { .. } => (RUN, RUN_KEYED),
        Admission::Deny(_) => (DENY, DENY_KEYED),
    }
}
