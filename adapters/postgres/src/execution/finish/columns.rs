//! Builds the input of the statements that end runs.

use super::PendingFinish;
use crate::{
    execution::stored_decision,
    guarded_commit::{FactColumns, Input},
};
use fairway_domain::{
    evidence::{EvidenceArtifact, RecordedDecision, lineage::LineageItem, lineage::UntrustedReason},
    execution::{FinishRecord, Payload, RunError, StepRecord, progress::ProgressRecord, usage::ModelUsage},
};
use serde_json::json;
use uuid::Uuid;

/// Pairs each item of each run with the run's identifier.
fn of_runs<'v, T: 'v, I: IntoIterator<Item = &'v T>>(
    endings: impl Iterator<Item = &'v FinishRecord>,
    items: impl Fn(&'v FinishRecord) -> I,
) -> Vec<(Uuid, &'v T)> {
    endings.flat_map(|ending| items(ending).into_iter().map(|item| (ending.execution_id.uuid(), item))).collect()
}

/// The run identifier of each item.
fn ids<T>(items: &[(Uuid, T)]) -> Vec<Uuid> {
    items.iter().map(|(run, _)| *run).collect()
}

/// The input with the runs and their facts, steps, artifacts and lineage.
pub(super) fn finish_input<'v>(pending: &[&'v PendingFinish]) -> Input<'v> {
    let endings = || pending.iter().map(|pending| &pending.ending);
    let executions: Vec<Uuid> = endings().map(|ending| ending.execution_id.uuid()).collect();
    let (first, last) = (executions.iter().min().copied(), executions.iter().max().copied());
    let errors = || endings().map(|ending| ending.error.as_ref());
    let outputs = || endings().map(|ending| ending.output.as_ref());
    let usages: Vec<ModelUsage> = endings().map(|ending| ModelUsage::of_artifacts(&ending.artifacts)).collect();
    // A run that waits for a review has not ended, so it has no outcome yet.
    let has_ended = |ending: &FinishRecord| ending.review_timeout.is_none();
    let mut facts = FactColumns::default();
    pending.iter().for_each(|pending| facts.push(pending.scope, &pending.ending.fact));
    let input = Input::many()
        .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
        .with_column("execution_id", executions)
        .with_column("token", endings().map(|ending| ending.lease))
        .with_column("status", endings().map(|ending| ending.status.as_str()))
        .with_column("outcome", endings().map(|ending| has_ended(ending).then(|| ending.outcome.as_str())))
        .with_column("error_code", errors().map(|error| error.map(|error| error.code.as_str())))
        .with_column("error_message", errors().map(|error| error.map(|error| error.message.as_str())))
        .with_column("error_offset", errors().map(error_offset))
        .with_column("finished_at", endings().map(|ending| has_ended(ending).then(|| ending.finished_at.to_datetime())))
        .with_column("salt", outputs().map(|output| output.map(|output| output.salt.as_slice())))
        .with_column("output", outputs().map(|output| output.map(|output| &*output.body)))
        .with_column("output_digest", outputs().map(|output| output.map(|output| output.digest().to_vec())))
        .with_column("total_tokens_in", usages.iter().map(|usage| bounded_count(usage.tokens_in)))
        .with_column("total_tokens_out", usages.iter().map(|usage| bounded_count(usage.tokens_out)))
        .with_column("total_cost_micros", usages.iter().map(|usage| bounded_count(usage.cost_micros)));
    let input = facts.add_to_input(input).with_param("first_execution", first).with_param("last_execution", last);
    let input = add_step_rows(input, &numbered_steps(endings()));
    let input = add_artifact_rows(input, &of_runs(endings(), |ending| &ending.artifacts));
    add_lineage_rows(input, &of_runs(endings(), |ending| &ending.lineage))
}

/// A sum as `bigint`. Like the sums of usage reports, it ends at the maximum, because a provider may report absurdly
/// large counts.
fn bounded_count(count: Option<u64>) -> Option<i64> {
    count.map(|count| i64::try_from(count).unwrap_or(i64::MAX))
}

fn error_offset(error: Option<&RunError>) -> Option<i64> {
    error.and_then(|error| error.offset).map(i64::from)
}

/// The steps of each run, numbered from one within the run.
fn numbered_steps<'v>(endings: impl Iterator<Item = &'v FinishRecord>) -> Vec<(Uuid, (i16, &'v StepRecord))> {
    let of_run = |ending: &'v FinishRecord| {
        let run = ending.execution_id.uuid();
        (1_i16..).zip(&ending.steps).map(move |step| (run, step))
    };
    endings.flat_map(of_run).collect()
}

