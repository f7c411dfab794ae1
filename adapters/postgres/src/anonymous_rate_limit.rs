//! Rate limits of unauthenticated clients, shared by all processes.

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::{read_count, require_decoded},
    store_error,
};
use async_trait::async_trait;
use fairway_domain::{
    anonymous_rate_limit::{Quota, RateLimitDecision, RateLimitKey, RateLimitRefusal, RateLimitStore},
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use std::time::Duration;

/// Number of table pages (blocks) that one statement of a sweep scans.
const PAGES_PER_STATEMENT: i64 = 256;

#[async_trait]
impl RateLimitStore for Database {
    async fn try_acquire(
        &self,
        scope: TenantScope,
        key: &RateLimitKey,
        quota: Quota,
    ) -> Result<RateLimitDecision, StoreError> {
        // A concurrent request of the same client waits for the row's lock and then sees the new value. The time
        // until the next permitted request is read outside the upsert, so concurrent requests of the client may
        // make it inexact.
        static ACQUIRE: Query = Query::new(
            "acquired AS (
                INSERT INTO throttle AS existing (tenant_id, bucket, paid_until)
                SELECT tenant_id, bucket, fairway_now() + make_interval(secs => interval_seconds) FROM input
                ON CONFLICT (tenant_id, bucket) DO UPDATE
                SET paid_until = greatest(existing.paid_until, fairway_now())
                    + make_interval(secs => (SELECT interval_seconds FROM input))
                WHERE existing.paid_until + make_interval(secs => (SELECT interval_seconds FROM input))
                    <= fairway_now() + make_interval(secs => (SELECT burst_seconds FROM input))
                RETURNING 1
            )
            SELECT EXISTS (SELECT FROM acquired) AS is_acquired, coalesce((
                SELECT extract(epoch FROM paid_until - fairway_now())::float8 + interval_seconds - burst_seconds
                FROM throttle WHERE throttle.tenant_id = input.tenant_id AND throttle.bucket = input.bucket
            ), interval_seconds)::float8 AS wait
            FROM input",
        );
        let (bucket, burst_seconds) = (key.storage_key(), quota.burst_duration().as_secs_f64());
        let input = Input::new(scope)
            .with("bucket", bucket.as_slice())
            .with("interval_seconds", quota.interval().as_secs_f64())
            .with("burst_seconds", burst_seconds);
        let rows = match self.commit(ACQUIRE.text(&input)?, &input.params()).await {
            Ok(rows) => rows,
            // The write is internal, because the client did not request it. An unknown outcome is therefore
            // reported as unavailable.
            Err(CommitError::Store(error)) => return Err(error.unknown_outcome_as_unavailable()),
            // These errors cannot occur: the statement has no guard, no idempotency key and no constraint that it
            // could violate.
            Err(error @ (CommitError::Stale | CommitError::DuplicateKey | CommitError::Conflict(_))) => {
                return Err(store_error::inconsistent(Box::new(error)));
            }
        };
        let row = require_decoded("is_acquired", rows.first())?;
        if row.column("is_acquired")? {
            return Ok(RateLimitDecision::Allowed);
        }
        let wait = row.column::<f64>("wait")?.clamp(0.0, burst_seconds);
        Ok(RateLimitDecision::Refused(RateLimitRefusal { quota, retry_after: Duration::from_secs_f64(wait) }))
    }

    async fn delete_idle(&self) -> Result<u64, StoreError> {
        // `paid_until` has no index, because each request would have to update the index. The sweep scans the table
        // once, in ranges of pages, so that it holds row locks only for a short time.
        const LENGTH: &str = "SELECT pg_relation_size('throttle') / current_setting('block_size')::bigint AS count";
        static DELETE: Query = Query::new(
            "deleted AS (
                DELETE FROM throttle
                WHERE ctid >= (SELECT first_row FROM input)::tid AND ctid < (SELECT end_row FROM input)::tid
                    AND paid_until < fairway_now()
                RETURNING 1
            )
            SELECT count(*) FROM deleted",
        );
        let pages = require_decoded("count", self.read_one(LENGTH, &[]).await?)?.column::<i64>("count")?;
        let (mut deleted, mut first_page) = (0, 0);
        while first_page < pages {
            let end_page = first_page.saturating_add(PAGES_PER_STATEMENT);
            let input =
                Input::one().with("first_row", format!("({first_page},0)")).with("end_row", format!("({end_page},0)"));
            deleted += read_count(&self.write_idempotent(DELETE.text(&input)?, &input.params()).await?)?;
            first_page = end_page;
        }
        Ok(deleted)
    }
}
