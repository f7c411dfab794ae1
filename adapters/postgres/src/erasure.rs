//! Erasures of an actor's texts. Database functions execute them in batches (`migrations/0023_erasures`).

use crate::{
    database::{Database, PageBounds, StoredRow},
    guarded_commit::{GuardedCommit, Input, Query},
    row::{Row, require_decoded},
    schema::subject_erasure,
    store_error,
};
use async_trait::async_trait;
use diesel::{ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _, pg::Pg};
use fairway_domain::{
    access::ActorRef,
    erasure::{ErasureBatchOutcome, ErasureCounts, ErasureRecord, ErasureStatus, ErasureStore, SubjectErasure},
    id::ErasureId,
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, Revision, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// Maximum number of runs that one batch scans, so that its transaction stays short. Documents are scanned one at a
/// time.
const MAX_BATCH: i32 = 500;
/// Maximum number of erasures that one pass of the background task advances.
const MAX_ERASURES: i64 = 20;

#[derive(Queryable, Selectable)]
#[diesel(table_name = subject_erasure, check_for_backend(Pg))]
struct StoredErasure {
    erasure_id: Uuid,
    subject: String,
    status: String,
    requested_by: String,
    requested_at: OffsetDateTime,
    decided_by: Option<String>,
    decided_at: Option<OffsetDateTime>,
    covers_before: Option<Uuid>,
    completed_at: Option<OffsetDateTime>,
    runs: i64,
    turns: i64,
    documents: i64,
    revision: i64,
}

impl StoredRow for StoredErasure {
    type Value = SubjectErasure;

    fn id(&self) -> Uuid {
        self.erasure_id
    }

    fn into_value(self) -> Result<SubjectErasure, StoreError> {
        let actor = |name, text: &str| require_decoded(name, ActorRef::parse(text).ok());
        let count = |name, number| require_decoded(name, u64::try_from(number).ok());
        Ok(SubjectErasure::restore(ErasureRecord {
            erasure_id: self.erasure_id.into(),
            subject: actor("subject", &self.subject)?,
            status: require_decoded("status", ErasureStatus::parse(&self.status))?,
            requested_by: actor("requested_by", &self.requested_by)?,
            requested_at: Timestamp::new(self.requested_at),
            decided_by: self.decided_by.map(|text| actor("decided_by", &text)).transpose()?,
            decided_at: self.decided_at.map(Timestamp::new),
            covers_before: self.covers_before,
            completed_at: self.completed_at.map(Timestamp::new),
            counts: ErasureCounts {
                runs: count("runs", self.runs)?,
                turns: count("turns", self.turns)?,
                documents: count("documents", self.documents)?,
            },
            revision: Revision::new(self.revision),
        }))
    }
}

static REQUEST: GuardedCommit = GuardedCommit::new(
    "inserted_subject_erasure AS (
        INSERT INTO subject_erasure (tenant_id, erasure_id, subject, status, requested_by, requested_at, revision)
        SELECT tenant_id, erasure_id, erased_actor, erasure_status, requested_by, requested_at, erasure_revision
        FROM input
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM inserted_subject_erasure)",
);

static DECIDE: GuardedCommit = GuardedCommit::new(
    "decided AS (
        UPDATE subject_erasure AS erasure SET status = erasure_status, decided_by = input.decided_by,
            decided_at = input.decided_at, covers_before = input.covers_before, revision = erasure_revision,
            settles_at = CASE WHEN input.covers_before IS NOT NULL
                THEN fairway_now() + make_interval(secs => settling_seconds) END
        FROM input
        WHERE erasure.tenant_id = input.tenant_id AND erasure.erasure_id = input.erasure_id
            AND erasure.revision = expected_revision AND erasure.status = 'requested'
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM decided)",
);

static COMPLETE: GuardedCommit = GuardedCommit::new(
    "completed AS (
        UPDATE subject_erasure AS erasure SET status = erasure_status, completed_at = input.completed_at,
            revision = erasure_revision
        FROM input
        WHERE erasure.tenant_id = input.tenant_id AND erasure.erasure_id = input.erasure_id
            AND erasure.revision = expected_revision AND erasure.status = 'approved'
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM completed)",
);

