//! Accepts a batch of runs in one statement.

use super::accept::{accept, request_context_json};
use crate::{
    database::{Param, commit_batch},
    group_commit::BatchCommitter,
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    execution::{
        Acceptance, Admission,
        ports::{AcceptOutcome, ExpectedRevisions},
    },
    idempotency::RequestKey,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use serde_json::json;
use std::collections::HashMap;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// The statement of `accept.rs` over a batch: each run has its own revision check, and a rejected run does not affect
/// the others. Keys are claimed in one order, so that concurrent batches do not deadlock. The arguments hold what
/// differs between running and queued runs.
macro_rules! accept_batch_sql {
    ($columns:literal, $names:literal, $full:literal, $room:literal, $status:literal, $held:literal, $answer:literal) => {
        concat!(
            "WITH asked AS MATERIALIZED (
                SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::uuid[],
                    $8::uuid[], $9::uuid[], $10::text[], $11::text[], $12::bytea[], $13::bytea[], $14::timestamptz[],
                    $15::bytea[], $16::text[], $17::uuid[], $18::text[], $19::text[], $20::jsonb[], $21::timestamptz[],
                    $22::text[], $23::text[], $24::text[], $25::bytea[], $26::text[]",
            $columns,
            ")
                    AS asked (tenant_id, workload_id, environment, on_deployment, on_workload, on_access, execution_id,
                    workspace_id, release_id, lane, submitter, snapshot, input_digest, started_at,
                    salt, body, decision_id, verdict, reason_code, lists, evaluated_at,
                    caller, route, key, body_digest, sender",
            $names,
            ")
             ),
             ",
            $full,
            "place AS MATERIALIZED (
                SELECT asked.* FROM asked
                JOIN deployment USING (tenant_id, workload_id, environment)
                JOIN workload USING (tenant_id, workload_id)
                JOIN tenant USING (tenant_id)
                WHERE deployment.revision = on_deployment AND workload.revision = on_workload
                    AND workload.status = 'registered' AND tenant.access_revision = on_access",
            $room,
            "
             ),
             claimed AS (
                INSERT INTO idempotency_key AS known
                    (tenant_id, caller, route, key, body_digest, status, resource, created_at)
                SELECT tenant_id, caller, route, key, body_digest, NULL, execution_id, fairway_now() FROM place
                WHERE key IS NOT NULL ORDER BY tenant_id, caller, route, key
                ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
                SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
                    created_at = excluded.created_at
                WHERE known.created_at < fairway_now() - fairway_key_lifetime()
                RETURNING resource
             ),
             go AS MATERIALIZED (
                SELECT place.* FROM place WHERE key IS NULL
                UNION ALL
                SELECT place.* FROM place JOIN claimed ON resource = execution_id
             ),
             run AS (
                INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment,
                    lane, deployment_revision, submitter, snapshot, input_digest, status, started_at)
                SELECT tenant_id, execution_id, workload_id, workspace_id, release_id, environment,
                    lane, on_deployment, submitter, snapshot, input_digest, '",
            $status,
            "', started_at FROM go
             ),
             input AS (
                INSERT INTO execution_input (tenant_id, execution_id, salt, body, sender)
                SELECT tenant_id, execution_id, salt, body, sender FROM go
             ),
             decision AS (
                INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations,
                    rules, evaluated_at)
                SELECT tenant_id, execution_id, decision_id, verdict, reason_code,
                    ARRAY(SELECT jsonb_array_elements_text(lists -> 'obligations')),
                    ARRAY(SELECT jsonb_array_elements_text(lists -> 'rules')), evaluated_at
                FROM go
             ),
             held AS (",
            $held,
            ")
             ",
            $answer
        )
    };
}

/// Runs that start immediately, each under a lease.
const RUN: &str = accept_batch_sql!(
    ", $27::uuid[], $28::float8[], $29::float8[]",
    ", token, lease_for, deadline_in",
    "",
    "",
    "running",
    "INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
     SELECT tenant_id, execution_id, token, make_interval(secs => lease_for),
        fairway_now() + make_interval(secs => lease_for), fairway_now() + make_interval(secs => deadline_in)
     FROM go",
    "SELECT place.execution_id, go.execution_id IS NOT NULL AS gone, false AS line_full
     FROM place LEFT JOIN go USING (execution_id)"
);

