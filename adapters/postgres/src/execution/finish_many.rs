//! Ending the runs that are done at the same time, in one statement.

use super::finish::finish;
use crate::{
    database::{Param, commit_together},
    failure::unsettled,
    gather::{Batch, Gather},
    row::Columns,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    audit::leaf_hash,
    execution::Ending,
    id::WorkspaceId,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use futures_util::future::join_all;
use serde_json::Value;
use std::{collections::HashSet, sync::Arc};
use time::OffsetDateTime;
use uuid::Uuid;

/// The statement for one run (see `finish.rs`), over many: without its lease a run writes nothing, and none hinders
/// another.
const SQL: &str = "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::timestamptz[], $9::bigint[], $10::bytea[], $11::text[], $12::uuid[], $13::uuid[], $14::text[],
            $15::bytea[], $16::bytea[])
            AS asked (tenant_id, execution_id, token, status, outcome, error_code, error_message,
            finished_at, error_offset, salt, output, fact_id, workspace_id, kind,
            body, leaf_hash)
    ),
    held AS (
        DELETE FROM execution_lease AS lease USING asked
        WHERE lease.tenant_id = asked.tenant_id AND lease.execution_id = asked.execution_id
            AND lease.token = asked.token
        RETURNING asked.*
    ),
    ended AS (
        UPDATE execution
        SET status = held.status, outcome = held.outcome, error_code = held.error_code,
            error_message = held.error_message, finished_at = held.finished_at, error_offset = held.error_offset
        FROM held WHERE execution.tenant_id = held.tenant_id AND execution.execution_id = held.execution_id
        RETURNING held.*
    ),
    answer AS (
        INSERT INTO execution_result (tenant_id, execution_id, salt, body)
        SELECT tenant_id, execution_id, salt, output FROM ended WHERE output IS NOT NULL
    ),
    steps AS (
        INSERT INTO execution_step (tenant_id, execution_id, position, step_id, step_type, failure, duration_us)
        SELECT ended.tenant_id, execution_id, position, step_id, step_type, failure, duration_us
        FROM unnest($17::uuid[], $18::smallint[], $19::text[], $20::text[], $21::text[], $22::bigint[])
            AS step (execution_id, position, step_id, step_type, failure, duration_us)
        JOIN ended USING (execution_id)
    ),
    artifacts AS (
        INSERT INTO evidence_artifact (tenant_id, execution_id, artifact_id, artifact_kind, storage_ref, body,
            created_at)
        SELECT ended.tenant_id, execution_id, artifact_id, kept.kind, storage_ref, kept.body, created_at
        FROM unnest($23::uuid[], $24::uuid[], $25::text[], $26::text[], $27::text[], $28::timestamptz[])
            AS kept (execution_id, artifact_id, kind, storage_ref, body, created_at)
        JOIN ended USING (execution_id)
    ),
    told AS (
        INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
        SELECT tenant_id, fact_id, workspace_id, kind, body, leaf_hash FROM ended
    ),
    waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM ended)
    SELECT execution_id FROM ended";

/// The ends of one process's worker.
pub(crate) struct Finishes(pub(crate) Pool);

/// A run that asks to be ended.
pub(crate) struct Asking {
    scope: TenantScope,
    ending: Ending,
}

impl Gather<Finishes> {
    /// Ends a run, in one statement with those that are done at the same time.
    pub(super) async fn finish(self: &Arc<Self>, scope: TenantScope, ending: &Ending) -> Result<(), CommitError> {
        match self.ask(Asking { scope, ending: ending.clone() }).await {
            Some(answer) => answer,
            None => Err(CommitError::Store(unsettled())),
        }
    }
}

#[async_trait]
impl Batch for Finishes {
    type Item = Asking;
    type Answer = Result<(), CommitError>;

    async fn together(&self, asking: Vec<Asking>) -> Vec<Result<(), CommitError>> {
        let mut many = Many::default();
        let shared: Vec<bool> = asking.iter().map(|asking| many.take(asking)).collect();
        let together = if many.executions.len() > 1 { self.finish_many(&many).await } else { Ok(None) };
        if let Err(error) = &together {
            tracing::warn!(error = error as &dyn std::error::Error, "runs could not be ended together");
        }
        let together = &together;
        let answers = asking.iter().zip(shared).map(|(asking, shared)| async move {
            match (together, shared) {
                (Ok(Some(ended)), true) if ended.contains(&asking.ending.execution_id.uuid()) => Ok(()),
                (Ok(Some(_)), true) => Err(CommitError::Stale),
                (Err(_), true) => Err(CommitError::Store(unsettled())),
                (Ok(None), true) | (Ok(_) | Err(_), false) => finish(&self.0, asking.scope, &asking.ending).await,
            }
        });
        // At the same time: while these last, everybody else waits.
        join_all(answers).await
    }
}

