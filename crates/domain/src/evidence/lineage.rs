//! Context lineage: what went into the answer of a run, by name, digest and length (spec: Context-lineage).

use crate::{
    execution::Execution,
    id::{DecisionId, LineageId},
    policy,
    time::Timestamp,
};

/// Where something came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Whoever asked.
    UserInput,
    /// A governed prompt, or what it includes.
    PromptTemplate,
    /// A document of a knowledge base.
    KnowledgeBase,
    /// An earlier turn of a conversation.
    Memory,
    /// What a model, an agent or a tool produced in an earlier step.
    ToolResult,
    /// The flow itself, or a step that the service does.
    System,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 6] =
        [Self::UserInput, Self::PromptTemplate, Self::KnowledgeBase, Self::Memory, Self::ToolResult, Self::System];

    /// The spelling on the wire.
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

    /// The origin of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == text)
    }
}

/// What it was to the step that read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InfluenceRole {
    /// Something to follow.
    Instruction,
    /// Something to answer from.
    Evidence,
    /// Something to work on.
    Input,
    /// Something to imitate.
    Example,
}

impl InfluenceRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Instruction, Self::Evidence, Self::Input, Self::Example];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Instruction => "instruction",
            Self::Evidence => "evidence",
            Self::Input => "input",
            Self::Example => "example",
        }
    }

    /// The role of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// What the step did with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionClass {
    /// Looked at it.
    Read,
    /// Made an answer of it.
    Generate,
    /// Called a tool with it.
    ToolCall,
    /// Stored it.
    Write,
}

impl ActionClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Read, Self::Generate, Self::ToolCall, Self::Write];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Generate => "generate",
            Self::ToolCall => "tool_call",
            Self::Write => "write",
        }
    }

    /// The class of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == text)
    }
}

/// Why something is not to be trusted.
/// From the milder to the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UntrustedReason {
    /// Whoever asked wrote it.
    UserSupplied,
    /// It stands in a document, and whoever wrote that is not asking.
    RetrievedDocument,
    /// A tool gave it, and whoever stands behind the tool is not asking.
    ToolResult,
    /// A model wrote it.
    ModelOutput,
}

impl UntrustedReason {
    /// The spelling on the wire.
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

/// One thing that one step read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageItem {
    /// Its identifier.
    pub lineage_id: LineageId,
    /// Where it came from.
    pub origin: Origin,
    /// What it was to the step.
    pub influence_role: InfluenceRole,
    /// What the step did with it.
    pub action_class: ActionClass,
    /// Its name: a version, the run's `inputs`, or the output of a step.
    pub reference: String,
    /// The checksum of a version; of everything else a digest salted like that of the run's inputs, which says nothing
    /// once they are erased.
    pub digest: [u8; 32],
    /// Its length as JSON.
    pub size_bytes: u64,
    /// Why it is not to be trusted; `None` where it is.
    pub untrusted: Option<UntrustedReason>,
    /// When it was read.
    pub created_at: Timestamp,
}

/// One thing that a step read, as it is read back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineageRow {
    /// Its identifier.
    pub lineage_id: LineageId,
    /// Where it came from.
    pub origin: Origin,
    /// What it was to the step.
    pub influence_role: InfluenceRole,
    /// What the step did with it.
    pub action_class: ActionClass,
    /// Its name.
    pub reference: String,
    /// Its digest, as it is shown.
    pub digest: String,
    /// Its length as JSON.
    pub size_bytes: u64,
    /// Why it is not to be trusted, as it was stored.
    pub untrusted: Option<String>,
    /// Whether the text itself cannot be read, because it was erased or never kept.
    pub redacted: bool,
    /// The decisions that had been taken when it was read, the latest first.
    pub decisions: Vec<(DecisionId, policy::Outcome)>,
    /// When it was read.
    pub created_at: Timestamp,
}

impl Origin {
    /// Whether the text behind an item of this origin and name cannot be read. What a step produced is handed on and not
    /// kept, whoever it came from.
    #[must_use]
    pub fn is_redacted(self, reference: &str, inputs_kept: bool) -> bool {
        match self {
            Self::UserInput => !inputs_kept || reference.starts_with("steps."),
            Self::ToolResult => true,
            Self::PromptTemplate | Self::KnowledgeBase | Self::Memory | Self::System => false,
        }
    }
}

/// The decisions of a run that had been taken when an item was noted. Identifiers of one run are made one after the other,
/// so their order tells.
#[must_use]
pub fn taken_before(
    decisions: &[(DecisionId, policy::Outcome)],
    item: LineageId,
) -> Vec<(DecisionId, policy::Outcome)> {
    decisions.iter().filter(|(id, _)| id.uuid() < item.uuid()).copied().collect()
}

impl LineageRow {
    /// Under which answer of the policy the step acted: the strictest until then.
    #[must_use]
    pub fn posture(&self) -> Option<policy::Outcome> {
        self.decisions.iter().map(|(_, outcome)| *outcome).max()
    }
}

/// A page of a run's lineage, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineagePage {
    /// The run, for its place: without its answer and without what the policy said.
    pub execution: Execution,
    /// How many there are in all that the filter lets through.
    pub total: u64,
    /// Those of the page.
    pub items: Vec<LineageRow>,
}

/// Which part of a lineage is read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LineageFilter {
    /// Only this origin.
    pub origin: Option<Origin>,
    /// Only this role.
    pub influence_role: Option<InfluenceRole>,
    /// Only this class.
    pub action_class: Option<ActionClass>,
}
