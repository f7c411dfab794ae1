//! Inserts of the records of runs that several statements share. Each constant ends before `FROM`, because the
//! statements read the columns from different CTEs.

/// Inserts policy decisions.
pub(super) const INSERT_DECISION: &str = "
    INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules,
        evaluated_at)
    SELECT tenant_id, execution_id, decision_id, decision_outcome, reason_code, obligations::text[], rules::text[],
        evaluated_at";

/// Inserts evidence artifacts.
pub(super) const INSERT_ARTIFACT: &str = "
    INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body, created_at)
    SELECT tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, artifact_body, artifact_created_at";

/// Inserts the payloads of evidence artifacts.
pub(super) const INSERT_PAYLOAD: &str = "
    INSERT INTO evidence_payload (tenant_id, execution_id, artifact_id, salt, body)
    SELECT tenant_id, execution_id, artifact_id, payload_salt, payload_body";

/// Inserts runs into the list of runs that ended without completing.
pub(super) const INSERT_EXCEPTION: &str = "
    INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
    SELECT tenant_id, status, execution_id, workload_id, workspace_id, release_id";
