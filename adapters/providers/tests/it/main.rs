//! Both protocols against an endpoint that answers what it is told, well or badly.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise, helpers included")]

mod anthropic;
mod asking;
mod failures;
mod gateway;
mod openai;
