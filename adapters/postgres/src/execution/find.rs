//! Runs by identifier, with their answers while these are kept.

use super::{EXECUTION_COLUMNS, execution};
use crate::{database::read, look::Look, row::Columns};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{execution::Execution, store::StoreError};
use std::{collections::HashMap, time::Duration};
use uuid::Uuid;

/// A run's answer, for `$3` seconds after its end, by the database's clock alone.
macro_rules! answer {
    ($tenant:literal, $run:literal, $bounds:literal) => {
        concat!(
            "(SELECT body FROM execution_result AS result
              WHERE result.tenant_id = ",
            $tenant,
            " AND result.execution_id = ",
            $run,
            $bounds,
            " AND execution.finished_at + make_interval(secs => $3) > fairway_now()) AS output"
        )
    };
}

/// The reason code of the strictest decision of a run, and of equally strict ones of the last.
macro_rules! reason {
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

/// Runs, by tenant and identifier.
pub(crate) struct Runs {
    pub(crate) pool: Pool,
    /// How long answers are kept.
    pub(crate) kept: Duration,
}

#[async_trait]
impl Look for Runs {
    type Key = (Uuid, Uuid);
    type Found = Execution;
    const WHAT: &'static str = "runs";

    async fn look(&self, keys: &[(Uuid, Uuid)]) -> Result<HashMap<(Uuid, Uuid), Execution>, StoreError> {
        let kept = self.kept.as_secs_f64();
        let rows = match keys {
            [(tenant, run)] => {
                let (answer, reason) = (answer!("$1", "$2", ""), reason!("$1", "$2", ""));
                let sql = format!(
                    "SELECT execution.tenant_id, {EXECUTION_COLUMNS}, {answer}, {reason} FROM execution
                     WHERE tenant_id = $1 AND execution_id = $2"
                );
                read(&self.pool, &sql, &[tenant, run, &kept]).await?
            }
            _ => {
                let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
                // They say which months need to be opened at all.
                let (first, last) = (runs.iter().min(), runs.iter().max());
                let answer = answer!(
                    "asked.tenant",
                    "asked.run",
                    " AND result.execution_id >= $4 AND result.execution_id <= $5"
                );
                let reason = reason!(
                    "asked.tenant",
                    "asked.run",
                    " AND decision.execution_id >= $4 AND decision.execution_id <= $5"
                );
                let sql = format!(
                    "SELECT told.* FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
                        SELECT execution.tenant_id, {EXECUTION_COLUMNS}, {answer}, {reason} FROM execution
                        WHERE tenant_id = asked.tenant AND execution_id = asked.run
                            AND execution_id >= $4 AND execution_id <= $5 OFFSET 0) AS told"
                );
                read(&self.pool, &sql, &[&tenants, &runs, &kept, &first, &last]).await?
            }
        };
        rows.iter().map(|row| Ok(((row.column("tenant_id")?, row.column("execution_id")?), execution(row)?))).collect()
    }
}