fn add_step_rows<'v>(input: Input<'v>, steps: &[(Uuid, (i16, &'v StepRecord))]) -> Input<'v> {
    let records = || steps.iter().map(|(_, (_, step))| *step);
    // The conversion cannot overflow in practice: `i64` covers 292,000 years in microseconds.
    let microseconds = |step: &StepRecord| i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX);
    input
        .with_rows("step")
        .with_column("execution_id", ids(steps))
        .with_column("position", steps.iter().map(|(_, (position, _))| *position))
        .with_column("step_id", records().map(|step| step.step_id.as_str()))
        .with_column("step_type", records().map(|step| step.step_type))
        .with_column("failure", records().map(|step| step.failure.as_deref()))
        .with_column("duration_us", records().map(microseconds))
}

fn add_artifact_rows<'v>(input: Input<'v>, artifacts: &[(Uuid, &'v EvidenceArtifact)]) -> Input<'v> {
    let documents = || artifacts.iter().map(|(_, artifact)| *artifact);
    input
        .with_rows("artifact")
        .with_column("execution_id", ids(artifacts))
        .with_column("artifact_id", documents().map(|artifact| artifact.artifact_id.uuid()))
        .with_column("artifact_kind", documents().map(|artifact| artifact.kind))
        .with_column("storage_ref", documents().map(|artifact| artifact.storage_ref.as_str()))
        .with_column("artifact_body", documents().map(EvidenceArtifact::body_text))
        .with_column("artifact_created_at", documents().map(|artifact| artifact.created_at.to_datetime()))
}

fn add_lineage_rows<'v>(input: Input<'v>, lineage: &[(Uuid, &'v LineageItem)]) -> Input<'v> {
    let items = || lineage.iter().map(|(_, item)| *item);
    input
        .with_rows("lineage_item")
        .with_column("execution_id", ids(lineage))
        .with_column("lineage_id", items().map(|item| item.lineage_id.uuid()))
        .with_column("origin", items().map(|item| item.origin.as_str()))
        .with_column("influence_role", items().map(|item| item.influence_role.as_str()))
        .with_column("action_class", items().map(|item| item.action_class.as_str()))
        .with_column("ref", items().map(|item| item.reference.as_str()))
        .with_column("digest", items().map(|item| item.digest.as_slice()))
        // The conversion cannot overflow: the values of a run have at most 4 MiB in total.
        .with_column("size_bytes", items().map(|item| i64::try_from(item.size_bytes).unwrap_or(i64::MAX)))
        .with_column("untrusted_reason", items().map(|item| item.untrusted.map(UntrustedReason::as_str)))
        .with_column("created_at", items().map(|item| item.created_at.to_datetime()))
}

/// Adds the last progress events of the runs.
pub(super) fn add_event_rows<'v>(input: Input<'v>, endings: impl Iterator<Item = &'v FinishRecord>) -> Input<'v> {
    let records = of_runs(endings, |ending| &ending.progress);
    let position = |progress: &ProgressRecord| i16::try_from(progress.position).unwrap_or(i16::MAX);
    input
        .with_rows("progress")
        .with_column("execution_id", ids(&records))
        .with_column("position", records.iter().map(|(_, progress)| position(progress)))
        .with_column("events", records.iter().map(|(_, progress)| json!(progress.events).to_string()))
}

/// Adds the parts that few runs have: later policy decisions, fulfilled obligations, evidence payloads, and reviews.
pub(super) fn add_rare_rows<'v>(
    input: Input<'v>,
    endings: impl Iterator<Item = &'v FinishRecord> + Clone,
) -> Input<'v> {
    let input = add_decision_rows(input, &of_runs(endings.clone(), |ending| &ending.decisions));
    let fulfilled = of_runs(endings.clone(), |ending| &ending.fulfilled);
    let payloads: Vec<(Uuid, (Uuid, &Payload))> = of_runs(endings.clone(), |ending| &ending.artifacts)
        .into_iter()
        .filter_map(|(run, artifact)| {
            artifact.payload.as_ref().map(|payload| (run, (artifact.artifact_id.uuid(), payload)))
        })
        .collect();
    let reviews = of_runs(endings, |ending| &ending.review_timeout);
    input
        .with_rows("fulfilment")
        .with_column("execution_id", ids(&fulfilled))
        .with_column("obligation", fulfilled.iter().map(|(_, (obligation, _))| obligation.as_str()))
        .with_column("fulfilled_at", fulfilled.iter().map(|(_, (_, at))| at.to_datetime()))
        .with_rows("payload")
        .with_column("execution_id", ids(&payloads))
        .with_column("artifact_id", payloads.iter().map(|(_, (artifact, _))| *artifact))
        .with_column("payload_salt", payloads.iter().map(|(_, (_, payload))| payload.salt.as_slice()))
        .with_column("payload_body", payloads.iter().map(|(_, (_, payload))| &*payload.body))
        .with_rows("review")
        .with_column("execution_id", ids(&reviews))
        .with_column("timeout_seconds", reviews.iter().map(|(_, timeout)| timeout.as_secs_f64()))
}

fn add_decision_rows<'v>(input: Input<'v>, decisions: &[(Uuid, &'v RecordedDecision)]) -> Input<'v> {
    let records = || decisions.iter().map(|(_, decision)| *decision);
    input
        .with_rows("decision")
        .with_column("execution_id", ids(decisions))
        .with_column("decision_id", records().map(|decision| decision.decision_id.uuid()))
        .with_column("decision_outcome", records().map(|decision| decision.outcome.as_str()))
        .with_column("reason_code", records().map(|decision| decision.reason_code.as_str()))
        .with_column("obligations", records().map(stored_decision::obligations_literal))
        .with_column("rules", records().map(stored_decision::rules_literal))
        .with_column("evaluated_at", records().map(|decision| decision.evaluated_at.to_datetime()))
}
