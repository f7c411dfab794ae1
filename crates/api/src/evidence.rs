//! Routes of the evidence of runs.

mod artifact;
mod bundle;
mod graph_view;
mod lineage;

pub(crate) use artifact::*;
pub(crate) use bundle::*;
pub(crate) use lineage::*;

use crate::{
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldProblem},
    http::{path::PathId, query::Query},
    openapi::ReadRefusals,
    response::ResourceResponse,
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::{
    evidence::{
        ChainApproval, ChainRelease, ChainVersion, ChainWorkload, EvidenceArtifactRow, ImposedObligation,
        RecordedDecision, RetrievalRow, RunEvidence,
    },
    execution::{ExecutionOutcome, format_digest},
    id::ExecutionId,
    offered_tool::EvidenceFormat,
    policy::FailedRule,
};
use graph_view::GraphEvidenceView;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The governance chain of a run in sections, as of the time of the run.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlatEvidenceView {
    execution: ExecutionSection,
    release: ReleaseSection,
    workload: WorkloadSection,
    bindings: Vec<BindingSection>,
    /// Versions that the bound contents reference, such as includes of a prompt; each version once.
    references: Vec<ReferenceSection>,
    /// The strictest policy decision of the run; the last one if several are equally strict.
    policy_decision: DecisionSection,
    obligations: Vec<ObligationSection>,
    retrieval_events: Vec<RetrievalSection>,
    evidence_artifacts: Vec<ArtifactSection>,
    approvals: Vec<ApprovalSection>,
}

#[derive(Serialize, ToSchema)]
struct ExecutionSection {
    execution_id: Uuid,
    workload_id: Uuid,
    release_id: Uuid,
    #[schema(format = DateTime)]
    started_at: String,
    #[schema(format = DateTime)]
    finished_at: Option<String>,
    status: &'static str,
    /// `success`, `failure`, `denied`, `cancelled`, `timeout` or `unknown`; null until the run ends.
    outcome: Option<&'static str>,
    /// Error code of a run without a result; null if the run has one.
    error_code: Option<String>,
    environment: String,
    lane: &'static str,
    submitted_by: String,
    /// The service that acted on behalf of the submitter; null without delegation.
    delegated_by: Option<String>,
    /// Salted digest of the inputs: after erasure it reveals nothing about them.
    input_digest: String,
    /// Salted digest of the result; null if the run has no result.
    output_digest: Option<String>,
    /// Time at which an erasure deleted the run's inputs, result, payloads and conversation turn; absent if none
    /// did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String, format = DateTime)]
    erased_at: Option<String>,
    /// Identifier of the erasure that deleted these texts, and subject of its facts in the audit log; absent without an
    /// erasure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Uuid)]
    erasure_id: Option<Uuid>,
}

#[derive(Serialize, ToSchema)]
struct ReleaseSection {
    release_id: Uuid,
    environment: String,
    lifecycle_state: String,
}

#[derive(Serialize, ToSchema)]
struct WorkloadSection {
    workload_id: Uuid,
    slug: String,
    owner_ref: String,
}

#[derive(Serialize, ToSchema)]
struct BindingSection {
    role: String,
    asset_version_id: Uuid,
    asset_slug: String,
}

/// A version that a bound content references, directly or indirectly.
#[derive(Serialize, ToSchema)]
struct ReferenceSection {
    asset_kind: String,
    asset_version_id: Uuid,
    asset_slug: String,
}

#[derive(Serialize, ToSchema)]
struct DecisionSection {
    decision_id: Uuid,
    /// `allow`, `deny` or `allow_with_obligations`.
    outcome: &'static str,
    reason_code: String,
    /// Ids of the rules that matched, in the order of the bundle.
    rules: Vec<String>,
    /// Rules that could not be evaluated, if their failure determined the decision; at most 20, in the order of the
    /// bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    failed_rules: Vec<FailedRuleSection>,
    #[schema(format = DateTime)]
    evaluated_at: String,
}

