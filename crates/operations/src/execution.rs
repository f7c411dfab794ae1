//! Execution of workloads: accepting runs, executing them, and storing their ends. A synchronous run with one model
//! call requires two commits.

pub(crate) mod active_runs;
mod cancel;
mod citations;
mod delegation;
mod end_without_steps;
pub(crate) mod engine;
mod event_stream;
mod execute;
mod execute_request;
mod execution_reader;
mod guardrail_check;
mod http_call;
pub(crate) mod inline_run_slots;
mod installation_run_settings;
pub(crate) mod large_runs;
mod memory;
pub mod plan;
mod recovery;
mod resolve_unknown;
mod retrieval;
mod review;
mod run;
pub(crate) mod run_access;
mod run_decision;
mod run_payload;
mod schema_check;
pub(crate) mod script;
mod shutdown;
mod start_attempt;
mod submit;
mod usage;
mod worker;

pub(crate) use plan::{EMPTY_PLAN_TEXT_BYTES, is_read_by_runs, plan_bytes, source_version};

pub use crate::wakeups::RunSubscription;
pub use cancel::Cancellations;
pub use citations::{Citations, CitedDocument};
pub use event_stream::{EventBatch, EventCursor};
pub use execute::Executions;
pub use execute_request::{ExecuteRequest, ExecuteResponse, WaitMode};
pub use execution_reader::{Disclosure, ExecutionDetail, ExecutionQuery, ExecutionReader};
pub use installation_run_settings::InstallationRunSettings;
pub use recovery::{RunRecovery, run_recovery};
pub use resolve_unknown::UnknownOutcomes;
pub use review::{Reviews, run_review_endings};
pub use run_payload::RunPayload;
pub use usage::{UsageQuery, UsageReports};
pub use worker::{RunWorker, run_worker};
