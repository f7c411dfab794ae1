//! Parameters of the statement that ends runs, one vector for each column.

use super::{PendingFinish, facts::FactColumns, memory::TurnColumns};
use crate::database::Param;
use fairway_domain::{
    evidence::{EvidenceArtifact, RecordedDecision, lineage::LineageItem},
    execution::{FinishRecord, Payload, StepRecord},
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

/// The parameters of a batch of ends.
#[derive(Default)]
pub(super) struct BatchColumns<'a> {
    facts: FactColumns,
    executions: Vec<Uuid>,
    first_execution: Option<Uuid>,
    last_execution: Option<Uuid>,
    tokens: Vec<Uuid>,
    statuses: Vec<&'static str>,
    outcomes: Vec<Option<&'static str>>,
    error_codes: Vec<Option<&'a str>>,
    error_messages: Vec<Option<&'a str>>,
    finished: Vec<Option<OffsetDateTime>>,
    error_offsets: Vec<Option<i64>>,
    salts: Vec<Option<&'a [u8]>>,
    outputs: Vec<Option<&'a str>>,
    output_digests: Vec<Option<Vec<u8>>>,
    steps: StepColumns<'a>,
    artifacts: ArtifactColumns<'a>,
    lineage: LineageColumns<'a>,
    decisions: DecisionColumns<'a>,
    fulfilments: FulfilmentColumns,
    payloads: PayloadColumns<'a>,
    events: EventColumns,
    reviews: ReviewColumns,
    turns: TurnColumns<'a>,
}

#[derive(Default)]
struct StepColumns<'a> {
    executions: Vec<Uuid>,
    positions: Vec<i16>,
    ids: Vec<&'a str>,
    types: Vec<&'static str>,
    failures: Vec<Option<&'a str>>,
    durations: Vec<i64>,
}

#[derive(Default)]
struct ArtifactColumns<'a> {
    executions: Vec<Uuid>,
    ids: Vec<Uuid>,
    kinds: Vec<&'static str>,
    refs: Vec<&'a str>,
    bodies: Vec<String>,
    made: Vec<OffsetDateTime>,
}

#[derive(Default)]
struct LineageColumns<'a> {
    executions: Vec<Uuid>,
    ids: Vec<Uuid>,
    origins: Vec<&'static str>,
    roles: Vec<&'static str>,
    classes: Vec<&'static str>,
    refs: Vec<&'a str>,
    digests: Vec<&'a [u8]>,
    sizes: Vec<i64>,
    reasons: Vec<Option<&'static str>>,
    made: Vec<OffsetDateTime>,
}

#[derive(Default)]
struct DecisionColumns<'a> {
    executions: Vec<Uuid>,
    ids: Vec<Uuid>,
    outcomes: Vec<&'static str>,
    reasons: Vec<&'a str>,
    lists: Vec<Value>,
    evaluated: Vec<OffsetDateTime>,
}

#[derive(Default)]
struct FulfilmentColumns {
    executions: Vec<Uuid>,
    names: Vec<&'static str>,
    at: Vec<OffsetDateTime>,
}

#[derive(Default)]
struct PayloadColumns<'a> {
    executions: Vec<Uuid>,
    artifacts: Vec<Uuid>,
    salts: Vec<&'a [u8]>,
    bodies: Vec<&'a str>,
}

#[derive(Default)]
struct ReviewColumns {
    executions: Vec<Uuid>,
    within: Vec<f64>,
}

#[derive(Default)]
struct EventColumns {
    executions: Vec<Uuid>,
    positions: Vec<i16>,
    events: Vec<String>,
}

