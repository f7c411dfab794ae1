//! Commits a batch of projected facts.

use crate::{
    database::Database,
    guarded_commit::{FactColumns, GuardedBatchCommit, Input},
    row::require_decoded,
};
use fairway_domain::{
    id::{DestinationId, WorkloadId, WorkspaceId},
    notification::{
        Channel,
        delivery::{DeliveryError, NewDelivery},
        digest::{DIGEST_GRACE, DigestWindow, MAX_DECISION_TO_COMMIT_DELAY},
        inbox::Notification,
        ports::ProjectionBasis,
        preference::DecidingScope,
        projection::Projection,
    },
    store::{CommitError, Revision},
    tenant::TenantScope,
};
use std::ops::Range;

/// Commits a batch. The statement advances the log's position first. The lock on the position's row serializes
/// concurrent projectors, and the later one finds another position and writes nothing.
static COMMIT: GuardedBatchCommit = GuardedBatchCommit::new(
    "advanced AS (
        INSERT INTO notification_position AS stored (tenant_id, position, cut_recipients)
        SELECT locked_tenant.tenant_id, {end}, {omitted_recipients} FROM (
            -- The batch was decided under these settings, so they must not change before its commit.
            SELECT tenant_id FROM tenant
            WHERE tenant_id = {log_id} AND notification_generation + advanced_notification_generation = {generation}
                -- A batch that is too old could add a line to a digest that was already sent.
                AND fairway_now() < {decided_at} + make_interval(secs => {max_age_seconds})
            FOR SHARE
        ) AS locked_tenant
        -- Without a WHERE clause, PostgreSQL parses ON as part of a join.
        WHERE true
        ON CONFLICT (tenant_id) DO UPDATE
        SET position = excluded.position, cut_recipients = stored.cut_recipients + excluded.cut_recipients
        WHERE stored.position = {position}
        RETURNING tenant_id
     ),
     notified AS (
        INSERT INTO notification (tenant_id, notification_id, recipient, status, category, severity, title, body,
            event_kind, event_id, log_index, workspace_id, workload_id, environment, link, created_at, revision)
        SELECT advanced.tenant_id, notification_id, recipient, 'unread', category, severity, title, body, event_kind,
            event_id, log_index, workspace_id, workload_id, environment, link, created_at, 1
        FROM inbox, advanced
        ON CONFLICT DO NOTHING
        RETURNING 1
     ),
     delivered AS (
        INSERT INTO notification_delivery (tenant_id, delivery_id, lane, channel, destination_id, recipient, status, due_at,
            last_error, notification_generation, advanced_notification_generation, destination_generation, digest,
            category, severity, title, body, event_kind, event_id, workspace_id, workload_id, environment, link,
            created_at, revision)
        SELECT advanced.tenant_id, delivery_id,
            -- The lane. All mailboxes share the operator's mail server; each person's chat is a lane of its own.
            coalesce(outbox.destination_id, CASE WHEN channel = 'email' THEN advanced.tenant_id
                ELSE md5(advanced.tenant_id::text || outbox.recipient)::uuid END),
            channel,
            outbox.destination_id, outbox.recipient, CASE WHEN failure IS NULL THEN 'pending' ELSE 'failed' END,
            -- The grace period lets batches that were decided before the digest's end add lines.
            coalesce(digest_end + make_interval(secs => {grace_seconds}), fairway_now()), failure,
            tenant.notification_generation,
            CASE WHEN requires_advanced_tier THEN tenant.advanced_notification_generation END,
            destination.generation, digest, category, severity, title, body, event_kind, event_id,
            outbox.workspace_id, outbox.workload_id, outbox.environment, outbox.link, outbox.created_at, 1
        FROM outbox CROSS JOIN advanced JOIN tenant ON tenant.tenant_id = advanced.tenant_id
        LEFT JOIN notification_destination AS destination
            ON destination.tenant_id = advanced.tenant_id AND destination.destination_id = outbox.destination_id
        WHERE tenant.notifications_enabled
            AND (tenant.advanced_notifications_enabled OR NOT requires_advanced_tier)
            AND (outbox.destination_id IS NULL OR destination.is_enabled)
        ON CONFLICT DO NOTHING
     ),
     lines AS (
        INSERT INTO notification_digest_line (tenant_id, delivery_id, event_id, severity, title, body, created_at)
        SELECT advanced.tenant_id, delivery_id, line_event_id, severity, title, body, outbox.created_at FROM outbox, advanced
        WHERE digest IS NOT NULL
        ON CONFLICT DO NOTHING
     ),
     recorded AS (
        INSERT INTO suppressed_decision (tenant_id, suppressed_decision_id, recipient, category, event_kind, event_id,
            reason_code, deciding_scope, deciding_revision, deciding_channel, unreachable_channels, workspace_id,
            workload_id, created_at)
        SELECT advanced.tenant_id, suppressed_decision_id, recipient, category, event_kind, event_id, reason_code,
            deciding_scope, deciding_revision, deciding_channel, string_to_array(unreachable_channels, ','),
            workspace_id, workload_id, created_at
        FROM input, advanced
        ON CONFLICT DO NOTHING
        RETURNING tenant_id, suppressed_decision_id
     ),
     new_records AS (
        SELECT recorded.tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash
        FROM input JOIN recorded USING (suppressed_decision_id)
     )",
    "new_records",
    "SELECT EXISTS (SELECT FROM advanced) AS is_advanced, (SELECT count(*) FROM notified) AS notified",
);