/// A rule that could not be evaluated.
#[derive(Serialize, ToSchema)]
struct FailedRuleSection {
    rule: String,
    /// The field that the rule reads and the inputs lack; null if the evaluation failed for another reason.
    missing_field: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct ObligationSection {
    obligation_name: String,
    /// Time at which the run fulfilled the obligation; null if it did not.
    #[schema(format = DateTime)]
    fulfilled_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct RetrievalSection {
    /// Identifier of the retrieval, and also of its evidence artifact.
    retrieval_event_id: Uuid,
    knowledge_base_asset_id: Uuid,
    /// The query text; null for readers without the permission `execution.kill`, and after its retention.
    query_text: Option<String>,
    /// Whether the query text, if there is one, is withheld from this reader.
    query_text_withheld: bool,
    retrieved_chunk_count: u32,
    #[schema(format = DateTime)]
    retrieved_at: String,
}

#[derive(Serialize, ToSchema)]
struct ArtifactSection {
    artifact_id: Uuid,
    artifact_kind: String,
    storage_ref: String,
    #[schema(format = DateTime)]
    created_at: String,
}

#[derive(Serialize, ToSchema)]
struct ApprovalSection {
    approval_id: Uuid,
    approved_by: String,
    #[schema(format = DateTime)]
    approved_at: String,
    /// The approver's note; null for readers without the permission `execution.kill`, and after its retention.
    note: Option<String>,
    /// Whether the note, if there is one, is withheld from this reader.
    note_withheld: bool,
}

impl ExecutionSection {
    fn of(record: &RunEvidence) -> Self {
        let run = &record.execution;
        Self {
            execution_id: run.execution_id.uuid(),
            workload_id: run.workload_id.uuid(),
            release_id: run.release_id.uuid(),
            started_at: run.started_at.to_string(),
            finished_at: run.finished_at.map(|at| at.to_string()),
            status: run.status.as_str(),
            outcome: run.outcome.map(ExecutionOutcome::as_str),
            error_code: run.error.as_ref().map(|error| error.code.clone()),
            environment: run.environment.to_string(),
            lane: run.lane.as_str(),
            submitted_by: run.submitter.to_string(),
            delegated_by: run.delegate.as_ref().map(ToString::to_string),
            input_digest: format_digest(&record.input_digest),
            output_digest: record.output_digest.as_ref().map(format_digest),
            erased_at: record.erasure.map(|erasure| erasure.erased_at.to_string()),
            erasure_id: record.erasure.map(|erasure| erasure.erasure_id.uuid()),
        }
    }
}

impl ReleaseSection {
    fn of(release: &ChainRelease) -> Self {
        Self {
            release_id: release.release_id.uuid(),
            environment: release.environment.clone(),
            lifecycle_state: release.lifecycle_state.clone(),
        }
    }
}

impl WorkloadSection {
    fn of(workload: &ChainWorkload) -> Self {
        Self {
            workload_id: workload.workload_id.uuid(),
            slug: workload.slug.clone(),
            owner_ref: workload.owner_ref.clone(),
        }
    }
}

impl BindingSection {
    fn of(binding: &ChainVersion) -> Self {
        Self {
            role: binding.role.clone(),
            asset_version_id: binding.asset_version_id.uuid(),
            asset_slug: binding.asset_slug.clone(),
        }
    }
}

impl ReferenceSection {
    fn of(reference: &ChainVersion) -> Self {
        Self {
            asset_kind: reference.role.clone(),
            asset_version_id: reference.asset_version_id.uuid(),
            asset_slug: reference.asset_slug.clone(),
        }
    }
}

impl DecisionSection {
    fn of(decision: &RecordedDecision) -> Self {
        Self {
            decision_id: decision.decision_id.uuid(),
            outcome: decision.outcome.as_str(),
            reason_code: decision.reason_code.clone(),
            rules: decision.rules.clone(),
            failed_rules: decision.failed_rules.iter().map(FailedRuleSection::of).collect(),
            evaluated_at: decision.evaluated_at.to_string(),
        }
    }
}

impl FailedRuleSection {
    fn of(failed: &FailedRule) -> Self {
        Self { rule: failed.rule.clone(), missing_field: failed.missing_field.clone() }
    }
}

impl ObligationSection {
    fn of(obligation: &ImposedObligation) -> Self {
        Self {
            obligation_name: obligation.name.clone(),
            fulfilled_at: obligation.fulfilled_at.map(|at| at.to_string()),
        }
    }
}

impl RetrievalSection {
    fn of(retrieval: &RetrievalRow, record: &RunEvidence) -> Self {
        Self {
            retrieval_event_id: retrieval.artifact_id.uuid(),
            knowledge_base_asset_id: retrieval.asset.uuid(),
            query_text: retrieval.query.clone(),
            query_text_withheld: record.notes_withheld,
            retrieved_chunk_count: retrieval.chunks,
            retrieved_at: retrieval.at.to_string(),
        }
    }
}

impl ArtifactSection {
    fn of(artifact: &EvidenceArtifactRow) -> Self {
        Self {
            artifact_id: artifact.artifact_id.uuid(),
            artifact_kind: artifact.artifact_kind.clone(),
            storage_ref: artifact.storage_ref.clone(),
            created_at: artifact.created_at.to_string(),
        }
    }
}

impl ApprovalSection {
    fn of(approval: &ChainApproval, record: &RunEvidence) -> Self {
        let note = record.notes.iter().find(|(id, _)| *id == approval.approval_id);
        Self {
            approval_id: approval.approval_id.uuid(),
            approved_by: approval.approved_by.clone(),
            approved_at: approval.approved_at.to_string(),
            note: note.map(|(_, note)| note.clone()),
            note_withheld: record.notes_withheld,
        }
    }
}

impl FlatEvidenceView {
    fn of(record: &RunEvidence) -> Result<Self, ApiError> {
        // Every run has a decision that admitted or denied it, so a missing decision is a defect.
        let decision = record.strictest_decision().ok_or_else(ApiError::internal)?;
        let chain = &record.chain;
        Ok(Self {
            execution: ExecutionSection::of(record),
            release: ReleaseSection::of(&chain.release),
            workload: WorkloadSection::of(&chain.workload),
            bindings: chain.bindings.iter().map(BindingSection::of).collect(),
            references: chain.references.iter().map(ReferenceSection::of).collect(),
            policy_decision: DecisionSection::of(decision),
            obligations: record.obligations().iter().map(ObligationSection::of).collect(),
            retrieval_events: record.retrievals.iter().map(|row| RetrievalSection::of(row, record)).collect(),
            evidence_artifacts: record.artifacts.iter().map(ArtifactSection::of).collect(),
            approvals: chain.approvals.iter().map(|approval| ApprovalSection::of(approval, record)).collect(),
        })
    }
}

/// The evidence of a run in the requested form.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EvidenceView {
    Flat(Box<FlatEvidenceView>),
    Graph(GraphEvidenceView),
}

/// Query parameter that selects the form of the evidence.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EvidenceQuery {
    /// `flat` or `graph`; default `flat`.
    format: Option<String>,
}

