//! Reads of deliveries for people, and their retry.

use super::outbox::{WITHDRAWAL_JOINS, WITHDRAWN_STATUS};
use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    pagination::{ListQuery, PageByteLimit, SortKey, UnionArm, visible_arms},
    row::{Row, require_decoded},
};
use async_trait::async_trait;
use fairway_domain::{
    access::{ResourcePosition, rights::VisibleScopes},
    id::DeliveryId,
    idempotency::KeyedOutcome,
    notification::{
        Channel,
        delivery::{Delivery, DeliveryError, DeliveryRecord, DeliveryStatus, DeliveryTarget},
        ports::{DeliveryFilter, DeliveryStore},
    },
    notification_category::NotificationCategory,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};

const COLUMNS: &str = "tenant_id, delivery_id, channel, destination_id, recipient, status, attempts, due_at, last_error, \
    last_http_status, category, event_kind, event_id, workspace_id, workload_id, created_at, sent_at, revision, \
    notification_generation, advanced_notification_generation, destination_generation";

/// Joins the current status of each delivery of a page. A pending delivery counts as withdrawn as soon as a setting
/// withdraws it, even before a sender has changed its row.
const PRESENT_STATUS: &[&str] = &[
    "CROSS JOIN LATERAL (
        SELECT CASE WHEN delivery.status = 'pending' THEN coalesce(",
    WITHDRAWN_STATUS,
    ", 'pending') ELSE delivery.status END AS present_status
        FROM (SELECT page.*) AS delivery ",
    WITHDRAWAL_JOINS,
    ") AS present",
];

static FIND: Query = Query::from_fn(|| {
    let present = PRESENT_STATUS.concat();
    format!(
        "SELECT page.*, present_status, workspace.namespace_id FROM input CROSS JOIN LATERAL (
            SELECT {COLUMNS} FROM notification_delivery AS delivery
            WHERE delivery.tenant_id = input.tenant_id AND delivery.delivery_id = input.delivery_id OFFSET 0
         ) AS page {present}
         LEFT JOIN workspace ON workspace.tenant_id = page.tenant_id AND workspace.workspace_id = page.workspace_id"
    )
});

/// Makes a failed delivery pending again, with the current generations of the settings. A disabled destination
/// still cancels the delivery. Subqueries read the tenant, because a join with it makes PostgreSQL find the deliveries by
/// the tenant alone while the table has no statistics.
static RETRY: GuardedCommit = GuardedCommit::new(
    "retried AS (
        UPDATE notification_delivery AS delivery SET status = 'pending', due_at = fairway_now(),
            revision = input.revision,
            notification_generation = (
                SELECT notification_generation FROM tenant WHERE tenant.tenant_id = input.tenant_id),
            advanced_notification_generation = CASE WHEN delivery.advanced_notification_generation IS NOT NULL THEN (
                SELECT advanced_notification_generation FROM tenant WHERE tenant.tenant_id = input.tenant_id) END,
            destination_generation = (
                SELECT generation FROM notification_destination AS destination
                WHERE destination.tenant_id = input.tenant_id AND destination.destination_id = delivery.destination_id)
        FROM input
        WHERE delivery.tenant_id = input.tenant_id AND delivery.delivery_id = input.delivery_id
            AND delivery.revision = input.expected_revision AND delivery.status = 'failed'
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM retried)",
);

/// The condition that a delivery has this current status; `value` is the name of its parameter. A pending
/// delivery counts as withdrawn as soon as a setting withdraws it.
fn status_condition(status: DeliveryStatus, value: &str) -> String {
    let withdrawn =
        || format!("(SELECT {WITHDRAWN_STATUS} FROM (SELECT notification_delivery.*) AS delivery {WITHDRAWAL_JOINS})");
    match status {
        DeliveryStatus::Pending => format!("status = {value} AND {} IS NULL", withdrawn()),
        DeliveryStatus::Suppressed | DeliveryStatus::Cancelled => {
            format!("status IN ('pending', {value}) AND (status = {value} OR {} = {value})", withdrawn())
        }
        DeliveryStatus::Claimed | DeliveryStatus::Sent | DeliveryStatus::Failed => format!("status = {value}"),
    }
}

fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    let target = match (row.optional_id("destination_id")?, row.column::<Option<&str>>("recipient")?) {
        (Some(id), _) => DeliveryTarget::Destination(id),
        (None, _) => DeliveryTarget::Person(row.actor("recipient")?),
    };
    let status = row.parse_column("present_status", DeliveryStatus::parse)?;
    let error: Option<&str> = row.column("last_error")?;
    let response: Option<i16> = row.column("last_http_status")?;
    Ok(Delivery::restore(DeliveryRecord {
        delivery_id: row.id("delivery_id")?,
        channel: row.parse_column("channel", Channel::parse)?,
        target,
        status,
        attempts: require_decoded("attempts", u32::try_from(row.column::<i32>("attempts")?).ok())?,
        next_attempt_at: if status == DeliveryStatus::Pending { Some(row.timestamp("due_at")?) } else { None },
        last_error: error.map(|text| require_decoded("last_error", DeliveryError::parse(text))).transpose()?,
        last_response_status: response
            .map(|status| require_decoded("last_http_status", u16::try_from(status).ok()))
            .transpose()?,
        category: row.parse_column("category", NotificationCategory::parse)?,
        event_kind: row.column("event_kind")?,
        event_id: row.id("event_id")?,
        workspace_id: row.optional_id("workspace_id")?,
        workload_id: row.optional_id("workload_id")?,
        created_at: row.timestamp("created_at")?,
        sent_at: row.optional_timestamp("sent_at")?,
        revision: row.revision("revision")?,
    }))
}

#[async_trait]
impl DeliveryStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        id: DeliveryId,
    ) -> Result<Option<(Delivery, ResourcePosition)>, StoreError> {
        let input = Input::new(scope).with("delivery_id", id.uuid());
        let Some(row) = self.fetch_one(&FIND, input).await? else { return Ok(None) };
        let found = delivery(&row)?;
        let tenant = scope.tenant();
        let position = match (row.optional_id("namespace_id")?, found.workspace_id) {
            (Some(namespace), Some(workspace)) => ResourcePosition::workspace(tenant, namespace, workspace),
            (Some(_) | None, _) => ResourcePosition::tenant(tenant),
        };
        let position = found.workload_id.map_or(position, |workload| position.for_workload(workload));
        Ok(Some((found, position)))
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: DeliveryFilter,
        visible_scopes: Option<&VisibleScopes>,
        page: PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        const FROM: &str = "FROM notification_delivery";
        let mut values = Input::of_params(scope);
        let mut conditions = vec!["tenant_id = {tenant_id}".to_owned()];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(status) = filter.status {
            conditions.push(status_condition(status, &values.bind("status", status.as_str())));
        }
        if let Some(destination) = filter.destination {
            conditions.push(format!("destination_id = {}", values.bind("destination_id", destination.uuid())));
        }
        let (with, arms) = match visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let query = ListQuery {
            stored_count: None,
            with,
            columns: COLUMNS,
            key: SortKey::Id("delivery_id", "delivery_id"),
            post_join: Some(PRESENT_STATUS.concat()),
            byte_limit: PageByteLimit::Small,
            arms,
            values,
            is_append_only: false,
        };
        self.fetch_page(query, page, delivery).await
    }

    async fn commit_retry(
        &self,
        scope: TenantScope,
        change: Change<Delivery>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input = Input::new(scope)
            .with("delivery_id", next.delivery_id.uuid())
            .with("revision", next.revision.get())
            .with("expected_revision", expected_revision.get());
        self.commit_guarded(&RETRY, scope, &fact, key, input).await.map(|_| ())
    }
}