impl Database {
    /// Writes the rows of a batch and advances the log's position. See `ProjectionStore::commit_batch`.
    pub(super) async fn commit_projection(
        &self,
        scope: TenantScope,
        positions: Range<u64>,
        ProjectionBasis { at, generation }: ProjectionBasis,
        projection: &Projection,
    ) -> Result<u64, CommitError> {
        let count = |name, number: u64| require_decoded(name, i64::try_from(number).ok());
        let input = suppressed_input(scope, projection).with_rows("inbox");
        let input = add_outbox_rows(add_inbox_rows(input, projection).with_rows("outbox"), projection)
            .with_param("log_id", scope.tenant().uuid())
            .with_param("position", count("position", positions.start)?)
            .with_param("end", count("end", positions.end)?)
            .with_param("generation", count("generation", generation)?)
            .with_param("decided_at", at.to_datetime())
            .with_param("max_age_seconds", MAX_DECISION_TO_COMMIT_DELAY.as_secs_f64())
            .with_param("grace_seconds", DIGEST_GRACE.as_secs_f64())
            .with_param("omitted_recipients", i64::try_from(projection.omitted_recipients).unwrap_or(i64::MAX));
        let rows = self.commit(COMMIT.text(&input)?, &input.params()).await?;
        let row = require_decoded("is_advanced", rows.first())?;
        if !row.column::<bool>("is_advanced")? {
            return Err(CommitError::Stale);
        }
        Ok(require_decoded("notified", u64::try_from(row.column::<i64>("notified")?).ok())?)
    }
}

/// The names of channels, separated by commas.
fn names(channels: &[Channel]) -> String {
    channels.iter().map(|channel| channel.as_str()).collect::<Vec<_>>().join(",")
}

/// The input with the records of suppressed notifications and their facts.
fn suppressed_input(scope: TenantScope, projection: &Projection) -> Input<'_> {
    let records: Vec<_> = projection.suppressed.iter().map(|(decision, _)| decision).collect();
    let mut facts = FactColumns::default();
    for (_, fact) in &projection.suppressed {
        facts.push(scope, fact);
    }
    let input = Input::many()
        .with_column("suppressed_decision_id", records.iter().map(|record| record.suppressed_decision_id.uuid()))
        .with_column("recipient", records.iter().map(|record| record.recipient.to_string()))
        .with_column("category", records.iter().map(|record| record.category.as_str()))
        .with_column("event_kind", records.iter().map(|record| record.event_kind.as_str()))
        .with_column("event_id", records.iter().map(|record| record.event_id.uuid()))
        .with_column("reason_code", records.iter().map(|record| record.reason.as_str()))
        .with_column("deciding_scope", records.iter().map(|record| record.scope.map(DecidingScope::as_str)))
        .with_column("deciding_revision", records.iter().map(|record| record.revision.map(Revision::get)))
        .with_column("deciding_channel", records.iter().map(|record| record.channel.map(Channel::as_str)))
        // Each list is joined to one text, because PostgreSQL requires rows of equal length in a two-dimensional
        // array.
        .with_column("unreachable_channels", records.iter().map(|record| names(&record.unreachable_channels)))
        .with_column("workspace_id", records.iter().map(|record| record.workspace_id.map(WorkspaceId::uuid)))
        .with_column("workload_id", records.iter().map(|record| record.workload_id.map(WorkloadId::uuid)))
        .with_column("created_at", records.iter().map(|record| record.created_at.to_datetime()));
    facts.add_to_input(input)
}

