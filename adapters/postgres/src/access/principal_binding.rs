//! Principal bindings.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    access::{
        ActorRef,
        principal_binding::{PrincipalBinding, PrincipalBindingRecord, PrincipalBindingStore},
    },
    audit::Fact,
    id::WorkloadId,
    idempotency::KeyedOutcome,
    release::lane::Lane,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;

const COLUMNS: &str = "principal_binding_id, workload_id, principal, lane, created_at, created_by, updated_at, \
    updated_by, revision";

fn binding(row: &Row) -> Result<PrincipalBinding, StoreError> {
    let lane = row.column::<Option<&str>>("lane")?;
    Ok(PrincipalBinding::restore(PrincipalBindingRecord {
        principal_binding_id: row.id("principal_binding_id")?,
        workload_id: row.id("workload_id")?,
        principal: row.actor("principal")?,
        lane: lane.map(|lane| decode("lane", Lane::parse(lane))).transpose()?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
        updated_at: row.timestamp("updated_at")?,
        updated_by: row.actor("updated_by")?,
        revision: row.revision("revision")?,
    }))
}

/// Raises the access revision, which validates caches, if the CTE `locked` wrote a row.
macro_rules! raise_access_revision {
    () => {
        "raised AS (
            UPDATE tenant SET access_revision = access_revision + 1 FROM held WHERE tenant_id = $1
         )
         SELECT fairway_commit((SELECT count(*) = 1 FROM held), "
    };
}

#[async_trait]
impl PrincipalBindingStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<Option<PrincipalBinding>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM principal_binding WHERE tenant_id = $1 AND workload_id = $2 AND principal = $3"
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &workload.uuid(), &principal.to_string()]).await?;
        row.as_ref().map(binding).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<PrincipalBinding>, StoreError> {
        let mut values = Values::default();
        let conditions = vec![
            format!("tenant_id = {}", values.bind(scope.tenant().uuid())),
            format!("workload_id = {}", values.bind(workload.uuid())),
        ];
        let key = SortKey::Id("principal_binding_id", "principal_binding_id");
        self.fetch_page(
            ListQuery::single(COLUMNS, key, "FROM principal_binding", RowBytes::Small, conditions, values),
            page,
            binding,
        )
        .await
    }

    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<PrincipalBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const FIRST: &str = concat!(
            "WITH held AS (
                INSERT INTO principal_binding (tenant_id, workload_id, principal, lane, updated_at, updated_by, revision,
                    principal_binding_id, created_at, created_by)
                VALUES ($1, $13, $14, $15, $16, $17, $18, $19, $16, $17)
                ON CONFLICT (tenant_id, workload_id, principal) DO NOTHING
                RETURNING 1
             ),",
            raise_access_revision!(),
            commit_tail!(),
            ")"
        );
        const NEXT: &str = concat!(
            "WITH held AS (
                UPDATE principal_binding SET lane = $15, updated_at = $16, updated_by = $17, revision = $18
                WHERE tenant_id = $1 AND workload_id = $13 AND principal = $14 AND principal_binding_id = $19
                    AND revision = $20
                RETURNING 1
             ),",
            raise_access_revision!(),
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (workload, principal) = (next.workload_id.uuid(), next.principal.to_string());
        let (lane, revision) = (next.lane.map(Lane::as_str), next.revision.get());
        let (at, by, id) =
            (next.updated_at.to_datetime(), next.updated_by.to_string(), next.principal_binding_id.uuid());
        let mut own = tail.with(&[&workload, &principal, &lane, &at, &by, &revision, &id]);
        match decided_on.map(Revision::get) {
            None => self.commit(FIRST, &own).await,
            Some(seen) => {
                own.push(&seen);
                self.commit(NEXT, &own).await
            }
        }
        .map(|_| ())
    }

    async fn commit_removal(&self, scope: TenantScope, seen: &PrincipalBinding, fact: Fact) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH held AS (
                DELETE FROM principal_binding
                WHERE tenant_id = $1 AND workload_id = $13 AND principal = $14 AND principal_binding_id = $15
                    AND revision = $16
                RETURNING 1
             ),",
            raise_access_revision!(),
            commit_tail!(),
            ")"
        );
        let tail = CommitParams::new(scope, &fact, None);
        let (workload, principal) = (seen.workload_id.uuid(), seen.principal.to_string());
        let (id, revision) = (seen.principal_binding_id.uuid(), seen.revision.get());
        self.commit(SQL, &tail.with(&[&workload, &principal, &id, &revision])).await.map(|_| ())
    }
}
