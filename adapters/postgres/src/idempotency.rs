//! Idempotency keys: lookup, reservation and expiry. The SQL function `fairway_commit` stores their outcomes.

use crate::{
    clock_and_length_functions::time_ahead,
    database::Database,
    guarded_commit::{Input, Query},
    row::read_count,
    schema::idempotency_key,
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, NullableExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    idempotency::{IdempotencyStore, KeyState, RequestKey, StoredOutcome},
    store::StoreError,
    tenant::TenantScope,
};
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of expired keys that one statement deletes.
const MAX_DELETED_KEYS: i64 = 2_000;

/// Starts the input of a statement with the columns that identify an idempotency key.
fn with_key(scope: TenantScope, key: &RequestKey) -> Input<'_> {
    Input::new(scope)
        .with("caller", key.caller.to_string())
        .with("route", key.route.as_str())
        .with("key", key.key.as_str())
}

#[async_trait]
impl IdempotencyStore for Database {
    async fn key_state(&self, scope: TenantScope, key: &RequestKey) -> Result<KeyState, StoreError> {
        static FIND: Query = Query::new(
            "SELECT body_digest, status, resource, leased_until IS NOT NULL AS reserved
            FROM input JOIN idempotency_key USING (tenant_id, caller, route, key)
            WHERE created_at >= fairway_now() - fairway_key_lifetime()
                AND (leased_until IS NULL OR leased_until > fairway_now())",
        );
        let row = self.fetch_one(&FIND, with_key(scope, key)).await?;
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
        static RESERVE: Query = Query::new(
            "SELECT fairway_reserve_key(tenant_id, caller, route, key, body_digest, resource,
                make_interval(secs => lease_seconds)) AS reserved
            FROM input",
        );
        let input = with_key(scope, key)
            .with("body_digest", key.body_digest.as_slice())
            .with("resource", resource)
            .with("lease_seconds", lease.as_secs_f64());
        let rows = self.write_idempotent(RESERVE.text(&input)?, &input.params()).await?;
        rows.first().map_or(Ok(false), |row| row.column("reserved"))
    }

    async fn renew_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
        lease: Duration,
    ) -> Result<(), StoreError> {
        let (tenant, caller) = (scope.tenant().uuid(), key.caller.to_string());
        // Updates an existing reservation only. A renewal that arrives after the release of the key must not
        // reserve the key again.
        let renew = || {
            let of_key = idempotency_key::table
                .find((tenant, caller.clone(), key.route.clone(), key.key.clone()))
                .filter(idempotency_key::resource.eq(resource).and(idempotency_key::leased_until.is_not_null()));
            diesel::update(of_key).set(idempotency_key::leased_until.eq(time_ahead(lease).nullable()))
        };
        self.execute("renewal of a key", renew).await.map(drop)
    }

    async fn release_reservation(
        &self,
        scope: TenantScope,
        key: &RequestKey,
        resource: Uuid,
    ) -> Result<(), StoreError> {
        let (tenant, caller) = (scope.tenant().uuid(), key.caller.to_string());
        let release = || {
            let of_key = idempotency_key::table
                .find((tenant, caller.clone(), key.route.clone(), key.key.clone()))
                .filter(idempotency_key::resource.eq(resource).and(idempotency_key::leased_until.is_not_null()));
            diesel::delete(of_key)
        };
        self.execute("release of a key", release).await.map(drop)
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        // Deletes keys in batches, because one statement over all expired keys could exceed the statement time-out
        // on every sweep.
        static DELETE: Query = Query::new(
            "expired AS (
                SELECT tenant_id, caller, route, key FROM idempotency_key
                WHERE created_at < fairway_now() - fairway_key_lifetime()
                ORDER BY created_at LIMIT (SELECT max_keys FROM input)
            ),
            deleted AS (
                DELETE FROM idempotency_key USING expired
                WHERE (idempotency_key.tenant_id, idempotency_key.caller, idempotency_key.route, idempotency_key.key)
                    = (expired.tenant_id, expired.caller, expired.route, expired.key)
                    AND idempotency_key.created_at < fairway_now() - fairway_key_lifetime()
                RETURNING 1
            )
            SELECT count(*) FROM deleted",
        );
        let mut deleted = 0;
        loop {
            let input = Input::one().with("max_keys", MAX_DELETED_KEYS);
            match read_count(&self.write_idempotent(DELETE.text(&input)?, &input.params()).await?)? {
                0 => return Ok(deleted),
                batch => deleted += batch,
            }
        }
    }
}
