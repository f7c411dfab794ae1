//! Lineage: the items that each step of a run read, by name, digest and length. Source: specification, context lineage.

use crate::{
    execution::Execution,
    id::{DecisionId, LineageId},
    policy,
    time::Timestamp,
};

/// The maximum number of lineage items of a run. Realistic flows stay far below it. One further item marks a lineage
/// that was truncated at this number.
pub const MAX_LINEAGE_ITEMS: usize = 1_000;

/// Where an item that a step read comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The item comes from the submitter of the run.
    UserInput,
    /// The item is a governed prompt, or a template that the prompt includes.
    PromptTemplate,
    /// The item is a document of a knowledge base.
    KnowledgeBase,
    /// The item is an earlier turn of the conversation.
    Memory,
    /// The item is the output of a model, an agent or a tool in an earlier step.
    ToolResult,
    /// The item is the flow, or the output of a step that Fairway itself performs.
    System,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 6] =
        [Self::UserInput, Self::PromptTemplate, Self::KnowledgeBase, Self::Memory, Self::ToolResult, Self::System];

    /// The wire form, such as `user_input`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserInput => "user_input",
            Self::PromptTemplate => "prompt_template",
            Self::KnowledgeBase => "knowledge_base",
            Self::Memory => "memory",
            Self::ToolResult => "tool_result",
            Self::System => "system",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == text)
    }
}

/// The role that an item has in the step that read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfluenceRole {
    /// An instruction that the step follows.
    Instruction,
    /// A source for the answer of the step.
    Evidence,
    /// Data that the step processes.
    Input,
    /// An example that the step imitates.
    Example,
}

impl InfluenceRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Instruction, Self::Evidence, Self::Input, Self::Example];

    /// The wire form, such as `instruction`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Evidence => "evidence",
            Self::Input => "input",
            Self::Example => "example",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// The use that a step makes of an item that it read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionClass {
    /// The step reads the item.
    Read,
    /// The step generates output from the item.
    Generate,
    /// The step passes the item to a tool.
    ToolCall,
    /// The step stores the item.
    Write,
}

impl ActionClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Read, Self::Generate, Self::ToolCall, Self::Write];

    /// The wire form, such as `read`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Generate => "generate",
            Self::ToolCall => "tool_call",
            Self::Write => "write",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

/// The reason why an item is untrusted. The variants are ordered from the least to the most severe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UntrustedReason {
    /// The submitter supplied the item.
    UserSupplied,
    /// The item is from a document of a knowledge base. Its author may be another person than the submitter.
    RetrievedDocument,
    /// The item is the result of a tool. The operator of the tool may be another person than the submitter.
    ToolResult,
    /// A model generated the item.
    ModelOutput,
}

impl UntrustedReason {
    /// The wire form, such as `user_supplied`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UserSupplied => "user_supplied",
            Self::RetrievedDocument => "retrieved_document",
            Self::ToolResult => "tool_result",
            Self::ModelOutput => "model_output",
        }
    }
}

/// An item that a step of a run read, as the commit of the run's end stores it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageItem {
    /// The identifier of the item.
    pub lineage_id: LineageId,
    /// The source of the item, such as a prompt or a tool.
    pub origin: Origin,
    /// The role of the item in the step.
    pub influence_role: InfluenceRole,
    /// The use that the step makes of the item.
    pub action_class: ActionClass,
    /// The name of the item: a version, the `inputs` of the run, or the output of a step.
    pub reference: String,
    /// The checksum of an asset version or a retrieved text; a salted digest for any other item. A salted digest
    /// reveals nothing once its salt is erased.
    pub digest: [u8; 32],
    /// The length of the item as JSON, in bytes.
    pub size_bytes: u64,
    /// The reason why the item is untrusted; `None` if it is trusted.
    pub untrusted: Option<UntrustedReason>,
    /// When the step read the item.
    pub created_at: Timestamp,
}

/// An item that a step of a run read, as read from the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageRow {
    /// The identifier of the item.
    pub lineage_id: LineageId,
    /// The source of the item, such as a prompt or a tool.
    pub origin: Origin,
    /// The role of the item in the step.
    pub influence_role: InfluenceRole,
    /// The use that the step makes of the item.
    pub action_class: ActionClass,
    /// The name of the item: a version, the `inputs` of the run, or the output of a step.
    pub reference: String,
    /// The digest of the item: `blake3:` and 64 hexadecimal digits.
    pub digest: String,
    /// The length of the item as JSON, in bytes.
    pub size_bytes: u64,
    /// The stored code of the reason why the item is untrusted; `None` if it is trusted.
    pub untrusted: Option<String>,
    /// Whether the text of the item cannot be read, because it was erased or never stored.
    pub redacted: bool,
    /// The policy decisions of the run before the step read the item, newest first.
    pub decisions: Vec<(DecisionId, policy::DecisionOutcome)>,
    /// When the step read the item.
    pub created_at: Timestamp,
}

impl Origin {
    /// Whether the text of an item with this origin and name cannot be read. Outputs of steps are never stored. Inputs
    /// can be read while they are stored (`are_inputs_stored`).
    #[must_use]
    pub fn is_text_unavailable(self, reference: &str, are_inputs_stored: bool) -> bool {
        match self {
            Self::UserInput => !are_inputs_stored || reference.starts_with("steps."),
            Self::ToolResult => true,
            Self::PromptTemplate | Self::KnowledgeBase | Self::Memory | Self::System => false,
        }
    }
}

/// The policy decisions of a run that precede a lineage item. Identifiers within a run are ordered by time, so a
/// decision with a lower identifier precedes the item.
#[must_use]
pub fn decisions_before(
    decisions: &[(DecisionId, policy::DecisionOutcome)],
    item: LineageId,
) -> Vec<(DecisionId, policy::DecisionOutcome)> {
    decisions.iter().filter(|(id, _)| id.uuid() < item.uuid()).copied().collect()
}

impl LineageRow {
    /// The strictest policy outcome of the run before the step read the item; `None` without a decision.
    #[must_use]
    pub fn strictest_prior_outcome(&self) -> Option<policy::DecisionOutcome> {
        self.decisions.iter().map(|(_, outcome)| *outcome).max()
    }
}

/// One page of the lineage of a run, newest item first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineagePage {
    /// The run, which authorization needs for its workspace and workload. Its answer and its policy outcome are not
    /// loaded.
    pub execution: Execution,
    /// The number of items that match the filter.
    pub total: u64,
    /// The items of this page.
    pub items: Vec<LineageRow>,
}

/// The conditions of a list of lineage items. An item must meet all that are set.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineageFilter {
    /// Only items of this origin.
    pub origin: Option<Origin>,
    /// Only items in this role.
    pub influence_role: Option<InfluenceRole>,
    /// Only items that a step used in this way.
    pub action_class: Option<ActionClass>,
}
