//! Execution of workloads: accept, run, end. A synchronous run takes at most two commits.

pub(crate) mod run_access;
mod delegation;
pub(crate) mod script;
mod guardrails;
mod retrieval;
mod engine;
mod evidence;
mod event_stream;
pub(crate) mod large_runs;
pub(crate) mod active_runs;
mod http_call;
pub mod plan;
mod submit;
mod recovery;
mod memory;
mod review;
mod run;
pub(crate) mod run_limit;
mod resolve_unknown;
mod start;
mod cancel;
mod worker;

pub(crate) use plan::{BASE_TEXT_BYTES, is_in_plan, plan_bytes, source};

pub use crate::wakeups::RunSubscription;
pub use script::RunPayload;
pub use evidence::{Disclosure, ExecutionQuery, ExecutionDetail};
pub use event_stream::{EventCursor, EventBatch};
pub use recovery::run_recovery;
pub use review::run_review_expiry;
pub use start::{ExecuteResult, ExecuteRequest, WaitMode};
pub use worker::run_worker;
