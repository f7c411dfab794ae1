//! Inboxes. Each inbox consists of the notifications of one recipient.

use crate::{
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input, Query},
    row::require_decoded,
    schema::{notification, notification_position},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    audit::Fact,
    id::NotificationId,
    idempotency::KeyedOutcome,
    notification::{
        Severity,
        inbox::{InboxStatus, Notification, NotificationRecord},
        ports::{InboxFilter, InboxStore},
    },
    notification_category::NotificationCategory,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// Maximum number of notifications that one statement marks as read.
const READ_BATCH: i64 = 2_000;

#[derive(Queryable, Selectable)]
#[diesel(table_name = notification, check_for_backend(Pg))]
pub(super) struct StoredNotification {
    notification_id: Uuid,
    recipient: String,
    status: String,
    category: String,
    severity: String,
    title: String,
    body: String,
    event_kind: String,
    event_id: Uuid,
    log_index: i64,
    workspace_id: Option<Uuid>,
    workload_id: Option<Uuid>,
    environment: Option<String>,
    link: Option<String>,
    created_at: OffsetDateTime,
    read_at: Option<OffsetDateTime>,
    revision: i64,
}

impl StoredRow for StoredNotification {
    type Value = Notification;

    fn id(&self) -> Uuid {
        self.notification_id
    }

    fn into_value(self) -> Result<Notification, StoreError> {
        Ok(Notification::restore(NotificationRecord {
            notification_id: self.notification_id.into(),
            recipient: require_decoded("recipient", ActorRef::parse(&self.recipient).ok())?,
            status: require_decoded("status", InboxStatus::parse(&self.status))?,
            category: require_decoded("category", NotificationCategory::parse(&self.category))?,
            severity: require_decoded("severity", Severity::parse(&self.severity))?,
            title: self.title,
            body: self.body,
            event_kind: self.event_kind,
            event_id: self.event_id.into(),
            log_index: require_decoded("log_index", u64::try_from(self.log_index).ok())?,
            workspace_id: self.workspace_id.map(Into::into),
            workload_id: self.workload_id.map(Into::into),
            environment: self.environment,
            link: self.link,
            created_at: Timestamp::new(self.created_at),
            read_at: self.read_at.map(Timestamp::new),
            revision: Revision::new(self.revision),
        }))
    }
}

/// The CTEs that mark the newest unread notifications of a recipient as read.
const MARKED: &str = "newest AS (
        SELECT unread.notification_id FROM input, LATERAL (
            SELECT notification_id FROM notification
            WHERE notification.tenant_id = input.tenant_id AND notification.recipient = input.recipient
                AND status = 'unread'
            ORDER BY notification_id DESC LIMIT {limit}
        ) AS unread
     ),
     marked AS (
        UPDATE notification SET status = 'read', read_at = fairway_now(), revision = notification.revision + 1
        FROM input, newest
        WHERE notification.tenant_id = input.tenant_id AND notification.notification_id = newest.notification_id
            AND status = 'unread'
        RETURNING 1
     )";

static MARK_BATCH: Query = Query::of_parts(&[MARKED, " SELECT count(*) AS count FROM marked"]);

static MARK_ALL: GuardedCommit = GuardedCommit::of_parts(&[MARKED], "(SELECT count(*) >= 0 FROM marked)", "");

static SET_STATUS: GuardedCommit = GuardedCommit::new(
    "updated_notification AS (
        UPDATE notification SET status = input.status, read_at = input.read_at, revision = input.revision
        FROM input
        WHERE notification.tenant_id = input.tenant_id AND notification.notification_id = input.notification_id
            AND notification.recipient = input.recipient AND notification.revision = input.expected_revision
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM updated_notification)",
);