impl Finishes {
    /// Those that were ended. `None`: nothing happened.
    async fn finish_many(&self, many: &Many<'_>) -> Result<Option<HashSet<Uuid>>, StoreError> {
        let params: [Param<'_>; 28] = [
            &many.tenants,
            &many.executions,
            &many.tokens,
            &many.statuses,
            &many.outcomes,
            &many.error_codes,
            &many.error_messages,
            &many.finished,
            &many.error_offsets,
            &many.salts,
            &many.outputs,
            &many.fact_ids,
            &many.workspaces,
            &many.kinds,
            &many.bodies,
            &many.leaves,
            &many.steps.of,
            &many.steps.positions,
            &many.steps.ids,
            &many.steps.types,
            &many.steps.failures,
            &many.steps.durations,
            &many.artifacts.of,
            &many.artifacts.ids,
            &many.artifacts.kinds,
            &many.artifacts.refs,
            &many.artifacts.bodies,
            &many.artifacts.made,
        ];
        let Some(rows) = commit_together(&self.0, SQL, &params).await? else { return Ok(None) };
        rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>().map(Some)
    }
}

/// Ends of runs, column by column.
#[derive(Default)]
struct Many<'a> {
    tenants: Vec<Uuid>,
    executions: Vec<Uuid>,
    tokens: Vec<Uuid>,
    statuses: Vec<&'static str>,
    outcomes: Vec<&'static str>,
    error_codes: Vec<Option<&'a str>>,
    error_messages: Vec<Option<&'a str>>,
    finished: Vec<OffsetDateTime>,
    error_offsets: Vec<Option<i64>>,
    salts: Vec<Option<&'a [u8]>>,
    outputs: Vec<Option<&'a str>>,
    fact_ids: Vec<Uuid>,
    workspaces: Vec<Option<Uuid>>,
    kinds: Vec<&'static str>,
    bodies: Vec<Vec<u8>>,
    leaves: Vec<Vec<u8>>,
    steps: Steps<'a>,
    artifacts: Artifacts<'a>,
}

#[derive(Default)]
struct Steps<'a> {
    of: Vec<Uuid>,
    positions: Vec<i16>,
    ids: Vec<&'a str>,
    types: Vec<&'static str>,
    failures: Vec<Option<&'a str>>,
    durations: Vec<i64>,
}

#[derive(Default)]
struct Artifacts<'a> {
    of: Vec<Uuid>,
    ids: Vec<Uuid>,
    kinds: Vec<&'static str>,
    refs: Vec<&'a str>,
    bodies: Vec<String>,
    made: Vec<OffsetDateTime>,
}

impl<'a> Many<'a> {
    /// Takes an end in, unless it has further decisions, which few have and every statement would pay for, or the run
    /// has one here already.
    fn take(&mut self, asking: &'a Asking) -> bool {
        let Asking { scope, ending } = asking;
        let id = ending.execution_id.uuid();
        // Of two ends of one run the second has to find the first's, or both would be told that they were stored.
        if !ending.decisions.is_empty() || self.executions.contains(&id) {
            return false;
        }
        self.tenants.push(scope.tenant().uuid());
        self.executions.push(id);
        self.tokens.push(ending.lease);
        self.statuses.push(ending.status.as_str());
        self.outcomes.push(ending.outcome.as_str());
        let error = ending.error.as_ref();
        self.error_codes.push(error.map(|error| error.code.as_str()));
        self.error_messages.push(error.map(|error| error.message.as_str()));
        self.error_offsets.push(error.and_then(|error| error.offset).map(i64::from));
        self.finished.push(ending.finished_at.moment());
        let output = ending.output.as_ref();
        self.salts.push(output.map(|output| output.salt.as_slice()));
        self.outputs.push(output.map(|output| output.body.as_str()));
        let fact = &ending.fact;
        let body = fact.canonical_bytes(scope.tenant());
        self.fact_ids.push(fact.fact_id.uuid());
        self.workspaces.push(fact.workspace_id.map(WorkspaceId::uuid));
        self.kinds.push(fact.kind.as_str());
        self.leaves.push(leaf_hash(&body).to_vec());
        self.bodies.push(body);
        for (position, step) in (1_i16..).zip(&ending.steps) {
            self.steps.of.push(id);
            self.steps.positions.push(position);
            self.steps.ids.push(&step.step_id);
            self.steps.types.push(step.step_type);
            self.steps.failures.push(step.failure.as_deref());
            // A duration beyond what the column holds is some 292 000 years.
            self.steps.durations.push(i64::try_from(step.duration.as_micros()).unwrap_or(i64::MAX));
        }
        for artifact in &ending.artifacts {
            self.artifacts.of.push(id);
            self.artifacts.ids.push(artifact.artifact_id.uuid());
            self.artifacts.kinds.push(artifact.kind);
            self.artifacts.refs.push(artifact.storage_ref.as_str());
            self.artifacts.bodies.push(Value::Object(artifact.body.clone()).to_string());
            self.artifacts.made.push(artifact.created_at.moment());
        }
        true
    }
}