/// Runs that are queued while the tenant's queue has room. The limit is checked once for each tenant, because counting
/// a long queue is slow; a batch may exceed it by its own size.
const QUEUE: &str = accept_batch_sql!(
    "",
    "",
    "full_line AS MATERIALIZED (
        SELECT tenant_id FROM (SELECT DISTINCT tenant_id FROM asked) AS one
        WHERE EXISTS (SELECT FROM execution_queue AS line WHERE line.tenant_id = one.tenant_id OFFSET $27::bigint - 1)
     ),
     ",
    " AND tenant_id NOT IN (SELECT tenant_id FROM full_line)",
    "queued",
    "INSERT INTO execution_queue (tenant_id, execution_id) SELECT tenant_id, execution_id FROM go",
    "SELECT place.execution_id, go.execution_id IS NOT NULL AS gone, false AS line_full
     FROM place LEFT JOIN go USING (execution_id)
     UNION ALL
     SELECT execution_id, false, true FROM asked WHERE tenant_id IN (SELECT tenant_id FROM full_line)"
);

/// Group commit of accepts: of running or of queued runs.
pub(crate) struct AcceptCommitter {
    pool: Pool,
    sql: &'static str,
}

impl AcceptCommitter {
    pub(crate) const fn running(pool: Pool) -> Self {
        Self { pool, sql: RUN }
    }

    pub(crate) const fn queued(pool: Pool) -> Self {
        Self { pool, sql: QUEUE }
    }
}

/// A run to accept.
pub(crate) struct PendingAccept {
    pub(super) scope: TenantScope,
    pub(super) run: Acceptance,
    pub(super) on: ExpectedRevisions,
    pub(super) key: Option<RequestKey>,
}

/// Bytes of the unbounded texts of an acceptance.
pub(super) fn payload_bytes(acceptance: &Acceptance) -> usize {
    acceptance.inputs.body.len()
}

#[async_trait]
impl BatchCommitter for AcceptCommitter {
    type Item = PendingAccept;
    type Output = AcceptOutcome;
    const LABEL: &'static str = "accepts of runs";

    /// Denials, scripts and delegated runs use other statements and run alone. A second run with the same idempotency
    /// key runs alone too, because it must see the first one's row.
    fn is_batchable(pending: &PendingAccept, in_front: &[&PendingAccept]) -> bool {
        let taken = |key: &RequestKey| {
            in_front.iter().any(|other| other.key.as_ref().is_some_and(|other| other.key == key.key))
        };
        let plain = match pending.run.admission {
            Admission::Run { .. } | Admission::Queue { .. } => pending.run.delegated_access.is_empty(),
            Admission::Script { .. } | Admission::Deny(_) => false,
        };
        plain && !pending.key.as_ref().is_some_and(taken)
    }

    fn payload_bytes(pending: &PendingAccept) -> usize {
        payload_bytes(&pending.run)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingAccept],
    ) -> Result<Option<Vec<Result<AcceptOutcome, CommitError>>>, StoreError> {
        let mut batch = BatchColumns::default();
        for pending in pending {
            batch.push(pending);
        }
        let Some(places) = self.accept_batch(&batch).await? else { return Ok(None) };
        let answer = |pending: &&PendingAccept| {
            Ok(places.get(&pending.run.execution_id.uuid()).copied().unwrap_or(AcceptOutcome::Stale))
        };
        Ok(Some(pending.iter().map(answer).collect()))
    }

    async fn commit_one(&self, pending: &PendingAccept) -> Result<AcceptOutcome, CommitError> {
        accept(&self.pool, pending.scope, &pending.run, pending.on, pending.key.as_ref()).await
    }
}