/// Reads the evidence of a run: its governance chain, as sections or as a graph.
#[utoipa::path(
    operation_id = "read_evidence_graph",
    tag = "executions",
    params(("execution_id" = Uuid, Path, description = "The run"), EvidenceQuery),
    responses((status = 200, description = "The governance chain of the run", body = EvidenceView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/evidence-graph")]
pub(crate) async fn read_evidence_graph(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    execution: PathId<ExecutionId>,
    query: Query<EvidenceQuery>,
) -> Result<HttpResponse, ApiError> {
    let form = match query.format.as_deref() {
        None | Some("flat") => EvidenceFormat::Flat,
        Some("graph") => EvidenceFormat::Graph,
        Some(_) => return Err(FieldProblem::new("format", "invalid", "must be `flat` or `graph`").into()),
    };
    let record = api.services.execution_reader.read_evidence(&caller, *execution).await?;
    Ok(ResourceResponse::ok(&to_view(&record, form)?).into_response())
}

/// Converts the evidence of a run to the requested form.
pub(crate) fn to_view(record: &RunEvidence, form: EvidenceFormat) -> Result<EvidenceView, ApiError> {
    Ok(match form {
        EvidenceFormat::Graph => EvidenceView::Graph(GraphEvidenceView::of(record)),
        EvidenceFormat::Flat => EvidenceView::Flat(Box::new(FlatEvidenceView::of(record)?)),
    })
}
