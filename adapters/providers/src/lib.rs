//! Model providers: the configured accounts, those that speak OpenAI's or Anthropic's protocol over the network, and the
//! built-in one that needs none.

mod account;
mod accounts;
mod anthropic;
mod connection;
mod events;
mod failure;
mod local;
mod metadata;
mod openai;
mod readable;

pub use account::{Account, ModelPrice};
pub use accounts::Accounts;
pub use anthropic::Anthropic;
pub use connection::Connection;
pub use local::Local;
pub use openai::OpenAi;
