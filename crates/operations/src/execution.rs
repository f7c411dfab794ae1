//! Execution of workloads: accept, run, end. A synchronous run takes at most two commits.

pub(crate) mod admission;
mod behalf;
pub(crate) mod code;
mod control;
mod documents;
mod engine;
mod evidence;
mod follow;
pub(crate) mod large_runs;
pub(crate) mod live;
mod outward;
pub mod plan;
mod reception;
mod recovery;
mod remember;
mod review;
mod run;
pub(crate) mod run_limit;
mod settle;
mod start;
mod stop;
mod worker;

pub(crate) use plan::{BASE_TEXT_BYTES, is_in_plan, plan_bytes, source};

pub use crate::signal::RunSubscription;
pub use code::Asks;
pub use evidence::{Disclosure, ExecutionQuery, ReadExecution};
pub use follow::{Heard, Told};
pub use recovery::recover_forever;
pub use review::run_review_expiry;
pub use start::{Answer, ExecuteRequest, Patience};
pub use worker::run_worker;
