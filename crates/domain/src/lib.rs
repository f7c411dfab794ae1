//! The resource types of Fairway, with their state machines and rules.
//!
//! The crate is pure: it uses no clock, randomness, files, network or environment variables. Callers pass the time and
//! fresh identifiers as arguments. Functions return decisions, and adapters implement the ports that store them.

pub mod access;
pub mod access_request;
pub mod anonymous_rate_limit;
pub mod asset;
pub mod audit;
pub mod client_address;
pub mod clock;
pub mod connection;
pub mod environment;
pub mod erasure;
pub mod evidence;
pub mod execution;
pub mod field_path;
pub mod flow;
pub mod generator;
pub mod guardrail;
pub mod hook;
pub mod id;
pub mod idempotency;
pub mod json;
pub mod knowledge;
pub mod memory;
pub mod moment;
pub mod note;
pub mod notification;
pub mod notification_category;
mod number;
pub mod offered_tool;
pub mod policy;
pub mod prompt;
pub mod redaction;
pub mod release;
pub mod rollout;
pub mod search_words;
pub mod secret;
pub mod share_link;
pub mod slug;
pub mod store;
pub mod tenant;
pub mod text;
pub mod time;
pub mod transparency_log;
pub mod use_case;
pub mod wakeup;
pub mod workload;
pub mod yaml_syntax;
