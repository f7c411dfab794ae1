//! Use cases. A publication or a refinement is one statement.

mod publication;

use crate::{
    access_request::WITHDRAW_REQUESTS,
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    guarded_commit::{GuardedCommit, Input},
    row::require_decoded,
    schema::{use_case, use_case_refinement},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    dsl::sql, pg::Pg, sql_types::Bool,
};
use fairway_domain::{
    access::ActorRef,
    generator::MAX_DESCRIPTION,
    id::{ReleaseId, UseCaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
    use_case::{
        Publication, RefinedUseCase, UseCase, UseCaseAssets, UseCaseRecord, UseCaseStatus, UseCaseSummary,
        bundle::{BundlePlan, MAX_NAME_CHARS, MAX_SUMMARY_CHARS},
        ports::{RefinementKey, RefinementWithSameKey, UseCaseFilter, UseCaseStore, WorkloadOrigin},
    },
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

#[derive(Queryable, Selectable)]
#[diesel(table_name = use_case, check_for_backend(Pg))]
struct StoredUseCase {
    use_case_id: Uuid,
    workspace_id: Uuid,
    status: String,
    source_description: String,
    bundle: Value,
    pieces: Option<Value>,
    supersedes: Option<Uuid>,
    superseded_by: Option<Uuid>,
    workload_id: Option<Uuid>,
    release_id: Option<Uuid>,
    revision: i64,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
}

impl StoredUseCase {
    fn into_value(self) -> Result<UseCase, StoreError> {
        Ok(UseCase::restore(UseCaseRecord {
            use_case_id: self.use_case_id.into(),
            workspace_id: self.workspace_id.into(),
            status: require_decoded("status", UseCaseStatus::parse(&self.status))?,
            source_description: self.source_description,
            plan: require_decoded("bundle", BundlePlan::from_stored(&self.bundle))?,
            pieces: pieces(self.pieces)?,
            supersedes: self.supersedes.map(Into::into),
            superseded_by: self.superseded_by.map(Into::into),
            workload_id: self.workload_id.map(Into::into),
            release_id: self.release_id.map(Into::into),
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
            revision: Revision::new(self.revision),
        }))
    }
}

const MEASURED: RowSizeMeasure = RowSizeMeasure {
    key: "use_case_id",
    sql: "octet_length(name) + octet_length(summary) + octet_length(source_description)",
    largest: (MAX_NAME_CHARS + MAX_SUMMARY_CHARS + MAX_DESCRIPTION) * 4,
};

/// A use case as stored, for lists. It has no bundle plan, because plans have up to 256 KiB and lists do not show
/// them.
#[derive(Queryable, Selectable)]
#[diesel(table_name = use_case, check_for_backend(Pg))]
struct StoredSummary {
    use_case_id: Uuid,
    workspace_id: Uuid,
    name: String,
    summary: String,
    status: String,
    source_description: String,
    supersedes: Option<Uuid>,
    superseded_by: Option<Uuid>,
    workload_id: Option<Uuid>,
    release_id: Option<Uuid>,
    created_at: OffsetDateTime,
    created_by: String,
    updated_at: OffsetDateTime,
}

impl StoredRow for StoredSummary {
    type Value = UseCaseSummary;

    fn id(&self) -> Uuid {
        self.use_case_id
    }

    fn into_value(self) -> Result<UseCaseSummary, StoreError> {
        Ok(UseCaseSummary {
            use_case_id: self.use_case_id.into(),
            workspace_id: self.workspace_id.into(),
            name: self.name,
            summary: self.summary,
            status: require_decoded("status", UseCaseStatus::parse(&self.status))?,
            source_description: self.source_description,
            supersedes: self.supersedes.map(Into::into),
            superseded_by: self.superseded_by.map(Into::into),
            workload_id: self.workload_id.map(Into::into),
            release_id: self.release_id.map(Into::into),
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
            updated_at: Timestamp::new(self.updated_at),
        })
    }
}

/// The condition that a use case waits for access, and that all connections that it needs are active and not
/// expired.
const ACTIVATION_READY: &str = "status = 'pending_access' AND NOT EXISTS (
    SELECT FROM unnest(connections) AS required (name)
    WHERE NOT EXISTS (
        SELECT FROM connection
        WHERE connection.tenant_id = use_case.tenant_id AND connection.workspace_id = use_case.workspace_id
            AND connection.name = required.name AND connection.status = 'active'
            AND (connection.expires_at IS NULL OR connection.expires_at > fairway_now())
    ))";

fn pieces(value: Option<Value>) -> Result<Option<UseCaseAssets>, StoreError> {
    let Some(value) = value else { return Ok(None) };
    let id = |name: &str| {
        let text = value.get(name).and_then(Value::as_str);
        require_decoded("pieces", text.and_then(|text| Uuid::parse_str(text).ok())).map(Into::into)
    };
    Ok(Some(UseCaseAssets {
        flow: id("flow")?,
        prompt: id("prompt")?,
        model_policy: id("model_policy")?,
        policy_bundle: id("policy_bundle")?,
    }))
}

fn pieces_json(pieces: UseCaseAssets) -> Value {
    json!({
        "flow": pieces.flow,
        "prompt": pieces.prompt,
        "model_policy": pieces.model_policy,
        "policy_bundle": pieces.policy_bundle,
    })
}

fn add_use_case_columns<'v>(input: Input<'v>, use_case: &'v UseCase) -> Input<'v> {
    input
        .with("new_use_case_id", use_case.use_case_id.uuid())
        .with("workspace_id", use_case.workspace_id.uuid())
        .with("status", use_case.status.as_str())
        .with("name", use_case.plan.name())
        .with("summary", use_case.plan.summary())
        .with("source_description", use_case.source_description.as_str())
        .with("bundle", use_case.plan.to_document())
        .with_list("connections", use_case.plan.connections().iter().map(String::as_str).collect())
        .with("supersedes", use_case.supersedes.map(UseCaseId::uuid))
        .with("revision", use_case.revision.get())
        .with("created_at", use_case.created_at.to_datetime())
        .with("created_by", use_case.created_by.to_string())
}

const INSERT_USE_CASE: &str = "
    INSERT INTO use_case (tenant_id, use_case_id, workspace_id, status, name, summary, source_description, bundle,
        connections, supersedes, revision, created_at, created_by, updated_at)
    SELECT tenant_id, new_use_case_id, workspace_id, status, name, summary, source_description, bundle, connections,
        supersedes, revision, created_at, created_by, created_at
    FROM input";

/// Adds the columns that a change of a use case writes.
pub(crate) fn add_change_columns<'v>(
    input: Input<'v>,
    next: &UseCase,
    expected_revision: Option<Revision>,
) -> Input<'v> {
    input
        .with("use_case_id", next.use_case_id.uuid())
        .with("expected_revision", expected_revision.unwrap_or(next.revision).get())
        .with("next_status", next.status.as_str())
        .with("next_pieces", next.pieces.map(pieces_json))
        .with("next_superseded_by", next.superseded_by.map(UseCaseId::uuid))
        .with("next_workload_id", next.workload_id.map(WorkloadId::uuid))
        .with("next_release_id", next.release_id.map(ReleaseId::uuid))
        .with("next_revision", next.revision.get())
        .with("next_updated_at", next.updated_at.to_datetime())
}

