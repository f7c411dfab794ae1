//! Workloads like the others, but for some of what their releases bind.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Furniture, Maker, Parts, Workload, asking, text};
use crate::connection::Connection;
use crate::provider::ACCOUNT;

/// A version and its asset.
pub(crate) struct Made {
    pub(crate) asset: String,
    pub(crate) version: String,
}

impl Parts {
    /// The same with another version of this kind, or with one where there was none.
    pub(super) fn with(&self, kind: &'static str, version: &str) -> Parts {
        let mut parts = self.clone();
        parts.versions.retain(|(role, _)| *role != kind);
        parts.versions.push((kind, version.to_owned()));
        parts
    }
}

impl Maker {
    /// The first version of a new asset.
    pub(super) async fn version(&mut self, slug: &str, (kind, content): (&str, Value)) -> Result<Made> {
        let asset = self.asset(slug, kind).await?;
        let made = self.post(&format!("/v1/assets/{asset}/versions"), json!({"content": content})).await?;
        Ok(Made { asset, version: text(&made, "asset_version_id")? })
    }
}

impl Furniture {
    /// A workload whose model is asked through the account of [`crate::provider`], on a server that has the account.
    ///
    /// # Errors
    /// When the server refuses any of it.
    pub(crate) async fn asking_elsewhere(&self, address: SocketAddr, slug: &str) -> Result<Workload> {
        let mut maker = Maker { connection: Connection::open(address).await?, elsewhere: None };
        let content = asking("openai", "small", ACCOUNT);
        let models = maker.version(&format!("{slug}-models"), ("model_policy", content)).await?;
        maker.workload(slug, &self.parts.with("model_policy", &models.version)).await
    }

    /// A workload that lets scripts run, which have no inputs: the policy of the others looks at these.
    ///
    /// # Errors
    /// When the server refuses any of it.
    pub(crate) async fn scripted(&self, address: SocketAddr, slug: &str) -> Result<Workload> {
        let mut maker = Maker { connection: Connection::open(address).await?, elsewhere: None };
        let content = json!({"rules": [{
            "id": "in-dev", "condition": "environment == 'dev'", "outcome": "allow", "reason_code": "in_dev",
        }]});
        let policy = maker.version(&format!("{slug}-policy"), ("policy_bundle", content)).await?;
        let parts = Parts { policy_bundle: policy.asset, ..self.parts.with("policy_bundle", &policy.version) };
        maker.workload(slug, &parts).await
    }

    /// A workload that answers with what it finds in a knowledge base, which is made with one document.
    ///
    /// # Errors
    /// When the server refuses any of it.
    pub(crate) async fn finding(
        &self,
        address: SocketAddr,
        slug: &str,
        (base, document): (Value, &Value),
    ) -> Result<(Workload, String)> {
        let mut maker = Maker { connection: Connection::open(address).await?, elsewhere: None };
        let base = maker.version(&format!("{slug}-base"), ("knowledge_base", base)).await?;
        let path = format!("/v1/assets/{}/documents?workspace_id={}", base.asset, super::WORKSPACE);
        maker.post(&path, json!({"documents": [document]})).await.context("adding a document")?;
        let flow = maker.version(&format!("{slug}-flow"), ("orchestration_flow", look_up())).await?;
        let parts = self.parts.with("knowledge_base", &base.version).with("orchestration_flow", &flow.version);
        Ok((maker.workload(slug, &parts).await?, base.asset))
    }
}

fn look_up() -> Value {
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