#[async_trait]
impl ErasureStore for Database {
    async fn find(&self, scope: TenantScope, id: ErasureId) -> Result<Option<SubjectErasure>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || subject_erasure::table.find(key).select(StoredErasure::as_select());
        self.first("erasure", find).await?.map(StoredErasure::into_value).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        status: Option<ErasureStatus>,
        page: PageRequest,
    ) -> Result<Page<SubjectErasure>, StoreError> {
        let tenant = scope.tenant().uuid();
        let all = || {
            let of_tenant =
                subject_erasure::table.filter(subject_erasure::tenant_id.eq(tenant)).into_boxed::<'static, Pg>();
            match status {
                None => of_tenant,
                Some(status) => of_tenant.filter(subject_erasure::status.eq(status.as_str())),
            }
        };
        let rows = |bounds: PageBounds| {
            let newest = all()
                .select(StoredErasure::as_select())
                .order(subject_erasure::erasure_id.desc())
                .limit(bounds.limit)
                .offset(bounds.offset);
            match bounds.after {
                None => newest,
                Some(id) => newest.filter(subject_erasure::erasure_id.lt(id)),
            }
        };
        self.typed_page("list of erasures", page, || all().select(subject_erasure::erasure_id), rows).await
    }

    async fn commit_request(
        &self,
        scope: TenantScope,
        change: Change<SubjectErasure>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = Input::new(scope)
            .with("erasure_id", next.erasure_id.uuid())
            .with("erased_actor", next.subject.to_string())
            .with("erasure_status", next.status.as_str())
            .with("requested_by", next.requested_by.to_string())
            .with("requested_at", next.requested_at.to_datetime())
            .with("erasure_revision", next.revision.get());
        self.commit_guarded(&REQUEST, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_decision(
        &self,
        scope: TenantScope,
        change: Change<SubjectErasure>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let change = change.into_record();
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, expected_revision: _, fact } = change;
        let input = Input::new(scope)
            .with("erasure_id", next.erasure_id.uuid())
            .with("erasure_status", next.status.as_str())
            .with("decided_by", next.decided_by.as_ref().map(ToString::to_string))
            .with("decided_at", next.decided_at.map(Timestamp::to_datetime))
            .with("covers_before", next.covers_before)
            .with("settling_seconds", SubjectErasure::SETTLING_PERIOD.as_secs_f64())
            .with("expected_revision", expected_revision.get())
            .with("erasure_revision", next.revision.get());
        self.commit_guarded(&DECIDE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_completion(&self, scope: TenantScope, change: Change<SubjectErasure>) -> Result<(), CommitError> {
        let change = change.into_record();
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, expected_revision: _, fact } = change;
        let input = Input::new(scope)
            .with("erasure_id", next.erasure_id.uuid())
            .with("erasure_status", next.status.as_str())
            .with("completed_at", next.completed_at.map(Timestamp::to_datetime))
            .with("expected_revision", expected_revision.get())
            .with("erasure_revision", next.revision.get());
        self.commit_guarded(&COMPLETE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn list_approved(&self) -> Result<Vec<(TenantScope, ErasureId)>, StoreError> {
        // Selects one erasure for each tenant, so that a tenant with many erasures does not delay others. Within a
        // tenant, erasures that wait for a run come last. The random order changes which ones are selected, so that
        // waiting erasures do not block the others.
        static APPROVED: Query = Query::new(
            "SELECT tenant_id, erasure_id FROM (
                SELECT DISTINCT ON (tenant_id) tenant_id, erasure_id FROM subject_erasure
                WHERE status = 'approved'
                ORDER BY tenant_id, waits_for IS NOT NULL AND run_cursor IS NULL, random()
            ) AS drawn
            ORDER BY random() LIMIT (SELECT max_erasures FROM input)",
        );
        let rows = self.fetch(&APPROVED, Input::one().with("max_erasures", MAX_ERASURES)).await?;
        let found = |row: &Row| Ok((TenantScope::for_background_task(row.id("tenant_id")?), row.id("erasure_id")?));
        rows.iter().map(found).collect()
    }

    async fn erase_batch(&self, scope: TenantScope, id: ErasureId) -> Result<ErasureBatchOutcome, StoreError> {
        static ERASE_BATCH: Query =
            Query::new("SELECT fairway_erase_batch(tenant_id, erasure_id, max_rows) AS result FROM input");
        let input = Input::new(scope).with("erasure_id", id.uuid()).with("max_rows", MAX_BATCH);
        // The statement runs on an ingest connection, because it may be slow. After an unknown outcome the caller
        // simply sends the next batch: the database function stores its own progress.
        match self.commit_ingest(scope, ERASE_BATCH.text(&input)?, &input.params()).await {
            Ok(rows) => require_decoded("result", rows.first())?.parse_column("result", ErasureBatchOutcome::parse),
            Err(CommitError::Store(error)) => Err(error),
            Err(other) => Err(store_error::inconsistent(Box::new(other))),
        }
    }
}
