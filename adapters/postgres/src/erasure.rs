//! Erasures of the texts of one actor. Functions of the database carry out their batches (`migrations/0023_erasures`).

use crate::{
    database::Database,
    guarded::{Guarded, Input, Query},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{Row, decode},
    store_error,
};
use async_trait::async_trait;
use fairway_domain::{
    access::ActorRef,
    erasure::{BatchOutcome, ErasureCounts, ErasureRecord, ErasureStatus, ErasureStore, SubjectErasure},
    id::ErasureId,
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};

/// Maximum number of runs that one batch scans, so that its transaction is short. Documents are scanned one by one.
const MAX_BATCH: i32 = 500;
/// Maximum number of erasures of one pass.
const MAX_ERASURES: i64 = 20;

const COLUMNS: &str = "erasure_id, subject, status, requested_by, requested_at, decided_by, decided_at, covers_before, \
    completed_at, runs, turns, documents, revision";

fn erasure(row: &Row) -> Result<SubjectErasure, StoreError> {
    let decided_by: Option<&str> = row.column("decided_by")?;
    let count = |name: &'static str| decode(name, u64::try_from(row.column::<i64>(name)?).ok());
    Ok(SubjectErasure::restore(ErasureRecord {
        erasure_id: row.id("erasure_id")?,
        subject: row.actor("subject")?,
        status: row.parsed("status", ErasureStatus::parse)?,
        requested_by: row.actor("requested_by")?,
        requested_at: row.timestamp("requested_at")?,
        decided_by: decided_by.map(|actor| decode("decided_by", ActorRef::parse(actor).ok())).transpose()?,
        decided_at: row.optional_timestamp("decided_at")?,
        covers_before: row.column("covers_before")?,
        completed_at: row.optional_timestamp("completed_at")?,
        counts: ErasureCounts { runs: count("runs")?, turns: count("turns")?, documents: count("documents")? },
        revision: row.revision("revision")?,
    }))
}

static REQUEST: Guarded = Guarded::new(
    "made AS (
        INSERT INTO subject_erasure (tenant_id, erasure_id, subject, status, requested_by, requested_at, revision)
        SELECT tenant_id, erasure_id, erased_actor, erasure_status, requested_by, requested_at, erasure_revision
        FROM input
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM made)",
);

static DECIDE: Guarded = Guarded::new(
    "decided AS (
        UPDATE subject_erasure AS erasure SET status = erasure_status, decided_by = input.decided_by,
            decided_at = input.decided_at, covers_before = input.covers_before, revision = erasure_revision,
            settles_at = CASE WHEN input.covers_before IS NOT NULL
                THEN fairway_now() + make_interval(secs => settling_seconds) END
        FROM input
        WHERE erasure.tenant_id = input.tenant_id AND erasure.erasure_id = input.erasure_id
            AND erasure.revision = decided_on AND erasure.status = 'requested'
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM decided)",
);

static COMPLETE: Guarded = Guarded::new(
    "completed AS (
        UPDATE subject_erasure AS erasure SET status = erasure_status, completed_at = input.completed_at,
            revision = erasure_revision
        FROM input
        WHERE erasure.tenant_id = input.tenant_id AND erasure.erasure_id = input.erasure_id
            AND erasure.revision = decided_on AND erasure.status = 'approved'
        RETURNING 1
     )",
    "(SELECT count(*) = 1 FROM completed)",
);

#[async_trait]
impl ErasureStore for Database {
    async fn find(&self, scope: TenantScope, id: ErasureId) -> Result<Option<SubjectErasure>, StoreError> {
        static FIND: Query =
            Query::of_parts(&["SELECT ", COLUMNS, " FROM input JOIN subject_erasure USING (tenant_id, erasure_id)"]);
        let input = Input::new(scope).with("erasure_id", id.uuid());
        self.fetch_one(&FIND, input).await?.as_ref().map(erasure).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        status: Option<ErasureStatus>,
        page: PageRequest,
    ) -> Result<Page<SubjectErasure>, StoreError> {
        let mut values = Values::of_tenant(scope);
        let mut conditions = vec![format!("tenant_id = {}", values.tenant())];
        if let Some(status) = status {
            conditions.push(format!("status = {}", values.bind(status.as_str())));
        }
        let key = SortKey::Id("erasure_id", "erasure_id");
        let listing = ListQuery::single(COLUMNS, key, "FROM subject_erasure", RowBytes::Small, conditions, values);
        self.fetch_page(listing, page, erasure).await
    }

    async fn commit_request(
        &self,
        scope: TenantScope,
        change: Change<SubjectErasure>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
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
        let decided_on = change.replaced_revision()?;
        let ChangeRecord { next, decided_on: _, fact } = change;
        let input = Input::new(scope)
            .with("erasure_id", next.erasure_id.uuid())
            .with("erasure_status", next.status.as_str())
            .with("decided_by", next.decided_by.as_ref().map(ToString::to_string))
            .with("decided_at", next.decided_at.map(Timestamp::to_datetime))
            .with("covers_before", next.covers_before)
            .with("settling_seconds", SubjectErasure::SETTLING.as_secs_f64())
            .with("decided_on", decided_on.get())
            .with("erasure_revision", next.revision.get());
        self.commit_guarded(&DECIDE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_completion(&self, scope: TenantScope, change: Change<SubjectErasure>) -> Result<(), CommitError> {
        let change = change.into_record();
        let decided_on = change.replaced_revision()?;
        let ChangeRecord { next, decided_on: _, fact } = change;
        let input = Input::new(scope)
            .with("erasure_id", next.erasure_id.uuid())
            .with("erasure_status", next.status.as_str())
            .with("completed_at", next.completed_at.map(Timestamp::to_datetime))
            .with("decided_on", decided_on.get())
            .with("erasure_revision", next.revision.get());
        self.commit_guarded(&COMPLETE, scope, &fact, None, input).await.map(|_| ())
    }

    async fn list_approved(&self) -> Result<Vec<(TenantScope, ErasureId)>, StoreError> {
        // One for each tenant, so that many of one tenant delay no other. Those that wait for a run come last, and each
        // pass draws others, so that many of them delay none.
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

    async fn erase_batch(&self, scope: TenantScope, id: ErasureId) -> Result<BatchOutcome, StoreError> {
        static ERASE_BATCH: Query =
            Query::new("SELECT fairway_erase_batch(tenant_id, erasure_id, max_rows) AS result FROM input");
        let input = Input::new(scope).with("erasure_id", id.uuid()).with("max_rows", MAX_BATCH);
        // On a connection for slow statements. After an unknown outcome, the caller's next batch is the right one,
        // because the function stores how far it came.
        match self.commit_ingest(scope, ERASE_BATCH.text(&input)?, &input.params()).await {
            Ok(rows) => decode("result", rows.first())?.parsed("result", BatchOutcome::parse),
            Err(CommitError::Store(error)) => Err(error),
            Err(other) => Err(store_error::broken(Box::new(other))),
        }
    }
}
