//! Measures the backlog of notifications, for metrics.

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::{Row, require_decoded},
};
use async_trait::async_trait;
use fairway_domain::{
    notification::{
        Channel,
        backlog::{BacklogStore, ChannelBacklog, ProjectorLag},
    },
    store::StoreError,
};
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of deliveries that one measurement counts.
const MAX_COUNTED: i64 = 100_000;

static OUTBOX: Query = Query::new(
    "SELECT channel, count(*) FILTER (WHERE status = 'pending') AS pending,
        count(*) FILTER (WHERE status = 'claimed') AS claimed,
        extract(epoch FROM fairway_now() - min(queued_at) FILTER (WHERE status = 'pending'))::float8 AS oldest,
        extract(epoch FROM fairway_now() - min(due_at) FILTER (WHERE status = 'pending'))::float8 AS overdue
     FROM (
        SELECT channel, status, queued_at, due_at FROM notification_delivery
        WHERE status IN ('pending', 'claimed') LIMIT {limit}
     ) AS waiting
     GROUP BY channel",
);

/// Counts the facts that the projector has not read, and finds the oldest of them. A fact's identifier begins with
/// its time, so the smallest identifier is the oldest. `OFFSET 0` makes the planner read each entry by its key.
static LAG: Query = Query::new(
    "SELECT coalesce(sum(size - coalesce(position, 0)), 0)::bigint AS facts, min(next.fact_id::text) AS oldest,
        extract(epoch FROM fairway_now())::float8 AS now
     FROM fact_log LEFT JOIN notification_position USING (tenant_id)
     CROSS JOIN LATERAL (
        SELECT fact_id FROM fact_order
        WHERE fact_order.tenant_id = fact_log.tenant_id AND index = coalesce(position, 0) OFFSET 0
     ) AS next
     WHERE size > coalesce(position, 0)",
);

/// Converts seconds to a duration. Null and a negative number, which means a time in the future, become zero.
fn seconds(number: Option<f64>) -> Duration {
    Duration::try_from_secs_f64(number.unwrap_or_default()).unwrap_or_default()
}

fn channel_backlog(row: &Row) -> Result<ChannelBacklog, StoreError> {
    Ok(ChannelBacklog {
        channel: row.parse_column("channel", Channel::parse)?,
        pending: require_decoded("pending", u64::try_from(row.column::<i64>("pending")?).ok())?,
        claimed: require_decoded("claimed", u64::try_from(row.column::<i64>("claimed")?).ok())?,
        oldest_pending: seconds(row.column("oldest")?),
        longest_overdue: seconds(row.column("overdue")?),
    })
}

/// The time in a UUIDv7, as the duration since 1970.
fn uuid_time(id: Uuid) -> Duration {
    Duration::from_millis(u64::try_from(id.as_u128() >> 80).unwrap_or(0))
}

#[async_trait]
impl BacklogStore for Database {
    async fn outbox_backlog(&self) -> Result<Vec<ChannelBacklog>, StoreError> {
        let input = Input::without_rows().with_param("limit", MAX_COUNTED);
        self.fetch(&OUTBOX, input).await?.iter().map(channel_backlog).collect()
    }

    async fn projector_lag(&self) -> Result<ProjectorLag, StoreError> {
        let row = self.fetch_one(&LAG, Input::without_rows()).await?;
        let Some(row) = row else { return Ok(ProjectorLag::default()) };
        let oldest: Option<&str> = row.column("oldest")?;
        let Some(oldest) = oldest else { return Ok(ProjectorLag::default()) };
        let oldest = require_decoded("oldest", Uuid::parse_str(oldest).ok())?;
        Ok(ProjectorLag {
            facts: require_decoded("facts", u64::try_from(row.column::<i64>("facts")?).ok())?,
            age: seconds(Some(row.column("now")?)).saturating_sub(uuid_time(oldest)),
        })
    }
}
