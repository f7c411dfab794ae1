//! One function per operation: authorize the caller, load, decide in the domain, commit. The run engine and the
//! background tasks are here too.

pub mod access;
mod blocking;
pub mod asset;
mod asset_kind;
pub mod audit;
mod cache;
pub mod demo;
pub mod environment;
pub mod execution;
mod failure;
pub mod flow;
pub mod generator;
pub mod knowledge;
pub mod memory;
mod idempotency;
mod prompt;
mod reference;
pub mod release;
pub mod retention;
pub mod rollout;
mod services;
pub mod share_link;
mod wakeups;
pub mod tenant;
mod rate_limit;
pub mod tool;
pub mod workload;

pub use failure::{Failure, FieldProblem, RunRefusal, ToolRefusal};
pub use idempotency::{Idempotent, Precondition};
pub use services::{Services, Settings, Stores, SequencerWakeup};
