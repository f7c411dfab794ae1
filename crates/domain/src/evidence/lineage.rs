//! Context lineage: the inputs of each step of a run, by name, digest and length. Source: specification, context
//! lineage.

use crate::{
    execution::Execution,
    id::{DecisionId, LineageId},
    policy,
    time::Timestamp,
};

/// The maximum number of lineage items of a run. A further item marks a lineage that was truncated at this limit.
/// Realistic flows stay far below the limit.
pub const MAX_LINEAGE_ITEMS: usize = 1_000;

/// The origin of a lineage item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The submitter of the run.
    UserInput,
    /// A governed prompt or a template that it includes.
    PromptTemplate,
    /// A document of a knowledge base.
    KnowledgeBase,
    /// An earlier turn of a conversation.
    Memory,
    /// The output of a model, an agent or a tool in an earlier step.
    ToolResult,
    /// The flow, or a step that Fairway itself performs.
    System,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 6] =
        [Self::UserInput, Self::PromptTemplate, Self::KnowledgeBase, Self::Memory, Self::ToolResult, Self::System];

    /// The wire form.
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

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == text)
    }
}

/// The role of an item in the step that read it.
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

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Evidence => "evidence",
            Self::Input => "input",
            Self::Example => "example",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// The way in which a step uses an item.
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

    /// The wire form.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Generate => "generate",
            Self::ToolCall => "tool_call",
            Self::Write => "write",
        }
    }

    /// Parses the wire form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

/// The reason why an item is untrusted. Variants are in ascending order of severity.
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
    /// The wire form.
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

/// An item that a step read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageItem {
    /// The identifier of the item.
    pub lineage_id: LineageId,
    /// The origin of the item.
    pub origin: Origin,
    /// The role of the item in the step.
    pub influence_role: InfluenceRole,
    /// The step's use of the item.
    pub action_class: ActionClass,
    /// The name of the item: a version, the run's `inputs`, or the output of a step.
    pub reference: String,
    /// The checksum of a version or of a retrieved text; the salted digest of any other item. A salted digest reveals
    /// nothing once the salt is erased.
    pub digest: [u8; 32],
    /// The length of the item as JSON, in bytes.
    pub size_bytes: u64,
    /// The reason why the item is untrusted; `None` if it is trusted.
    pub untrusted: Option<UntrustedReason>,
    /// When the step read the item.
    pub created_at: Timestamp,
}

/// A stored lineage item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageRow {
    /// The identifier of the item.
    pub lineage_id: LineageId,
    /// The origin of the item.
    pub origin: Origin,
    /// The role of the item in the step.
    pub influence_role: InfluenceRole,
    /// The step's use of the item.
    pub action_class: ActionClass,
    /// The name of the item.
    pub reference: String,
    /// The digest of the item as text.
    pub digest: String,
    /// The length of the item as JSON, in bytes.
    pub size_bytes: u64,
    /// The stored code of the reason why the item is untrusted.
    pub untrusted: Option<String>,
    /// Whether the text is unavailable: erased or never stored.
    pub redacted: bool,
    /// The policy decisions that were made before the step read the item, latest first.
    pub decisions: Vec<(DecisionId, policy::Outcome)>,
    /// When the step read the item.
    pub created_at: Timestamp,
}

impl Origin {
    /// Whether the text of an item of this origin and name is unavailable. Outputs of steps are never stored. Inputs
    /// are available while they are stored (`are_inputs_stored`).
    #[must_use]
    pub fn is_text_unavailable(self, reference: &str, are_inputs_stored: bool) -> bool {
        match self {
            Self::UserInput => !are_inputs_stored || reference.starts_with("steps."),
            Self::ToolResult => true,
            Self::PromptTemplate | Self::KnowledgeBase | Self::Memory | Self::System => false,
        }
    }
}

/// The decisions of a run that precede a lineage item. Identifiers within a run are ordered by time, so a decision
/// precedes an item if its identifier is lower.
#[must_use]
pub fn decisions_before(
    decisions: &[(DecisionId, policy::Outcome)],
    item: LineageId,
) -> Vec<(DecisionId, policy::Outcome)> {
    decisions.iter().filter(|(id, _)| id.uuid() < item.uuid()).copied().collect()
}

impl LineageRow {
    /// The policy outcome in force for the step: the strictest outcome before it read the item.
    #[must_use]
    pub fn posture(&self) -> Option<policy::Outcome> {
        self.decisions.iter().map(|(_, outcome)| *outcome).max()
    }
}

/// A page of a run's lineage, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineagePage {
    /// The run, as far as it is read for its workspace and workload: without its answer and its policy outcome.
    pub execution: Execution,
    /// The number of items that match the filter.
    pub total: u64,
    /// The items of the page.
    pub items: Vec<LineageRow>,
}

/// The filter of a lineage listing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineageFilter {
    /// Selects only items of this origin.
    pub origin: Option<Origin>,
    /// Selects only items in this role.
    pub influence_role: Option<InfluenceRole>,
    /// Selects only items with this use.
    pub action_class: Option<ActionClass>,
}
