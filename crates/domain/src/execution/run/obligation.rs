//! Fulfils the obligations of a run at its end, such as masking and citations.

use super::{FinishedRun, RunEnd};
use crate::{
    asset::artifact_store::ArtifactPath,
    evidence::EvidenceArtifact,
    execution::{ExecutionOutcome, Payload, RunError, Status, format_digest},
    knowledge::document::DocumentId,
    moment::Moment,
    policy::Obligation,
    redaction::Redactor,
};
use serde_json::{Map, Value, json};

impl FinishedRun {
    /// The approximate number of bytes that the fulfilment processes: the size of the run's values, or zero if nothing
    /// has to be masked.
    #[must_use]
    pub fn fulfilment_bytes(&self) -> usize {
        if self.obligations.contains(&Obligation::RedactOutput) { self.value_bytes } else { 0 }
    }

    /// The outcome without fulfilled obligations and without an answer, for a run whose fulfilment was interrupted.
    #[must_use]
    pub fn without_fulfilment(&self) -> RunEnd {
        let run_outcome = &self.run_outcome;
        // This outcome has no answer, so the possibly long answer is not copied.
        let mut unfulfilled = RunEnd {
            status: run_outcome.status,
            outcome: run_outcome.outcome,
            error: run_outcome.error.clone(),
            output: None,
            steps: run_outcome.steps.clone(),
            decisions: run_outcome.decisions.clone(),
            artifacts: run_outcome.artifacts.clone(),
            lineage: run_outcome.lineage.clone(),
            fulfilled: run_outcome.fulfilled.clone(),
            decision: run_outcome.decision.clone(),
            offered_turn: None,
        };
        if unfulfilled.outcome == ExecutionOutcome::Success {
            (unfulfilled.status, unfulfilled.outcome) = (Status::Failed, ExecutionOutcome::Failure);
            let message = "the policy imposes an obligation that this server cannot fulfil";
            unfulfilled.error = Some(RunError::new("obligation_unavailable", message));
        }
        unfulfilled
    }

    /// Fulfils all obligations that the decisions of the run imposed, including decisions before a denial. If one
    /// cannot be fulfilled, the run ends without an answer.
    #[must_use]
    pub fn fulfil(mut self, mut moment: Moment, redactor: &Redactor) -> RunEnd {
        let obligations = std::mem::take(&mut self.obligations);
        // Citations are checked first, because masking can remove them.
        let has_citation = obligations.contains(&Obligation::RequireCitation) && self.require_citation(&mut moment);
        for &obligation in &obligations {
            let fulfilled = match obligation {
                Obligation::RequireCitation => has_citation,
                Obligation::RecordTranscript => self.record_transcript(&mut moment),
                Obligation::RedactOutput => self.redact_output(&mut moment, redactor),
                // This obligation counts as fulfilled, because the fact of the run's end names the workload's owner.
                Obligation::NotifyOwner => true,
                // A person fulfils this obligation after all other obligations.
                Obligation::HumanReview => false,
            };
            if fulfilled {
                self.run_outcome.fulfilled.push((obligation, moment.now()));
            }
        }
        if obligations.contains(&Obligation::HumanReview) && self.run_outcome.outcome == ExecutionOutcome::Success {
            self.run_outcome.status = Status::AwaitingReview;
            // The end of a run notifies its owner, and a run that awaits review has not ended.
            self.run_outcome.fulfilled.retain(|(obligation, _)| *obligation != Obligation::NotifyOwner);
        }
        self.run_outcome.set_turn_answer();
        self.run_outcome
    }

    /// Drops an answer that cites no retrieved document. Without an answer, the obligation stays unfulfilled.
    fn require_citation(&mut self, moment: &mut Moment) -> bool {
        let Some((output, _)) = &self.run_outcome.output else { return false };
        let text = match output {
            Value::String(text) => text.clone(),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                other.to_string()
            }
        };
        let cited: Vec<&String> = self.citable_documents.iter().filter(|id| DocumentId::is_cited(id, &text)).collect();
        let has_citation = !cited.is_empty();
        let body = Map::from_iter([
            ("retrieved".to_owned(), json!(self.citable_documents)),
            ("cited".to_owned(), json!(cited)),
        ]);
        self.record_evidence(moment, "citations", "citations.json", body, None);
        if !has_citation {
            self.run_outcome.output = None;
            (self.run_outcome.status, self.run_outcome.outcome) = (Status::Failed, ExecutionOutcome::Failure);
            let message = "the answer cites no retrieved document";
            self.run_outcome.error = Some(RunError::new("citation_missing", message));
        }
        has_citation
    }

    /// Records the transcript as evidence, regardless of the outcome of the run.
    fn record_transcript(&mut self, moment: &mut Moment) -> bool {
        let entries = std::mem::take(&mut self.transcript);
        let (calls, payload) = (entries.len(), json!({ "calls": entries }).to_string());
        let payload = Payload { body: payload.into(), salt: moment.new_salt() };
        let body = Map::from_iter([
            ("calls".to_owned(), json!(calls)),
            ("digest".to_owned(), json!(format_digest(&payload.digest()))),
            ("size_bytes".to_owned(), json!(payload.body.len())),
        ]);
        self.record_evidence(moment, "transcript", "transcript.json", body, Some(payload));
        true
    }

    /// Masks personal data in the answer and in the metadata of the providers. Without an answer, the obligation stays
    /// unfulfilled.
    fn redact_output(&mut self, moment: &mut Moment, redactor: &Redactor) -> bool {
        let Some((output, metadata)) = &mut self.run_outcome.output else { return false };
        let mut counts = redactor.redact(output);
        for step_metadata in metadata.values_mut() {
            counts.add_all(&redactor.redact(step_metadata));
        }
        let body = Map::from_iter([("masked".to_owned(), json!(counts))]);
        self.record_evidence(moment, "redaction", "redaction.json", body, None);
        true
    }

    fn record_evidence(
        &mut self,
        moment: &mut Moment,
        kind: &'static str,
        name: &'static str,
        body: Map<String, Value>,
        payload: Option<Payload>,
    ) {
        let (artifact_id, created_at) = (moment.new_id().into(), moment.now());
        let storage_ref = ArtifactPath::of_database_evidence(self.execution_id, artifact_id, name);
        self.run_outcome.artifacts.push(EvidenceArtifact { artifact_id, kind, storage_ref, body, payload, created_at });
    }
}
