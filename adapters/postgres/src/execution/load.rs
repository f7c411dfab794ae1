//! Reads runs by identifier, with their outputs until these expire.

use super::{EXECUTION_COLUMNS, execution};
use crate::{
    Database,
    batch_load::BatchLoader,
    database::read,
    large_reads::{LargeRead, MAX_SMALL_BYTES},
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    execution::{Execution, ports::RunState},
    id::ExecutionId,
    store::StoreError,
    tenant::TenantScope,
};
use std::{collections::HashMap, time::Duration};
use tokio_postgres::Row;
use uuid::Uuid;

/// The output of a run until `$3` seconds after its end, by the database's clock: the text, or its length if it
/// exceeds `$4` bytes. A batch returns one row for each key, so a large output is read alone.
macro_rules! output_join {
    ($tenant:literal, $run:literal, $bounds:literal) => {
        concat!(
            "LEFT JOIN LATERAL (
                SELECT CASE WHEN octet_length(body) <= $4 THEN body END AS output,
                    CASE WHEN octet_length(body) > $4 THEN octet_length(body)::bigint END AS output_bytes
                FROM execution_result AS result
                WHERE result.tenant_id = ",
            $tenant,
            " AND result.execution_id = ",
            $run,
            $bounds,
            " AND execution.finished_at + make_interval(secs => $3) > fairway_now() OFFSET 0) AS answer ON true"
        )
    };
}

/// The reason code of a run's strictest decision, and of the last among equally strict ones.
macro_rules! reason_code_column {
    ($tenant:literal, $run:literal, $bounds:literal) => {
        concat!(
            "(SELECT reason_code FROM policy_decision AS decision
              WHERE decision.tenant_id = ",
            $tenant,
            " AND decision.execution_id = ",
            $run,
            $bounds,
            " ORDER BY array_position(ARRAY['deny', 'allow_with_obligations', 'allow'], outcome), decision_id DESC
              LIMIT 1) AS reason_code"
        )
    };
}

/// A run. Its output is omitted if it is large.
#[derive(Clone)]
pub(crate) struct FoundRun {
    execution: Execution,
    /// The length of a large output.
    output_bytes: Option<i64>,
}

impl FoundRun {
    pub(super) fn into_state(self) -> RunState {
        RunState { execution: self.execution, is_output_omitted: self.output_bytes.is_some() }
    }
}

/// Loads runs by tenant and identifier.
pub(crate) struct RunLoader {
    pub(crate) pool: Pool,
    /// Retention of outputs.
    pub(crate) retention: Duration,
}

#[async_trait]
impl BatchLoader for RunLoader {
    type Key = (Uuid, Uuid);
    type Value = FoundRun;
    const LABEL: &'static str = "runs";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), FoundRun>, StoreError> {
        let kept = self.retention.as_secs_f64();
        let rows = match keys {
            [(tenant, run)] => {
                let (output, reason) = (output_join!("$1", "$2", ""), reason_code_column!("$1", "$2", ""));
                let sql = format!(
                    "SELECT execution.tenant_id, {EXECUTION_COLUMNS}, output, output_bytes, {reason} FROM execution {output}
                     WHERE tenant_id = $1 AND execution_id = $2"
                );
                read(&self.pool, &sql, &[tenant, run, &kept, &MAX_SMALL_BYTES]).await?
            }
            _ => {
                let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
                // The range of identifiers lets PostgreSQL prune monthly partitions.
                let (first, last) = (runs.iter().min(), runs.iter().max());
                let output = output_join!(
                    "asked.tenant",
                    "asked.run",
                    " AND result.execution_id >= $5 AND result.execution_id <= $6"
                );
                let reason = reason_code_column!(
                    "asked.tenant",
                    "asked.run",
                    " AND decision.execution_id >= $5 AND decision.execution_id <= $6"
                );
                let sql = format!(
                    "SELECT told.* FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
                        SELECT execution.tenant_id, {EXECUTION_COLUMNS}, output, output_bytes, {reason} FROM execution {output}
                        WHERE tenant_id = asked.tenant AND execution_id = asked.run
                            AND execution_id >= $5 AND execution_id <= $6 OFFSET 0) AS told"
                );
                read(&self.pool, &sql, &[&tenants, &runs, &kept, &MAX_SMALL_BYTES, &first, &last]).await?
            }
        };
        rows.iter().map(|row| Ok(((row.column("tenant_id")?, row.column("execution_id")?), found_run(row)?))).collect()
    }
}

fn found_run(row: &Row) -> Result<FoundRun, StoreError> {
    Ok(FoundRun { execution: execution(row)?, output_bytes: row.column("output_bytes")? })
}

/// Reads a run with its output. A large output is read with a second statement under a permit.
pub(super) async fn find(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Option<Execution>, StoreError> {
    let Some(found) = database.runs.load((scope.tenant().uuid(), id.uuid())).await? else { return Ok(None) };
    let mut execution = found.execution;
    if let Some(bytes) = found.output_bytes {
        execution.output = read_large_output(database, scope, id, bytes).await?;
    }
    Ok(Some(execution))
}

/// Reads a large output, unless it expired.
async fn read_large_output(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    bytes: i64,
) -> Result<Option<String>, StoreError> {
    let kept = database.result_retention.as_secs_f64();
    let sql = "SELECT body FROM execution_result AS result JOIN execution USING (tenant_id, execution_id)
               WHERE tenant_id = $1 AND execution_id = $2
                   AND execution.finished_at + make_interval(secs => $3) > fairway_now()";
    let large = LargeRead::acquire(scope, bytes).await?;
    let (rows, _permit) = large.rows(database, sql, &[&scope.tenant().uuid(), &id.uuid(), &kept]).await?;
    rows.first().map(|row| row.column("body")).transpose()
}
