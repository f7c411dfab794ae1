//! Share links. Every statement checks expiry with the database's clock.

use crate::{
    clock_and_length_functions::database_now,
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::{execution, share_link},
    workload::LOCK_WORKLOAD,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    Queryable, Selectable, SelectableHelper as _,
    dsl::{IsNotNull, LtEq},
    pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    audit::Fact,
    id::{ExecutionId, ShareLinkId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    share_link::{NewShareLink, ShareLink, ShareLinkRecord, ShareLinkSnapshot, ShareLinkStore, TokenHash},
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Queryable, Selectable)]
#[diesel(table_name = share_link, check_for_backend(Pg))]
struct StoredShareLink {
    share_link_id: Uuid,
    workload_id: Uuid,
    label: Option<String>,
    lane: Option<String>,
    max_uses: i32,
    use_count: i32,
    expires_at: OffsetDateTime,
    #[diesel(select_expression = share_link::revoked_at.is_not_null())]
    #[diesel(select_expression_type = IsNotNull<share_link::revoked_at>)]
    is_revoked: bool,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredRow for StoredShareLink {
    type Value = ShareLink;

    fn id(&self) -> Uuid {
        self.share_link_id
    }

    fn into_value(self) -> Result<ShareLink, StoreError> {
        let lane = self.lane.map(|lane| require_decoded("lane", Lane::parse(&lane)));
        Ok(ShareLink::restore(ShareLinkRecord {
            share_link_id: self.share_link_id.into(),
            workload_id: self.workload_id.into(),
            label: self.label,
            lane: lane.transpose()?,
            max_uses: require_decoded("max_uses", u32::try_from(self.max_uses).ok())?,
            use_count: require_decoded("use_count", u32::try_from(self.use_count).ok())?,
            expires_at: Timestamp::new(self.expires_at),
            is_revoked: self.is_revoked,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        }))
    }
}

/// A share link with the hash of its token, and whether it had expired at the time of the read.
#[derive(Queryable, Selectable)]
#[diesel(table_name = share_link, check_for_backend(Pg))]
struct StoredSnapshot {
    #[diesel(embed)]
    link: StoredShareLink,
    #[diesel(select_expression = share_link::expires_at.le(database_now()))]
    #[diesel(select_expression_type = LtEq<share_link::expires_at, database_now>)]
    is_expired: bool,
    token_hash: Vec<u8>,
}

impl StoredSnapshot {
    fn into_value(self) -> Result<ShareLinkSnapshot, StoreError> {
        let hash = token_hash("token_hash", &self.token_hash)?;
        Ok(ShareLinkSnapshot { link: self.link.into_value()?, is_expired: self.is_expired, hash })
    }
}

fn token_hash(name: &'static str, bytes: &[u8]) -> Result<TokenHash, StoreError> {
    require_decoded(name, bytes.try_into().ok()).map(TokenHash::from_hash_bytes)
}

#[async_trait]
impl ShareLinkStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError> {
        let (tenant, workload, id) = (scope.tenant().uuid(), workload.uuid(), id.uuid());
        let find = || {
            share_link::table
                .find((tenant, id))
                .filter(share_link::workload_id.eq(workload))
                .select(StoredSnapshot::as_select())
        };
        self.first("share link", find).await?.map(StoredSnapshot::into_value).transpose()
    }

    async fn find_by_token(
        &self,
        scope: TenantScope,
        hash: &TokenHash,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError> {
        let (tenant, hash) = (scope.tenant().uuid(), hash.bytes().to_vec());
        let find = || {
            share_link::table
                .filter(share_link::tenant_id.eq(tenant).and(share_link::token_hash.eq(hash.clone())))
                .select(StoredSnapshot::as_select())
        };
        self.first("share link by token", find).await?.map(StoredSnapshot::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<ShareLink>, StoreError> {
        let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
        let all = || {
            let of_workload = share_link::tenant_id.eq(tenant).and(share_link::workload_id.eq(workload));
            share_link::table.filter(of_workload).into_boxed::<'static, Pg>()
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredShareLink::as_select())
                .order(share_link::share_link_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(share_link::share_link_id.lt(id)),
            }
        };
        self.typed_page("list of share links", page, || all().select(share_link::share_link_id), rows).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewShareLink>,
        hash: &TokenHash,
        key: Option<&KeyedOutcome>,
    ) -> Result<Timestamp, CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &[
                LOCK_WORKLOAD,
                ", inserted_share_link AS (
                    INSERT INTO share_link (tenant_id, share_link_id, workload_id, token_hash, label, lane, max_uses,
                        expires_at, created_at, created_by)
                    SELECT tenant_id, share_link_id, workload_id, token_hash, label, lane, max_uses,
                        fairway_now() + make_interval(hours => ttl_hours), created_at, created_by
                    FROM input, locked_workload
                    RETURNING expires_at
                 )",
            ],
            "(SELECT count(*) = 1 FROM inserted_share_link)",
            "(SELECT expires_at FROM inserted_share_link) AS expires_at",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let bounded = |name, number| require_decoded(name, i32::try_from(number).ok());
        let input = Input::new(scope)
            .with("share_link_id", next.share_link_id.uuid())
            .with("workload_id", next.workload_id.uuid())
            .with("token_hash", hash.bytes().as_slice())
            .with("label", next.terms.label.as_deref())
            .with("lane", next.terms.lane.map(Lane::as_str))
            .with("max_uses", bounded("max_uses", next.terms.max_uses)?)
            .with("ttl_hours", bounded("ttl_hours", next.terms.ttl_hours)?)
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string());
        let rows = self.commit_guarded(&CREATE, scope, &fact, key, input).await?;
        Ok(require_decoded("expires_at", rows.first())?.timestamp("expires_at")?)
    }

    async fn commit_revocation(&self, scope: TenantScope, link: &ShareLink, fact: Fact) -> Result<(), CommitError> {
        static REVOKE: GuardedCommit = GuardedCommit::new(
            "revoked AS (
                UPDATE share_link SET revoked_at = fairway_now(), revoked_by = actor
                FROM input
                WHERE share_link.tenant_id = input.tenant_id AND share_link.share_link_id = input.share_link_id
                    AND revoked_at IS NULL
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM revoked)",
        );
        let input =
            Input::new(scope).with("share_link_id", link.share_link_id.uuid()).with("actor", fact.actor.to_string());
        self.commit_guarded(&REVOKE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn is_run_revoked(&self, scope: TenantScope, run: ExecutionId) -> Result<bool, StoreError> {
        let key = (scope.tenant().uuid(), run.uuid());
        let find = || {
            let of_run = share_link::tenant_id
                .eq(execution::tenant_id)
                .and(share_link::share_link_id.nullable().eq(execution::share_link_id));
            execution::table
                .inner_join(share_link::table.on(of_run))
                .filter(execution::tenant_id.eq(key.0).and(execution::execution_id.eq(key.1)))
                .select(share_link::revoked_at.is_not_null())
        };
        Ok(self.first("share link of a run", find).await?.unwrap_or(false))
    }

    async fn result_token(&self, scope: TenantScope, run: ExecutionId) -> Result<Option<TokenHash>, StoreError> {
        let key = (scope.tenant().uuid(), run.uuid());
        let find = || execution::table.find(key).select(execution::result_token);
        let found: Option<Option<Vec<u8>>> = self.first("result token of a run", find).await?;
        found.flatten().map(|hash| token_hash("result_token", &hash)).transpose()
    }
}