impl<'a> BatchColumns<'a> {
    pub(super) fn of(pending: &[&'a PendingFinish]) -> Self {
        let mut batch = Self::default();
        for pending in pending {
            batch.facts.push(pending.scope, &pending.ending.fact);
            batch.push(&pending.ending);
        }
        batch.first_execution = batch.executions.iter().min().copied();
        batch.last_execution = batch.executions.iter().max().copied();
        batch
    }

    fn push(&mut self, ending: &'a FinishRecord) {
        let id = ending.execution_id.uuid();
        self.executions.push(id);
        self.tokens.push(ending.lease);
        self.statuses.push(ending.status.as_str());
        let is_over = ending.review_timeout.is_none();
        self.outcomes.push(is_over.then(|| ending.outcome.as_str()));
        let error = ending.error.as_ref();
        self.error_codes.push(error.map(|error| error.code.as_str()));
        self.error_messages.push(error.map(|error| error.message.as_str()));
        self.error_offsets.push(error.and_then(|error| error.offset).map(i64::from));
        self.finished.push(is_over.then(|| ending.finished_at.to_datetime()));
        let output = ending.output.as_ref();
        self.salts.push(output.map(|output| output.salt.as_slice()));
        self.outputs.push(output.map(|output| output.body.as_str()));
        self.output_digests.push(output.map(|output| output.digest().to_vec()));
        for (position, step) in (1_i16..).zip(&ending.steps) {
            self.steps.push(id, position, step);
        }
        for artifact in &ending.artifacts {
            self.artifacts.push(id, artifact);
            if let Some(payload) = &artifact.payload {
                self.payloads.push(id, artifact.artifact_id.uuid(), payload);
            }
        }
        ending.lineage.iter().for_each(|item| self.lineage.push(id, item));
        ending.decisions.iter().for_each(|decision| self.decisions.push(id, decision));
        for (obligation, at) in &ending.fulfilled {
            self.fulfilments.executions.push(id);
            self.fulfilments.names.push(obligation.as_str());
            self.fulfilments.at.push(at.to_datetime());
        }
        if let Some(within) = ending.review_timeout {
            self.reviews.executions.push(id);
            self.reviews.within.push(within.as_secs_f64());
        }
        if let Some(written) = &ending.writeback {
            self.turns.push(id, written);
        }
        if let Some(progress) = &ending.progress {
            self.events.executions.push(id);
            self.events.positions.push(i16::try_from(progress.position).unwrap_or(i16::MAX));
            self.events.events.push(json!(progress.events).to_string());
        }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let (steps, artifacts, lineage) = (&self.steps, &self.artifacts, &self.lineage);
        self.facts.with(&[
            &self.executions,
            &self.tokens,
            &self.statuses,
            &self.outcomes,
            &self.error_codes,
            &self.error_messages,
            &self.finished,
            &self.error_offsets,
            &self.salts,
            &self.outputs,
            &self.output_digests,
            &steps.executions,
            &steps.positions,
            &steps.ids,
            &steps.types,
            &steps.failures,
            &steps.durations,
            &artifacts.executions,
            &artifacts.ids,
            &artifacts.kinds,
            &artifacts.refs,
            &artifacts.bodies,
            &artifacts.made,
            &lineage.executions,
            &lineage.ids,
            &lineage.origins,
            &lineage.roles,
            &lineage.classes,
            &lineage.refs,
            &lineage.digests,
            &lineage.sizes,
            &lineage.reasons,
            &lineage.made,
            &self.first_execution,
            &self.last_execution,
        ])
    }

    /// Like [`Self::params`], with the last events of the runs.
    pub(super) fn with_events(&self) -> Vec<Param<'_>> {
        let mut params = self.params();
        let told: [Param<'_>; 3] = [&self.events.executions, &self.events.positions, &self.events.events];
        params.extend_from_slice(&told);
        params
    }

    /// Like [`Self::with_events`], with the parts that only some runs have.
    pub(super) fn with_rare_parts(&self) -> Vec<Param<'_>> {
        let (decisions, fulfilments, payloads) = (&self.decisions, &self.fulfilments, &self.payloads);
        let mut params = self.with_events();
        let more: [Param<'_>; 15] = [
            &decisions.executions,
            &decisions.ids,
            &decisions.outcomes,
            &decisions.reasons,
            &decisions.lists,
            &decisions.evaluated,
            &fulfilments.executions,
            &fulfilments.names,
            &fulfilments.at,
            &payloads.executions,
            &payloads.artifacts,
            &payloads.salts,
            &payloads.bodies,
            &self.reviews.executions,
            &self.reviews.within,
        ];
        params.extend_from_slice(&more);
        params
    }

    /// Like [`Self::with_rare_parts`], with the turns of conversations.
    pub(super) fn with_memory(&self) -> Vec<Param<'_>> {
        let mut params = self.with_rare_parts();
        params.extend_from_slice(&self.turns.params());
        params
    }
}

impl<'a> StepColumns<'a> {
    fn push(&mut self, of: Uuid, position: i16, step: &'a StepRecord) {
        self.executions.push(of);
        self.positions.push(position);
        self.ids.push(&step.step_id);
        self.types.push(step.step_type);
        self.failures.push(step.failure.as_deref());
        // A longer duration exceeds 292,000 years.
        self.durations.push(i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX));
    }
}

impl<'a> ArtifactColumns<'a> {
    fn push(&mut self, of: Uuid, artifact: &'a EvidenceArtifact) {
        self.executions.push(of);
        self.ids.push(artifact.artifact_id.uuid());
        self.kinds.push(artifact.kind);
        self.refs.push(artifact.storage_ref.as_str());
        self.bodies.push(Value::Object(artifact.body.clone()).to_string());
        self.made.push(artifact.created_at.to_datetime());
    }
}

impl<'a> LineageColumns<'a> {
    fn push(&mut self, of: Uuid, item: &'a LineageItem) {
        self.executions.push(of);
        self.ids.push(item.lineage_id.uuid());
        self.origins.push(item.origin.as_str());
        self.roles.push(item.influence_role.as_str());
        self.classes.push(item.action_class.as_str());
        self.refs.push(&item.reference);
        self.digests.push(&item.digest);
        // The values of a run have at most 16 MiB in total.
        self.sizes.push(i64::try_from(item.size_bytes).unwrap_or(i64::MAX));
        self.reasons.push(item.untrusted.map(fairway_domain::evidence::lineage::UntrustedReason::as_str));
        self.made.push(item.created_at.to_datetime());
    }
}

impl<'a> DecisionColumns<'a> {
    fn push(&mut self, of: Uuid, decision: &'a RecordedDecision) {
        self.executions.push(of);
        self.ids.push(decision.decision_id.uuid());
        self.outcomes.push(decision.outcome.as_str());
        self.reasons.push(&decision.reason_code);
        self.lists.push(json!({ "obligations": decision.obligations, "rules": decision.rules }));
        self.evaluated.push(decision.evaluated_at.to_datetime());
    }
}

impl<'a> PayloadColumns<'a> {
    fn push(&mut self, of: Uuid, artifact: Uuid, payload: &'a Payload) {
        self.executions.push(of);
        self.artifacts.push(artifact);
        self.salts.push(&payload.salt);
        self.bodies.push(&payload.body);
    }
}
