//! Ending the runs that are done at the same time, in one statement.

use super::finish::finish;
use crate::{
    database::{Param, commit_together},
    guarded::{Facts, fact_columns, fact_names, told},
    row::Columns,
    together::Commit,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    execution::Ending,
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use serde_json::Value;
use std::collections::HashSet;
use time::OffsetDateTime;
use uuid::Uuid;

/// The statement for one run (see `finish.rs`), over many: without its lease a run writes nothing, and none hinders
/// another.
const SQL: &str = concat!(
    "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(",
    fact_columns!(),
    ",
            $7::uuid[], $8::uuid[], $9::text[], $10::text[], $11::text[], $12::text[], $13::timestamptz[],
            $14::bigint[], $15::bytea[], $16::text[])
            AS asked (",
    fact_names!(),
    ", execution_id, token, status, outcome, error_code, error_message, finished_at, error_offset, salt, output)
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
    ",
    told!("ended"),
    " SELECT execution_id FROM ended"
);

/// The ends of one process's worker.
pub(crate) struct Finishes(pub(crate) Pool);

/// A run that asks to be ended.
pub(crate) struct Asking {
    pub(super) scope: TenantScope,
    pub(super) ending: Ending,
}

#[async_trait]
impl Commit for Finishes {
    type Item = Asking;
    type Done = ();
    const WHAT: &'static str = "ends of runs";

    /// Few have further decisions, and of two ends of one run the second has to find the first's, or both would be told
    /// that they were stored.
    fn shares(asking: &Asking, in_front: &[&Asking]) -> bool {
        let run = asking.ending.execution_id;
        asking.ending.decisions.is_empty() && in_front.iter().all(|other| other.ending.execution_id != run)
    }

    fn weight(asking: &Asking) -> usize {
        asking.ending.output.as_ref().map_or(0, |output| output.body.len())
    }

    async fn together(&self, asking: &[&Asking]) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let mut many = Many::default();
        for asking in asking {
            many.push(asking);
        }
        let Some(ended) = self.finish_many(&many).await? else { return Ok(None) };
        let stored = |asking: &&Asking| ended.contains(&asking.ending.execution_id.uuid());
        Ok(Some(asking.iter().map(|asking| stored(asking).then_some(()).ok_or(CommitError::Stale)).collect()))
    }

    async fn alone(&self, asking: &Asking) -> Result<(), CommitError> {
        finish(&self.0, asking.scope, &asking.ending).await
    }
}

impl Finishes {
    /// Those that were ended. `None`: nothing happened.
    async fn finish_many(&self, many: &Many<'_>) -> Result<Option<HashSet<Uuid>>, StoreError> {
        let own: [Param<'_>; 22] = [
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
        let Some(rows) = commit_together(&self.0, SQL, &many.facts.with(&own)).await? else { return Ok(None) };
        rows.iter().map(|row| row.column("execution_id")).collect::<Result<_, _>>().map(Some)
    }
}

/// Ends of runs, column by column.
#[derive(Default)]
struct Many<'a> {
    facts: Facts,
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
    fn push(&mut self, asking: &'a Asking) {
        let Asking { scope, ending } = asking;
        let id = ending.execution_id.uuid();
        self.facts.push(*scope, &ending.fact);
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
    }
}
