//! What stands behind a run.

use crate::{
    answer::Answer,
    caller::Identified,
    compose::Api,
    document::ReadRefusals,
    error::{ApiError, FieldProblem},
    http::{path::PathId, query::Query},
};
use actix_web::{HttpResponse, get, web};
use fairway_domain::id::ExecutionId;
use fairway_operations::execution::FlatEvidence;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

/// The governance chain of one execution, section by section, as it stood when it ran.
#[derive(Serialize, ToSchema)]
pub(crate) struct FlatEvidenceView {
    execution: ExecutionSection,
    release: ReleaseSection,
    workload: WorkloadSection,
    bindings: Vec<BindingSection>,
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

#[derive(Serialize, ToSchema)]
struct DecisionSection {
    /// `allow`, `deny` or `allow_with_obligations`.
    outcome: String,
    reason_code: String,
    #[schema(format = DateTime)]
    evaluated_at: String,
}

#[derive(Serialize, ToSchema)]
struct ObligationSection {
    obligation_name: String,
    #[schema(format = DateTime)]
    fulfilled_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct RetrievalSection {
    retrieval_event_id: Uuid,
    knowledge_base_asset_id: Uuid,
    query_text: Option<String>,
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
    note: Option<String>,
}

impl FlatEvidenceView {
    fn of(evidence: FlatEvidence) -> Self {
        let approvals = evidence
            .chain
            .approvals
            .iter()
            .map(|approval| ApprovalSection {
                approval_id: approval.approval_id.uuid(),
                approved_by: approval.approved_by.clone(),
                approved_at: approval.approved_at.to_string(),
                note: evidence.note(approval.approval_id).map(str::to_owned),
            })
            .collect();
        let FlatEvidence { execution, chain, decision, artifacts, .. } = evidence;
        Self {
            execution: ExecutionSection {
                execution_id: execution.execution_id.uuid(),
                workload_id: execution.workload_id.uuid(),
                release_id: execution.release_id.uuid(),
                started_at: execution.started_at.to_string(),
                finished_at: execution.finished_at.map(|at| at.to_string()),
                status: execution.status.as_str(),
            },
            release: ReleaseSection {
                release_id: chain.release.release_id.uuid(),
                environment: chain.release.environment,
                lifecycle_state: chain.release.lifecycle_state,
            },
            workload: WorkloadSection {
                workload_id: chain.workload.workload_id.uuid(),
                slug: chain.workload.slug,
                owner_ref: chain.workload.owner_ref,
            },
            bindings: chain
                .bindings
                .into_iter()
                .map(|binding| BindingSection {
                    role: binding.role,
                    asset_version_id: binding.asset_version_id.uuid(),
                    asset_slug: binding.asset_slug,
                })
                .collect(),
            obligations: decision
                .obligations
                .into_iter()
                .map(|obligation_name| ObligationSection { obligation_name, fulfilled_at: None })
                .collect(),
            policy_decision: DecisionSection {
                outcome: decision.outcome,
                reason_code: decision.reason_code,
                evaluated_at: decision.evaluated_at.to_string(),
            },
            retrieval_events: Vec::new(),
            evidence_artifacts: artifacts
                .into_iter()
                .map(|artifact| ArtifactSection {
                    artifact_id: artifact.artifact_id.uuid(),
                    artifact_kind: artifact.artifact_kind,
                    storage_ref: artifact.storage_ref,
                    created_at: artifact.created_at.to_string(),
                })
                .collect(),
            approvals,
        }
    }
}

/// In which form evidence is read.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EvidenceQuery {
    /// `flat`, which is also what is answered without it.
    format: Option<String>,
}

/// What stands behind a run.
#[utoipa::path(
    operation_id = "read_evidence_graph",
    tag = "executions",
    params(("execution_id" = Uuid, Path, description = "The run"), EvidenceQuery),
    responses((status = 200, description = "Its governance chain", body = FlatEvidenceView), ReadRefusals)
)]
#[get("/v1/executions/{execution_id}/evidence-graph")]
pub(crate) async fn read_evidence_graph(
    api: web::Data<Api>,
    caller: Identified,
    execution: PathId<ExecutionId>,
    query: Query<EvidenceQuery>,
) -> Result<HttpResponse, ApiError> {
    match query.format.as_deref() {
        None | Some("flat") => {}
        Some(_) => return Err(FieldProblem::new("format", "invalid", "the form here is `flat`").into()),
    }
    let evidence = api.services.evidence(&caller, *execution).await?;
    Ok(Answer::ok(&FlatEvidenceView::of(evidence)).send())
}
