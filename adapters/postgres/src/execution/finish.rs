//! Ending a run: whoever takes the lease's row away writes the end, and nobody else can.

use crate::{
    database::{Param, commit},
    row::{Columns, known},
};
use deadpool_postgres::Pool;
use fairway_domain::{audit::leaf_hash, execution::Ending, id::WorkspaceId, store::CommitError, tenant::TenantScope};
use tokio_postgres::Row;
use uuid::Uuid;

/// The end of a run, and `$more`: what only some runs have. What every list beside it costs is paid by every run.
///
/// The fact is written here and not by `fairway_commit`, because no key is claimed and everything selects from `ended`
/// anyway: without the lease nothing is written, and the count says so.
macro_rules! finish_sql {
    ($more:literal) => {
        concat!(
            "WITH held AS (
                DELETE FROM execution_lease WHERE tenant_id = $1 AND execution_id = $2 AND token = $3 RETURNING 1
             ),
             ended AS (
                UPDATE execution SET status = $4, outcome = $5, error_code = $6, error_message = $7, finished_at = $8,
                    error_offset = $9
                FROM held WHERE tenant_id = $1 AND execution_id = $2
                RETURNING 1
             ),
             answer AS (
                INSERT INTO execution_result (tenant_id, execution_id, salt, body)
                SELECT $1, $2, $10, $11 FROM ended WHERE $11::text IS NOT NULL
             ),
             steps AS (
                INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
                SELECT $1, $2, step.position, step.step_id, step.step_type, step.failure, step.duration_us
                FROM ended, unnest($12::text[], $13::text[], $14::text[], $15::bigint[]) WITH ORDINALITY
                    AS step (step_id, step_type, failure, duration_us, position)
             ),
             artifacts AS (
                INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body,
                    created_at)
                SELECT $1, $2, kept.artifact_id, kept.kind, kept.storage_ref, kept.body, kept.created_at
                FROM ended, unnest($16::uuid[], $17::text[], $18::text[], $19::text[], $20::timestamptz[])
                    AS kept (artifact_id, kind, storage_ref, body, created_at)
             ),",
            $more,
            "told AS (
                INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
                SELECT $1, $21, $22, $23, $24, $25 FROM ended
             ),
             waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT $1, $21 FROM ended)
             SELECT count(*) AS ended FROM ended"
        )
    };
}

const SQL: &str = finish_sql!("");

/// For runs whose flow decided again.
const WITH_DECISIONS: &str = finish_sql!(
    "decisions AS (
        INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules,
            evaluated_at)
        SELECT $1, $2, taken.decision_id, taken.outcome, taken.reason_code,
            ARRAY(SELECT jsonb_array_elements_text(taken.lists -> 'obligations')),
            ARRAY(SELECT jsonb_array_elements_text(taken.lists -> 'rules')), taken.evaluated_at
        FROM ended, unnest($26::uuid[], $27::text[], $28::text[], $29::jsonb[], $30::timestamptz[])
            AS taken (decision_id, outcome, reason_code, lists, evaluated_at)
     ),"
);

pub(super) async fn finish(points: &Pool, scope: TenantScope, ending: &Ending) -> Result<(), CommitError> {
    let tenant = scope.tenant().uuid();
    let fact = &ending.fact;
    let body = fact.canonical_bytes(scope.tenant());
    let leaf = leaf_hash(&body);
    let leaf = leaf.as_slice();
    let (fact_id, kind) = (fact.fact_id.uuid(), fact.kind.as_str());
    let workspace = fact.workspace_id.map(WorkspaceId::uuid);
    let execution = ending.execution_id.uuid();
    let (status, outcome) = (ending.status.as_str(), ending.outcome.as_str());
    let code = ending.error.as_ref().map(|error| error.code.as_str());
    let message = ending.error.as_ref().map(|error| error.message.as_str());
    let offset = ending.error.as_ref().and_then(|error| error.offset).map(i64::from);
    let finished = ending.finished_at.moment();
    let salt = ending.output.as_ref().map(|output| output.salt.as_slice());
    let output = ending.output.as_ref().map(|output| output.body.as_str());

    let step_ids: Vec<&str> = ending.steps.iter().map(|step| step.step_id.as_str()).collect();
    let step_types: Vec<&str> = ending.steps.iter().map(|step| step.step_type).collect();
    let failures: Vec<Option<&str>> = ending.steps.iter().map(|step| step.failure.as_deref()).collect();
    // A duration beyond what the column holds is some 292 000 years.
    let durations: Vec<i64> =
        ending.steps.iter().map(|step| i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX)).collect();

    let artifacts = &ending.artifacts;
    let artifact_ids: Vec<Uuid> = artifacts.iter().map(|artifact| artifact.artifact_id.uuid()).collect();
    let kinds: Vec<&str> = artifacts.iter().map(|artifact| artifact.kind).collect();
    let refs: Vec<&str> = artifacts.iter().map(|artifact| artifact.storage_ref.as_str()).collect();
    let bodies: Vec<String> =
        artifacts.iter().map(|artifact| serde_json::Value::Object(artifact.body.clone()).to_string()).collect();
    let made: Vec<time::OffsetDateTime> = artifacts.iter().map(|artifact| artifact.created_at.moment()).collect();

    let mut params: Vec<Param<'_>> = vec![
        &tenant,
        &execution,
        &ending.lease,
        &status,
        &outcome,
        &code,
        &message,
        &finished,
        &offset,
        &salt,
        &output,
        &step_ids,
        &step_types,
        &failures,
        &durations,
        &artifact_ids,
        &kinds,
        &refs,
        &bodies,
        &made,
        &fact_id,
        &workspace,
        &kind,
        &body,
        &leaf,
    ];
    if ending.decisions.is_empty() {
        return ended(commit(points, SQL, &params).await?.first());
    }
    let decisions = &ending.decisions;
    let decision_ids: Vec<Uuid> = decisions.iter().map(|decision| decision.decision_id.uuid()).collect();
    let verdicts: Vec<&str> = decisions.iter().map(|decision| decision.outcome.as_str()).collect();
    let reasons: Vec<&str> = decisions.iter().map(|decision| decision.reason_code.as_str()).collect();
    let lists: Vec<serde_json::Value> = decisions
        .iter()
        .map(|decision| serde_json::json!({ "obligations": decision.obligations, "rules": decision.rules }))
        .collect();
    let evaluated: Vec<time::OffsetDateTime> =
        decisions.iter().map(|decision| decision.evaluated_at.moment()).collect();

    params.extend_from_slice(&[&decision_ids, &verdicts, &reasons, &lists, &evaluated]);
    ended(commit(points, WITH_DECISIONS, &params).await?.first())
}

fn ended(row: Option<&Row>) -> Result<(), CommitError> {
    match known("ended", row)?.column::<i64>("ended")? {
        0 => Err(CommitError::Stale),
        _ => Ok(()),
    }
}
