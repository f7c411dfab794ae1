//! The store of principal bindings, which bind users, groups or services to workloads.

use crate::{
    access::INCREMENT_ACCESS_REVISIONS,
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    revisioned_row::{ROW_STORED, RevisionedRow},
    row::require_decoded,
    schema::principal_binding,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
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
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Queryable, Selectable)]
#[diesel(table_name = principal_binding, check_for_backend(Pg))]
struct StoredPrincipalBinding {
    principal_binding_id: Uuid,
    workload_id: Uuid,
    principal: String,
    lane: Option<String>,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
    updated_by: String,
    revision: i64,
}

impl StoredRow for StoredPrincipalBinding {
    type Value = PrincipalBinding;

    fn id(&self) -> Uuid {
        self.principal_binding_id
    }

    fn into_value(self) -> Result<PrincipalBinding, StoreError> {
        let lane = self.lane.map(|lane| require_decoded("lane", Lane::parse(&lane)));
        Ok(PrincipalBinding::restore(PrincipalBindingRecord {
            principal_binding_id: self.principal_binding_id.into(),
            workload_id: self.workload_id.into(),
            principal: require_decoded("principal", ActorRef::parse(&self.principal).ok())?,
            lane: lane.transpose()?,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
            updated_by: require_decoded("updated_by", ActorRef::parse(&self.updated_by).ok())?,
            revision: Revision::new(self.revision),
        }))
    }
}

#[async_trait]
impl PrincipalBindingStore for Database {
    async fn find(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        principal: &ActorRef,
    ) -> Result<Option<PrincipalBinding>, StoreError> {
        let (tenant, workload, principal) = (scope.tenant().uuid(), workload.uuid(), principal.to_string());
        let find = || {
            principal_binding::table
                .find((tenant, workload, principal.clone()))
                .select(StoredPrincipalBinding::as_select())
        };
        self.first("principal binding", find).await?.map(StoredPrincipalBinding::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        page: PageRequest,
    ) -> Result<Page<PrincipalBinding>, StoreError> {
        let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
        let all = || {
            let of_workload = principal_binding::tenant_id.eq(tenant).and(principal_binding::workload_id.eq(workload));
            principal_binding::table.filter(of_workload).into_boxed::<'static, Pg>()
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredPrincipalBinding::as_select())
                .order(principal_binding::principal_binding_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(principal_binding::principal_binding_id.lt(id)),
            }
        };
        let ids = || all().select(principal_binding::principal_binding_id);
        self.typed_page("list of principal bindings", page, ids, rows).await
    }

    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<PrincipalBinding>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The statement increments the tenant's access revision, which invalidates cached lanes.
        static STORE: GuardedCommit = GuardedCommit::from_fn(
            || {
                let row = RevisionedRow {
                    table: "principal_binding",
                    key: &["tenant_id", "workload_id", "principal"],
                    fixed: &["principal_binding_id", "created_at", "created_by"],
                    replaced: &["lane", "updated_at", "updated_by", "revision"],
                };
                let changed_tenant = "changed_tenant AS (SELECT tenant_id FROM stored)";
                format!("{}, {changed_tenant}, {INCREMENT_ACCESS_REVISIONS}", row.ctes())
            },
            ROW_STORED,
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = Input::new(scope)
            .with("workload_id", next.workload_id.uuid())
            .with("principal", next.principal.to_string())
            .with("lane", next.lane.map(Lane::as_str))
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string())
            .with("updated_at", next.updated_at.to_datetime())
            .with("updated_by", next.updated_by.to_string())
            .with("revision", next.revision.get())
            .with("principal_binding_id", next.principal_binding_id.uuid())
            .with("expected_revision", expected_revision.map(Revision::get));
        self.commit_guarded(&STORE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_removal(
        &self,
        scope: TenantScope,
        binding: &PrincipalBinding,
        fact: Fact,
    ) -> Result<(), CommitError> {
        static REMOVE: GuardedCommit = GuardedCommit::of_parts(
            &[
                "deleted AS (
                    DELETE FROM principal_binding AS bound USING input
                    WHERE bound.tenant_id = input.tenant_id AND bound.workload_id = input.workload_id
                        AND bound.principal = input.principal
                        AND bound.principal_binding_id = input.principal_binding_id
                        AND bound.revision = expected_revision
                    RETURNING bound.tenant_id
                 ),
                 changed_tenant AS (SELECT tenant_id FROM deleted),",
                INCREMENT_ACCESS_REVISIONS,
            ],
            "(SELECT count(*) = 1 FROM deleted)",
            "",
        );
        let input = Input::new(scope)
            .with("workload_id", binding.workload_id.uuid())
            .with("principal", binding.principal.to_string())
            .with("principal_binding_id", binding.principal_binding_id.uuid())
            .with("expected_revision", binding.revision.get());
        self.commit_guarded(&REMOVE, scope, &fact, None, input).await.map(|_| ())
    }
}
