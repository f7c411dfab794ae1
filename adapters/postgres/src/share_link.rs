//! Share links. Each statement checks expiry by the database's clock.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    audit::Fact,
    id::{ExecutionId, ShareLinkId, WorkloadId},
    idempotency::KeyedOutcome,
    release::lane::Lane,
    share_link::{NewShareLink, ShareLink, ShareLinkRecord, ShareLinkSnapshot, ShareLinkStore, TokenHash},
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use tokio_postgres::Row;

const COLUMNS: &str = "share_link_id, workload_id, label, lane, max_uses, use_count, expires_at, \
    revoked_at IS NOT NULL AS revoked, created_at, created_by";
/// Additional columns of single reads.
const SNAPSHOT_COLUMNS: &str = "expires_at <= fairway_now() AS expired, token_hash";

fn link(row: &Row) -> Result<ShareLink, StoreError> {
    let lane = row.column::<Option<&str>>("lane")?;
    let count = |name: &'static str| decode(name, u32::try_from(row.column::<i32>(name)?).ok());
    Ok(ShareLink::restore(ShareLinkRecord {
        share_link_id: row.id("share_link_id")?,
        workload_id: row.id("workload_id")?,
        label: row.column("label")?,
        lane: lane.map(|lane| decode("lane", Lane::parse(lane))).transpose()?,
        max_uses: count("max_uses")?,
        use_count: count("use_count")?,
        expires_at: row.timestamp("expires_at")?,
        is_revoked: row.column("revoked")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
    }))
}

fn snapshot(row: &Row) -> Result<ShareLinkSnapshot, StoreError> {
    Ok(ShareLinkSnapshot { link: link(row)?, is_expired: row.column("expired")?, hash: hash(row, "token_hash")? })
}

fn hash(row: &Row, name: &'static str) -> Result<TokenHash, StoreError> {
    let bytes: &[u8] = row.column(name)?;
    decode(name, bytes.try_into().ok()).map(TokenHash::new)
}

#[async_trait]
impl ShareLinkStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        id: ShareLinkId,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, {SNAPSHOT_COLUMNS} FROM share_link
             WHERE tenant_id = $1 AND share_link_id = $2 AND workload_id = $3"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &id.uuid(), &workload.uuid()]).await?;
        row.as_ref().map(snapshot).transpose()
    }

    async fn find_by_token(
        &self,
        scope: TenantScope,
        hash: &TokenHash,
    ) -> Result<Option<ShareLinkSnapshot>, StoreError> {
        let sql =
            format!("SELECT {COLUMNS}, {SNAPSHOT_COLUMNS} FROM share_link WHERE tenant_id = $1 AND token_hash = $2");
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &hash.bytes().as_slice()]).await?;
        row.as_ref().map(snapshot).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<ShareLink>, StoreError> {
        let mut values = Values::default();
        let conditions = vec![
            format!("tenant_id = {}", values.bind(scope.tenant().uuid())),
            format!("workload_id = {}", values.bind(workload.uuid())),
        ];
        let key = SortKey::Id("share_link_id", "share_link_id");
        self.fetch_page(
            ListQuery::single(COLUMNS, key, "FROM share_link", RowBytes::Small, conditions, values),
            page,
            link,
        )
        .await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<NewShareLink>,
        hash: &TokenHash,
        key: Option<&KeyedOutcome>,
    ) -> Result<Timestamp, CommitError> {
        const SQL: &str = concat!(
            "WITH accepting AS (
                SELECT FROM workload WHERE tenant_id = $1 AND workload_id = $14 AND status <> 'retired'
                FOR SHARE
             ),
             made AS (
                INSERT INTO share_link (tenant_id, share_link_id, workload_id, token_hash, label, lane, max_uses,
                    expires_at, created_at, created_by)
                SELECT $1, $13, $14, $15, $16, $17, $18, fairway_now() + make_interval(hours => $19), $20, $21
                FROM accepting
                RETURNING expires_at
             )
             SELECT (SELECT expires_at FROM made) AS expires_at, fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (id, workload, hash) = (next.share_link_id.uuid(), next.workload_id.uuid(), hash.bytes().as_slice());
        let (label, lane) = (&next.terms.label, next.terms.lane.map(Lane::as_str));
        let bounded = |name, number| decode(name, i32::try_from(number).ok());
        let uses = bounded("max_uses", next.terms.max_uses)?;
        let hours = bounded("ttl_hours", next.terms.ttl_hours)?;
        let (at, by) = (next.created_at.to_datetime(), next.created_by.to_string());
        let own = tail.with(&[&id, &workload, &hash, label, &lane, &uses, &hours, &at, &by]);
        let rows = self.commit(SQL, &own).await?;
        Ok(decode("expires_at", rows.first())?.timestamp("expires_at")?)
    }

    async fn commit_revocation(&self, scope: TenantScope, seen: &ShareLink, fact: Fact) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH revoked AS (
                UPDATE share_link SET revoked_at = fairway_now(), revoked_by = $14
                WHERE tenant_id = $1 AND share_link_id = $13 AND revoked_at IS NULL
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM revoked), ",
            commit_tail!(),
            ")"
        );
        let tail = CommitParams::new(scope, &fact, None);
        let (id, by) = (seen.share_link_id.uuid(), fact.actor.to_string());
        self.commit(SQL, &tail.with(&[&id, &by])).await.map(|_| ())
    }

    async fn is_run_revoked(&self, scope: TenantScope, run: ExecutionId) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT revoked_at IS NOT NULL AS revoked FROM execution
            JOIN share_link USING (tenant_id, share_link_id) WHERE tenant_id = $1 AND execution_id = $2";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &run.uuid()]).await?;
        row.map_or(Ok(false), |row| row.column("revoked"))
    }

    async fn result_token(&self, scope: TenantScope, run: ExecutionId) -> Result<Option<TokenHash>, StoreError> {
        const SQL: &str = "SELECT result_token FROM execution
            WHERE tenant_id = $1 AND execution_id = $2 AND result_token IS NOT NULL";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &run.uuid()]).await?;
        row.as_ref().map(|row| hash(row, "result_token")).transpose()
    }
}
