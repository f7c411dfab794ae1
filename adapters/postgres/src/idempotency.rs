//! Idempotency keys: look-up, reservation and expiry. `fairway_commit` stores outcomes.

use crate::{
    database::{Database, Param},
    row::RowExt,
};
use async_trait::async_trait;
use fairway_domain::{
    idempotency::{IdempotencyStore, KeyState, RequestKey, StoredOutcome},
    store::StoreError,
    tenant::TenantScope,
};
use std::time::Duration;
use uuid::Uuid;

#[async_trait]
impl IdempotencyStore for Database {
    async fn key_state(&self, scope: TenantScope, key: &RequestKey) -> Result<KeyState, StoreError> {
        const SQL: &str = "SELECT body_digest, status, resource, leased_until IS NOT NULL AS reserved
            FROM idempotency_key
            WHERE tenant_id = $1 AND caller = $2 AND route = $3 AND key = $4
                AND created_at >= fairway_now() - fairway_key_lifetime()
                AND (leased_until IS NULL OR leased_until > fairway_now())";
        let caller = key.caller.to_string();
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &caller, &key.route, &key.key]).await?;
        let Some(row) = row else {
            return Ok(KeyState::Unknown);
        };
        if row.column::<&[u8]>("body_digest")? != key.body_digest {
            return Ok(KeyState::DifferentBody);
        }
        if row.column("reserved")? {
            return Ok(KeyState::Reserved);
        }
        let resource = row.column("resource")?;
        Ok(match row.column::<Option<i16>>("status")?.map(u16::try_from) {
            Some(Ok(status)) => KeyState::Completed(StoredOutcome { status, resource }),
            Some(Err(_)) | None => KeyState::InUse(resource),
        })
    }

    async fn reserve(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT fairway_reserve_key($1, $2, $3, $4, $5, $6, make_interval(secs => $7)) AS reserved";
        let (caller, digest, lease) = (key.caller.to_string(), key.body_digest.as_slice(), lease.as_secs_f64());
        let rows = self
            .write_idempotent(SQL, &[&scope.tenant().uuid(), &caller, &key.route, &key.key, &digest, &resource, &lease])
            .await?;
        rows.first().map_or(Ok(false), |row| row.column("reserved"))
    }

    async fn renew_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<(), StoreError> {
        // Updates an existing reservation only: a renewal that arrives after the release must not reserve the key
        // again.
        const SQL: &str = "UPDATE idempotency_key SET leased_until = fairway_now() + make_interval(secs => $6)
            WHERE tenant_id = $1 AND caller = $2 AND route = $3 AND key = $4 AND resource = $5
                AND leased_until IS NOT NULL";
        let (caller, lease) = (key.caller.to_string(), lease.as_secs_f64());
        let params: [Param<'_>; 6] = [&scope.tenant().uuid(), &caller, &key.route, &key.key, &resource, &lease];
        self.write_idempotent(SQL, &params).await.map(drop)
    }

    async fn release_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
    ) -> Result<(), StoreError> {
        const SQL: &str = "DELETE FROM idempotency_key
            WHERE tenant_id = $1 AND caller = $2 AND route = $3 AND key = $4 AND resource = $5
                AND leased_until IS NOT NULL";
        let caller = key.caller.to_string();
        let params: [Param<'_>; 5] = [&scope.tenant().uuid(), &caller, &key.route, &key.key, &resource];
        self.write_idempotent(SQL, &params).await.map(drop)
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        // Deletes in batches: one statement over all expired keys could exceed the statement time-out on every sweep.
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
        let mut deleted = 0;
        loop {
            match crate::row::read_count(&self.write_idempotent(SQL, &[]).await?)? {
                0 => return Ok(deleted),
                batch => deleted += batch,
            }
        }
    }
}
