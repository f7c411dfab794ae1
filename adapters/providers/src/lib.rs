//! Model providers: the configured accounts, clients of the APIs of OpenAI and Anthropic, and the built-in local
//! provider.

mod account_provider;
mod accounts;
mod anthropic;
mod completion_metadata;
mod connection;
mod failure;
mod local;
mod openai;
mod replace_nul;
mod sse_stream;

pub use account_provider::{AccountProvider, ModelPrice};
pub use accounts::Accounts;
pub use anthropic::Anthropic;
pub use connection::Connection;
pub use local::LocalProvider;
pub use openai::OpenAi;
