//! Starts claimed runs. Concurrent starts share one statement, which writes everything of a run or nothing.

use super::progress::PendingProgress;
use crate::{
    database::{Param, commit, commit_batch},
    group_commit::BatchCommitter,
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    execution::dispatch::{LeaseRef, QueuedStart, StartOutcome},
    id::ShareLinkId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use serde_json::json;
use std::collections::HashMap;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// The lease is renewed in the same statement. Its row lock serializes the start with a reclaim of the run, and the
/// later one of both finds no matching token. A lease that is held but not renewed means that a revision changed.
const START: &str = "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::text[], $6::bigint[], $7::bigint[],
            $8::bigint[], $9::uuid[], $10::text[], $11::bytea[], $12::uuid[], $13::text[], $14::text[], $15::jsonb[],
            $16::timestamptz[], $17::smallint[], $18::text[], $19::uuid[])
            AS asked (tenant_id, execution_id, token, workload_id, environment, on_deployment, on_workload,
            on_access, release_id, lane, snapshot, decision_id, verdict, reason_code, lists,
            evaluated_at, position, events, link)
    ),
    place AS MATERIALIZED (
        SELECT asked.* FROM asked
        JOIN deployment USING (tenant_id, workload_id, environment)
        JOIN workload USING (tenant_id, workload_id)
        JOIN tenant USING (tenant_id)
        WHERE deployment.revision = on_deployment AND workload.revision = on_workload
            AND workload.status = 'registered' AND tenant.access_revision = on_access
            AND (link IS NULL OR NOT EXISTS (
                SELECT FROM share_link
                WHERE share_link.tenant_id = asked.tenant_id AND share_link_id = link AND revoked_at IS NOT NULL))
    ),
    go AS (
        UPDATE execution_lease AS lease SET lapses_at = fairway_now() + lease_for FROM place
        WHERE lease.tenant_id = place.tenant_id AND lease.execution_id = place.execution_id AND lease.token = place.token
        RETURNING place.*
    ),
    run AS (
        UPDATE execution SET status = 'running', release_id = go.release_id, lane = go.lane, snapshot = go.snapshot,
            deployment_revision = go.on_deployment
        FROM go WHERE execution.tenant_id = go.tenant_id AND execution.execution_id = go.execution_id
            AND execution.execution_id >= $20 AND execution.execution_id <= $21
    ),
    decision AS (
        INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations, rules,
            evaluated_at)
        SELECT tenant_id, execution_id, decision_id, verdict, reason_code,
            ARRAY(SELECT jsonb_array_elements_text(lists -> 'obligations')),
            ARRAY(SELECT jsonb_array_elements_text(lists -> 'rules')), evaluated_at
        FROM go
    ),
    kept AS (
        INSERT INTO execution_progress (tenant_id, execution_id, position, events)
        SELECT tenant_id, execution_id, position, events FROM go
    )
    SELECT asked.execution_id, go.execution_id IS NOT NULL AS gone FROM asked
    JOIN execution_lease AS lease ON lease.tenant_id = asked.tenant_id AND lease.execution_id = asked.execution_id
        AND lease.token = asked.token
    LEFT JOIN go ON go.execution_id = asked.execution_id";

/// Group commit of starts.
pub(crate) struct StartCommitter(pub(crate) Pool);

/// A run to start.
pub(crate) struct PendingStart {
    start: QueuedStart,
    progress: PendingProgress,
}

impl PendingStart {
    pub(super) fn of(scope: TenantScope, start: &QueuedStart) -> Result<Self, StoreError> {
        let held = LeaseRef { execution_id: start.acceptance.execution_id, lease: start.lease };
        Ok(Self { progress: PendingProgress::of(scope, held, &start.progress)?, start: start.clone() })
    }
}

#[async_trait]
impl BatchCommitter for StartCommitter {
    type Item = PendingStart;
    type Output = StartOutcome;
    const LABEL: &'static str = "starts of runs";

    fn is_batchable(pending: &PendingStart, in_front: &[&PendingStart]) -> bool {
        in_front.iter().all(|other| other.progress.lease_ref.execution_id != pending.progress.lease_ref.execution_id)
    }

