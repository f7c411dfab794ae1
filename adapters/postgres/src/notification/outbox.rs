//! The outbox: claims of due deliveries, and results of attempts to send them.

use crate::{
    clock_and_length_functions::{database_now, time_ahead},
    database::Database,
    guarded_commit::{Input, Query},
    row::{Row, require_decoded},
    schema::notification_delivery,
    store_error::inconsistent,
};
use async_trait::async_trait;
use diesel::{ExpressionMethods as _, NullableExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    id::{DeliveryId, TenantId},
    notification::{
        Channel, Severity,
        console_link::INBOX_PAGE_PATH,
        delivery::{DeliveryEvent, DeliveryStatus},
        message::{DigestLine, NotificationMessage, OutgoingMessage, Receiver},
        ports::{AttemptOutcome, ClaimResult, ClaimedDelivery, DeliveryClaimRef, DeliveryClaimRequest, OutboxStore},
        text::digest_title,
    },
    notification_category::NotificationCategory,
    store::{CommitError, StoreError},
};
use serde_json::Value;
use std::{collections::HashMap, time::Duration};
use time::OffsetDateTime;
use uuid::Uuid;

/// Maximum number of notifications that the message of a digest lists.
const MAX_LINES: i64 = 100;

/// The status of a withdrawn delivery; null if the delivery may be sent. A delivery is withdrawn if its tenant's
/// setting or its destination was disabled after the delivery was decided, even if it is enabled again. `delivery`
/// is the alias of its row.
pub(super) const WITHDRAWN_STATUS: &str = "CASE
        WHEN NOT tenant.notifications_enabled
            OR tenant.notification_generation <> delivery.notification_generation
            OR (delivery.advanced_notification_generation IS NOT NULL
                AND (NOT tenant.advanced_notifications_enabled
                    OR tenant.advanced_notification_generation <> delivery.advanced_notification_generation))
            THEN 'suppressed'
        WHEN delivery.destination_id IS NOT NULL
            AND (destination.is_enabled AND destination.generation = delivery.destination_generation) IS NOT TRUE
            THEN 'cancelled'
     END";

/// The joins with the rows that [`WITHDRAWN_STATUS`] compares with `delivery`.
pub(super) const WITHDRAWAL_JOINS: &str = "JOIN tenant ON tenant.tenant_id = delivery.tenant_id
     LEFT JOIN notification_destination AS destination
        ON destination.tenant_id = delivery.tenant_id AND destination.destination_id = delivery.destination_id";

