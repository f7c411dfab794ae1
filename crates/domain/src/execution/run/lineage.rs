//! Records the lineage of a run: the items that each step reads.

use super::Run;
use crate::{
    asset::kind::AssetKind,
    evidence::lineage::{ActionClass, InfluenceRole, LineageItem, MAX_LINEAGE_ITEMS, Origin, UntrustedReason},
    execution::{Payload, plan::SourceVersion},
    flow::{
        Action, Step, StepKind, StepOutputMapping,
        bound_prompt_use::is_bound_prompt_template,
        reference::{Template, ValueReference},
    },
    knowledge::retrieval::RetrievedChunk,
    memory::StoredTurn,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The reference of the item that marks a lineage as truncated at its maximum length.
const TRUNCATED_REFERENCE: &str = "lineage_truncated";

/// An item that a step reads, as lineage records it.
struct LineageInput {
    origin: Origin,
    influence_role: InfluenceRole,
    reference: String,
    digest: [u8; 32],
    size_bytes: u64,
    untrusted: Option<UntrustedReason>,
}

impl LineageInput {
    /// The lineage item of an asset version. The item is trusted, because the version was approved with the release.
    fn version(origin: Origin, source: &SourceVersion, reference: String) -> Self {
        Self {
            origin,
            influence_role: InfluenceRole::Instruction,
            reference,
            digest: source.checksum.bytes(),
            size_bytes: source.size_bytes,
            untrusted: None,
        }
    }

    /// The lineage item that replaces all items beyond the maximum number.
    fn truncated() -> Self {
        Self {
            origin: Origin::System,
            influence_role: InfluenceRole::Evidence,
            reference: TRUNCATED_REFERENCE.to_owned(),
            digest: [0; 32],
            size_bytes: 0,
            untrusted: None,
        }
    }
}

impl Run<'_> {
    /// Records the items that a policy step reads: the inputs of the run and the referenced outputs of earlier steps.
    pub(super) fn record_inputs(&mut self, step: &Step) {
        let mut items = vec![self.run_inputs()];
        items.extend(self.referenced_outputs(step));
        self.record_lineage(ActionClass::Read, items);
    }

    /// Records the items that a model call reads: the prompt with its includes, the step's own template text, the run's
    /// inputs, and referenced step outputs. The run's inputs are always recorded, because prompt arguments and messages
    /// default to them.
    pub(super) fn record_model_inputs(&mut self, step: &Step) {
        let plan = self.run_input.plan;
        let template = step.inputs.get("prompt");
        let mut items = Vec::new();
        if is_bound_prompt_template(template) {
            let bound_prompt = plan.bound_asset(AssetKind::PromptTemplate).and_then(|asset| asset.source.as_ref());
            let sources = bound_prompt.into_iter().chain(&plan.included);
            items.extend(
                sources.map(|source| LineageInput::version(Origin::PromptTemplate, source, source.reference.clone())),
            );
        }
        let has_literals = template.is_some_and(Template::has_literals);
        let flow = plan.bound_asset(AssetKind::OrchestrationFlow).and_then(|asset| asset.source.as_ref());
        if let (true, Some(flow)) = (has_literals, flow) {
            let reference = format!("{}#steps.{}", flow.reference, step.id);
            items.push(LineageInput::version(Origin::System, flow, reference));
        }
        items.push(self.run_inputs());
        items.extend(self.referenced_outputs(step));
        self.record_lineage(ActionClass::Generate, items);
    }

    /// Records the chunks that a step retrieved. Retrieved documents are untrusted.
    pub(super) fn record_documents(&mut self, knowledge_base: &str, chunks: &[RetrievedChunk]) {
        let to_item = |chunk: &RetrievedChunk| LineageInput {
            origin: Origin::KnowledgeBase,
            influence_role: InfluenceRole::Evidence,
            reference: format!("{knowledge_base}#{}/{}", chunk.document_id, chunk.index),
            digest: chunk.digest.bytes(),
            size_bytes: as_u64(chunk.text.len()),
            untrusted: Some(UntrustedReason::RetrievedDocument),
        };
        self.record_lineage(ActionClass::Read, chunks.iter().map(to_item).collect());
    }

    /// Records the earlier turns of a conversation. Each turn contains a message of a person and an answer of a model.
    pub(super) fn record_history(&mut self, memory: &str, turns: &[StoredTurn]) {
        let to_item = |turn: &StoredTurn| LineageInput {
            origin: Origin::Memory,
            influence_role: InfluenceRole::Input,
            reference: format!("{memory}#{}", turn.execution_id),
            digest: turn.digest,
            size_bytes: as_u64(turn.question.len().saturating_add(turn.response.len())),
            untrusted: Some(UntrustedReason::ModelOutput),
        };
        self.record_lineage(ActionClass::Read, turns.iter().map(to_item).collect());
    }

    /// Records a tool result. Tool results are untrusted.
    pub(super) fn record_tool_result(&mut self, reference: &str, result: &Value) {
        let body = result.to_string();
        let size_bytes = as_u64(body.len());
        let item = LineageInput {
            origin: Origin::ToolResult,
            influence_role: InfluenceRole::Evidence,
            reference: reference.to_owned(),
            digest: Payload { body: body.into(), salt: self.run_input.stored_inputs.salt }.digest(),
            size_bytes,
            untrusted: Some(UntrustedReason::ToolResult),
        };
        self.record_lineage(ActionClass::ToolCall, vec![item]);
    }

    fn run_inputs(&self) -> LineageInput {
        let stored_inputs = self.run_input.stored_inputs;
        LineageInput {
            origin: Origin::UserInput,
            influence_role: InfluenceRole::Input,
            reference: "inputs".to_owned(),
            digest: self.run_input.input_digest,
            size_bytes: as_u64(stored_inputs.body.len()),
            untrusted: Some(UntrustedReason::UserSupplied),
        }
    }

    /// Records the step outputs and texts from which the run builds its answer.
    pub(super) fn record_return(&mut self, output: &Template) {
        let references = output.references();
        let reads_inputs = references.iter().any(|reference| matches!(reference, ValueReference::Trigger { .. }));
        let mut items: Vec<LineageInput> = reads_inputs.then(|| self.run_inputs()).into_iter().collect();
        let step_ids: BTreeSet<&str> = references.into_iter().filter_map(referenced_step).collect();
        let outputs = step_ids.into_iter().filter_map(|id| self.referenced_output(id));
        items.extend(outputs.filter(|item| item.untrusted != Some(UntrustedReason::ModelOutput)));
        self.record_lineage(ActionClass::Write, items);
    }

    /// The reason why the output of a step is untrusted; `None` if it is trusted. A mapped output is as untrusted as
    /// the least trusted value in it.
    pub(super) fn untrusted_reason(&self, step: &Step) -> Option<UntrustedReason> {
        let own_reason = match step.kind {
            StepKind::LlmCall { .. } | StepKind::Agent { .. } | StepKind::Embedding { .. } => {
                Some(UntrustedReason::ModelOutput)
            }
            StepKind::Task { action: Action::RetrieveDocuments } => Some(UntrustedReason::RetrievedDocument),
            StepKind::Task { action: Action::EvaluatePolicy } | StepKind::Return { .. } => None,
        };
        let Some(StepOutputMapping::Mapped(template)) = &step.output else { return own_reason };
        let reason_of = |reference: &ValueReference| match reference {
            ValueReference::Trigger { .. } => Some(UntrustedReason::UserSupplied),
            ValueReference::Step { step: id, .. } if *id == step.id => own_reason,
            ValueReference::Step { step: id, .. } => self.untrusted_outputs.get(id.as_str()).copied(),
            ValueReference::Release { .. } => None,
        };
        template.references().into_iter().filter_map(reason_of).max()
    }

    /// The outputs of earlier steps to which a step refers, without duplicates.
    fn referenced_outputs(&self, step: &Step) -> Vec<LineageInput> {
        let step_ids: BTreeSet<&str> =
            step.inputs.values().flat_map(|template| template.references()).filter_map(referenced_step).collect();
        step_ids.into_iter().filter_map(|id| self.referenced_output(id)).collect()
    }

    fn referenced_output(&self, id: &str) -> Option<LineageInput> {
        let body = self.outputs.get(id)?.to_string();
        let untrusted = self.untrusted_outputs.get(id).copied();
        let origin = match untrusted {
            Some(UntrustedReason::ModelOutput | UntrustedReason::ToolResult) => Origin::ToolResult,
            Some(UntrustedReason::RetrievedDocument) => Origin::KnowledgeBase,
            Some(UntrustedReason::UserSupplied) => Origin::UserInput,
            None => Origin::System,
        };
        let size_bytes = as_u64(body.len());
        let digest = Payload { body: body.into(), salt: self.run_input.stored_inputs.salt }.digest();
        let reference = format!("steps.{id}.output");
        Some(LineageInput { origin, influence_role: InfluenceRole::Evidence, reference, digest, size_bytes, untrusted })
    }

    fn record_lineage(&mut self, action_class: ActionClass, items: Vec<LineageInput>) {
        let created_at = self.moment.now();
        for item in items {
            let item_count = self.run_outcome.lineage.len();
            if item_count > MAX_LINEAGE_ITEMS {
                return;
            }
            let item = if item_count == MAX_LINEAGE_ITEMS { LineageInput::truncated() } else { item };
            self.run_outcome.lineage.push(LineageItem {
                lineage_id: self.moment.new_id().into(),
                origin: item.origin,
                influence_role: item.influence_role,
                action_class,
                reference: item.reference,
                digest: item.digest,
                size_bytes: item.size_bytes,
                untrusted: item.untrusted,
                created_at,
            });
        }
    }
}

fn referenced_step(reference: &ValueReference) -> Option<&str> {
    match reference {
        ValueReference::Step { step, .. } => Some(step.as_str()),
        ValueReference::Trigger { .. } | ValueReference::Release { .. } => None,
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
