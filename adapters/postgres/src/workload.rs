//! The store of workloads, and their lists and search.

use crate::{
    database::{Database, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    pagination::{ListQuery, PageByteLimit, SortKey, UnionArm, visible_arms},
    row::{Row, require_decoded},
    schema,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, QueryDsl as _, Queryable, Selectable,
    SelectableHelper as _,
    dsl::{AsSelect, auto_type},
    pg::Pg,
};
use fairway_domain::{
    access::{ActorRef, OwnerRef, rights::VisibleScopes},
    id::WorkloadId,
    idempotency::KeyedOutcome,
    search_words::WordSet,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    workload::{
        BuiltinManagementSource, IntendedUse, MAX_DESCRIPTION, Workload, WorkloadRecord, WorkloadStatus,
        interface::{InterfaceConfig, MAX_INTERFACE_BYTES},
        ports::{RuntimeInterfaceFilter, WorkloadFilter, WorkloadStore},
    },
};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) const WORKLOAD_COLUMNS: &str = "workload.workload_id, workload.slug, workload.name, workload.description, \
    workload.owner_ref, workload.status, workload.invocation_mode, workload.interface_config, workload.management_source, \
    workload.workspace_id, workspace.namespace_id, \
    workload.revision, workload.created_at, workload.created_by, workload.updated_at";

/// Decodes a workload of a list.
pub(crate) fn decode_workload(row: &Row) -> Result<Workload, StoreError> {
    let stored = StoredWorkload {
        workload_id: row.column("workload_id")?,
        slug: row.column("slug")?,
        name: row.column("name")?,
        description: row.column("description")?,
        owner_ref: row.column("owner_ref")?,
        status: row.column("status")?,
        invocation_mode: row.column("invocation_mode")?,
        interface_config: row.column("interface_config")?,
        management_source: row.column("management_source")?,
        workspace_id: row.column("workspace_id")?,
        revision: row.column("revision")?,
        created_at: row.column("created_at")?,
        created_by: row.column("created_by")?,
        updated_at: row.column("updated_at")?,
        namespace_id: row.column("namespace_id")?,
    };
    stored.into_value()
}

/// A description has at most 2,000 characters of up to four bytes, and an interface at most 64 KiB as JSON. An
/// interface that was stored before this limit existed may be larger.
const ROW_BYTES: PageByteLimit = PageByteLimit::Measured {
    sql: "(octet_length(description) + coalesce(octet_length(interface_config::text), 0))",
    largest: MAX_DESCRIPTION * 4 + MAX_INTERFACE_BYTES,
};

/// The words as lexemes (search terms) with the tenant as their prefix.
fn lexemes(scope: TenantScope, words: &WordSet) -> Vec<String> {
    words.iter().map(|word| format!("{}/{word}", scope.tenant())).collect()
}

/// A `tsquery` that requires a prefix match for each word. Words consist of letters and digits, so they cannot
/// contain a quote.
fn prefix_query(scope: TenantScope, words: &WordSet) -> String {
    let parts: Vec<String> = lexemes(scope, words).iter().map(|lexeme| format!("'{lexeme}':*")).collect();
    parts.join(" & ")
}

/// The list of workloads that match the conditions and that the caller may see.
fn list_query(
    conditions: Vec<String>,
    visible_scopes: Option<&VisibleScopes>,
    mut values: Input<'static>,
) -> ListQuery {
    const FROM: &str = "FROM workload JOIN workspace USING (tenant_id, workspace_id)";
    let (with, arms) = match visible_scopes {
        None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
        Some(visible_scopes) => {
            let (workspace, workload) = ("workload.workspace_id", "workload.workload_id");
            visible_arms(visible_scopes, FROM, workspace, workload, &conditions, &mut values)
        }
    };
    let key = SortKey::Id("workload.workload_id", "workload_id");
    ListQuery {
        with,
        columns: WORKLOAD_COLUMNS,
        key,
        post_join: None,
        byte_limit: ROW_BYTES,
        arms,
        values,
        is_append_only: false,
        stored_count: None,
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = schema::workload, check_for_backend(Pg))]
struct StoredWorkload {
    workload_id: Uuid,
    slug: String,
    name: String,
    description: String,
    owner_ref: String,
    status: String,
    invocation_mode: String,
    interface_config: Option<Value>,
    management_source: Option<String>,
    workspace_id: Uuid,
    revision: i64,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
    #[diesel(select_expression = schema::workspace::namespace_id)]
    namespace_id: Uuid,
}

