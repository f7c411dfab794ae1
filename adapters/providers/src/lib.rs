//! Model providers: the configured accounts, clients of the APIs of OpenAI and Anthropic, and the built-in local
//! provider.

mod account_connection;
mod accounts;
mod anthropic;
mod completion_metadata;
mod failure;
mod local;
mod openai;
mod provider_with_account_settings;
mod replace_nul;
mod sse_stream;

pub use account_connection::AccountConnection;
pub use accounts::AccountRouter;
pub use anthropic::Anthropic;
pub use local::LocalProvider;
pub use openai::OpenAi;
pub use provider_with_account_settings::{ModelPrice, ProviderWithAccountSettings};
