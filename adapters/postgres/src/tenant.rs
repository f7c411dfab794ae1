//! The store of tenants.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    pagination::{ListQuery, PageByteLimit, SortKey},
    row::Row,
    schema::tenant_public_host,
};
use async_trait::async_trait;
use diesel::QueryDsl as _;
use fairway_domain::{
    id::TenantId,
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::{MAX_PUBLIC_HOSTS, Tenant, TenantRecord, TenantScope, TenantSettings, TenantStore},
};
use uuid::Uuid;

const TENANT_COLUMNS: &str = "tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, \
    public_hosts, revision, created_at, created_by";

fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    Ok(Tenant::restore(TenantRecord {
        tenant_id: row.id("tenant_id")?,
        slug: row.slug("slug")?,
        name: row.column("name")?,
        settings: TenantSettings {
            notifications_enabled: row.column("notifications_enabled")?,
            advanced_notifications_enabled: row.column("advanced_notifications_enabled")?,
            public_hosts: row.column("public_hosts")?,
        },
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        revision: row.revision("revision")?,
    }))
}

#[async_trait]
impl TenantStore for Database {
    async fn find(&self, scope: TenantScope) -> Result<Option<Tenant>, StoreError> {
        static FIND: Query = Query::of_parts(&["SELECT ", TENANT_COLUMNS, " FROM input JOIN tenant USING (tenant_id)"]);
        self.fetch_one(&FIND, Input::new(scope)).await?.as_ref().map(tenant).transpose()
    }

    async fn list(&self, page: PageRequest) -> Result<Page<Tenant>, StoreError> {
        let conditions = vec!["true".to_owned()];
        let key = SortKey::Id("tenant_id", "tenant_id");
        self.fetch_page(
            ListQuery::single(
                TENANT_COLUMNS,
                key,
                "FROM tenant",
                PageByteLimit::Measured { sql: "octet_length(public_hosts::text)", largest: MAX_PUBLIC_HOSTS * 256 },
                conditions,
                Input::without_rows(),
            ),
            page,
            tenant,
        )
        .await
    }

    async fn commit_new(
        &self,
        creator: TenantScope,
        new_tenant: TenantScope,
        change: Change<Tenant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The fact is the first entry of the new tenant's log. The idempotency key belongs to the creator's tenant,
        // so the guard claims it: `fairway_commit` works in one tenant only and receives no key.
        static CREATE_TENANT: GuardedCommit = GuardedCommit::new(
            "log AS (INSERT INTO fact_log (tenant_id, size) SELECT tenant_id, 0 FROM input),
             inserted_tenant AS (
                INSERT INTO tenant (tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled,
                    public_hosts, revision, created_at, created_by)
                SELECT tenant_id, slug, name, notifications_enabled, advanced_notifications_enabled, '{}', revision,
                    created_at, created_by
                FROM input
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM inserted_tenant) AND (creator_key IS NULL OR fairway_claim_key(creator_tenant_id,
                creator_caller, creator_route, creator_key, creator_digest, creator_status, creator_resource))",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = Input::new(new_tenant)
            .with("slug", next.slug.as_str())
            .with("name", next.name.as_str())
            .with("notifications_enabled", next.settings.notifications_enabled)
            .with("advanced_notifications_enabled", next.settings.advanced_notifications_enabled)
            .with("revision", next.revision.get())
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string())
            .with("creator_tenant_id", creator.tenant().uuid())
            .with("creator_caller", key.map(|keyed| keyed.key.caller.to_string()))
            .with("creator_route", key.map(|keyed| keyed.key.route.clone()))
            .with("creator_key", key.map(|keyed| keyed.key.key.clone()))
            .with("creator_digest", key.map(|keyed| keyed.key.body_digest.to_vec()))
            .with("creator_status", key.and_then(|keyed| i16::try_from(keyed.outcome.status).ok()))
            .with("creator_resource", key.map(|keyed| keyed.outcome.resource));
        let committed = self.commit_guarded(&CREATE_TENANT, new_tenant, &fact, None, input).await;
        committed.map(|_| ()).map_err(|error| match error {
            // A new tenant has no revision that could be stale, so a failed guard means that the key could not be
            // claimed.
            CommitError::Stale => CommitError::DuplicateKey,
            other @ (CommitError::DuplicateKey | CommitError::Conflict(_) | CommitError::Store(_)) => other,
        })
    }

    async fn find_by_host(&self, host: &str) -> Result<Option<TenantId>, StoreError> {
        let host = host.to_owned();
        let find = || tenant_public_host::table.find(host.clone()).select(tenant_public_host::tenant_id);
        let found: Option<Uuid> = self.first("tenant by host", find).await?;
        Ok(found.map(Into::into))
    }

    async fn commit_settings(&self, scope: TenantScope, change: Change<Tenant>) -> Result<(), CommitError> {
        static CHANGE: GuardedCommit = GuardedCommit::new(
            "locked_tenant AS (
                SELECT tenant.public_hosts FROM tenant JOIN input USING (tenant_id) WHERE revision = expected_revision
                FOR UPDATE OF tenant
             ),
             deleted_host AS (
                DELETE FROM tenant_public_host AS existing USING locked_tenant, input
                WHERE existing.tenant_id = input.tenant_id AND NOT existing.host = ANY(input.hosts)
             ),
             inserted_host AS (
                INSERT INTO tenant_public_host (host, tenant_id)
                SELECT DISTINCT host, tenant_id FROM locked_tenant, input, unnest(hosts) AS host
                WHERE NOT host = ANY(locked_tenant.public_hosts)
             ),
             updated_tenant AS (
                UPDATE tenant SET revision = input.next_revision, notifications_enabled = input.are_enabled,
                    advanced_notifications_enabled = input.advanced_are_enabled, public_hosts = input.hosts,
                    -- Deliveries with an older generation are not sent.
                    notification_generation = notification_generation
                        + (notifications_enabled AND NOT input.are_enabled)::integer,
                    advanced_notification_generation = advanced_notification_generation
                        + (advanced_notifications_enabled AND NOT input.advanced_are_enabled)::integer,
                    -- Facts from before this time cause no notifications.
                    notifications_on_since = CASE WHEN input.are_enabled AND NOT notifications_enabled
                        THEN input.changed_at ELSE notifications_on_since END,
                    advanced_notifications_on_since =
                        CASE WHEN input.advanced_are_enabled AND NOT advanced_notifications_enabled
                        THEN input.changed_at ELSE advanced_notifications_on_since END
                FROM locked_tenant, input WHERE tenant.tenant_id = input.tenant_id
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM updated_tenant)",
        );
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input = Input::new(scope)
            .with("expected_revision", expected_revision.get())
            .with("next_revision", next.revision.get())
            .with("changed_at", fact.occurred_at.to_datetime())
            .with("are_enabled", next.settings.notifications_enabled)
            .with("advanced_are_enabled", next.settings.advanced_notifications_enabled)
            .with_list("hosts", next.settings.public_hosts.iter().map(String::as_str).collect());
        self.commit_guarded(&CHANGE, scope, &fact, None, input).await.map(|_| ())
    }
}
