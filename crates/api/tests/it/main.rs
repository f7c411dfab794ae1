//! The API from outside: real HTTP, a real PostgreSQL, one database for each test.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise, helpers included"
)]

mod access;
mod agent;
mod allowance;
mod aloud;
mod approvals;
mod artifacts;
mod asset_kind;
mod assets;
mod assistants;
mod audit;
mod authorization;
mod behalf;
mod body;
mod burden;
mod code;
mod code_killed;
mod concurrency;
mod contracts;
mod dispatch;
mod document;
mod egress;
mod embed;
mod embedding;
mod environment;
mod errors;
mod events;
mod evidence;
mod execution;
mod existence;
mod faulty_line;
mod flow;
mod framing;
mod generate;
mod grants;
mod growth;
mod guardrail;
mod guide;
mod heavy;
mod hook;
mod idempotency;
mod impact;
mod inert;
mod interface;
mod knowledge;
mod lanes;
mod lanes_under_load;
mod large_runs;
mod local_mode;
mod lookup;
mod mcp;
mod mcp_server;
mod memory;
mod memory_bounds;
mod openapi;
mod overheard;
mod overload;
mod pages;
mod paths;
mod patience;
mod permissions;
mod principal_binding;
mod prompt;
mod provider;
mod public;
mod reference;
mod rejected;
mod releases;
mod review;
mod rollback;
mod rollout;
mod routing;
mod run_list;
mod runtime;
mod sandbox;
mod sandbox_profile;
mod secrets;
mod seed;
mod service;
mod share_link;
mod share_token;
mod slugs;
mod stage;
mod tenancy;
mod token_scan;
mod tools;
mod traces;
mod unread;
mod versions;
mod walk;
