//! The store of workspaces.

use crate::{
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::{namespace, workspace},
    workload::{INSERT_WORKLOAD, add_workload_columns},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, QueryDsl as _, Queryable, Selectable,
    SelectableHelper as _, pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    id::WorkspaceId,
    idempotency::KeyedOutcome,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::{TenantScope, Workspace, WorkspaceRecord, WorkspaceStore, WorkspaceWithAssistant},
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// A workspace as stored, including the slug of its namespace.
#[derive(Queryable, Selectable)]
#[diesel(table_name = workspace, check_for_backend(Pg))]
struct StoredWorkspace {
    workspace_id: Uuid,
    slug: String,
    name: String,
    namespace_id: Uuid,
    #[diesel(select_expression = namespace::slug)]
    namespace: String,
    created_at: OffsetDateTime,
    created_by: String,
}

impl StoredRow for StoredWorkspace {
    type Value = Workspace;

    fn id(&self) -> Uuid {
        self.workspace_id
    }

    fn into_value(self) -> Result<Workspace, StoreError> {
        Ok(Workspace::restore(WorkspaceRecord {
            workspace_id: self.workspace_id.into(),
            slug: require_decoded("slug", Slug::parse(&self.slug).ok())?,
            name: self.name,
            namespace_id: self.namespace_id.into(),
            namespace: require_decoded("namespace", Slug::parse(&self.namespace).ok())?,
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        }))
    }
}

/// A query for the workspaces of a tenant with their namespaces.
#[diesel::dsl::auto_type(no_type_alias)]
fn workspaces_with_namespace(tenant: Uuid) -> _ {
    let is_namespace =
        namespace::tenant_id.eq(workspace::tenant_id).and(namespace::namespace_id.eq(workspace::namespace_id));
    workspace::table.inner_join(namespace::table.on(is_namespace)).filter(workspace::tenant_id.eq(tenant))
}

#[async_trait]
impl WorkspaceStore for Database {
    async fn find(&self, scope: TenantScope, id: WorkspaceId) -> Result<Option<Workspace>, StoreError> {
        let (tenant, id) = (scope.tenant().uuid(), id.uuid());
        let find = || {
            workspaces_with_namespace(tenant)
                .filter(workspace::workspace_id.eq(id))
                .select(StoredWorkspace::as_select())
        };
        self.first("workspace", find).await?.map(StoredWorkspace::into_value).transpose()
    }

    async fn list(&self, scope: TenantScope, page: PageRequest) -> Result<Page<Workspace>, StoreError> {
        let tenant = scope.tenant().uuid();
        let rows = |bounds: PageBounds| {
            let newest = workspaces_with_namespace(tenant)
                .select(StoredWorkspace::as_select())
                .order(workspace::workspace_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset)
                .into_boxed::<'static, Pg>();
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(workspace::workspace_id.lt(id)),
            }
        };
        let ids = || workspace::table.filter(workspace::tenant_id.eq(tenant)).select(workspace::workspace_id);
        self.typed_page("list of workspaces", page, ids, rows).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<WorkspaceWithAssistant>,
        key: Option<&KeyedOutcome>,
    ) -> Result<Workspace, CommitError> {
        // An existing namespace keeps its identifier. The update changes nothing, but makes a concurrent creation
        // of the same namespace wait and then find the row.
        static CREATE_WORKSPACE: GuardedCommit = GuardedCommit::of_parts(
            &[
                "workspace_namespace AS (
                    INSERT INTO namespace (tenant_id, namespace_id, slug)
                    SELECT tenant_id, new_namespace_id, namespace_slug FROM input
                    ON CONFLICT (tenant_id, slug) DO UPDATE SET slug = excluded.slug
                    RETURNING namespace_id
                 ),
                 inserted_workspace AS (
                    INSERT INTO workspace (tenant_id, workspace_id, namespace_id, slug, name, created_at, created_by)
                    SELECT tenant_id, workspace_id, workspace_namespace.namespace_id, workspace_slug, workspace_name,
                        created_at, created_by
                    FROM input, workspace_namespace
                    RETURNING namespace_id
                 ),
                 assistant AS (",
                INSERT_WORKLOAD,
                ", inserted_workspace RETURNING 1)",
            ],
            "(SELECT count(*) = 1 FROM assistant)",
            "(SELECT namespace_id FROM inserted_workspace) AS namespace_id",
        );
        let ChangeRecord { next: WorkspaceWithAssistant { workspace, assistant }, expected_revision: _, fact } =
            change.into_record();
        let input = Input::new(scope)
            .with("new_namespace_id", workspace.namespace_id.uuid())
            .with("namespace_slug", workspace.namespace.as_str())
            .with("workspace_slug", workspace.slug.as_str())
            .with("workspace_name", workspace.name.as_str());
        let input = add_workload_columns(input, scope, Some(&assistant));
        let rows = self.commit_guarded(&CREATE_WORKSPACE, scope, &fact, key, input).await?;
        let namespace_id = require_decoded("namespace_id", rows.first())?.id("namespace_id")?;
        Ok(Workspace::restore(WorkspaceRecord { namespace_id, ..workspace.into_record() }))
    }
}
