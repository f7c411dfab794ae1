//! What runs leave behind.

use crate::{
    evidence::{EvidenceArtifact, RecordedDecision, lineage::LineageItem},
    execution::{Outcome, RunError, Status, StepRecord, progress::RunEvent},
    id::ExecutionId,
    policy::{Obligation, PolicyDecision},
    time::Timestamp,
};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// How a run ended, and all that it leaves behind.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Where it is now. A run that awaits its review has succeeded so far.
    pub status: Status,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it has no answer.
    pub error: Option<RunError>,
    /// The answer and what its providers said of it.
    pub output: Option<(Value, Map<String, Value>)>,
    /// What its steps did, in order.
    pub steps: Vec<StepRecord>,
    /// Decisions taken on the way.
    pub decisions: Vec<RecordedDecision>,
    /// Documents kept as evidence.
    pub artifacts: Vec<EvidenceArtifact>,
    /// What its steps read.
    pub lineage: Vec<LineageItem>,
    /// Obligations that were fulfilled, and when.
    pub fulfilled: Vec<(Obligation, Timestamp)>,
    /// The strictest decision of the run.
    pub decision: PolicyDecision,
}

/// A run that has ended, and what it owes.
#[derive(Clone, Debug)]
pub struct Closed {
    /// What happened and was not taken while it ran.
    pub events: Vec<RunEvent>,
    pub(super) execution_id: ExecutionId,
    pub(super) value_bytes: usize,
    pub(super) ended: Ended,
    pub(super) owed: Vec<Obligation>,
    pub(super) transcript: Vec<Value>,
    /// The documents that an answer can cite.
    pub(super) citable: BTreeSet<String>,
}
