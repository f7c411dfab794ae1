//! Operations of the control plane. Each operation authorizes the caller, loads state, decides in the domain, and
//! commits. This crate also contains the run engine and the background tasks.

pub mod access;
pub mod access_request;
mod anonymous_rate_limit;
pub mod asset;
mod asset_kind;
pub mod audit;
mod blocking;
pub mod builtin_tool;
pub mod cache;
mod commit_context;
pub mod connection;
pub mod demo;
pub mod environment;
pub mod erasure;
pub mod evidence_bundle;
pub mod execution;
mod fact_wakeups;
mod failure;
pub mod flow;
pub mod generator;
mod idempotency;
pub mod knowledge;
pub mod memory;
pub mod notification;
mod policy_trial;
mod prompt;
pub mod provider_check;
pub mod release;
mod resolve_reference;
pub mod retention;
pub mod rollout;
mod services;
pub mod share_link;
pub mod tenant;
pub mod transparency_log;
pub mod use_case;
mod wakeups;
pub mod workload;
pub mod workspace;

pub use fact_wakeups::FactWakeups;
pub use failure::{Failure, FieldProblem, RunRefusal, ToolRefusal};
pub use idempotency::{MaybeReplayed, Precondition};
pub use services::{NonStorePorts, Services, Settings, Stores};