/// Claims due deliveries lane by lane, so that a receiver that does not respond delays only its own lane. A lane
/// contains the deliveries of one receiver.
///
/// The recursion finds all lanes by jumping from lane to lane in the index of pending and claimed deliveries. Of each
/// tenant, a limited number of lanes is selected at random. Neither a tenant with many lanes nor a lane with a low
/// identifier is preferred.
static CLAIM: Query = Query::of_parts(&[
    "WITH RECURSIVE lanes AS (
        (SELECT lane, tenant_id FROM notification_delivery WHERE status IN ('pending', 'claimed') ORDER BY lane LIMIT 1)
        UNION ALL
        SELECT next_lane.lane, next_lane.tenant_id FROM lanes CROSS JOIN LATERAL (
            SELECT lane, tenant_id FROM notification_delivery
            WHERE status IN ('pending', 'claimed') AND notification_delivery.lane > lanes.lane ORDER BY lane LIMIT 1
        ) AS next_lane
     ),
     candidate_lane AS MATERIALIZED (
        SELECT lane, {per_lane} - coalesce(busy.count, 0) AS free_slots,
            row_number() OVER (PARTITION BY tenant_id ORDER BY random()) AS tenant_rank
        FROM lanes LEFT JOIN unnest({busy_lanes}, {busy_counts}) AS busy (busy_lane, count) ON busy_lane = lane
        WHERE coalesce(busy.count, 0) < {per_lane} AND NOT tenant_id = ANY({busy_tenants})
            AND EXISTS (
                SELECT FROM notification_delivery AS first
                WHERE first.lane = lanes.lane AND status IN ('pending', 'claimed') AND due_at <= fairway_now())
     ),
     due AS MATERIALIZED (
        SELECT found.tenant_id, found.delivery_id
        FROM (SELECT lane, free_slots FROM candidate_lane WHERE tenant_rank <= {lanes_per_tenant} ORDER BY tenant_rank, random()) AS selected
        CROSS JOIN LATERAL (
            SELECT tenant_id, delivery_id FROM notification_delivery
            WHERE lane = selected.lane AND status IN ('pending', 'claimed') AND due_at <= fairway_now()
            ORDER BY due_at LIMIT selected.free_slots FOR UPDATE SKIP LOCKED
        ) AS found
        LIMIT {limit}
     ),
     evaluated AS MATERIALIZED (
        SELECT due.tenant_id, due.delivery_id, tenant.slug, destination.configuration, destination.secret_ref,
            identity.email, profile.chat_secret_ref, coalesce(",
    WITHDRAWN_STATUS,
    ", 'claimed') AS next_status
        FROM due
        JOIN notification_delivery AS delivery USING (tenant_id, delivery_id) ",
    WITHDRAWAL_JOINS,
    "   LEFT JOIN identity ON identity.tenant_id = due.tenant_id AND identity.actor = delivery.recipient
        LEFT JOIN notification_profile AS profile
            ON profile.tenant_id = due.tenant_id AND profile.principal = delivery.recipient
     )
     UPDATE notification_delivery AS delivery SET status = next_status, revision = delivery.revision + 1,
        claim_id = CASE WHEN next_status = 'claimed' THEN {claim_id} END,
        attempts = attempts + CASE WHEN next_status = 'claimed' THEN 1 ELSE 0 END,
        due_at = CASE WHEN next_status = 'claimed' THEN fairway_now() + make_interval(secs => {lease}) ELSE due_at END
     FROM evaluated
     WHERE delivery.tenant_id = evaluated.tenant_id AND delivery.delivery_id = evaluated.delivery_id
     RETURNING delivery.tenant_id, delivery.delivery_id, lane, channel, delivery.destination_id, delivery.recipient, attempts,
        next_status, digest, category, severity, title, body, event_kind, event_id, workspace_id, workload_id, environment,
        link, created_at, slug, configuration, evaluated.secret_ref, email, chat_secret_ref",
]);

/// Releases claims of deliveries that were not sent, without counting an attempt.
static RELEASE: Query = Query::new(
    "UPDATE notification_delivery AS delivery SET status = 'pending', claim_id = NULL, attempts = attempts - 1,
        due_at = fairway_now(), revision = delivery.revision + 1
     FROM input
     WHERE delivery.tenant_id = input.tenant_id AND delivery.delivery_id = input.delivery_id
        AND delivery.claim_id = input.claim_id",
);

/// Reads the lines of digests, oldest first. Each line is one notification.
static LINES: Query = Query::new(
    "SELECT line.* FROM input CROSS JOIN LATERAL (
        SELECT delivery_id, severity, title, body, created_at, count(*) OVER () AS total FROM notification_digest_line
        WHERE notification_digest_line.tenant_id = input.tenant_id
            AND notification_digest_line.delivery_id = input.delivery_id
        ORDER BY created_at, event_id LIMIT {limit}
     ) AS line",
);

/// Decodes the message of a delivery. The title of a digest is the number of its notifications, and its severity is
/// the highest of theirs.
fn message(row: &Row, digest: Digest) -> Result<NotificationMessage, StoreError> {
    let Digest { lines, total } = digest;
    let category = row.parse_column("category", NotificationCategory::parse)?;
    let severity = row.parse_column("severity", Severity::parse)?;
    let (title, link) = if lines.is_empty() {
        (row.column("title")?, row.column("link")?)
    } else {
        (digest_title(category, total), Some(INBOX_PAGE_PATH.to_owned()))
    };
    Ok(NotificationMessage {
        delivery_id: row.id("delivery_id")?,
        tenant: row.id("tenant_id")?,
        category,
        severity: lines.iter().map(|line| line.severity).fold(severity, Severity::max),
        title,
        omitted_lines: total.saturating_sub(lines.len()),
        body: row.column("body")?,
        link,
        event_kind: row.column("event_kind")?,
        event_id: row.id("event_id")?,
        workspace_id: row.optional_id("workspace_id")?,
        workload_id: row.optional_id("workload_id")?,
        environment: row.column("environment")?,
        created_at: row.timestamp("created_at")?,
        lines,
    })
}