#[async_trait]
impl InboxStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        id: NotificationId,
    ) -> Result<Option<Notification>, StoreError> {
        let (key, recipient) = ((scope.tenant().uuid(), id.uuid()), recipient.to_string());
        let find = || {
            notification::table
                .find(key)
                .filter(notification::recipient.eq(recipient.clone()))
                .select(StoredNotification::as_select())
        };
        self.first("notification", find).await?.map(StoredNotification::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        filter: InboxFilter,
        page: PageRequest,
    ) -> Result<Page<Notification>, StoreError> {
        let (tenant, recipient) = (scope.tenant().uuid(), recipient.to_string());
        let all = || {
            let of_recipient = notification::tenant_id.eq(tenant).and(notification::recipient.eq(recipient.clone()));
            let mut all = notification::table.filter(of_recipient).into_boxed::<'static, Pg>();
            if let Some(status) = filter.status {
                all = all.filter(notification::status.eq(status.as_str()));
            }
            if let Some(category) = filter.category {
                all = all.filter(notification::category.eq(category.as_str()));
            }
            all
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredNotification::as_select())
                .order(notification::notification_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(notification::notification_id.lt(id)),
            }
        };
        self.typed_page("inbox", page, || all().select(notification::notification_id), rows).await
    }

    async fn commit_status(&self, scope: TenantScope, change: Change<Notification>) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("notification_id", next.notification_id.uuid())
            .with("recipient", next.recipient.to_string())
            .with("status", next.status.as_str())
            .with("read_at", next.read_at.map(Timestamp::to_datetime))
            .with("revision", next.revision.get())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&SET_STATUS, scope, &fact, None, input).await.map(|_| ())
    }

    async fn commit_all_read(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        fact: Fact,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let input = || Input::new(scope).with("recipient", recipient.to_string()).with_param("limit", READ_BATCH);
        loop {
            // The last batch is marked in the guarded commit below, together with the fact.
            if self.count_unread(scope, recipient).await? <= READ_BATCH.unsigned_abs() {
                break;
            }
            let batch = input();
            self.write_idempotent(MARK_BATCH.text(&batch)?, &batch.params()).await?;
        }
        self.commit_guarded(&MARK_ALL, scope, &fact, key, input()).await.map(|_| ())
    }

    async fn list_from(
        &self,
        scope: TenantScope,
        recipient: &ActorRef,
        from_index: u64,
        limit: u32,
    ) -> Result<Vec<Notification>, StoreError> {
        let (tenant, recipient) = (scope.tenant().uuid(), recipient.to_string());
        let (from_index, limit) = (i64::try_from(from_index).unwrap_or(i64::MAX), i64::from(limit));
        let find = || {
            let of_recipient = notification::tenant_id.eq(tenant).and(notification::recipient.eq(recipient.clone()));
            notification::table
                .filter(of_recipient.and(notification::log_index.ge(from_index)))
                .select(StoredNotification::as_select())
                .order(notification::log_index.asc())
                .limit(limit)
        };
        let found: Vec<StoredNotification> = self.load("inbox from an index", find).await?;
        found.into_iter().map(StoredNotification::into_value).collect()
    }

    async fn count_projected(&self, scope: TenantScope) -> Result<u64, StoreError> {
        let tenant = scope.tenant().uuid();
        let find = || notification_position::table.find(tenant).select(notification_position::position);
        let found: Option<i64> = self.first("projected facts", find).await?;
        require_decoded("position", u64::try_from(found.unwrap_or(0)).ok())
    }

    async fn count_unread(&self, scope: TenantScope, recipient: &ActorRef) -> Result<u64, StoreError> {
        let (tenant, recipient) = (scope.tenant().uuid(), recipient.to_string());
        let unread = || {
            let of_recipient = notification::tenant_id.eq(tenant).and(notification::recipient.eq(recipient.clone()));
            notification::table
                .filter(of_recipient.and(notification::status.eq(InboxStatus::Unread.as_str())))
                .select(notification::notification_id)
        };
        self.capped_count("unread notifications", unread).await
    }
}
