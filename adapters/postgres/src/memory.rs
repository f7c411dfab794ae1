//! Conversation turns: reads, erasure and expiry. The statement that ends a run writes its turn
//! (`execution/finish/memory.rs`).

use crate::{
    clock_and_length_functions::database_now,
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    row::{Row, require_decoded},
    schema::memory_turn,
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, Queryable, Selectable, SelectableHelper as _,
    pg::Pg,
};
use fairway_domain::{
    memory::{
        ConversationErasure, ConversationKey, MAX_REPLAY_BYTES, MemoryScope, RecalledTurns, StoredTurn,
        ports::{MemoryStore, RecallQuery},
    },
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// The session identifier that stands for all sessions of an owner.
pub(crate) const ALL_SESSIONS: &str = "";

/// The identifier of the session row that serializes writes and erasures in this scope.
pub(crate) fn session_to_lock(scope: MemoryScope, conversation: &ConversationKey) -> &str {
    match scope {
        MemoryScope::Session => conversation.session.as_str(),
        MemoryScope::User => ALL_SESSIONS,
    }
}

/// Reads the latest turns within a run's byte limit. A separate row has the last erasure, also if there are no
/// turns. One arm of the union reads a single session, the other all sessions of an owner. Each arm has its
/// own index, which starts with the latest turn.
static RECALL: Query = Query::new(
    "WITH latest AS (
        SELECT execution_id, said, answered, digest, remembered_at, expires_at,
            sum(bytes) OVER (ORDER BY remembered_at DESC, execution_id DESC) AS bytes_so_far
        FROM (
            (SELECT * FROM memory_turn
            WHERE {session_id} <> '' AND tenant_id = {tenant_id} AND workload_id = {workload_id} AND owner = {owner} AND asset_id = {asset_id} AND session_id = {session_id}
                AND expires_at > fairway_now() AND remembered_at > fairway_now() - make_interval(days => {max_age_days})
                AND (clean OR NOT {requires_masked})
            ORDER BY remembered_at DESC, execution_id DESC LIMIT {limit})
            UNION ALL
            (SELECT * FROM memory_turn
            WHERE {session_id} = '' AND tenant_id = {tenant_id} AND workload_id = {workload_id} AND owner = {owner} AND asset_id = {asset_id}
                AND expires_at > fairway_now() AND remembered_at > fairway_now() - make_interval(days => {max_age_days})
                AND (clean OR NOT {requires_masked})
            ORDER BY remembered_at DESC, execution_id DESC LIMIT {limit})
        ) AS turn
    )
    SELECT true AS is_turn, NULL::uuid AS erasure, execution_id, said, answered, digest, remembered_at, expires_at
    FROM latest WHERE bytes_so_far <= {max_bytes}
    UNION ALL
    SELECT false, erasure, NULL, NULL, NULL, NULL, NULL, NULL FROM memory_session
    WHERE tenant_id = {tenant_id} AND workload_id = {workload_id} AND owner = {owner} AND session_id = {session_id}
    ORDER BY remembered_at, execution_id",
);

static ERASE: GuardedCommit =
    GuardedCommit::new("", "fairway_erase_session(tenant_id, workload_id, owner, session_id, fact_id) = turns");

/// Maximum number of rows that one statement deletes, so that the statement stays short.
const DELETE_BATCH: i64 = 1_000;

static DELETE_EXPIRED: Query = Query::new(
    "WITH deleted AS (
        DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_turn WHERE expires_at <= fairway_now() ORDER BY expires_at LIMIT {limit}))
        RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted",
);

static DELETE_REVOKED: Query = Query::new("SELECT fairway_forget_revoked({limit}) AS deleted");

/// Deletes session rows without a write for two days. A run that read an erasure marker from the row ends or is
/// reclaimed within one day, so no run still needs the row.
static DELETE_STALE_SESSIONS: Query = Query::new(
    "WITH deleted AS (
        DELETE FROM memory_session WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_session WHERE touched_at < fairway_now() - interval '2 days'
            ORDER BY touched_at LIMIT {limit}))
            AND touched_at < fairway_now() - interval '2 days'
        RETURNING 1
    )
    SELECT count(*) AS deleted FROM deleted",
);

