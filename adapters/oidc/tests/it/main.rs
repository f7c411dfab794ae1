//! Verification of access tokens of issuers on loopback: valid tokens, forged tokens, and hostile key sets.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails at the first error, its servers included"
)]

mod forged;
mod issuer_server;
mod key_sets;
mod private_certificate_authority;
mod signing;
mod valid;
