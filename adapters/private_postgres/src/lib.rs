//! A private PostgreSQL server: found on this machine, started for one Fairway, stopped with it.
//!
//! Nobody installs or configures a database to try Fairway. [`Binaries::find`] looks for PostgreSQL programs that are
//! already here, [`PrivateServer::start`] runs them on a directory of their own, on a free port of the loopback
//! address, and stops them when it is dropped. Installing is not done here: that is `cargo xtask`.
//!
//! What holds at every moment:
//!
//! - INVARIANT: at most one live process owns a directory; a second one is refused with [`StartError::InUse`].
//! - INVARIANT: the server never runs as root; it gets an account of its own when the caller is root.
//! - A server that outlived a killed owner is stopped by the next start on its directory, and nothing it had
//!   acknowledged is lost.
//! - The terminal's Ctrl-C does not reach the server: its owner drains first and stops it last.

mod account;
pub mod binaries;
pub mod deathbound;
pub mod server;
pub mod state;
mod throwaway;

pub use binaries::{Binaries, FindError};
pub use server::{Durability, Options, PrivateServer, StartError, StopError};