    fn payload_bytes(pending: &PendingStart) -> usize {
        pending.progress.events.len()
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingStart],
    ) -> Result<Option<Vec<Result<StartOutcome, CommitError>>>, StoreError> {
        let batch = BatchColumns::of(pending);
        let Some(rows) = commit_batch(&self.0, START, &batch.params()).await? else { return Ok(None) };
        let held: HashMap<Uuid, bool> = rows.iter().map(start_result).collect::<Result<_, _>>()?;
        let answer =
            |pending: &&PendingStart| start_outcome(held.get(&pending.progress.lease_ref.execution_id.uuid()).copied());
        Ok(Some(pending.iter().map(answer).collect()))
    }

    async fn commit_one(&self, pending: &PendingStart) -> Result<StartOutcome, CommitError> {
        let rows = commit(&self.0, START, &BatchColumns::of(&[pending]).params()).await?;
        start_outcome(rows.first().map(start_result).transpose()?.map(|(_, gone)| gone))
    }
}

fn start_result(row: &Row) -> Result<(Uuid, bool), StoreError> {
    Ok((row.column("execution_id")?, row.column("gone")?))
}

fn start_outcome(gone: Option<bool>) -> Result<StartOutcome, CommitError> {
    match gone {
        Some(true) => Ok(StartOutcome::Started),
        Some(false) => Ok(StartOutcome::Stale),
        None => Err(CommitError::Stale),
    }
}

/// A batch of starts, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    tenants: Vec<Uuid>,
    executions: Vec<Uuid>,
    tokens: Vec<Uuid>,
    workloads: Vec<Uuid>,
    environments: Vec<&'a str>,
    on_deployments: Vec<i64>,
    on_workloads: Vec<i64>,
    on_access: Vec<i64>,
    releases: Vec<Uuid>,
    lanes: Vec<&'static str>,
    snapshots: Vec<&'a [u8]>,
    decision_ids: Vec<Uuid>,
    verdicts: Vec<&'static str>,
    reason_codes: Vec<&'a str>,
    lists: Vec<serde_json::Value>,
    evaluated: Vec<OffsetDateTime>,
    positions: Vec<i16>,
    events: Vec<&'a str>,
    links: Vec<Option<Uuid>>,
    /// The range of identifiers lets PostgreSQL prune monthly partitions.
    first_execution: Option<Uuid>,
    last_execution: Option<Uuid>,
}

impl<'a> BatchColumns<'a> {
    fn of(pending: &[&'a PendingStart]) -> Self {
        let mut batch = Self::default();
        for PendingStart { start, progress: telling } in pending {
            let (run, on) = (&start.acceptance, start.expected_revisions);
            batch.tenants.push(telling.scope.tenant().uuid());
            batch.executions.push(run.execution_id.uuid());
            batch.tokens.push(start.lease);
            batch.workloads.push(run.workload_id.uuid());
            batch.environments.push(run.environment.as_str());
            batch.on_deployments.push(on.deployment.get());
            batch.on_workloads.push(on.workload.get());
            batch.on_access.push(on.access.get());
            batch.releases.push(run.release_id.uuid());
            batch.lanes.push(run.lane.as_str());
            batch.snapshots.push(run.snapshot.as_slice());
            let decision = &run.decision;
            batch.decision_ids.push(decision.decision_id.uuid());
            batch.verdicts.push(decision.outcome.as_str());
            batch.reason_codes.push(&decision.reason_code);
            batch.lists.push(json!({ "obligations": decision.obligations, "rules": decision.rules }));
            batch.evaluated.push(decision.evaluated_at.to_datetime());
            batch.positions.push(telling.position);
            batch.events.push(&telling.events);
            batch.links.push(start.share_link.map(ShareLinkId::uuid));
        }
        batch.first_execution = batch.executions.iter().min().copied();
        batch.last_execution = batch.executions.iter().max().copied();
        batch
    }

    fn params(&self) -> [Param<'_>; 21] {
        [
            &self.tenants,
            &self.executions,
            &self.tokens,
            &self.workloads,
            &self.environments,
            &self.on_deployments,
            &self.on_workloads,
            &self.on_access,
            &self.releases,
            &self.lanes,
            &self.snapshots,
            &self.decision_ids,
            &self.verdicts,
            &self.reason_codes,
            &self.lists,
            &self.evaluated,
            &self.positions,
            &self.events,
            &self.links,
            &self.first_execution,
            &self.last_execution,
        ]
    }
}
