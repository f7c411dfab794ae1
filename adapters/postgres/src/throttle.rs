//! How often clients without a name have asked, counted for all processes.

use crate::{
    database::Database,
    failure,
    row::{Columns, known},
};
use async_trait::async_trait;
use fairway_domain::{
    store::{CommitError, StoreError},
    tenant::TenantScope,
    throttle::{Counted, Quota, Taken, ThrottleStore, Throttled},
};
use std::time::Duration;

/// Clients that one turn forgets.
const BATCH: i64 = 2_000;

#[async_trait]
impl ThrottleStore for Database {
    async fn take(&self, scope: TenantScope, counted: &Counted, quota: Quota) -> Result<Taken, StoreError> {
        // Who waits for the row of a twin counts on what the twin left. How long to wait is read beside: it may be out by
        // what others of the same client did in that moment.
        const SQL: &str = "WITH taken AS (
                INSERT INTO throttle AS known (tenant_id, bucket, paid_until)
                VALUES ($1, $2, fairway_now() + make_interval(secs => $3))
                ON CONFLICT (tenant_id, bucket) DO UPDATE
                SET paid_until = greatest(known.paid_until, fairway_now()) + make_interval(secs => $3)
                WHERE known.paid_until + make_interval(secs => $3) <= fairway_now() + make_interval(secs => $4)
                RETURNING 1
            )
            SELECT EXISTS (SELECT FROM taken) AS counted, coalesce((
                SELECT extract(epoch FROM paid_until - fairway_now())::float8 + $3 - $4 FROM throttle
                WHERE tenant_id = $1 AND bucket = $2
            ), $3)::float8 AS wait";
        let (bucket, interval) = (counted.bucket(), quota.interval().as_secs_f64());
        let (bucket, span) = (bucket.as_slice(), quota.span().as_secs_f64());
        let rows = match self.commit(SQL, &[&scope.tenant().uuid(), &bucket, &interval, &span]).await {
            Ok(rows) => rows,
            Err(CommitError::Store(error)) => return Err(error),
            // The statement has no guard, no key and no rule that it could break.
            Err(error @ (CommitError::Stale | CommitError::KeyTaken | CommitError::Conflict(_))) => {
                return Err(failure::broken(Box::new(error)));
            }
        };
        let row = known("counted", rows.first())?;
        if row.column("counted")? {
            return Ok(Taken::Yes);
        }
        let wait = row.column::<f64>("wait")?.clamp(0.0, span);
        Ok(Taken::No(Throttled { quota, wait: Duration::from_secs_f64(wait) }))
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        const SQL: &str = "WITH gone AS (
                DELETE FROM throttle WHERE ctid = ANY(ARRAY(
                    SELECT ctid FROM throttle WHERE paid_until < fairway_now() LIMIT $1
                )) AND paid_until < fairway_now()
                RETURNING 1
            )
            SELECT count(*) FROM gone";
        let mut forgotten = 0;
        loop {
            match crate::row::count(&self.write_repeatable(SQL, &[&BATCH]).await?)? {
                0 => return Ok(forgotten),
                few => forgotten += few,
            }
        }
    }
}
