//! Model providers: the configured accounts, and the built-in one that needs no network.

mod accounts;
mod local;

pub use accounts::Accounts;
pub use local::Local;
