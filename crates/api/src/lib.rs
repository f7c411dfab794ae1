//! The HTTP surface of Fairway: thin routes over the operations, configuration, and the composition root.

mod access;
mod answer;
pub mod app;
mod asset;
mod asset_kind;
mod audit;
mod caller;
pub mod compose;
pub mod config;
pub mod document;
mod environment;
pub mod error;
mod evidence;
mod execution;
mod flow;
mod health;
pub mod http;
pub mod metrics;
mod release;
mod rollout;
pub mod seed;
pub mod serve;
mod system;
pub mod telemetry;
mod tenant;
mod workload;
