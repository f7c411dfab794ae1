//! Accepting a run: one statement that writes everything, or nothing when what it was decided on has moved.

use crate::{
    database::{Database, Param},
    row::{Columns, known},
};
use fairway_domain::{
    audit::leaf_hash,
    execution::{
        Acceptance, Admission, Status,
        ports::{Accepted, AcceptedOn},
    },
    idempotency::RequestKey,
    policy::Outcome,
    store::CommitError,
    tenant::TenantScope,
};

/// `place` holds a row while the revisions that the decision saw are still the present ones; `go` besides claims the
/// idempotency key, if there is one. No row is locked: runs of one workload never wait for each other.
macro_rules! accept_sql {
    ($last:literal) => {
        concat!(
            "WITH place AS MATERIALIZED (
                SELECT FROM deployment
                JOIN workload USING (tenant_id, workload_id)
                JOIN tenant USING (tenant_id)
                WHERE tenant_id = $1 AND workload_id = $2 AND environment = $3
                    AND deployment.revision = $4 AND workload.revision = $5 AND workload.status = 'registered'
                    AND tenant.access_revision = $6
             ),
             claimed AS (
                INSERT INTO idempotency_key AS known
                    (tenant_id, caller, route, key, body_digest, status, resource, created_at)
                SELECT $1, $7, $8, $9, $10, NULL, $11, fairway_now() FROM place WHERE $9::text IS NOT NULL
                ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
                SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
                    created_at = excluded.created_at
                WHERE known.created_at < fairway_now() - fairway_key_lifetime()
                RETURNING 1
             ),
             go AS MATERIALIZED (
                SELECT FROM place WHERE $9::text IS NULL UNION ALL SELECT FROM claimed
             ),
             run AS (
                INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment,
                    lane, submitter, snapshot, input_digest, status, outcome, started_at, finished_at)
                SELECT $1, $11, $2, $12, $13, $3, $14, $15, $16, $17, $18, $19, $20, $21 FROM go
             ),
             input AS (
                INSERT INTO execution_input (tenant_id, execution_id, salt, body) SELECT $1, $11, $22, $23 FROM go
             ),
             decision AS (
                INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations,
                    rules, evaluated_at)
                SELECT $1, $11, $24, $25, $26, $27, $28, $29 FROM go
             )",
            $last,
            "SELECT (SELECT count(*) FROM place) AS places, (SELECT count(*) FROM go) AS gone"
        )
    };
}

const RUN: &str = accept_sql!(
    ", lease AS (
        INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
        SELECT $1, $11, $30, make_interval(secs => $31), fairway_now() + make_interval(secs => $31),
            fairway_now() + make_interval(secs => $32)
        FROM go
     ) "
);

const DENY: &str = accept_sql!(
    ", told AS (
        INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
        SELECT $1, $30, $12, $31, $32, $33 FROM go
     ),
     waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT $1, $30 FROM go) "
);

pub(super) async fn accept(
    database: &Database,
    scope: TenantScope,
    run: &Acceptance,
    on: AcceptedOn,
    key: Option<&RequestKey>,
) -> Result<Accepted, CommitError> {
    let tenant = scope.tenant().uuid();
    let (workload, environment) = (run.workload_id.uuid(), run.environment.as_str());
    let (on_deployment, on_workload, on_access) = (on.deployment.get(), on.workload.get(), on.access.get());
    let caller = key.map(|key| key.caller.to_string());
    let route = key.map(|key| key.route.as_str());
    let key_text = key.map(|key| key.key.as_str());
    let body_digest = key.map(|key| key.body_digest.as_slice());
    let (execution, workspace, release) = (run.execution_id.uuid(), run.workspace_id.uuid(), run.release_id.uuid());
    let (lane, submitter, snapshot) = (run.lane.as_str(), run.submitter.to_string(), run.snapshot.as_slice());
    let input_digest = run.inputs.digest();
    let input_digest = input_digest.as_slice();
    let started = run.started_at.moment();
    let (status, outcome, finished) = match &run.admission {
        Admission::Run { .. } => (Status::Running.as_str(), None, None),
        Admission::Deny(_) => {
            (Status::Denied.as_str(), Some(fairway_domain::execution::Outcome::Denied.as_str()), Some(started))
        }
    };
    let salt = run.inputs.salt.as_slice();
    let decision = &run.decision;
    let (decision_id, verdict, evaluated) =
        (decision.decision_id.uuid(), Outcome::as_str(decision.outcome), decision.evaluated_at.moment());
    let mut params: Vec<Param<'_>> = vec![
        &tenant,
        &workload,
        &environment,
        &on_deployment,
        &on_workload,
        &on_access,
        &caller,
        &route,
        &key_text,
        &body_digest,
        &execution,
        &workspace,
        &release,
        &lane,
        &submitter,
        &snapshot,
        &input_digest,
        &status,
        &outcome,
        &started,
        &finished,
        &salt,
        &run.inputs.body,
        &decision_id,
        &verdict,
        &decision.reason_code,
        &decision.obligations,
        &decision.rules,
        &evaluated,
    ];
    let rows = match &run.admission {
        Admission::Run { lease, lease_for, deadline_in } => {
            let (lease_for, deadline_in) = (lease_for.as_secs_f64(), deadline_in.as_secs_f64());
            params.extend_from_slice(&[lease, &lease_for, &deadline_in]);
            database.commit(RUN, &params).await?
        }
        Admission::Deny(fact) => {
            let body = fact.canonical_bytes(scope.tenant());
            let leaf = leaf_hash(&body);
            let leaf = leaf.as_slice();
            let (fact_id, kind) = (fact.fact_id.uuid(), fact.kind.as_str());
            params.extend_from_slice(&[&fact_id, &kind, &body, &leaf]);
            database.commit(DENY, &params).await?
        }
    };
    let row = known("gone", rows.first())?;
    let (places, gone): (i64, i64) = (row.column("places")?, row.column("gone")?);
    Ok(match (places, gone) {
        (0, _) => Accepted::Moved,
        (_, 0) => Accepted::KeyTaken,
        (_, _) => Accepted::Yes,
    })
}
