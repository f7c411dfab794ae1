//! Validation of submitted content: schema, rules, canonical form and references.

use crate::{
    Failure,
    blocking::{ProcessorWait, run_blocking},
};
use fairway_domain::{
    asset::{
        canonical::Canonical,
        content::{self, CheckedContent},
        kind::AssetKind,
        reference::{AssetReference, find_references},
    },
    prompt::PromptTemplate,
    tenant::TenantScope,
};
use serde_json::Value;

/// Maximum size of content that is validated on the serving thread: bytes of text plus 16 per value. A handover to the
/// blocking pool costs 13 µs of processor time and a wait of 8 to 50 µs. If the asset kind requires no compilation,
/// validating 2 KiB takes no longer than that.
const MAX_INLINE_BYTES: usize = 2 << 10;

/// Content that passed validation.
pub(crate) struct ValidContent {
    /// The parsed prompt if the content is a prompt template. A later step resolves its includes.
    pub(crate) prompt: Option<PromptTemplate>,
    /// The canonical form of the content.
    pub(crate) canonical: Canonical,
    /// The references to other assets in the content.
    pub(crate) references: Vec<AssetReference>,
}

/// Validates content of a tenant. Slow validations run on the blocking pool.
pub(crate) async fn validate(scope: TenantScope, kind: AssetKind, content: Value) -> Result<ValidContent, Failure> {
    if is_fast(kind, &content) {
        return validate_now(kind, &content);
    }
    run_blocking(scope, ProcessorWait::Request, move || validate_now(kind, &content)).await?
}

fn validate_now(kind: AssetKind, content: &Value) -> Result<ValidContent, Failure> {
    let prompt = match content::check(kind, content)? {
        CheckedContent::PromptTemplate(prompt) => Some(prompt),
        CheckedContent::ModelPolicy(_)
        | CheckedContent::PolicyBundle(_)
        | CheckedContent::Flow(_)
        | CheckedContent::Sovereignty(_)
        | CheckedContent::Tool(_)
        | CheckedContent::Untyped => None,
    };
    Ok(ValidContent { prompt, canonical: Canonical::of(content)?, references: find_references(kind, content) })
}

/// Whether validation takes no longer than a handover to the blocking pool. Content with rules, patterns or schemas is
/// never fast, because even short ones may take long to compile.
fn is_fast(kind: AssetKind, content: &Value) -> bool {
    let compiles = match kind {
        AssetKind::ModelPolicy | AssetKind::ModelConfig | AssetKind::KnowledgeBase => false,
        AssetKind::PromptTemplate => content.get("output_schema").is_some(),
        AssetKind::PolicyBundle
        | AssetKind::OrchestrationFlow
        | AssetKind::ToolDefinition
        | AssetKind::HookDefinition
        | AssetKind::McpServer
        | AssetKind::Skill
        | AssetKind::Agent
        | AssetKind::Memory
        | AssetKind::EvaluationSuite
        | AssetKind::GuardrailConfig
        | AssetKind::ConnectorDefinition
        | AssetKind::SovereigntyProfile
        | AssetKind::WorkloadProfile
        | AssetKind::SandboxProfile
        | AssetKind::WorkloadHarness => true,
    };
    !compiles && is_small(content)
}

/// Whether the content is within [`MAX_INLINE_BYTES`]. The traversal stops as soon as the limit is exceeded.
fn is_small(content: &Value) -> bool {
    let mut remaining = MAX_INLINE_BYTES;
    let mut pending = vec![content];
    while let Some(value) = pending.pop() {
        let size = match value {
            Value::String(text) => 16 + text.len(),
            Value::Array(items) => 16_usize.saturating_mul(items.len().saturating_add(1)),
            Value::Object(members) => members.keys().fold(16, |size, key| size + 16 + key.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        let Some(reduced) = remaining.checked_sub(size) else { return false };
        remaining = reduced;
        match value {
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => pending.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_short_content_without_compilation_is_validated_inline() {
        let prompt = json!({ "system_prompt": "Sort the ticket.", "variables": [{ "name": "ticket" }] });
        assert!(is_fast(AssetKind::PromptTemplate, &prompt));
        assert!(!is_fast(AssetKind::PolicyBundle, &json!({ "rules": [] })));
        for slow_content in [
            json!({ "system_prompt": "Sort the ticket.", "output_schema": { "pattern": "a" } }),
            json!({ "system_prompt": "x".repeat(MAX_INLINE_BYTES) }),
            json!({ "variables": vec![json!(0); MAX_INLINE_BYTES / 16] }),
            json!({ "labels": (0..MAX_INLINE_BYTES / 16).map(|key| (key.to_string(), json!(0))).collect::<Value>() }),
        ] {
            assert!(!is_fast(AssetKind::PromptTemplate, &slow_content));
        }
    }
}