impl StoredRow for StoredWorkload {
    type Value = Workload;

    fn id(&self) -> Uuid {
        self.workload_id
    }

    fn into_value(self) -> Result<Workload, StoreError> {
        let interface = self.interface_config.map(|document| {
            require_decoded("interface_config", serde_json::from_value::<InterfaceConfig>(document).ok())
        });
        let source = self
            .management_source
            .map(|source| require_decoded("management_source", BuiltinManagementSource::parse(&source)));
        Ok(Workload::restore(WorkloadRecord {
            workload_id: self.workload_id.into(),
            slug: require_decoded("slug", Slug::parse(&self.slug).ok())?,
            name: self.name,
            description: self.description,
            owner_ref: require_decoded("owner_ref", OwnerRef::parse(&self.owner_ref).ok())?,
            status: require_decoded("status", WorkloadStatus::parse(&self.status))?,
            invocation_mode: require_decoded("invocation_mode", IntendedUse::parse(&self.invocation_mode))?,
            interface_config: interface.transpose()?,
            management_source: source.transpose()?,
            workspace_id: self.workspace_id.into(),
            namespace_id: self.namespace_id.into(),
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

/// A query for the workloads of a tenant.
#[auto_type(no_type_alias)]
fn stored_workloads(tenant: Uuid) -> _ {
    let selection: AsSelect<StoredWorkload, Pg> = StoredWorkload::as_select();
    let of_workspace = schema::workspace::tenant_id
        .eq(schema::workload::tenant_id)
        .and(schema::workspace::workspace_id.eq(schema::workload::workspace_id));
    schema::workload::table
        .inner_join(schema::workspace::table.on(of_workspace))
        .filter(schema::workload::tenant_id.eq(tenant))
        .select(selection)
}

#[async_trait]
impl WorkloadStore for Database {
    async fn find_by_slug(&self, scope: TenantScope, slug: &Slug) -> Result<Option<Workload>, StoreError> {
        let tenant = scope.tenant().uuid();
        let found = self
            .first("workload by slug", || stored_workloads(tenant).filter(schema::workload::slug.eq(slug.to_string())))
            .await?;
        found.map(StoredWorkload::into_value).transpose()
    }

    async fn serving_environments(&self, scope: TenantScope, workload: WorkloadId) -> Result<Vec<Slug>, StoreError> {
        use schema::deployment;
        let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
        let find = || {
            let has_release = deployment::restricted_release_id
                .is_not_null()
                .or(deployment::guided_release_id.is_not_null())
                .or(deployment::standard_release_id.is_not_null());
            deployment::table
                .filter(deployment::tenant_id.eq(tenant).and(deployment::workload_id.eq(workload)).and(has_release))
                .order(deployment::environment)
                .select(deployment::environment)
        };
        let names: Vec<String> = self.load("environments of a workload", find).await?;
        names.iter().map(|name| require_decoded("environment", Slug::parse(name).ok())).collect()
    }

    async fn list_runtime(
        &self,
        scope: TenantScope,
        filter: &RuntimeInterfaceFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError> {
        let mut values = Input::of_params(scope);
        let mut conditions = vec![
            "workload.tenant_id = {tenant_id}".to_owned(),
            "interface_config IS NOT NULL AND status = 'registered'".to_owned(),
        ];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workload.workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(mode) = filter.presentation_mode {
            conditions.push(format!(
                "interface_config ->> 'presentation_mode' = {}",
                values.bind("presentation_mode", mode.as_str())
            ));
        }
        if let Some(owner) = &filter.owner {
            conditions.push(format!("owner_ref = {}", values.bind("owner_ref", owner.as_str().to_owned())));
        }
        if let Some(words) = &filter.words {
            conditions.push(format!("search @@ {}::tsquery", values.bind("words", prefix_query(scope, words))));
        }
        self.fetch_page(list_query(conditions, filter.visible_scopes.as_ref(), values), page, decode_workload).await
    }

    async fn find(&self, scope: TenantScope, id: WorkloadId) -> Result<Option<Workload>, StoreError> {
        let tenant = scope.tenant().uuid();
        let found = self
            .first("workload", || stored_workloads(tenant).filter(schema::workload::workload_id.eq(id.uuid())))
            .await?;
        found.map(StoredWorkload::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &WorkloadFilter,
        page: PageRequest,
    ) -> Result<Page<Workload>, StoreError> {
        let mut values = Input::of_params(scope);
        let mut conditions = vec![
            "workload.tenant_id = {tenant_id}".to_owned(),
            // Built-in workloads are left out, because they belong to no workspace of a user.
            "workload.management_source IS DISTINCT FROM 'platform_builtin'".to_owned(),
        ];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workload.workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(status) = filter.status {
            conditions.push(format!("workload.status = {}", values.bind("status", status.as_str())));
        }
        self.fetch_page(list_query(conditions, filter.visible_scopes.as_ref(), values), page, decode_workload).await
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<Workload>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &["inserted_workload AS (", INSERT_WORKLOAD, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM inserted_workload)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = add_workload_columns(Input::new(scope), scope, Some(&next));
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_change(&self, scope: TenantScope, change: Change<Workload>) -> Result<(), CommitError> {
        static CHANGE: GuardedCommit = GuardedCommit::new(
            "updated_workload AS (
                UPDATE workload SET name = input.name, description = input.description, owner_ref = input.owner_ref,
                    status = input.status, invocation_mode = input.invocation_mode, revision = input.revision,
                    updated_at = input.updated_at, interface_config = input.interface_config,
                    search = array_to_tsvector(words)
                FROM input
                WHERE workload.tenant_id = input.tenant_id AND workload.workload_id = input.workload_id
                    AND workload.revision = expected_revision
                RETURNING 1
             ),
             stopped AS (
                UPDATE execution_review SET lapses_at = '-infinity' FROM updated_workload, input
                WHERE execution_review.tenant_id = input.tenant_id AND execution_review.workload_id = input.workload_id
                    AND input.status <> 'registered'
             )",
            "(SELECT count(*) = 1 FROM updated_workload)",
        );
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input = Input::new(scope)
            .with("expected_revision", expected_revision.get())
            .with("updated_at", next.updated_at.to_datetime());
        let input = add_workload_columns(input, scope, Some(&next));
        self.commit_guarded(&CHANGE, scope, &fact, None, input).await.map(|_| ())
    }
}

/// Adds the columns of a workload, except the time of its change. Without a workload, the columns are `NULL`.
pub(crate) fn add_workload_columns<'v>(
    input: Input<'v>,
    scope: TenantScope,
    workload: Option<&'v Workload>,
) -> Input<'v> {
    let management_source = workload.and_then(|workload| workload.management_source);
    let interface_config = workload.and_then(|workload| workload.interface_config.as_ref());
    let words = workload.map(|workload| lexemes(scope, &workload.search_words()));
    input
        .with("workload_id", workload.map(|workload| workload.workload_id.uuid()))
        .with("slug", workload.map(|workload| workload.slug.as_str()))
        .with("name", workload.map(|workload| workload.name.as_str()))
        .with("description", workload.map(|workload| workload.description.as_str()))
        .with("owner_ref", workload.map(|workload| workload.owner_ref.as_str()))
        .with("status", workload.map(|workload| workload.status.as_str()))
        .with("invocation_mode", workload.map(|workload| workload.invocation_mode.as_str()))
        .with("revision", workload.map(|workload| workload.revision.get()))
        .with("management_source", management_source.map(BuiltinManagementSource::as_str))
        .with("interface_config", interface_config.map(InterfaceConfig::to_document))
        .with_list("words", words.unwrap_or_default())
        .with("workspace_id", workload.map(|workload| workload.workspace_id.uuid()))
        .with("created_at", workload.map(|workload| workload.created_at.to_datetime()))
        .with("created_by", workload.map(|workload| workload.created_by.to_string()))
}

/// The `INSERT` of a new workload, for an input of [`add_workload_columns`].
pub(crate) const INSERT_WORKLOAD: &str = "
    INSERT INTO workload (tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode, revision,
        management_source, interface_config, search, workspace_id, created_at, created_by, updated_at)
    SELECT tenant_id, workload_id, slug, name, description, owner_ref, status, invocation_mode, revision,
        management_source, interface_config, array_to_tsvector(words), workspace_id, created_at, created_by, created_at
    FROM input";

/// The CTE that locks a workload until the commit, unless it is retired. A concurrent retirement waits for the lock.
pub(crate) const LOCK_WORKLOAD: &str = "
     locked_workload AS (
        SELECT FROM workload JOIN input USING (tenant_id, workload_id) WHERE status <> 'retired'
        FOR SHARE OF workload
     )";
