//! All that stands behind one execution, in one read.

use super::{EXECUTION_COLUMNS, NO_ANSWER, REASON_CODE, execution};
use crate::{
    database::Database,
    row::{Columns, parsed},
};
use fairway_domain::{
    evidence::{ArtifactRow, DecisionRow, EvidenceRecord},
    id::{ApprovalId, ArtifactId, ExecutionId},
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct DecisionBody {
    outcome: String,
    reason_code: String,
    obligations: Vec<String>,
    evaluated_at: Timestamp,
}

#[derive(Deserialize)]
struct ArtifactBody {
    artifact_id: ArtifactId,
    artifact_kind: String,
    storage_ref: String,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct NoteBody {
    approval_id: ApprovalId,
    body: String,
}

/// The run is named as a value and not as the column of the row beside: see `reason_code`. Of a run's decisions the
/// strictest counts, and of equally strict ones the latest.
const STRICTEST: &str = "
    (SELECT json_build_object('outcome', outcome, 'reason_code', reason_code, 'obligations', obligations,
        'evaluated_at', evaluated_at)::text
     FROM policy_decision AS decision
     WHERE decision.tenant_id = $1 AND decision.execution_id = $2
     ORDER BY array_position(ARRAY['deny', 'allow_with_obligations', 'allow'], outcome), decision_id DESC
     LIMIT 1) AS decision";

const ARTIFACTS: &str = "
    (SELECT coalesce(json_agg(json_build_object('artifact_id', artifact_id, 'artifact_kind', artifact_kind,
        'storage_ref', storage_ref, 'created_at', created_at) ORDER BY artifact_id), '[]')::text
     FROM evidence_artifact AS artifact
     WHERE artifact.tenant_id = $1 AND artifact.execution_id = $2) AS artifacts";

const NOTES: &str = "
    (SELECT coalesce(json_agg(json_build_object('approval_id', approval_id, 'body', body)), '[]')::text
     FROM approval JOIN approval_note USING (tenant_id, approval_id)
     WHERE approval.tenant_id = execution.tenant_id AND approval.release_id = execution.release_id) AS notes";

pub(super) async fn evidence(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Option<EvidenceRecord>, StoreError> {
    let sql = format!(
        "SELECT {EXECUTION_COLUMNS}, {NO_ANSWER}, {REASON_CODE}, evidence_snapshot.body AS chain,
            {STRICTEST}, {ARTIFACTS}, {NOTES}
         FROM execution
         JOIN evidence_snapshot ON evidence_snapshot.tenant_id = execution.tenant_id
            AND evidence_snapshot.digest = execution.snapshot
         WHERE execution.tenant_id = $1 AND execution_id = $2"
    );
    let Some(row) = database.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid()]).await? else {
        return Ok(None);
    };
    let decision: DecisionBody = parsed(row.column("decision")?)?;
    let artifacts: Vec<ArtifactBody> = parsed(row.column("artifacts")?)?;
    let notes: Vec<NoteBody> = parsed(row.column("notes")?)?;
    Ok(Some(EvidenceRecord {
        execution: execution(&row)?,
        chain: parsed(row.column("chain")?)?,
        decision: DecisionRow {
            outcome: decision.outcome,
            reason_code: decision.reason_code,
            obligations: decision.obligations,
            evaluated_at: decision.evaluated_at,
        },
        artifacts: artifacts
            .into_iter()
            .map(|artifact| ArtifactRow {
                artifact_id: artifact.artifact_id,
                artifact_kind: artifact.artifact_kind,
                storage_ref: artifact.storage_ref,
                created_at: artifact.created_at,
            })
            .collect(),
        notes: notes.into_iter().map(|note| (note.approval_id, note.body)).collect(),
    }))
}
