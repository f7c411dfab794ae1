//! Reads runs by identifier, with their outputs until the outputs expire.

use super::{EXECUTION_COLUMNS, execution, input_of_runs, run_condition, run_params, select_runs};
use crate::{
    Database,
    batch_load::BatchLoader,
    database::{StatementPool, read},
    guarded_commit::Query,
    large_reads::{LargeRead, MAX_SMALL_TEXT_BYTES},
    row::Row,
};
use async_trait::async_trait;
use fairway_domain::{
    execution::{Execution, ports::StoredRun},
    id::ExecutionId,
    store::StoreError,
    tenant::TenantScope,
};
use std::{collections::HashMap, sync::Arc, time::Duration};
use uuid::Uuid;

/// The statement that reads runs with their outputs and reason codes.
///
/// An output is present until it expires by the database's clock. If it is large, the row has its length instead of
/// the text, because a batch could otherwise return many large outputs. The reason code is that of the run's
/// strictest decision; of equally strict decisions, the last one counts.
fn runs_sql() -> String {
    let (result, decision) = (run_condition("result"), run_condition("decision"));
    let columns = format!(
        "execution.tenant_id, {EXECUTION_COLUMNS}, output, output_bytes,
            (SELECT reason_code FROM policy_decision AS decision WHERE {decision}
             ORDER BY array_position(ARRAY['deny', 'allow_with_obligations', 'allow'], outcome), decision_id DESC
             LIMIT 1) AS reason_code"
    );
    let output = format!(
        "LEFT JOIN LATERAL (
            SELECT CASE WHEN octet_length(body) <= {MAX_SMALL_TEXT_BYTES} THEN body END AS output,
                CASE WHEN octet_length(body) > {MAX_SMALL_TEXT_BYTES} THEN octet_length(body)::bigint END AS output_bytes
            FROM execution_result AS result
            WHERE {result} AND execution.finished_at + make_interval(secs => {{retention}}) > fairway_now() OFFSET 0
         ) AS result ON true"
    );
    select_runs(&columns, &output)
}

/// A run as loaded in a batch, without its output if the output is large.
#[derive(Clone)]
pub(crate) struct FoundRun {
    execution: Execution,
    /// The length of the output in bytes, if it is large.
    output_bytes: Option<i64>,
}

impl FoundRun {
    pub(super) fn into_state(self) -> StoredRun {
        StoredRun { execution: self.execution, is_output_omitted: self.output_bytes.is_some() }
    }
}

/// Loads runs by tenant and identifier.
pub(crate) struct RunLoader {
    pub(crate) pool: StatementPool,
    /// Retention period of outputs.
    pub(crate) retention: Duration,
}

#[async_trait]
impl BatchLoader for RunLoader {
    type Key = (Uuid, Uuid);
    type Value = FoundRun;
    const LABEL: &'static str = "runs";

    async fn load_batch(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), FoundRun>, StoreError> {
        static FIND: Query = Query::from_fn(runs_sql);
        let input = input_of_runs(keys).with_param("retention", self.retention.as_secs_f64());
        let rows = read(&self.pool, FIND.text(&input)?, &input.params()).await?;
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

/// Reads a large output, unless it has expired.
async fn read_large_output(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    bytes: i64,
) -> Result<Option<Arc<str>>, StoreError> {
    static READ: Query = Query::new(
        "SELECT body FROM execution_result AS result JOIN execution USING (tenant_id, execution_id)
         WHERE tenant_id = {tenant_id} AND execution_id = {execution_id}
            AND execution.finished_at + make_interval(secs => {retention}) > fairway_now()",
    );
    let large = LargeRead::acquire(scope, bytes).await?;
    let input = run_params(scope, id).with_param("retention", database.result_retention.as_secs_f64());
    let (rows, _permit) = large.rows(database, READ.text(&input)?, &input.params()).await?;
    rows.first().map(|row| row.column::<&str>("body").map(Into::into)).transpose()
}