fn receiver(row: &Row, channel: Channel) -> Result<Receiver, StoreError> {
    if row.column::<Option<Uuid>>("destination_id")?.is_none() {
        return Ok(match channel {
            Channel::Email => Receiver::Mailbox(row.column("email")?),
            Channel::Portal | Channel::ChatA | Channel::ChatB | Channel::ChatC | Channel::Paging | Channel::Webhook => {
                Receiver::Chat(row.column("chat_secret_ref")?)
            }
        });
    }
    match row.column::<Option<Value>>("configuration")? {
        Some(Value::Object(configuration)) => {
            Ok(Receiver::Destination { configuration, secret_ref: row.column("secret_ref")? })
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | None => {
            Err(inconsistent("a destination has no configuration".into()))
        }
    }
}

fn claimed(claim: &DeliveryClaimRequest, row: &Row, digest: Digest) -> Result<ClaimedDelivery, StoreError> {
    let channel = row.parse_column("channel", Channel::parse)?;
    Ok(ClaimedDelivery {
        claim_id: claim.claim_id,
        lane: row.column("lane")?,
        attempt: require_decoded("attempts", u32::try_from(row.column::<i32>("attempts")?).ok())?,
        outgoing: OutgoingMessage {
            tenant_slug: row.slug("slug")?,
            channel,
            receiver: receiver(row, channel)?,
            message: message(row, digest)?,
        },
    })
}

/// The first notifications of a digest, and the total number of its notifications.
#[derive(Default)]
struct Digest {
    lines: Vec<DigestLine>,
    total: usize,
}

impl Database {
    /// Reads the lines of the digests among the claimed deliveries.
    async fn digests(&self, rows: &[&Row]) -> Result<HashMap<DeliveryId, Digest>, StoreError> {
        let mut digests: Vec<(TenantId, DeliveryId)> = Vec::new();
        for row in rows {
            if row.column::<Option<&str>>("digest")?.is_some() {
                digests.push((row.id("tenant_id")?, row.id("delivery_id")?));
            }
        }
        let mut found: HashMap<DeliveryId, Digest> = HashMap::new();
        if digests.is_empty() {
            return Ok(found);
        }
        let input = Input::many()
            .with_column("tenant_id", digests.iter().map(|(tenant, _)| tenant.uuid()))
            .with_column("delivery_id", digests.iter().map(|(_, delivery)| delivery.uuid()))
            .with_param("limit", MAX_LINES);
        for row in &self.fetch(&LINES, input).await? {
            let digest = found.entry(row.id("delivery_id")?).or_default();
            digest.total = require_decoded("total", usize::try_from(row.column::<i64>("total")?).ok())?;
            digest.lines.push(DigestLine {
                severity: row.parse_column("severity", Severity::parse)?,
                title: row.column("title")?,
                body: row.column("body")?,
                created_at: row.timestamp("created_at")?,
            });
        }
        Ok(found)
    }
}

#[async_trait]
impl OutboxStore for Database {
    async fn claim(&self, claim: &DeliveryClaimRequest) -> Result<ClaimResult, StoreError> {
        let (busy_lanes, busy_counts): (Vec<Uuid>, Vec<i64>) =
            claim.in_progress.iter().map(|(lane, count)| (*lane, i64::from(*count))).unzip();
        let input = Input::without_rows()
            .with_param("per_lane", i64::from(claim.per_lane))
            .with_list_param("busy_lanes", busy_lanes)
            .with_list_param("busy_counts", busy_counts)
            .with_list_param("busy_tenants", claim.busy_tenants.iter().map(|tenant| tenant.uuid()).collect())
            .with_param("lanes_per_tenant", i64::from(claim.lanes_per_tenant))
            .with_param("limit", i64::from(claim.limit))
            .with_param("claim_id", claim.claim_id)
            .with_param("lease", claim.lease.as_secs_f64());
        let rows = match self.commit(CLAIM.text(&input)?, &input.params()).await {
            Ok(rows) => rows,
            Err(CommitError::Store(error)) => return Err(error),
            // These errors cannot occur: the statement has no guard, no idempotency key, and no constraint besides
            // the primary key.
            Err(error @ (CommitError::Stale | CommitError::DuplicateKey | CommitError::Conflict(_))) => {
                return Err(inconsistent(error.into()));
            }
        };
        let mut claimed_rows = Vec::new();
        for row in &rows {
            if row.column::<&str>("next_status")? == DeliveryStatus::Claimed.as_str() {
                claimed_rows.push(row);
            }
        }
        let mut digests = self.digests(&claimed_rows).await?;
        let mut deliveries = Vec::with_capacity(claimed_rows.len());
        for row in claimed_rows {
            let id: DeliveryId = row.id("delivery_id")?;
            match claimed(claim, row, digests.remove(&id).unwrap_or_default()) {
                Ok(delivery) => deliveries.push(delivery),
                // A newer version of the program may have written the delivery. When the claim's lease ends, a
                // sender of that version claims it.
                Err(error) => tracing::warn!(
                    tenant_id = row.column::<Uuid>("tenant_id").ok().map(tracing::field::display),
                    delivery_id = %id,
                    error = &error as &dyn std::error::Error,
                    "failed to decode a claimed delivery; a sender claims it again when its lease expires"
                ),
            }
        }
        Ok(ClaimResult { skipped: rows.len().saturating_sub(deliveries.len()), deliveries })
    }

    async fn release(&self, claims: &[DeliveryClaimRef]) -> Result<(), StoreError> {
        let input = Input::many()
            .with_column("tenant_id", claims.iter().map(|claim| claim.tenant.uuid()))
            .with_column("delivery_id", claims.iter().map(|claim| claim.delivery_id.uuid()))
            .with_column("claim_id", claims.iter().map(|claim| claim.claim_id));
        self.write_idempotent(RELEASE.text(&input)?, &input.params()).await.map(|_| ())
    }

    async fn finish(&self, claimed: &ClaimedDelivery, outcome: AttemptOutcome) -> Result<(), StoreError> {
        let (event, failure, delay) = match outcome {
            AttemptOutcome::Sent(_) => (DeliveryEvent::Accepted, None, Duration::ZERO),
            AttemptOutcome::Retry(failure, delay) => (DeliveryEvent::AttemptFailed, Some(failure), delay),
            AttemptOutcome::Failed(failure) => (DeliveryEvent::GivenUp, Some(failure), Duration::ZERO),
        };
        let status = require_decoded("status", DeliveryStatus::Claimed.after(event))?;
        let response = match outcome {
            AttemptOutcome::Sent(response) => response,
            AttemptOutcome::Retry(failure, _) | AttemptOutcome::Failed(failure) => failure.status,
        };
        let message = &claimed.outgoing.message;
        let (key, claim) = ((message.tenant.uuid(), message.delivery_id.uuid()), claimed.claim_id);
        let response = response.and_then(|status| i16::try_from(status).ok());
        let finish = || {
            let (is_pending, is_sent) = (status == DeliveryStatus::Pending, status == DeliveryStatus::Sent);
            diesel::update(notification_delivery::table.find(key).filter(notification_delivery::claim_id.eq(claim)))
                .set((
                    notification_delivery::status.eq(status.as_str()),
                    notification_delivery::claim_id.eq(None::<Uuid>),
                    notification_delivery::last_error.eq(failure.map(|failure| failure.error.as_str())),
                    notification_delivery::last_http_status.eq(response),
                    notification_delivery::revision.eq(notification_delivery::revision + 1),
                    is_pending.then(|| notification_delivery::due_at.eq(time_ahead(delay))),
                    is_sent.then(|| notification_delivery::sent_at.eq(database_now().nullable())),
                    (!is_sent).then(|| notification_delivery::sent_at.eq(None::<OffsetDateTime>)),
                ))
        };
        self.execute("outcome of a delivery", finish).await.map(drop)
    }
}