/// Adds the notifications of recipients whose inbox is enabled.
fn add_inbox_rows<'p>(input: Input<'p>, projection: &'p Projection) -> Input<'p> {
    let rows: Vec<&Notification> = projection
        .notifications
        .iter()
        .filter(|projected| projected.channels.contains(&Channel::Portal))
        .map(|projected| &projected.notification)
        .collect();
    input
        .with_column("notification_id", rows.iter().map(|notification| notification.notification_id.uuid()))
        .with_column("recipient", rows.iter().map(|notification| notification.recipient.to_string()))
        .with_column("category", rows.iter().map(|notification| notification.category.as_str()))
        .with_column("severity", rows.iter().map(|notification| notification.severity.as_str()))
        .with_column("title", rows.iter().map(|notification| notification.title.as_str()))
        .with_column("body", rows.iter().map(|notification| notification.body.as_str()))
        .with_column("event_kind", rows.iter().map(|notification| notification.event_kind.as_str()))
        .with_column("event_id", rows.iter().map(|notification| notification.event_id.uuid()))
        .with_column(
            "log_index",
            rows.iter().map(|notification| i64::try_from(notification.log_index).unwrap_or(i64::MAX)),
        )
        .with_column("workspace_id", rows.iter().map(|notification| notification.workspace_id.map(WorkspaceId::uuid)))
        .with_column("workload_id", rows.iter().map(|notification| notification.workload_id.map(WorkloadId::uuid)))
        .with_column("environment", rows.iter().map(|notification| notification.environment.as_deref()))
        .with_column("link", rows.iter().map(|notification| notification.link.as_deref()))
        .with_column("created_at", rows.iter().map(|notification| notification.created_at.to_datetime()))
}

/// Adds the deliveries on all channels besides the inbox.
fn add_outbox_rows<'p>(input: Input<'p>, projection: &'p Projection) -> Input<'p> {
    let rows = &projection.deliveries;
    let notification = |delivery: &'p NewDelivery| &delivery.notification;
    let destination = |delivery: &NewDelivery| delivery.target.destination().map(DestinationId::uuid);
    let digest_end = |window: DigestWindow| window.end.to_datetime();
    input
        .with_column("delivery_id", rows.iter().map(|delivery| delivery.delivery_id.uuid()))
        .with_column("channel", rows.iter().map(|delivery| delivery.channel.as_str()))
        .with_column("destination_id", rows.iter().map(destination))
        .with_column("recipient", rows.iter().map(|delivery| delivery.target.person().map(ToString::to_string)))
        .with_column("requires_advanced_tier", rows.iter().map(|delivery| delivery.requires_advanced_tier))
        .with_column("failure", rows.iter().map(|delivery| delivery.failure.map(DeliveryError::as_str)))
        .with_column("digest", rows.iter().map(|delivery| delivery.digest.map(|window| window.kind.as_str())))
        .with_column("line_event_id", rows.iter().map(|delivery| delivery.event.uuid()))
        .with_column("digest_end", rows.iter().map(|delivery| delivery.digest.map(digest_end)))
        .with_column("category", rows.iter().map(|delivery| notification(delivery).category.as_str()))
        .with_column("severity", rows.iter().map(|delivery| notification(delivery).severity.as_str()))
        .with_column("title", rows.iter().map(|delivery| notification(delivery).title.as_str()))
        .with_column("body", rows.iter().map(|delivery| notification(delivery).body.as_str()))
        .with_column("event_kind", rows.iter().map(|delivery| notification(delivery).event_kind.as_str()))
        .with_column("event_id", rows.iter().map(|delivery| notification(delivery).event_id.uuid()))
        .with_column(
            "workspace_id",
            rows.iter().map(|delivery| notification(delivery).workspace_id.map(WorkspaceId::uuid)),
        )
        .with_column(
            "workload_id",
            rows.iter().map(|delivery| notification(delivery).workload_id.map(WorkloadId::uuid)),
        )
        .with_column("environment", rows.iter().map(|delivery| notification(delivery).environment.as_deref()))
        .with_column("link", rows.iter().map(|delivery| notification(delivery).link.as_deref()))
        .with_column("created_at", rows.iter().map(|delivery| notification(delivery).created_at.to_datetime()))
}
