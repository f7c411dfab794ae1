//! Destinations of notifications.

use crate::{
    database::Database,
    guarded::{Guarded, Input, Query},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{Row, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    audit::Fact,
    id::{DestinationId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::{
        Channel,
        destination::{Destination, DestinationRecord, DestinationScope, MAX_CONFIGURATION_BYTES, MAX_DESTINATIONS},
        ports::DestinationStore,
    },
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};
use serde_json::Value;

const COLUMNS: &str = "destination_id, workspace_id, destination_type, display_name, configuration, secret_ref, \
    is_enabled, created_at, created_by, updated_at, revision";

fn destination(row: &Row) -> Result<Destination, StoreError> {
    let workspace: Option<WorkspaceId> = row.optional_id("workspace_id")?;
    let configuration: Value = row.column("configuration")?;
    let configuration = match configuration {
        Value::Object(members) => Some(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    };
    Ok(Destination::restore(DestinationRecord {
        destination_id: row.id("destination_id")?,
        scope: workspace.map_or(DestinationScope::Organization, DestinationScope::Workspace),
        destination_type: row.parsed("destination_type", Channel::parse)?,
        display_name: row.column("display_name")?,
        configuration: decode("configuration", configuration)?,
        secret_ref: row.column("secret_ref")?,
        is_enabled: row.column("is_enabled")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.timestamp("updated_at")?,
        revision: row.revision("revision")?,
    }))
}

static FIND: Query = Query::of_parts(&[
    "SELECT ",
    COLUMNS,
    " FROM input JOIN notification_destination USING (tenant_id, destination_id)",
]);

static CREATE: Guarded = Guarded::new(
    "stored AS (
        INSERT INTO notification_destination (tenant_id, destination_id, workspace_id, destination_type, display_name,
            configuration, secret_ref, is_enabled, created_at, created_by, updated_at, revision)
        SELECT tenant_id, destination_id, workspace_id, destination_type, display_name, configuration, secret_ref,
            is_enabled, created_at, created_by, created_at, revision
        FROM input
        WHERE {most} > (
            SELECT count(*) FROM notification_destination AS known
            WHERE known.tenant_id = input.tenant_id
                AND (known.workspace_id = input.workspace_id
                    OR (input.workspace_id IS NULL AND known.workspace_id IS NULL)))
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM stored)",
);

static CHANGE: Guarded = Guarded::new(
    "stored AS (
        UPDATE notification_destination AS stored SET display_name = input.display_name,
            configuration = input.configuration, secret_ref = input.secret_ref, is_enabled = input.is_enabled,
            updated_at = input.updated_at, revision = input.revision,
            -- Deliveries of an older generation are never sent.
            generation = generation + (stored.is_enabled AND NOT input.is_enabled)::integer
        FROM input
        WHERE stored.tenant_id = input.tenant_id AND stored.destination_id = input.destination_id
            AND stored.revision = decided_on
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM stored)",
);

static TEST: Guarded = Guarded::new(
    "tested AS (
        SELECT FROM notification_destination JOIN input USING (tenant_id, destination_id)
        FOR SHARE OF notification_destination
     )",
    "(SELECT count(*) = 1 FROM tested)",
);

static DELETE: Guarded = Guarded::new(
    "ended AS (
        DELETE FROM notification_destination AS stored USING input
        WHERE stored.tenant_id = input.tenant_id AND stored.destination_id = input.destination_id
            AND stored.revision = input.decided_on
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM ended)",
);

#[async_trait]
impl DestinationStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        at: DestinationScope,
        id: DestinationId,
    ) -> Result<Option<Destination>, StoreError> {
        let input = Input::new(scope).with("destination_id", id.uuid());
        let found = self.fetch_one(&FIND, input).await?.as_ref().map(destination).transpose()?;
        Ok(found.filter(|found| found.scope == at))
    }

    async fn list(
        &self,
        scope: TenantScope,
        at: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, StoreError> {
        let mut values = Values::of_tenant(scope);
        let of_tenant = format!("tenant_id = {}", values.tenant());
        let of_scope = match at {
            DestinationScope::Organization => "workspace_id IS NULL".to_owned(),
            DestinationScope::Workspace(id) => format!("workspace_id = {}", values.bind(id.uuid())),
        };
        let listing = ListQuery::single(
            COLUMNS,
            SortKey::Id("destination_id", "destination_id"),
            "FROM notification_destination",
            // PostgreSQL writes a space after each colon and comma.
            RowBytes::Measured { sql: "octet_length(configuration::text)", largest: 2 * MAX_CONFIGURATION_BYTES },
            vec![of_tenant, of_scope],
            values,
        );
        self.fetch_page(listing, page, destination).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Destination>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let input = Input::new(scope)
            .with("destination_id", next.destination_id.uuid())
            .with("workspace_id", next.scope.workspace().map(WorkspaceId::uuid))
            .with("destination_type", next.destination_type.as_str())
            .with("display_name", next.display_name.as_str())
            .with("configuration", Value::Object(next.configuration.clone()))
            .with("secret_ref", next.secret_ref.as_deref())
            .with("is_enabled", next.is_enabled)
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string())
            .with("revision", next.revision.get())
            .with_param("most", i64::from(MAX_DESTINATIONS));
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_change(&self, scope: TenantScope, change: Change<Destination>) -> Result<(), CommitError> {
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let input = Input::new(scope)
            .with("destination_id", next.destination_id.uuid())
            .with("display_name", next.display_name.as_str())
            .with("configuration", Value::Object(next.configuration.clone()))
            .with("secret_ref", next.secret_ref.as_deref())
            .with("is_enabled", next.is_enabled)
            .with("updated_at", next.updated_at.to_datetime())
            .with("revision", next.revision.get())
            .with("decided_on", decided_on.map(Revision::get));
        self.commit_guarded(&CHANGE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn commit_test(&self, scope: TenantScope, id: DestinationId, fact: Fact) -> Result<(), CommitError> {
        let input = Input::new(scope).with("destination_id", id.uuid());
        self.commit_guarded(&TEST, scope, &fact, None, input).await.map(|_| ())
    }

    async fn commit_deletion(
        &self,
        scope: TenantScope,
        id: DestinationId,
        decided_on: Revision,
        fact: Fact,
    ) -> Result<(), CommitError> {
        let input = Input::new(scope).with("destination_id", id.uuid()).with("decided_on", decided_on.get());
        self.commit_guarded(&DELETE, scope, &fact, None, input).await.map(|_| ())
    }
}