/// The `UPDATE` of a changed use case, for an input of [`add_change_columns`]. Every change writes all columns that can
/// change.
pub(crate) const CHANGE_USE_CASE: &str = "
    UPDATE use_case SET status = next_status, pieces = next_pieces, superseded_by = next_superseded_by,
        workload_id = next_workload_id, release_id = next_release_id, revision = next_revision,
        updated_at = next_updated_at
    FROM input
    WHERE use_case.tenant_id = input.tenant_id AND use_case.use_case_id = input.use_case_id
        AND use_case.revision = expected_revision";

#[async_trait]
impl UseCaseStore for Database {
    async fn find(&self, scope: TenantScope, id: UseCaseId) -> Result<Option<UseCase>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || use_case::table.find(key).select(StoredUseCase::as_select());
        self.first("use case", find).await?.map(StoredUseCase::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: UseCaseFilter,
        page: PageRequest,
    ) -> Result<Page<UseCaseSummary>, StoreError> {
        let tenant = scope.tenant().uuid();
        let all = || {
            let of_workspace = use_case::tenant_id.eq(tenant).and(use_case::workspace_id.eq(filter.workspace.uuid()));
            let mut all = use_case::table.filter(of_workspace).into_boxed::<'static, Pg>();
            if let Some(status) = filter.status {
                all = all.filter(use_case::status.eq(status.as_str()));
            }
            if filter.is_activation_ready {
                all = all.filter(sql::<Bool>(ACTIVATION_READY));
            }
            all
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredSummary::as_select())
                .order(use_case::use_case_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(use_case::use_case_id.lt(id)),
            }
        };
        let ids = || all().select(use_case::use_case_id);
        self.typed_measured_page("list of use cases", MEASURED, page, ids, rows).await
    }

    async fn find_by_workload(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
    ) -> Result<Option<WorkloadOrigin>, StoreError> {
        let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
        let find = || {
            use_case::table
                .filter(use_case::tenant_id.eq(tenant).and(use_case::workload_id.eq(workload)))
                .select((use_case::use_case_id, use_case::status))
        };
        let found: Option<(Uuid, String)> = self.first("use case of a workload", find).await?;
        let origin = |(id, status): (Uuid, String)| {
            Ok(WorkloadOrigin {
                use_case_id: id.into(),
                status: require_decoded("status", UseCaseStatus::parse(&status))?,
            })
        };
        found.map(origin).transpose()
    }

    async fn find_refinement(
        &self,
        scope: TenantScope,
        workspace: WorkspaceId,
        key: &str,
    ) -> Result<Option<RefinementWithSameKey>, StoreError> {
        let key = (scope.tenant().uuid(), workspace.uuid(), key.to_owned());
        let find = || {
            use_case_refinement::table.find(key.clone()).select((
                use_case_refinement::predecessor_id,
                use_case_refinement::successor_id,
                use_case_refinement::body_digest,
            ))
        };
        let found: Option<(Uuid, Uuid, Vec<u8>)> = self.first("refinement of a use case", find).await?;
        let refinement = |(predecessor, successor, digest): (Uuid, Uuid, Vec<u8>)| {
            Ok(RefinementWithSameKey {
                predecessor_id: predecessor.into(),
                successor_id: successor.into(),
                body_digest: require_decoded("body_digest", digest.try_into().ok())?,
            })
        };
        found.map(refinement).transpose()
    }

    async fn commit_new(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &["inserted_use_case AS (", INSERT_USE_CASE, " RETURNING 1)"],
            "(SELECT count(*) = 1 FROM inserted_use_case)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = add_use_case_columns(Input::new(scope), &next);
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<UseCase>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static MOVE: GuardedCommit = GuardedCommit::of_parts(
            &[
                "updated_use_case AS (",
                CHANGE_USE_CASE,
                " RETURNING 1),
                 withdrawn_requests AS (",
                WITHDRAW_REQUESTS,
                ")",
            ],
            "(SELECT count(*) = 1 FROM updated_use_case)",
            "",
        );
        let ChangeRecord { next, expected_revision, fact } = change.into_record();
        let input = add_change_columns(Input::new(scope), &next, expected_revision)
            .with("decided_by", fact.actor.to_string())
            .with("decided_at", next.updated_at.to_datetime());
        self.commit_guarded(&MOVE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_publication(
        &self,
        scope: TenantScope,
        change: Change<Publication>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        publication::commit(self, scope, change, key).await
    }

    async fn commit_refinement(
        &self,
        scope: TenantScope,
        change: Change<RefinedUseCase>,
        key: &RefinementKey,
    ) -> Result<(), CommitError> {
        static REFINE: GuardedCommit = GuardedCommit::of_parts(
            &[
                "updated_use_case AS (",
                CHANGE_USE_CASE,
                " RETURNING 1),
                 inserted_refinement AS (
                    INSERT INTO use_case_refinement (tenant_id, workspace_id, refinement_key, predecessor_id, successor_id,
                        body_digest)
                    SELECT tenant_id, workspace_id, refinement_key, use_case_id, new_use_case_id, body_digest
                    FROM input, updated_use_case
                    RETURNING 1
                 ),
                 inserted_use_case AS (",
                INSERT_USE_CASE,
                ", inserted_refinement RETURNING 1)",
            ],
            "(SELECT count(*) = 1 FROM inserted_use_case)",
            "",
        );
        let ChangeRecord { next: RefinedUseCase { successor, predecessor }, expected_revision, fact } =
            change.into_record();
        let input =
            Input::new(scope).with("refinement_key", key.key.as_str()).with("body_digest", key.body_digest.as_slice());
        let input = add_use_case_columns(add_change_columns(input, &predecessor, expected_revision), &successor);
        self.commit_guarded(&REFINE, scope, &fact, None, input).await.map(|_| ())
    }
}
