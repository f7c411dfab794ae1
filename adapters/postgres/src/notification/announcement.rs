//! The store of announcements.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::announcement,
};
use async_trait::async_trait;
use diesel::{QueryDsl as _, Queryable, Selectable, SelectableHelper as _, pg::Pg};
use fairway_domain::{
    access::{ActorRef, Role},
    id::{AnnouncementId, WorkspaceId},
    idempotency::KeyedOutcome,
    notification::{
        announcement::{Announcement, AnnouncementRecord, Audience},
        ports::AnnouncementStore,
    },
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Queryable, Selectable)]
#[diesel(table_name = announcement, check_for_backend(Pg))]
struct StoredAnnouncement {
    announcement_id: Uuid,
    title: String,
    body: String,
    text_salt: Option<Vec<u8>>,
    audience_roles: Vec<String>,
    audience_workspaces: Vec<Uuid>,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredAnnouncement {
    fn into_value(self) -> Result<Announcement, StoreError> {
        let roles = self.audience_roles.iter().map(|name| require_decoded("audience_roles", Role::parse(name)));
        Ok(Announcement::restore(AnnouncementRecord {
            announcement_id: self.announcement_id.into(),
            title: self.title,
            body: self.body,
            text_salt: self.text_salt.map(|salt| require_decoded("text_salt", salt.try_into().ok())).transpose()?,
            audience: Audience {
                roles: roles.collect::<Result<_, _>>()?,
                workspaces: self.audience_workspaces.into_iter().map(Into::into).collect(),
            },
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        }))
    }
}

static CREATE: GuardedCommit = GuardedCommit::new(
    "inserted_announcement AS (
        INSERT INTO announcement (tenant_id, announcement_id, title, body, text_salt, audience_roles,
            audience_workspaces, created_at, created_by)
        SELECT tenant_id, announcement_id, title, body, text_salt, roles, workspaces, created_at, created_by FROM input
        WHERE NOT EXISTS (
            SELECT FROM unnest(workspaces) AS requested_id
            WHERE NOT EXISTS (
                SELECT FROM workspace
                WHERE workspace.tenant_id = input.tenant_id AND workspace.workspace_id = requested_id))
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM inserted_announcement)",
);

#[async_trait]
impl AnnouncementStore for Database {
    async fn find(&self, scope: TenantScope, id: AnnouncementId) -> Result<Option<Announcement>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || announcement::table.find(key).select(StoredAnnouncement::as_select());
        self.first("announcement", find).await?.map(StoredAnnouncement::into_value).transpose()
    }

    async fn commit(
        &self,
        scope: TenantScope,
        change: Change<Announcement>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = Input::new(scope)
            .with("announcement_id", next.announcement_id.uuid())
            .with("title", next.title.as_str())
            .with("body", next.body.as_str())
            .with("text_salt", next.text_salt.map(|salt| salt.to_vec()))
            .with_list("roles", next.audience.roles.iter().map(|role| role.as_str()).collect())
            .with_list("workspaces", next.audience.workspaces.iter().map(|id: &WorkspaceId| id.uuid()).collect())
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string());
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }
}
