//! Model providers: the configured accounts, clients of the APIs of OpenAI and Anthropic, and the built-in local
//! provider.

mod account;
mod accounts;
mod anthropic;
mod connection;
mod failure;
mod local;
mod metadata;
mod openai;
mod replace_nul;
mod sse_stream;

pub use account::{Account, ModelPrice};
pub use accounts::Accounts;
pub use anthropic::Anthropic;
pub use connection::Connection;
pub use local::LocalProvider;
pub use openai::OpenAi;
