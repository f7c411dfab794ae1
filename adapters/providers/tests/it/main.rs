//! Tests of the OpenAI and Anthropic adapters, mostly with a scripted endpoint.

#![expect(clippy::unwrap_used, reason = "a test fails at the first error, helpers included")]

mod anthropic;
mod failures;
mod openai;
mod support;
mod third_party_gateway;
