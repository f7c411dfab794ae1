//! The API from outside: real HTTP, a real PostgreSQL, one database for each test.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise, helpers included"
)]

mod access;
mod authorization;
mod body;
mod demo;
mod document;
mod guide;
mod paths;
mod slugs;
mod stage;
mod tenancy;
mod walk;
