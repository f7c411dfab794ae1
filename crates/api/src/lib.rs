//! The HTTP surface of Fairway: thin routes over the operations, configuration, and the composition root.

pub mod config;
pub mod error;
pub mod http;
pub mod metrics;
pub mod telemetry;
