//! The store of access requests, with which use cases ask for connections.

use crate::{
    connection::{INSERT_CONNECTION, UPDATE_CONNECTION, add_connection_columns},
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::access_request,
    use_case::{CHANGE_USE_CASE, add_change_columns},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    access_request::{AccessGrantOutcome, AccessRequest, AccessRequestRecord, AccessRequestStatus, AccessRequestStore},
    id::{AccessRequestId, ConnectionId, WorkspaceId},
    idempotency::KeyedOutcome,
    note::{MAX_NOTE_CHARS, Note},
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

const MEASURED: RowSizeMeasure =
    RowSizeMeasure { key: "access_request_id", sql: "coalesce(octet_length(reason), 0)", largest: MAX_NOTE_CHARS * 4 };

#[derive(Queryable, Selectable)]
#[diesel(table_name = access_request, check_for_backend(Pg))]
struct StoredRequest {
    access_request_id: Uuid,
    workspace_id: Uuid,
    use_case_id: Uuid,
    connection_name: String,
    status: String,
    connection_id: Option<Uuid>,
    reason: Option<String>,
    requested_by: String,
    created_at: OffsetDateTime,
    decided_by: Option<String>,
    decided_at: Option<OffsetDateTime>,
    revision: i64,
}

impl StoredRow for StoredRequest {
    type Value = AccessRequest;

    fn id(&self) -> Uuid {
        self.access_request_id
    }

    fn into_value(self) -> Result<AccessRequest, StoreError> {
        let decided_by = self.decided_by.map(|actor| require_decoded("decided_by", ActorRef::parse(&actor).ok()));
        Ok(AccessRequest::restore(AccessRequestRecord {
            access_request_id: self.access_request_id.into(),
            workspace_id: self.workspace_id.into(),
            use_case_id: self.use_case_id.into(),
            connection_name: self.connection_name,
            status: require_decoded("status", AccessRequestStatus::parse(&self.status))?,
            connection_id: self.connection_id.map(Into::into),
            reason: self.reason.as_deref().map(Note::from_stored),
            requested_by: require_decoded("requested_by", ActorRef::parse(&self.requested_by).ok())?,
            created_at: Timestamp::new(self.created_at),
            decided_by: decided_by.transpose()?,
            decided_at: self.decided_at.map(Timestamp::new),
            revision: Revision::new(self.revision),
        }))
    }
}

/// Adds the columns that the decision on a request writes.
fn add_decision_columns<'v>(
    input: Input<'v>,
    request: &'v AccessRequest,
    expected_revision: Option<Revision>,
) -> Input<'v> {
    input
        .with("access_request_id", request.access_request_id.uuid())
        .with("expected_request_revision", expected_revision.unwrap_or(request.revision).get())
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
        AND access_request.revision = expected_request_revision AND access_request.status = 'pending'";

/// The `INSERT` of the requests for the connections that a use case needs. It follows the CTE `updated_use_case`.
pub(crate) const INSERT_REQUESTS: &str = "
    INSERT INTO access_request (tenant_id, access_request_id, workspace_id, use_case_id, connection_name, status,
        requested_by, created_at, revision)
    SELECT tenant_id, request.id, request_workspace_id, use_case_id, request.name, 'pending', actor, next_updated_at, 1
    FROM input, updated_use_case, unnest(request_ids, request_names) AS request (id, name)";

/// The `UPDATE` that withdraws the pending requests of a use case. It follows the CTE `updated_use_case`.
pub(crate) const WITHDRAW_REQUESTS: &str = "
    UPDATE access_request SET status = 'withdrawn', decided_by = input.decided_by, decided_at = input.decided_at,
        revision = access_request.revision + 1
    FROM updated_use_case, input
    WHERE access_request.tenant_id = input.tenant_id AND access_request.use_case_id = input.use_case_id
        AND access_request.status = 'pending'";

#[async_trait]
impl AccessRequestStore for Database {
    async fn find(&self, scope: TenantScope, id: AccessRequestId) -> Result<Option<AccessRequest>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || access_request::table.find(key).select(StoredRequest::as_select());
        self.first("access request", find).await?.map(StoredRequest::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        status: Option<AccessRequestStatus>,
        page: PageRequest,
    ) -> Result<Page<AccessRequest>, StoreError> {
        let (tenant, workspace) = (scope.tenant().uuid(), workspace.uuid());
        let all = || {
            let of_workspace = access_request::tenant_id.eq(tenant).and(access_request::workspace_id.eq(workspace));
            let of_workspace = access_request::table.filter(of_workspace).into_boxed::<'static, Pg>();
            match status {
                None => of_workspace,
                Some(status) => of_workspace.filter(access_request::status.eq(status.as_str())),
            }
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredRequest::as_select())
                .order(access_request::access_request_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(access_request::access_request_id.lt(id)),
            }
        };
        let ids = || all().select(access_request::access_request_id);
        self.typed_measured_page("list of access requests", MEASURED, page, ids, rows).await
    }

    async fn commit_grant(
        &self,
        scope: TenantScope,
        change: Change<AccessGrantOutcome>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The update locks the use case's row. It serializes concurrent grants of the use case's requests, so that
        // the last grant sees all others.
        static GRANT: GuardedCommit = GuardedCommit::of_parts(
            &[
                "updated_use_case AS (",
                CHANGE_USE_CASE,
                " RETURNING 1),
                 updated_connection AS (",
                UPDATE_CONNECTION,
                " RETURNING 1),
                 inserted_connection AS (",
                INSERT_CONNECTION,
                " WHERE expected_connection_revision IS NULL RETURNING 1),
                 updated_request AS (",
                UPDATE_REQUEST,
                " RETURNING 1),
                 withdrawn_requests AS (",
                WITHDRAW_REQUESTS,
                " AND access_request.access_request_id <> input.access_request_id AND next_status = 'active')",
            ],
            "(SELECT count(*) = 1 FROM updated_use_case) AND (SELECT count(*) = 1 FROM updated_request)
                AND (SELECT count(*) FROM updated_connection) + (SELECT count(*) FROM inserted_connection) = 1",
            "",
        );
        let ChangeRecord { next: grant, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("expected_connection_revision", grant.expected_connection_revision.map(Revision::get));
        let input = add_change_columns(input, &grant.use_case, Some(grant.expected_use_case_revision));
        let input =
            add_decision_columns(add_connection_columns(input, &grant.connection), &grant.request, expected_revision);
        self.commit_guarded(&GRANT, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_denial(
        &self,
        scope: TenantScope,
        change: Change<AccessRequest>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static DENY: GuardedCommit = GuardedCommit::of_parts(
            &["updated_request AS (", UPDATE_REQUEST, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM updated_request)",
            "",
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = add_decision_columns(Input::new(scope), &next, expected_revision);
        self.commit_guarded(&DENY, scope, &fact, key, input).await.map(|_| ())
    }
}
