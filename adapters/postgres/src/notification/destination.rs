//! The store of destinations, to which notifications are delivered outside the inbox.

use crate::{
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::notification_destination,
};
use async_trait::async_trait;
use diesel::{ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _, pg::Pg};
use fairway_domain::{
    access::ActorRef,
    audit::Fact,
    id::{DestinationId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::{
        Channel,
        destination::{
            Destination, DestinationRecord, DestinationScope, MAX_CONFIGURATION_BYTES, MAX_DESTINATIONS_PER_SCOPE,
        },
        ports::DestinationStore,
    },
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

const MEASURED: RowSizeMeasure = RowSizeMeasure {
    key: "destination_id",
    sql: "octet_length(configuration::text)",
    // The factor allows for the spaces that PostgreSQL writes after each colon and comma.
    largest: 2 * MAX_CONFIGURATION_BYTES,
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = notification_destination, check_for_backend(Pg))]
struct StoredDestination {
    destination_id: Uuid,
    workspace_id: Option<Uuid>,
    destination_type: String,
    display_name: String,
    configuration: Value,
    secret_ref: Option<String>,
    is_enabled: bool,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
    revision: i64,
}

impl StoredRow for StoredDestination {
    type Value = Destination;

    fn id(&self) -> Uuid {
        self.destination_id
    }

    fn into_value(self) -> Result<Destination, StoreError> {
        let configuration = match self.configuration {
            Value::Object(members) => Some(members),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        };
        Ok(Destination::restore(DestinationRecord {
            destination_id: self.destination_id.into(),
            scope: self
                .workspace_id
                .map_or(DestinationScope::Organization, |id| DestinationScope::Workspace(id.into())),
            destination_type: require_decoded("destination_type", Channel::parse(&self.destination_type))?,
            display_name: self.display_name,
            configuration: require_decoded("configuration", configuration)?,
            secret_ref: self.secret_ref,
            is_enabled: self.is_enabled,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

static CREATE: GuardedCommit = GuardedCommit::new(
    "stored AS (
        INSERT INTO notification_destination (tenant_id, destination_id, workspace_id, destination_type, display_name,
            configuration, secret_ref, is_enabled, created_at, created_by, updated_at, revision)
        SELECT tenant_id, destination_id, workspace_id, destination_type, display_name, configuration, secret_ref,
            is_enabled, created_at, created_by, created_at, revision
        FROM input
        WHERE {max_destinations} > (
            SELECT count(*) FROM notification_destination AS existing
            WHERE existing.tenant_id = input.tenant_id
                AND (existing.workspace_id = input.workspace_id
                    OR (input.workspace_id IS NULL AND existing.workspace_id IS NULL)))
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM stored)",
);

static CHANGE: GuardedCommit = GuardedCommit::new(
    "stored AS (
        UPDATE notification_destination AS stored SET display_name = input.display_name,
            configuration = input.configuration, secret_ref = input.secret_ref, is_enabled = input.is_enabled,
            updated_at = input.updated_at, revision = input.revision,
            -- Deliveries with an older generation are not sent.
            generation = generation + (stored.is_enabled AND NOT input.is_enabled)::integer
        FROM input
        WHERE stored.tenant_id = input.tenant_id AND stored.destination_id = input.destination_id
            AND stored.revision = expected_revision
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM stored)",
);

static TEST: GuardedCommit = GuardedCommit::new(
    "tested AS (
        SELECT FROM notification_destination JOIN input USING (tenant_id, destination_id)
        FOR SHARE OF notification_destination
     )",
    "(SELECT count(*) = 1 FROM tested)",
);

static DELETE: GuardedCommit = GuardedCommit::new(
    "ended AS (
        DELETE FROM notification_destination AS stored USING input
        WHERE stored.tenant_id = input.tenant_id AND stored.destination_id = input.destination_id
            AND stored.revision = input.expected_revision
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM ended)",
);

#[async_trait]
impl DestinationStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        id: DestinationId,
    ) -> Result<Option<Destination>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || notification_destination::table.find(key).select(StoredDestination::as_select());
        let found = self.first("destination", find).await?.map(StoredDestination::into_value).transpose()?;
        Ok(found.filter(|found| found.scope == destination_scope))
    }

    async fn list(
        &self,
        scope: TenantScope,
        destination_scope: DestinationScope,
        page: PageRequest,
    ) -> Result<Page<Destination>, StoreError> {
        let tenant = scope.tenant().uuid();
        let all = || {
            let of_tenant = notification_destination::table
                .filter(notification_destination::tenant_id.eq(tenant))
                .into_boxed::<'static, Pg>();
            match destination_scope {
                DestinationScope::Organization => of_tenant.filter(notification_destination::workspace_id.is_null()),
                DestinationScope::Workspace(id) => {
                    of_tenant.filter(notification_destination::workspace_id.eq(id.uuid()))
                }
            }
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredDestination::as_select())
                .order(notification_destination::destination_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(notification_destination::destination_id.lt(id)),
            }
        };
        let ids = || all().select(notification_destination::destination_id);
        self.typed_measured_page("list of destinations", MEASURED, page, ids, rows).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Destination>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
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
            .with_param("max_destinations", i64::from(MAX_DESTINATIONS_PER_SCOPE));
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_change(&self, scope: TenantScope, change: Change<Destination>) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("destination_id", next.destination_id.uuid())
            .with("display_name", next.display_name.as_str())
            .with("configuration", Value::Object(next.configuration.clone()))
            .with("secret_ref", next.secret_ref.as_deref())
            .with("is_enabled", next.is_enabled)
            .with("updated_at", next.updated_at.to_datetime())
            .with("revision", next.revision.get())
            .with("expected_revision", expected_revision.map(Revision::get));
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
        expected_revision: Revision,
        fact: Fact,
    ) -> Result<(), CommitError> {
        let input =
            Input::new(scope).with("destination_id", id.uuid()).with("expected_revision", expected_revision.get());
        self.commit_guarded(&DELETE, scope, &fact, None, input).await.map(|_| ())
    }
}
