//! Idempotency keys, read. Commits write them.

use crate::{database::Database, row::Columns};
use async_trait::async_trait;
use fairway_domain::{
    idempotency::{IdempotencyStore, Known, Outcome, RequestKey},
    store::StoreError,
    tenant::TenantScope,
};

#[async_trait]
impl IdempotencyStore for Database {
    async fn look_up(&self, scope: TenantScope, key: &RequestKey) -> Result<Known, StoreError> {
        const SQL: &str = "SELECT body_digest, status, resource FROM idempotency_key
            WHERE tenant_id = $1 AND caller = $2 AND route = $3 AND key = $4
                AND created_at >= fairway_now() - fairway_key_lifetime()";
        let caller = key.caller.to_string();
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &caller, &key.route, &key.key]).await?;
        let Some(row) = row else {
            return Ok(Known::No);
        };
        if row.column::<&[u8]>("body_digest")? != key.body_digest {
            return Ok(Known::OtherBody);
        }
        let resource = row.column("resource")?;
        Ok(match row.column::<Option<i16>>("status")?.map(u16::try_from) {
            Some(Ok(status)) => Known::Done(Outcome { status, resource }),
            Some(Err(_)) | None => Known::AsResource(resource),
        })
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        // A few at a time: one statement over a day's keys could outlast its time-out, and then every time.
        const SQL: &str = "WITH old AS (
                SELECT tenant_id, caller, route, key FROM idempotency_key
                WHERE created_at < fairway_now() - fairway_key_lifetime() ORDER BY created_at LIMIT 2000
            ),
            gone AS (
                DELETE FROM idempotency_key USING old
                WHERE (idempotency_key.tenant_id, idempotency_key.caller, idempotency_key.route, idempotency_key.key)
                    = (old.tenant_id, old.caller, old.route, old.key)
                    AND idempotency_key.created_at < fairway_now() - fairway_key_lifetime()
                RETURNING 1
            )
            SELECT count(*) FROM gone";
        let mut forgotten = 0;
        loop {
            match crate::row::count(&self.write_repeatable(SQL, &[]).await?)? {
                0 => return Ok(forgotten),
                few => forgotten += few,
            }
        }
    }
}
