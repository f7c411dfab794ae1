//! Tool calls to a scripted endpoint, over HTTP and MCP.

#![expect(clippy::unwrap_used, reason = "a test fails at the first error, helpers included")]

mod http;
mod mcp;

use async_trait::async_trait;
use fairway_domain::{
    secret::{Secret, SecretError, SecretReader, SecretRef, ServerSecretRef},
    slug::Slug,
};
use fairway_egress::{Allowance, Guard, ServerMode};
use fairway_tool_client::ToolAndHookClient;
use std::sync::Arc;

/// A secret store that has one secret of one tenant.
struct OneSecret;

#[async_trait]
impl SecretReader for OneSecret {
    async fn read(&self, tenant: &Slug, reference: &SecretRef) -> Result<Secret, SecretError> {
        match (tenant.as_str(), reference) {
            ("acme", SecretRef::Env(name)) if name == "KEY" => Ok(Secret::new("s3cret".to_owned())),
            _ => Err(SecretError::Missing),
        }
    }

    async fn read_server_secret(&self, _reference: &ServerSecretRef) -> Result<Secret, SecretError> {
        Err(SecretError::Missing)
    }
}

fn caller(allowances: &[&str]) -> ToolAndHookClient {
    let allowances = allowances.iter().map(|text| Allowance::parse(text).unwrap()).collect();
    ToolAndHookClient::new(Guard::new(ServerMode::Local, allowances), Arc::new(OneSecret))
}

fn acme() -> Slug {
    Slug::parse("acme").unwrap()
}
