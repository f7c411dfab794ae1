//! Starts claimed runs. Concurrent starts share a statement, which writes all rows of a run or none.

use super::{
    accept::SELECT_CURRENT, in_order_of_runs, inserts::INSERT_DECISION, progress::PendingProgress, stored_decision,
};
use crate::{
    database::{StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{Input, Query},
    row::Row,
};
use async_trait::async_trait;
use fairway_domain::{
    execution::dispatch::{LeaseRef, QueuedStart, StartOutcome},
    id::ShareLinkId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use std::collections::HashMap;
use uuid::Uuid;

/// Starts runs and renews their leases. The lock on a lease's row serializes the start with a reclaim of the run. A
/// start after the reclaim finds another token and writes nothing. A reclaim after the start finds a renewed lease. If
/// the lease exists but is not renewed, a revision has changed. The range of identifiers lets PostgreSQL prune monthly
/// partitions.
static START: Query = Query::of_parts(&[
    "current AS MATERIALIZED (",
    SELECT_CURRENT,
    "       AND (link IS NULL OR NOT EXISTS (
                SELECT FROM share_link
                WHERE share_link.tenant_id = input.tenant_id AND share_link_id = link AND revoked_at IS NOT NULL))
     ),
     started AS (
        UPDATE execution_lease AS lease SET lapses_at = fairway_now() + lease_for FROM current
        WHERE lease.tenant_id = current.tenant_id AND lease.execution_id = current.execution_id
            AND lease.token = current.token
        RETURNING current.*
     ),
     run AS (
        UPDATE execution SET status = 'running', release_id = started.release_id, lane = started.lane,
            snapshot = started.snapshot, deployment_revision = started.deployment_revision
        FROM started
        WHERE execution.tenant_id = started.tenant_id AND execution.execution_id = started.execution_id
            AND execution.execution_id >= {first_execution} AND execution.execution_id <= {last_execution}
     ),
     decision AS (",
    INSERT_DECISION,
    " FROM started),
     progress AS (
        INSERT INTO execution_progress (tenant_id, execution_id, position, events)
        SELECT tenant_id, execution_id, position, events FROM started
     )
     SELECT input.execution_id, started.execution_id IS NOT NULL AS is_started FROM input
     JOIN execution_lease AS lease ON lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
        AND lease.token = input.token
     LEFT JOIN started ON started.execution_id = input.execution_id",
]);

/// Group commit of the starts of runs.
pub(crate) struct StartCommitter(pub(crate) StatementPool);

/// A run that waits for the group commit of its start.
pub(crate) struct PendingStart {
    start: QueuedStart,
    progress: PendingProgress,
}

impl PendingStart {
    pub(super) fn of(scope: TenantScope, start: &QueuedStart) -> Result<Self, StoreError> {
        let lease_ref = LeaseRef { execution_id: start.acceptance.execution_id, lease: start.lease };
        Ok(Self { progress: PendingProgress::of(scope, lease_ref, &start.progress)?, start: start.clone() })
    }
}

#[async_trait]
impl BatchCommitter for StartCommitter {
    type Item = PendingStart;
    type Output = StartOutcome;
    const LABEL: &'static str = "starts of runs";

    fn is_batchable(pending: &PendingStart, batch: &[&PendingStart]) -> bool {
        batch.iter().all(|other| other.progress.lease_ref.execution_id != pending.progress.lease_ref.execution_id)
    }

    fn payload_bytes(pending: &PendingStart) -> usize {
        pending.progress.events.len()
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingStart],
    ) -> Result<Option<Vec<Result<StartOutcome, CommitError>>>, StoreError> {
        let input = batch_input(&in_order_of_runs(pending, |pending| pending.progress.lease_ref.execution_id));
        let Some(rows) = commit_batch(&self.0, START.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let start_results: HashMap<Uuid, bool> = rows.iter().map(start_result).collect::<Result<_, _>>()?;
        let outcome = |pending: &&PendingStart| {
            start_outcome(start_results.get(&pending.progress.lease_ref.execution_id.uuid()).copied())
        };
        Ok(Some(pending.iter().map(outcome).collect()))
    }

    async fn commit_one(&self, pending: &PendingStart) -> Result<StartOutcome, CommitError> {
        let input = batch_input(&[pending]);
        let rows = commit(&self.0, START.text(&input)?, &input.params()).await?;
        start_outcome(rows.first().map(start_result).transpose()?.map(|(_, is_started)| is_started))
    }
}

fn start_result(row: &Row) -> Result<(Uuid, bool), StoreError> {
    Ok((row.column("execution_id")?, row.column("is_started")?))
}

fn start_outcome(is_started: Option<bool>) -> Result<StartOutcome, CommitError> {
    match is_started {
        Some(true) => Ok(StartOutcome::Started),
        Some(false) => Ok(StartOutcome::Stale),
        None => Err(CommitError::Stale),
    }
}

/// Builds the input columns of a batch of starts.
fn batch_input<'v>(pending: &[&'v PendingStart]) -> Input<'v> {
    let starts = || pending.iter().map(|pending| &pending.start);
    let runs = || starts().map(|start| &start.acceptance);
    let decisions = || runs().map(|run| &run.decision);
    let expected = || starts().map(|start| start.expected_revisions);
    let progress = || pending.iter().map(|pending| &pending.progress);
    let executions: Vec<Uuid> = runs().map(|run| run.execution_id.uuid()).collect();
    let (first, last) = (executions.iter().min().copied(), executions.iter().max().copied());
    Input::many()
        .with_column("tenant_id", progress().map(|progress| progress.scope.tenant().uuid()))
        .with_column("execution_id", executions)
        .with_column("token", starts().map(|start| start.lease))
        .with_column("workload_id", runs().map(|run| run.workload_id.uuid()))
        .with_column("environment", runs().map(|run| run.environment.as_str()))
        .with_column("deployment_revision", expected().map(|expected| expected.deployment.get()))
        .with_column("expected_workload", expected().map(|expected| expected.workload.get()))
        .with_column("expected_access", expected().map(|expected| expected.access.get()))
        .with_column("release_id", runs().map(|run| run.release_id.uuid()))
        .with_column("lane", runs().map(|run| run.lane.as_str()))
        .with_column("snapshot", runs().map(|run| run.snapshot.as_slice()))
        .with_column("decision_id", decisions().map(|decision| decision.decision_id.uuid()))
        .with_column("decision_outcome", decisions().map(|decision| decision.outcome.as_str()))
        .with_column("reason_code", decisions().map(|decision| decision.reason_code.as_str()))
        .with_column("obligations", decisions().map(stored_decision::obligations_literal))
        .with_column("rules", decisions().map(stored_decision::rules_literal))
        .with_column("evaluated_at", decisions().map(|decision| decision.evaluated_at.to_datetime()))
        .with_column("position", progress().map(|progress| progress.position))
        .with_column("events", progress().map(|progress| progress.events.as_str()))
        .with_column("link", starts().map(|start| start.share_link.map(ShareLinkId::uuid)))
        .with_param("first_execution", first)
        .with_param("last_execution", last)
}
