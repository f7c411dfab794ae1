//! Access requests.

use crate::{
    connection::{INSERT_CONNECTION, UPDATE_CONNECTION, with_connection},
    database::Database,
    guarded::{Guarded, Input, Query},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{Row, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    access::ActorRef,
    access_request::{AccessRequest, AccessRequestRecord, AccessRequestStatus, AccessRequestStore, Grant},
    id::{AccessRequestId, ConnectionId, WorkspaceId},
    idempotency::KeyedOutcome,
    note::{MAX_NOTE_CHARS, Note},
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};

const COLUMNS: &str = "access_request.access_request_id, access_request.workspace_id, access_request.use_case_id, \
    access_request.connection_name, access_request.status, access_request.connection_id, access_request.reason, \
    access_request.requested_by, access_request.created_at, access_request.decided_by, access_request.decided_at, \
    access_request.revision";

const ROW_BYTES: RowBytes =
    RowBytes::Measured { sql: "coalesce(octet_length(reason), 0)", largest: MAX_NOTE_CHARS * 4 };

fn access_request(row: &Row) -> Result<AccessRequest, StoreError> {
    let decided_by: Option<&str> = row.column("decided_by")?;
    let decided_by = decided_by.map(|actor| decode("decided_by", ActorRef::parse(actor).ok())).transpose()?;
    Ok(AccessRequest::restore(AccessRequestRecord {
        access_request_id: row.id("access_request_id")?,
        workspace_id: row.id("workspace_id")?,
        use_case_id: row.id("use_case_id")?,
        connection_name: row.column("connection_name")?,
        status: row.parsed("status", AccessRequestStatus::parse)?,
        connection_id: row.optional_id("connection_id")?,
        reason: row.column::<Option<&str>>("reason")?.map(Note::from_stored),
        requested_by: row.actor("requested_by")?,
        created_at: row.timestamp("created_at")?,
        decided_by,
        decided_at: row.optional_timestamp("decided_at")?,
        revision: row.revision("revision")?,
    }))
}

/// Adds the columns of a decision.
fn with_decision<'v>(input: Input<'v>, request: &'v AccessRequest, decided_on: Option<Revision>) -> Input<'v> {
    input
        .with("access_request_id", request.access_request_id.uuid())
        .with("request_decided_on", decided_on.unwrap_or(request.revision).get())
        .with("request_status", request.status.as_str())
        .with("granted_connection_id", request.connection_id.map(ConnectionId::uuid))
        .with("reason", request.reason.as_ref().map(Note::as_str))
        .with("decided_by", request.decided_by.as_ref().map(ToString::to_string))
        .with("decided_at", request.decided_at.map(Timestamp::to_datetime))
        .with("request_revision", request.revision.get())
}

const UPDATE_REQUEST: &str = "
    UPDATE access_request SET status = request_status, connection_id = granted_connection_id, reason = input.reason,
        decided_by = input.decided_by, decided_at = input.decided_at, revision = request_revision
    FROM input
    WHERE access_request.tenant_id = input.tenant_id
        AND access_request.access_request_id = input.access_request_id
        AND access_request.revision = request_decided_on AND access_request.status = 'pending'";

#[async_trait]
impl AccessRequestStore for Database {
    async fn find(&self, scope: TenantScope, id: AccessRequestId) -> Result<Option<AccessRequest>, StoreError> {
        static FIND: Query = Query::of_parts(&[
            "SELECT ",
            COLUMNS,
            " FROM input JOIN access_request USING (tenant_id, access_request_id)",
        ]);
        let input = Input::new(scope).with("access_request_id", id.uuid());
        self.fetch_one(&FIND, input).await?.as_ref().map(access_request).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        status: Option<AccessRequestStatus>,
        page: PageRequest,
    ) -> Result<Page<AccessRequest>, StoreError> {
        let mut values = Values::of_tenant(scope);
        let mut conditions = vec![
            format!("tenant_id = {}", values.tenant()),
            format!("workspace_id = {}", values.bind(workspace.uuid())),
        ];
        if let Some(status) = status {
            conditions.push(format!("status = {}", values.bind(status.as_str())));
        }
        let key = SortKey::Id("access_request_id", "access_request_id");
        let listing = ListQuery::single(COLUMNS, key, "FROM access_request", ROW_BYTES, conditions, values);
        self.fetch_page(listing, page, access_request).await
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<Grant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The use case's row serializes the grants of its requests, so that the last one sees the others.
        static GRANT: Guarded = Guarded::of_parts(
            &[
                "use_case_changed AS (
                    UPDATE use_case SET status = use_case_status, revision = use_case_revision,
                        updated_at = use_case_updated_at
                    FROM input
                    WHERE use_case.tenant_id = input.tenant_id AND use_case.use_case_id = input.use_case_id
                        AND use_case.revision = use_case_decided_on
                    RETURNING 1
                 ),
                 changed AS (",
                UPDATE_CONNECTION,
                " RETURNING 1),
                 made AS (",
                INSERT_CONNECTION,
                " WHERE connection_decided_on IS NULL RETURNING 1),
                 decided AS (",
                UPDATE_REQUEST,
                " RETURNING 1),
                 withdrawn AS (
                    UPDATE access_request SET status = 'withdrawn', decided_by = input.decided_by,
                        decided_at = input.decided_at, revision = access_request.revision + 1
                    FROM use_case_changed, input
                    WHERE access_request.tenant_id = input.tenant_id AND access_request.use_case_id = input.use_case_id
                        AND access_request.access_request_id <> input.access_request_id
                        AND access_request.status = 'pending' AND use_case_status = 'active'
                 )",
            ],
            "(SELECT count(*) = 1 FROM use_case_changed) AND (SELECT count(*) = 1 FROM decided)
                AND (SELECT count(*) FROM changed) + (SELECT count(*) FROM made) = 1",
            "",
        );
        let ChangeRecord { next: grant, decided_on, fact } = change.into_record();
        let input = Input::new(scope)
            .with("connection_decided_on", grant.connection_decided_on.map(Revision::get))
            .with("use_case_id", grant.use_case.use_case_id.uuid())
            .with("use_case_status", grant.use_case.status.as_str())
            .with("use_case_revision", grant.use_case.revision.get())
            .with("use_case_decided_on", grant.use_case_decided_on.get())
            .with("use_case_updated_at", grant.use_case.updated_at.to_datetime());
        let input = with_decision(with_connection(input, &grant.connection), &grant.request, decided_on);
        self.commit_guarded(&GRANT, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_denial(
        &self,
        scope: TenantScope,
        change: Change<AccessRequest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static DENY: Guarded = Guarded::of_parts(
            &["decided AS (", UPDATE_REQUEST, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM decided)",
            "",
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let input = with_decision(Input::new(scope), &next, decided_on);
        self.commit_guarded(&DENY, scope, &fact, key, input).await.map(|_| ())
    }
}