impl AcceptCommitter {
    /// The results of the runs whose revisions matched or whose queue was full. `None`: the batch was rolled back.
    async fn accept_batch(&self, batch: &BatchColumns<'_>) -> Result<Option<HashMap<Uuid, AcceptOutcome>>, StoreError> {
        let mut params: Vec<Param<'_>> = vec![
            &batch.tenants,
            &batch.workloads,
            &batch.environments,
            &batch.on_deployments,
            &batch.on_workloads,
            &batch.on_access,
            &batch.executions,
            &batch.workspaces,
            &batch.releases,
            &batch.lanes,
            &batch.submitters,
            &batch.snapshots,
            &batch.input_digests,
            &batch.started,
            &batch.salts,
            &batch.bodies,
            &batch.decision_ids,
            &batch.verdicts,
            &batch.reason_codes,
            &batch.lists,
            &batch.evaluated,
            &batch.callers,
            &batch.routes,
            &batch.keys,
            &batch.body_digests,
            &batch.senders,
        ];
        match &batch.queue_limit {
            None => params.extend_from_slice(&[&batch.tokens, &batch.lease_for, &batch.deadline_in]),
            Some(limit) => params.push(limit),
        }
        let Some(rows) = commit_batch(&self.pool, self.sql, &params).await? else { return Ok(None) };
        rows.iter()
            .map(|row: &Row| {
                let accepted = match (row.column("line_full")?, row.column("gone")?) {
                    (true, _) => AcceptOutcome::QueueFull,
                    (false, true) => AcceptOutcome::Accepted,
                    (false, false) => AcceptOutcome::DuplicateKey,
                };
                Ok((row.column("execution_id")?, accepted))
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// A batch of runs, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    tenants: Vec<Uuid>,
    workloads: Vec<Uuid>,
    environments: Vec<&'a str>,
    on_deployments: Vec<i64>,
    on_workloads: Vec<i64>,
    on_access: Vec<i64>,
    executions: Vec<Uuid>,
    workspaces: Vec<Uuid>,
    releases: Vec<Uuid>,
    lanes: Vec<&'static str>,
    submitters: Vec<String>,
    snapshots: Vec<&'a [u8]>,
    input_digests: Vec<Vec<u8>>,
    started: Vec<OffsetDateTime>,
    salts: Vec<&'a [u8]>,
    bodies: Vec<&'a str>,
    decision_ids: Vec<Uuid>,
    verdicts: Vec<&'static str>,
    reason_codes: Vec<&'a str>,
    lists: Vec<serde_json::Value>,
    evaluated: Vec<OffsetDateTime>,
    senders: Vec<String>,
    /// Maximum number of queued runs of a tenant; the same for the whole batch.
    queue_limit: Option<i64>,
    tokens: Vec<Uuid>,
    lease_for: Vec<f64>,
    deadline_in: Vec<f64>,
    callers: Vec<Option<String>>,
    routes: Vec<Option<&'a str>>,
    keys: Vec<Option<&'a str>>,
    body_digests: Vec<Option<&'a [u8]>>,
}

impl<'a> BatchColumns<'a> {
    fn push(&mut self, pending: &'a PendingAccept) {
        let PendingAccept { scope, run, on, key } = pending;
        match &run.admission {
            Admission::Run { lease, lease_for, deadline_in } => {
                self.tokens.push(*lease);
                self.lease_for.push(lease_for.as_secs_f64());
                self.deadline_in.push(deadline_in.as_secs_f64());
            }
            Admission::Queue { limit } => self.queue_limit = Some(i64::from(*limit)),
            Admission::Script { .. } | Admission::Deny(_) => return,
        }
        self.tenants.push(scope.tenant().uuid());
        self.workloads.push(run.workload_id.uuid());
        self.environments.push(run.environment.as_str());
        self.on_deployments.push(on.deployment.get());
        self.on_workloads.push(on.workload.get());
        self.on_access.push(on.access.get());
        self.executions.push(run.execution_id.uuid());
        self.workspaces.push(run.workspace_id.uuid());
        self.releases.push(run.release_id.uuid());
        self.lanes.push(run.lane.as_str());
        self.submitters.push(run.submitter.to_string());
        self.snapshots.push(run.snapshot.as_slice());
        self.input_digests.push(run.inputs.digest().to_vec());
        self.started.push(run.started_at.to_datetime());
        self.salts.push(run.inputs.salt.as_slice());
        self.bodies.push(&run.inputs.body);
        let decision = &run.decision;
        self.decision_ids.push(decision.decision_id.uuid());
        self.verdicts.push(decision.outcome.as_str());
        self.reason_codes.push(&decision.reason_code);
        self.lists.push(json!({ "obligations": decision.obligations, "rules": decision.rules }));
        self.evaluated.push(decision.evaluated_at.to_datetime());
        self.senders.push(request_context_json(&run.request_context));
        let key = key.as_ref();
        self.callers.push(key.map(|key| key.caller.to_string()));
        self.routes.push(key.map(|key| key.route.as_str()));
        self.keys.push(key.map(|key| key.key.as_str()));
        self.body_digests.push(key.map(|key| key.body_digest.as_slice()));
    }
}
