//! Tests of the egress guard against listeners that count connections.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails at the first error, its listeners included")]

mod address_notations;
mod certificate_trust;
mod counting_listener;
mod environment_proxies;
mod name_resolution;
mod responses;
