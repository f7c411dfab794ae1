//! Context lineage: the inputs of each step, by name, digest and length (spec: Context-lineage).

use crate::{
    execution::Execution,
    id::{DecisionId, LineageId},
    policy,
    time::Timestamp,
};

/// The maximum number of lineage items of a run, before the item that marks a truncated lineage. No realistic flow reaches
/// it.
pub const MAX_LINEAGE: usize = 1_000;

/// The origin of a lineage item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The run's submitter.
    UserInput,
    /// A governed prompt or a template that it includes.
    PromptTemplate,
    /// A document of a knowledge base.
    KnowledgeBase,
    /// An earlier exchange of a conversation.
    Memory,
    /// The output of a model, an agent or a tool in an earlier step.
    ToolResult,
    /// The flow, or a step that Fairway performs.
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
    /// An instruction to follow.
    Instruction,
    /// Evidence to answer from.
    Evidence,
    /// Input to process.
    Input,
    /// An example to imitate.
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

/// The step's use of the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionClass {
    /// Reads it.
    Read,
    /// Generates output from it.
    Generate,
    /// Calls a tool with it.
    ToolCall,
    /// Stores it.
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

/// The reason an item is untrusted, in ascending order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UntrustedReason {
    /// The submitter supplied it.
    UserSupplied,
    /// It comes from a document whose author is not the submitter.
    RetrievedDocument,
    /// It comes from a tool whose operator is not the submitter.
    ToolResult,
    /// A model generated it.
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
    /// Its identifier.
    pub lineage_id: LineageId,
    /// Its origin.
    pub origin: Origin,
    /// Its role in the step.
    pub influence_role: InfluenceRole,
    /// The step's use of it.
    pub action_class: ActionClass,
    /// Its name: a version, the run's `inputs`, or the output of a step.
    pub reference: String,
    /// The checksum of a version; for other items a digest salted like the run's inputs, which reveals nothing once
    /// they are erased.
    pub digest: [u8; 32],
    /// Its length as JSON, in bytes.
    pub size_bytes: u64,
    /// The reason it is untrusted; `None` when it is trusted.
    pub untrusted: Option<UntrustedReason>,
    /// When it was read.
    pub created_at: Timestamp,
}

/// A stored lineage item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageRow {
    /// Its identifier.
    pub lineage_id: LineageId,
    /// Its origin.
    pub origin: Origin,
    /// Its role in the step.
    pub influence_role: InfluenceRole,
    /// The step's use of it.
    pub action_class: ActionClass,
    /// Its name.
    pub reference: String,
    /// Its digest in display form.
    pub digest: String,
    /// Its length as JSON, in bytes.
    pub size_bytes: u64,
    /// The stored reason it is untrusted.
    pub untrusted: Option<String>,
    /// Whether the text is unavailable: erased or never stored.
    pub redacted: bool,
    /// The decisions taken before it was read, latest first.
    pub decisions: Vec<(DecisionId, policy::Outcome)>,
    /// When it was read.
    pub created_at: Timestamp,
}

impl Origin {
    /// Whether the text of an item of this origin and name is unavailable. Step outputs are passed on but never stored.
    #[must_use]
    pub fn is_text_unavailable(self, reference: &str, inputs_kept: bool) -> bool {
        match self {
            Self::UserInput => !inputs_kept || reference.starts_with("steps."),
            Self::ToolResult => true,
            Self::PromptTemplate | Self::KnowledgeBase | Self::Memory | Self::System => false,
        }
    }
}

/// The decisions of a run that precede a lineage item. Identifiers within a run are ordered by time, so their order
/// decides.
#[must_use]
pub fn decisions_before(
    decisions: &[(DecisionId, policy::Outcome)],
    item: LineageId,
) -> Vec<(DecisionId, policy::Outcome)> {
    decisions.iter().filter(|(id, _)| id.uuid() < item.uuid()).copied().collect()
}

impl LineageRow {
    /// The policy outcome in force for the step: the strictest until then.
    #[must_use]
    pub fn posture(&self) -> Option<policy::Outcome> {
        self.decisions.iter().map(|(_, outcome)| *outcome).max()
    }
}

/// A page of a run's lineage, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineagePage {
    /// The run, for its workspace and workload, without its answer or policy outcome.
    pub execution: Execution,
    /// The number of items that match the filter.
    pub total: u64,
    /// The items of the page.
    pub items: Vec<LineageRow>,
}

/// The filter of a lineage listing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineageFilter {
    /// Only this origin.
    pub origin: Option<Origin>,
    /// Only this role.
    pub influence_role: Option<InfluenceRole>,
    /// Only this class.
    pub action_class: Option<ActionClass>,
}
