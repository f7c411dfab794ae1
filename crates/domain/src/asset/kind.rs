//! The kinds of assets. The kind is also the role in which a release binds an asset.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an asset. The wire forms are part of the API and never change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssetKind {
    /// The instructions for a model call.
    PromptTemplate,
    /// Documents for retrieval, with the rules of access to them.
    KnowledgeBase,
    /// The permitted routes to models, with call parameters.
    ModelPolicy,
    /// The legacy form of a model policy, which releases may still bind.
    ModelConfig,
    /// The rules that decide whether a run may proceed.
    PolicyBundle,
    /// A tool that a model may call.
    ToolDefinition,
    /// A handler for an event of a run, such as a model call or the end of the run.
    HookDefinition,
    /// A server that provides tools by the Model Context Protocol.
    McpServer,
    /// Instructions and files for one task.
    Skill,
    /// Instructions with tools, budgets and sub-agents.
    Agent,
    /// The steps of a run and their order.
    OrchestrationFlow,
    /// The settings of the memory that a conversation keeps between turns.
    Memory,
    /// Examples and thresholds for the evaluation of a release.
    EvaluationSuite,
    /// The detectors that check inputs and outputs of runs.
    GuardrailConfig,
    /// The settings of a connection to another system.
    ConnectorDefinition,
    /// The permitted locations and providers of data.
    SovereigntyProfile,
    /// The requirements and the risk class of a workload.
    WorkloadProfile,
    /// The limits of the sandbox in which scripts run.
    SandboxProfile,
    /// The runtime settings of a flow or an agent: resources, permissions and stop conditions.
    WorkloadHarness,
}

impl AssetKind {
    /// Every kind, in the order in which the API lists them.
    pub const ALL: [Self; 19] = [
        Self::PromptTemplate,
        Self::KnowledgeBase,
        Self::ModelPolicy,
        Self::ModelConfig,
        Self::PolicyBundle,
        Self::ToolDefinition,
        Self::HookDefinition,
        Self::McpServer,
        Self::Skill,
        Self::Agent,
        Self::OrchestrationFlow,
        Self::Memory,
        Self::EvaluationSuite,
        Self::GuardrailConfig,
        Self::ConnectorDefinition,
        Self::SovereigntyProfile,
        Self::WorkloadProfile,
        Self::SandboxProfile,
        Self::WorkloadHarness,
    ];

    /// The wire form, such as `prompt_template`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PromptTemplate => "prompt_template",
            Self::KnowledgeBase => "knowledge_base",
            Self::ModelPolicy => "model_policy",
            Self::ModelConfig => "model_config",
            Self::PolicyBundle => "policy_bundle",
            Self::ToolDefinition => "tool_definition",
            Self::HookDefinition => "hook_definition",
            Self::McpServer => "mcp_server",
            Self::Skill => "skill",
            Self::Agent => "agent",
            Self::OrchestrationFlow => "orchestration_flow",
            Self::Memory => "memory",
            Self::EvaluationSuite => "evaluation_suite",
            Self::GuardrailConfig => "guardrail_config",
            Self::ConnectorDefinition => "connector_definition",
            Self::SovereigntyProfile => "sovereignty_profile",
            Self::WorkloadProfile => "workload_profile",
            Self::SandboxProfile => "sandbox_profile",
            Self::WorkloadHarness => "workload_harness",
        }
    }

    /// Parses the wire form; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether a newer kind replaces this one. Assets of a legacy kind can still be created and bound.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        match self {
            Self::ModelConfig => true,
            Self::PromptTemplate
            | Self::KnowledgeBase
            | Self::ModelPolicy
            | Self::PolicyBundle
            | Self::ToolDefinition
            | Self::HookDefinition
            | Self::McpServer
            | Self::Skill
            | Self::Agent
            | Self::OrchestrationFlow
            | Self::Memory
            | Self::EvaluationSuite
            | Self::GuardrailConfig
            | Self::ConnectorDefinition
            | Self::SovereigntyProfile
            | Self::WorkloadProfile
            | Self::SandboxProfile
            | Self::WorkloadHarness => false,
        }
    }

    /// Whether a release may bind several assets of this kind. It binds at most one asset of any other kind.
    #[must_use]
    pub const fn allows_many_bindings(self) -> bool {
        match self {
            Self::KnowledgeBase | Self::ToolDefinition | Self::Skill | Self::GuardrailConfig | Self::Memory => true,
            Self::PromptTemplate
            | Self::ModelPolicy
            | Self::ModelConfig
            | Self::PolicyBundle
            | Self::HookDefinition
            | Self::McpServer
            | Self::Agent
            | Self::OrchestrationFlow
            | Self::EvaluationSuite
            | Self::ConnectorDefinition
            | Self::SovereigntyProfile
            | Self::WorkloadProfile
            | Self::SandboxProfile
            | Self::WorkloadHarness => false,
        }
    }
}

impl fmt::Display for AssetKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_every_spelling() {
        for kind in AssetKind::ALL {
            assert_eq!(AssetKind::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), serde_json::json!(kind.as_str()));
        }
        assert_eq!(AssetKind::parse("Prompt_Template"), None);
        assert_eq!(AssetKind::parse(""), None);
    }

    #[test]
    fn allows_many_bindings_for_five_kinds() {
        let many: Vec<_> = AssetKind::ALL.into_iter().filter(|kind| kind.allows_many_bindings()).collect();
        assert_eq!(many.len(), 5);
    }
}
