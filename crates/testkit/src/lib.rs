//! What tests stand on: a private PostgreSQL, a database of their own cloned from a migrated template, and the app on a
//! port of its own. Never used outside tests.

mod database;

pub use database::TestDatabase;

/// One provider of cryptography for everything that speaks TLS; once per process is enough.
pub fn init() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
