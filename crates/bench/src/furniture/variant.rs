//! Workloads whose releases differ in some bindings.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Fixtures, FixtureBuilder, Parts, Workload, asking, text};
use crate::connection::Connection;
use crate::provider::ACCOUNT;

/// A version with its asset.
pub(crate) struct Made {
    pub(crate) asset: String,
    pub(crate) version: String,
}

impl Parts {
    /// Replaces or adds the binding of this kind.
    pub(super) fn with(&self, kind: &'static str, version: &str) -> Parts {
        let mut parts = self.clone();
        parts.versions.retain(|(role, _)| *role != kind);
        parts.versions.push((kind, version.to_owned()));
        parts
    }
}

impl FixtureBuilder {
    /// Creates an asset with its first version.
    pub(super) async fn version(&mut self, slug: &str, (kind, content): (&str, Value)) -> Result<Made> {
        let asset = self.asset(slug, kind).await?;
        let made = self.post(&format!("/v1/assets/{asset}/versions"), json!({"content": content})).await?;
        Ok(Made { asset, version: text(&made, "asset_version_id")? })
    }
}

impl Fixtures {
    /// Creates a workload whose model is called through the account of [`crate::provider`], on a server with that
    /// account.
    ///
    /// # Errors
    /// When the server refuses a request.
    pub(crate) async fn workload_with_account(&self, address: SocketAddr, slug: &str) -> Result<Workload> {
        let mut maker = FixtureBuilder { connection: Connection::open(address).await?, elsewhere: None };
        let content = asking("openai", "small", ACCOUNT);
        let models = maker.version(&format!("{slug}-models"), ("model_policy", content)).await?;
        maker.workload(slug, &self.parts.with("model_policy", &models.version)).await
    }

    /// Creates a workload for scripts. Its policy reads no inputs, because scripts have none.
    ///
    /// # Errors
    /// When the server refuses a request.
    pub(crate) async fn scripted(&self, address: SocketAddr, slug: &str) -> Result<Workload> {
        let mut maker = FixtureBuilder { connection: Connection::open(address).await?, elsewhere: None };
        let content = json!({"rules": [{
            "id": "in-dev", "condition": "environment == 'dev'", "outcome": "allow", "reason_code": "in_dev",
        }]});
        let policy = maker.version(&format!("{slug}-policy"), ("policy_bundle", content)).await?;
        let parts = Parts { policy_bundle: policy.asset, ..self.parts.with("policy_bundle", &policy.version) };
        maker.workload(slug, &parts).await
    }

    /// Creates a workload that retrieves documents from a new knowledge base with one document.
    ///
    /// # Errors
    /// When the server refuses a request.
    pub(crate) async fn finding(
        &self,
        address: SocketAddr,
        slug: &str,
        (base, document): (Value, &Value),
    ) -> Result<(Workload, String)> {
        let mut maker = FixtureBuilder { connection: Connection::open(address).await?, elsewhere: None };
        let base = maker.version(&format!("{slug}-base"), ("knowledge_base", base)).await?;
        let path = format!("/v1/assets/{}/documents?workspace_id={}", base.asset, super::WORKSPACE);
        maker.post(&path, json!({"documents": [document]})).await.context("adding a document")?;
        let flow = maker.version(&format!("{slug}-flow"), ("orchestration_flow", retrieval_flow())).await?;
        let parts = self.parts.with("knowledge_base", &base.version).with("orchestration_flow", &flow.version);
        Ok((maker.workload(slug, &parts).await?, base.asset))
    }
}

fn retrieval_flow() -> Value {
    json!({
        "name": "find", "description": "Looks documents up and returns them.",
        "trigger": {"type": "api_request", "inputs_schema": {"text": "string"}},
        "entry_step": "find",
        "steps": [
            {
                "id": "find", "type": "task", "action": "retrieve_documents",
                "inputs": {"query": "{{trigger.text}}", "knowledge_base": "{{release.knowledge_base}}"},
                "on_success": "done", "on_failure": "stop",
            },
            {"id": "done", "type": "return", "output": {"found": "{{steps.find.output}}"}},
            {"id": "stop", "type": "return", "output": "stopped"},
        ],
    })
}
