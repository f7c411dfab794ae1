//! Ending a run: whoever takes the lease's row away writes the end, and nobody else can.

use crate::{
    database::{Database, Param},
    guarded::{Tail, commit_tail},
};
use fairway_domain::{execution::Ending, store::CommitError, tenant::TenantScope};
use uuid::Uuid;

const SQL: &str = concat!(
    "WITH held AS (
        DELETE FROM execution_lease WHERE tenant_id = $1 AND execution_id = $13 AND token = $14 RETURNING 1
     ),
     ended AS (
        UPDATE execution SET status = $15, outcome = $16, error_code = $17, error_message = $18, finished_at = $19,
            error_offset = $36
        FROM held WHERE tenant_id = $1 AND execution_id = $13
        RETURNING 1
     ),
     answer AS (
        INSERT INTO execution_result (tenant_id, execution_id, salt, body)
        SELECT $1, $13, $20, $21 FROM ended WHERE $21::text IS NOT NULL
     ),
     steps AS (
        INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
        SELECT $1, $13, step.position, step.step_id, step.step_type, step.failure, step.duration_us
        FROM ended, unnest($22::text[], $23::text[], $24::text[], $25::bigint[]) WITH ORDINALITY
            AS step (step_id, step_type, failure, duration_us, position)
     ),
     decisions AS (
        INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules,
            evaluated_at)
        SELECT $1, $13, taken.decision_id, taken.outcome, taken.reason_code,
            ARRAY(SELECT jsonb_array_elements_text(taken.lists -> 'obligations')),
            ARRAY(SELECT jsonb_array_elements_text(taken.lists -> 'rules')), taken.evaluated_at
        FROM ended, unnest($26::uuid[], $27::text[], $28::text[], $29::jsonb[], $30::timestamptz[])
            AS taken (decision_id, outcome, reason_code, lists, evaluated_at)
     ),
     artifacts AS (
        INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body,
            created_at)
        SELECT $1, $13, kept.artifact_id, kept.kind, kept.storage_ref, kept.body, kept.created_at
        FROM ended, unnest($31::uuid[], $32::text[], $33::text[], $34::text[], $35::timestamptz[])
            AS kept (artifact_id, kind, storage_ref, body, created_at)
     )
     SELECT fairway_commit((SELECT count(*) = 1 FROM ended), ",
    commit_tail!(),
    ")"
);

pub(super) async fn finish(database: &Database, scope: TenantScope, ending: &Ending) -> Result<(), CommitError> {
    let tail = Tail::new(scope, &ending.fact, None);
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

    let artifacts = &ending.artifacts;
    let artifact_ids: Vec<Uuid> = artifacts.iter().map(|artifact| artifact.artifact_id.uuid()).collect();
    let kinds: Vec<&str> = artifacts.iter().map(|artifact| artifact.kind).collect();
    let refs: Vec<&str> = artifacts.iter().map(|artifact| artifact.storage_ref.as_str()).collect();
    let bodies: Vec<String> =
        artifacts.iter().map(|artifact| serde_json::Value::Object(artifact.body.clone()).to_string()).collect();
    let made: Vec<time::OffsetDateTime> = artifacts.iter().map(|artifact| artifact.created_at.moment()).collect();

    let own: [Param<'_>; 24] = [
        &execution,
        &ending.lease,
        &status,
        &outcome,
        &code,
        &message,
        &finished,
        &salt,
        &output,
        &step_ids,
        &step_types,
        &failures,
        &durations,
        &decision_ids,
        &verdicts,
        &reasons,
        &lists,
        &evaluated,
        &artifact_ids,
        &kinds,
        &refs,
        &bodies,
        &made,
        &offset,
    ];
    database.commit(SQL, &tail.with(&own)).await.map(|_| ())
}
