//! Connections to external systems, and the history of their checks.

use crate::{
    clock_and_length_functions::database_now,
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    guarded_commit::{GuardedCommit, Input, Query},
    row::{Row, require_decoded},
    schema::{connection, connection_check},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, NullableExpressionMethods as _, QueryDsl as _, Queryable,
    Selectable, SelectableHelper as _, pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    connection::{
        CHECK_INTERVAL, CheckedConnection, Connection, ConnectionCheck, ConnectionRecord, ConnectionStatus,
        ConnectionStore, ConnectionTaskStore, ConnectionWithExpiryState, ConnectorKind, DueCheck, Health, HealthState,
        MAX_ENDPOINT_CHARS, MAX_SECRET_BINDINGS, SecretBindings,
        expiry_notice::{DueNotice, ExpiryNotice},
    },
    id::{ConnectionId, WorkspaceId},
    idempotency::KeyedOutcome,
    secret::MAX_SECRET_REF_CHARS,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// Secret bindings and endpoint are the only columns that may be long.
const MEASURED: RowSizeMeasure = RowSizeMeasure {
    key: "connection_id",
    sql: "octet_length(secret_bindings::text) + coalesce(octet_length(endpoint), 0)",
    largest: MAX_ENDPOINT_CHARS + MAX_SECRET_BINDINGS * (MAX_SECRET_REF_CHARS + 100),
};

#[derive(Queryable, Selectable)]
#[diesel(table_name = connection, check_for_backend(Pg))]
struct StoredConnection {
    connection_id: Uuid,
    workspace_id: Uuid,
    name: String,
    connector_kind: String,
    endpoint: Option<String>,
    secret_bindings: Value,
    expires_at: Option<OffsetDateTime>,
    status: String,
    health: String,
    health_code: Option<String>,
    checked_at: Option<OffsetDateTime>,
    revision: i64,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
}

impl StoredRow for StoredConnection {
    type Value = Connection;

    fn id(&self) -> Uuid {
        self.connection_id
    }

    fn into_value(self) -> Result<Connection, StoreError> {
        let bindings: BTreeMap<String, String> =
            require_decoded("secret_bindings", serde_json::from_value(self.secret_bindings).ok())?;
        Ok(Connection::restore(ConnectionRecord {
            connection_id: self.connection_id.into(),
            workspace_id: self.workspace_id.into(),
            name: self.name,
            kind: require_decoded("connector_kind", ConnectorKind::parse(&self.connector_kind))?,
            endpoint: self.endpoint,
            secret_bindings: require_decoded("secret_bindings", SecretBindings::new(bindings).ok())?,
            expires_at: self.expires_at.map(Timestamp::new),
            status: require_decoded("status", ConnectionStatus::parse(&self.status))?,
            health: Health {
                state: require_decoded("health", HealthState::parse(&self.health))?,
                code: self.health_code,
                checked_at: self.checked_at.map(Timestamp::new),
            },
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = connection_check, check_for_backend(Pg))]
struct StoredCheck {
    connection_check_id: Uuid,
    health: String,
    health_code: Option<String>,
    checked_at: OffsetDateTime,
    checked_by: String,
}

impl StoredCheck {
    fn into_value(self) -> Result<ConnectionCheck, StoreError> {
        Ok(ConnectionCheck {
            connection_check_id: self.connection_check_id.into(),
            health: require_decoded("health", HealthState::parse(&self.health))?,
            code: self.health_code,
            checked_at: Timestamp::new(self.checked_at),
            checked_by: require_decoded("checked_by", ActorRef::parse(&self.checked_by).ok())?,
        })
    }
}

/// Adds the columns of a connection. Their names have a prefix, so that the statement can have other rows too.
pub(crate) fn add_connection_columns<'v>(input: Input<'v>, connection: &'v Connection) -> Input<'v> {
    input
        .with("connection_id", connection.connection_id.uuid())
        .with("connection_workspace_id", connection.workspace_id.uuid())
        .with("connection_name", connection.name.as_str())
        .with("connector_kind", connection.kind.as_str())
        .with("endpoint", connection.endpoint.as_deref())
        .with("secret_bindings", json!(connection.secret_bindings.as_map()))
        .with("expires_at", connection.expires_at.map(Timestamp::to_datetime))
        .with("connection_status", connection.status.as_str())
        .with("health", connection.health.state.as_str())
        .with("health_code", connection.health.code.as_deref())
        .with("checked_at", connection.health.checked_at.map(Timestamp::to_datetime))
        .with("connection_revision", connection.revision.get())
        .with("connection_created_at", connection.created_at.to_datetime())
        .with("connection_created_by", connection.created_by.to_string())
        .with("connection_updated_at", connection.updated_at.to_datetime())
}

/// The `INSERT` of a new connection, for an input of [`add_connection_columns`].
pub(crate) const INSERT_CONNECTION: &str = "
    INSERT INTO connection (tenant_id, connection_id, workspace_id, name, connector_kind, endpoint, secret_bindings,
        expires_at, status, health, health_code, checked_at, revision, created_at, created_by, updated_at)
    SELECT tenant_id, connection_id, connection_workspace_id, connection_name, connector_kind, endpoint,
        secret_bindings, expires_at, connection_status, health, health_code, checked_at, connection_revision,
        connection_created_at, connection_created_by, connection_updated_at
    FROM input";

/// The `UPDATE` of a changed connection, for an input of [`add_connection_columns`].
pub(crate) const UPDATE_CONNECTION: &str = "
    UPDATE connection SET name = input.connection_name, connector_kind = input.connector_kind,
        endpoint = input.endpoint, secret_bindings = input.secret_bindings, expires_at = input.expires_at,
        status = input.connection_status, health = input.health, health_code = input.health_code,
        checked_at = input.checked_at, revision = input.connection_revision,
        updated_at = input.connection_updated_at
    FROM input
    WHERE connection.tenant_id = input.tenant_id AND connection.connection_id = input.connection_id
        AND connection.revision = input.expected_connection_revision";

#[async_trait]
impl ConnectionStore for Database {
    async fn find(&self, scope: TenantScope, id: ConnectionId) -> Result<Option<Connection>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || connection::table.find(key).select(StoredConnection::as_select());
        self.first("connection", find).await?.map(StoredConnection::into_value).transpose()
    }

    async fn find_named(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        names: &[String],
    ) -> Result<Vec<ConnectionWithExpiryState>, StoreError> {
        let (tenant, workspace) = (scope.tenant().uuid(), workspace.uuid());
        let find = || {
            connection::table
                .filter(connection::tenant_id.eq(tenant).and(connection::workspace_id.eq(workspace)))
                .filter(connection::name.eq_any(names.to_vec()))
                .select((StoredConnection::as_select(), connection::expires_at.le(database_now().nullable())))
        };
        let found: Vec<(StoredConnection, Option<bool>)> = self.load("connections by name", find).await?;
        let snapshot = |(stored, is_expired): (StoredConnection, Option<bool>)| {
            Ok(ConnectionWithExpiryState { connection: stored.into_value()?, is_expired: is_expired.unwrap_or(false) })
        };
        found.into_iter().map(snapshot).collect()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        page: PageRequest,
    ) -> Result<Page<Connection>, StoreError> {
        let (tenant, workspace) = (scope.tenant().uuid(), workspace.uuid());
        let all = || {
            let of_workspace = connection::tenant_id.eq(tenant).and(connection::workspace_id.eq(workspace));
            connection::table.filter(of_workspace).into_boxed::<'static, Pg>()
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredConnection::as_select())
                .order(connection::connection_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(connection::connection_id.lt(id)),
            }
        };
        let ids = || all().select(connection::connection_id);
        self.typed_measured_page("list of connections", MEASURED, page, ids, rows).await
    }

    async fn checks(
        &self,
        scope: TenantScope,
        id: ConnectionId,
        limit: u32,
    ) -> Result<Vec<ConnectionCheck>, StoreError> {
        let (tenant, id) = (scope.tenant().uuid(), id.uuid());
        let newest = || {
            connection_check::table
                .filter(connection_check::tenant_id.eq(tenant).and(connection_check::connection_id.eq(id)))
                .order(connection_check::connection_check_id.desc())
                .limit(i64::from(limit))
                .select(StoredCheck::as_select())
        };
        let found: Vec<StoredCheck> = self.load("checks of a connection", newest).await?;
        found.into_iter().map(StoredCheck::into_value).collect()
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Connection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &["inserted_connection AS (", INSERT_CONNECTION, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM inserted_connection)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = add_connection_columns(Input::new(scope), &next);
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_change(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError> {
        static CHANGE: GuardedCommit = GuardedCommit::of_parts(
            &["updated_connection AS (", UPDATE_CONNECTION, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM updated_connection)",
            "",
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input =
            Input::new(scope).with("expected_connection_revision", expected_revision.unwrap_or(next.revision).get());
        self.commit_guarded(&CHANGE, scope, &fact, None, add_connection_columns(input, &next)).await.map(|_| ())
    }

    async fn commit_deletion(&self, scope: TenantScope, change: Change<Connection>) -> Result<(), CommitError> {
        static DELETE: GuardedCommit = GuardedCommit::new(
            "deleted AS (
                DELETE FROM connection USING input
                WHERE connection.tenant_id = input.tenant_id AND connection.connection_id = input.connection_id
                    AND connection.revision = input.expected_revision
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM deleted)",
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("connection_id", next.connection_id.uuid())
            .with("expected_revision", expected_revision.unwrap_or(next.revision).get());
        self.commit_guarded(&DELETE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn commit_check(
        &self,
        scope: TenantScope,
        change: Change<CheckedConnection>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CHECK: GuardedCommit = GuardedCommit::of_parts(
            &[
                "updated_connection AS (",
                UPDATE_CONNECTION,
                " RETURNING 1),
                 inserted_check AS (
                    INSERT INTO connection_check (tenant_id, connection_check_id, connection_id, health, health_code,
                        checked_at, checked_by)
                    SELECT tenant_id, connection_check_id, connection_id, health, health_code, checked_at, checked_by
                    FROM input, updated_connection
                    RETURNING 1
                 )",
            ],
            "(SELECT count(*) = 1 FROM inserted_check)",
            "",
        );
        let ChangeRecord { next: CheckedConnection { connection, check }, expected_revision, fact } =
            change.into_record();
        let input = Input::new(scope)
            .with("expected_connection_revision", expected_revision.unwrap_or(connection.revision).get())
            .with("connection_check_id", check.connection_check_id.uuid())
            .with("checked_by", check.checked_by.to_string());
        self.commit_guarded(&CHECK, scope, &fact, key, add_connection_columns(input, &connection)).await.map(|_| ())
    }
}

#[async_trait]
impl ConnectionTaskStore for Database {
    async fn due_checks(&self, limit: u32) -> Result<Vec<DueCheck>, StoreError> {
        // This statement is text, so that it runs on a point connection. The settings of point connections make the
        // planner use the partial index `connection_by_check` even without statistics.
        static DUE_CHECKS: Query = Query::new(
            "SELECT tenant_id, connection_id, revision FROM connection
             WHERE status = 'active' AND endpoint IS NOT NULL AND connector_kind <> 'other'
                AND coalesce(checked_at, updated_at)
                    <= fairway_now() - make_interval(secs => (SELECT interval_seconds FROM input))
             ORDER BY coalesce(checked_at, updated_at) LIMIT (SELECT max_rows FROM input)",
        );
        let input =
            Input::one().with("max_rows", i64::from(limit)).with("interval_seconds", CHECK_INTERVAL.as_secs_f64());
        let rows = self.fetch(&DUE_CHECKS, input).await?;
        let due = |row: &Row| {
            let (tenant, connection_id) = (row.id("tenant_id")?, row.id("connection_id")?);
            Ok(DueCheck { tenant, connection_id, revision: row.revision("revision")? })
        };
        rows.iter().map(due).collect()
    }

    async fn due_expiry_notices(&self, limit: u32) -> Result<Vec<DueNotice>, StoreError> {
        // A notice is not due if a notice for the same or fewer remaining days already exists.
        static DUE_NOTICES: Query = Query::new(
            "SELECT tenant_id, connection_id, days FROM (
                SELECT tenant_id, connection_id, expires_at, CASE
                        WHEN expires_at <= fairway_now() THEN 0
                        WHEN expires_at <= fairway_now() + interval '3 days' THEN 3
                        ELSE 14
                    END AS days
                FROM connection WHERE status = 'active' AND expires_at <= fairway_now() + interval '14 days'
             ) AS due
             WHERE NOT EXISTS (
                SELECT FROM connection_expiry_notice AS given
                WHERE given.tenant_id = due.tenant_id AND given.connection_id = due.connection_id
                    AND given.expires_at = due.expires_at AND given.days <= due.days
             )
             ORDER BY expires_at LIMIT (SELECT max_rows FROM input)",
        );
        let rows = self.fetch(&DUE_NOTICES, Input::one().with("max_rows", i64::from(limit))).await?;
        let due = |row: &Row| {
            Ok(DueNotice {
                tenant: row.id("tenant_id")?,
                connection_id: row.id("connection_id")?,
                days: require_decoded("days", u16::try_from(row.column::<i32>("days")?).ok())?,
            })
        };
        rows.iter().map(due).collect()
    }

    async fn commit_expiry_notice(&self, scope: TenantScope, change: Change<ExpiryNotice>) -> Result<(), CommitError> {
        static EXPIRY_NOTICE: GuardedCommit = GuardedCommit::new(
            "given AS (
                INSERT INTO connection_expiry_notice (tenant_id, connection_id, expires_at, days, noticed_at)
                SELECT tenant_id, connection_id, input.expires_at, days, noticed_at
                FROM input JOIN connection USING (tenant_id, connection_id)
                WHERE connection.revision = expected_revision
                ON CONFLICT DO NOTHING
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM given)",
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let Some(expected_revision) = expected_revision else { return Err(CommitError::Stale) };
        let input = Input::new(scope)
            .with("connection_id", next.connection_id.uuid())
            .with("expected_revision", expected_revision.get())
            .with("expires_at", next.expires_at.to_datetime())
            .with("days", i32::from(next.days))
            .with("noticed_at", next.noticed_at.to_datetime());
        self.commit_guarded(&EXPIRY_NOTICE, scope, &fact, None, input).await.map(|_| ())
    }
}