#[async_trait]
impl MemoryStore for Database {
    async fn recall(
        &self,
        scope: TenantScope,
        conversation: &ConversationKey,
        query: &RecallQuery,
    ) -> Result<RecalledTurns, StoreError> {
        let input = Input::of_params(scope)
            .with_param("workload_id", conversation.workload.uuid())
            .with_param("owner", conversation.owner.to_string())
            .with_param("session_id", session_to_lock(query.scope, conversation))
            .with_param("asset_id", query.asset.uuid())
            .with_param("limit", i64::from(query.limit))
            .with_param("max_age_days", i32::try_from(query.max_age_days).unwrap_or(i32::MAX))
            .with_param("requires_masked", query.personal_data.excludes_unmasked_turns())
            .with_param("max_bytes", i64::try_from(MAX_REPLAY_BYTES).unwrap_or(i64::MAX));
        let mut recalled = RecalledTurns::default();
        for row in &self.fetch(&RECALL, input).await? {
            if row.column("is_turn")? {
                recalled.turns.push(TurnRow::of_recall(row)?.into_value()?);
            } else {
                recalled.last_erasure = row.column("erasure")?;
            }
        }
        Ok(recalled)
    }

    async fn list_turns(
        &self,
        scope: TenantScope,
        conversation: &ConversationKey,
    ) -> Result<Vec<StoredTurn>, StoreError> {
        let (tenant, workload) = (scope.tenant().uuid(), conversation.workload.uuid());
        let (owner, session) = (conversation.owner.to_string(), conversation.session.to_string());
        let oldest_first = || {
            memory_turn::table
                .filter(memory_turn::tenant_id.eq(tenant).and(memory_turn::workload_id.eq(workload)))
                .filter(memory_turn::owner.eq(owner.clone()).and(memory_turn::session_id.eq(session.clone())))
                .filter(memory_turn::expires_at.gt(database_now()))
                .order((memory_turn::remembered_at, memory_turn::execution_id))
                .select(TurnRow::as_select())
        };
        let turns: Vec<TurnRow> = self.load("turns of a session", oldest_first).await?;
        turns.into_iter().map(TurnRow::into_value).collect()
    }

    async fn commit_erasure(&self, scope: TenantScope, erasure: &ConversationErasure) -> Result<(), CommitError> {
        let conversation = &erasure.conversation;
        let input = Input::new(scope)
            .with("workload_id", conversation.workload.uuid())
            .with("owner", conversation.owner.to_string())
            .with("session_id", conversation.session.as_str())
            .with("turns", i64::from(erasure.turns));
        self.commit_guarded(&ERASE, scope, &erasure.fact, None, input).await.map(|_| ())
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        // The deletes are independent, so the second one runs even if the first fails.
        let (expired, revoked) =
            (self.delete_in_batches(&DELETE_EXPIRED).await, self.delete_in_batches(&DELETE_REVOKED).await);
        self.delete_in_batches(&DELETE_STALE_SESSIONS).await?;
        Ok(expired?.saturating_add(revoked?))
    }
}

impl Database {
    /// Repeats a delete statement until it deletes less than a full batch. Returns the number of deleted rows.
    async fn delete_in_batches(&self, statement: &Query) -> Result<u64, StoreError> {
        let mut total = 0_u64;
        loop {
            let input = Input::without_rows().with_param("limit", DELETE_BATCH);
            let rows = self.write_idempotent(statement.text(&input)?, &input.params()).await?;
            let deleted: i64 = rows.first().map(|row| row.column("deleted")).transpose()?.unwrap_or_default();
            total = total.saturating_add(u64::try_from(deleted).unwrap_or_default());
            if deleted < DELETE_BATCH {
                return Ok(total);
            }
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = memory_turn, check_for_backend(Pg))]
struct TurnRow {
    execution_id: Uuid,
    said: String,
    answered: String,
    digest: Vec<u8>,
    remembered_at: OffsetDateTime,
    expires_at: OffsetDateTime,
}

impl TurnRow {
    fn of_recall(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            execution_id: row.column("execution_id")?,
            said: row.column("said")?,
            answered: row.column("answered")?,
            digest: row.column("digest")?,
            remembered_at: row.column("remembered_at")?,
            expires_at: row.column("expires_at")?,
        })
    }

    fn into_value(self) -> Result<StoredTurn, StoreError> {
        Ok(StoredTurn {
            execution_id: self.execution_id.into(),
            question: self.said,
            response: self.answered,
            digest: require_decoded("digest", self.digest.try_into().ok())?,
            stored_at: Timestamp::new(self.remembered_at),
            expires_at: Timestamp::new(self.expires_at),
        })
    }
}

/// The key of a run's `memory_session` row, in the order in which a batch of run ends locks these rows.
pub(crate) fn session_row_key(
    tenant: Uuid,
    scope: MemoryScope,
    conversation: &ConversationKey,
) -> (Uuid, Uuid, String, &str) {
    (tenant, conversation.workload.uuid(), conversation.owner.to_string(), session_to_lock(scope, conversation))
}
