//! The representation of runs.

use super::{RunErrorView, parse_stored_output};
use crate::error::ApiError;
use fairway_domain::execution::{
    Execution, StepRow,
    usage::{ListedExecution, RunUsageSummary},
};
use fairway_operations::execution::{CitedDocument, ExecutionDetail};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A run with its status.
#[derive(Serialize, ToSchema)]
#[schema(as = Execution)]
pub(crate) struct ExecutionView {
    execution_id: Uuid,
    workload_id: Uuid,
    release_id: Uuid,
    environment: String,
    lane: &'static str,
    submitted_by: String,
    /// The service that acted on behalf of the submitter; null without delegation.
    delegated_by: Option<String>,
    /// `queued`, `running`, `awaiting_review`, `completed`, `failed`, `denied`, `cancelled` or `unknown`.
    status: &'static str,
    /// `success`, `failure`, `denied`, `cancelled`, `timeout` or `unknown`; null until the run ends.
    outcome: Option<&'static str>,
    error: Option<RunErrorView>,
    /// The reason code of the policy decision that admitted or denied the run.
    reason_code: String,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    completed_at: Option<String>,
    /// The time from acceptance to the end, in milliseconds; null until the run ends.
    duration_ms: Option<u64>,
    /// The slug of the workload. It is null for a submitter without permission to view executions, like tokens and
    /// cost.
    workload_slug: Option<String>,
    /// Input tokens of the model calls of an ended run; null if no provider reported any.
    tokens_in: Option<u64>,
    /// Output tokens of the model calls of an ended run; null if no provider reported any.
    tokens_out: Option<u64>,
    /// Cost of the model calls in millionths of the currency of the account's prices; null without prices.
    cost_micros: Option<u64>,
    /// The steps, in order; null in lists, and for a submitter without permission to view executions.
    steps: Option<Vec<StepView>>,
    /// The result; null until the run ends, and for readers other than the submitter.
    queued_result: Option<QueuedResult>,
    /// The retrieved documents that the result cites as `[document_id]`, in the order of retrieval. Present only with
    /// `include=citations`, and empty for readers that do not see the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Vec<CitationView>)]
    citations: Option<Vec<CitationView>>,
}

/// A retrieved document that a result cites.
#[derive(Serialize, ToSchema)]
#[schema(as = Citation)]
struct CitationView {
    document_id: String,
    /// Title of the document; null if there is none, or it was erased or is withheld.
    title: Option<String>,
    /// The retrieved passages, in the order of the document; empty if they were erased or are withheld.
    passages: Vec<String>,
    /// Whether title and passages are withheld. Reasons: the access contract no longer lets the reader retrieve the
    /// document, the run changed texts, or a person reviewed the result.
    withheld: bool,
}

impl CitationView {
    fn of(document: CitedDocument) -> Self {
        let CitedDocument { document_id, title, passages, is_withheld } = document;
        Self { document_id, title, passages, withheld: is_withheld }
    }
}

/// The record of one executed step.
#[derive(Serialize, ToSchema)]
#[schema(as = ExecutionStep)]
struct StepView {
    step_id: String,
    /// `task`, `llm_call` or `return`.
    step_type: String,
    /// Error code of a failed step; null for other steps.
    error_code: Option<String>,
    duration_us: u64,
}

impl StepView {
    fn of(step: &StepRow) -> Self {
        Self {
            step_id: step.step_id.clone(),
            step_type: step.step_type.clone(),
            error_code: step.failure.clone(),
            duration_us: u64::try_from(step.duration.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// The result of a run.
#[derive(Serialize, ToSchema)]
pub(crate) struct QueuedResult {
    result: Value,
    /// Standard output of a script; absent for other runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    stdout: Option<String>,
    #[schema(format = DateTime)]
    result_at: String,
}

impl ExecutionView {
    pub(super) fn of_detail(detail: &ExecutionDetail) -> Result<Self, ApiError> {
        Self::of(&detail.execution, detail.steps.as_deref(), detail.summary.as_ref())
    }

    /// Adds the citations of the result.
    pub(super) fn add_citations(&mut self, documents: Vec<CitedDocument>) {
        self.citations = Some(documents.into_iter().map(CitationView::of).collect());
    }

    pub(super) fn of_listed(listed: &ListedExecution) -> Result<Self, ApiError> {
        Self::of(&listed.execution, None, Some(&listed.summary))
    }

    fn of(
        execution: &Execution,
        steps: Option<&[StepRow]>,
        summary: Option<&RunUsageSummary>,
    ) -> Result<Self, ApiError> {
        let usage = summary.map(|summary| summary.usage).unwrap_or_default();
        let duration = execution.finished_at.map(|end| execution.started_at.duration_until(end));
        let completed_at = execution.finished_at.map(|at| at.to_string());
        let queued_result = parse_stored_output(execution)?
            .zip(completed_at.clone())
            .map(|(stored, result_at)| QueuedResult { stdout: stored.stdout(), result: stored.output, result_at });
        Ok(Self {
            execution_id: execution.execution_id.uuid(),
            workload_id: execution.workload_id.uuid(),
            release_id: execution.release_id.uuid(),
            environment: execution.environment.to_string(),
            lane: execution.lane.as_str(),
            submitted_by: execution.submitter.to_string(),
            delegated_by: execution.delegate.as_ref().map(ToString::to_string),
            status: execution.status.as_str(),
            outcome: execution.outcome.map(fairway_domain::execution::ExecutionOutcome::as_str),
            error: execution.error.as_ref().map(RunErrorView::of),
            reason_code: execution.reason_code.clone(),
            started_at: execution.started_at.to_string(),
            completed_at,
            duration_ms: duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
            workload_slug: summary.map(|summary| summary.workload_slug.clone()),
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
            cost_micros: usage.cost_micros,
            steps: steps.map(|steps| steps.iter().map(StepView::of).collect()),
            queued_result,
            citations: None,
        })
    }
}
