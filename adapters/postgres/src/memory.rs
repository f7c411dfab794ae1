//! Turns of conversations: reads, erasure and expiry. The commit that ends a run writes its turn
//! (`execution/finish/memory.rs`).

use crate::{
    database::{Database, Param},
    guarded_commit::Guarded,
    query::Input,
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    memory::{
        ConversationKey, Erasure, MAX_REPLAY_BYTES, MemoryScope, RecalledTurns, StoredTurn,
        ports::{MemoryStore, RecallQuery},
    },
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;
use uuid::Uuid;

/// The session identifier that covers all sessions of an owner.
pub(crate) const ALL_SESSIONS: &str = "";

/// The session whose row both the writes of this scope and its erasures lock.
pub(crate) fn locked_session(scope: MemoryScope, place: &ConversationKey) -> &str {
    match scope {
        MemoryScope::Session => place.session.as_str(),
        MemoryScope::User => ALL_SESSIONS,
    }
}

/// Reads the latest turns within the byte limit of a run, and the last erasure as a separate row, which exists without
/// turns too. One arm reads a session and one all sessions of an owner: each has an index that starts with the latest
/// turn.
const RECALL: &str = "WITH latest AS (
        SELECT execution_id, said, answered, digest, remembered_at, expires_at,
            sum(bytes) OVER (ORDER BY remembered_at DESC, execution_id DESC) AS so_far
        FROM (
            (SELECT * FROM memory_turn
            WHERE $4 <> '' AND tenant_id = $1 AND workload_id = $2 AND owner = $3 AND asset_id = $5 AND session_id = $4
                AND expires_at > fairway_now() AND remembered_at > fairway_now() - make_interval(days => $7)
                AND (clean OR NOT $8)
            ORDER BY remembered_at DESC, execution_id DESC LIMIT $6)
            UNION ALL
            (SELECT * FROM memory_turn
            WHERE $4 = '' AND tenant_id = $1 AND workload_id = $2 AND owner = $3 AND asset_id = $5
                AND expires_at > fairway_now() AND remembered_at > fairway_now() - make_interval(days => $7)
                AND (clean OR NOT $8)
            ORDER BY remembered_at DESC, execution_id DESC LIMIT $6)
        ) AS turn
    )
    SELECT true AS is_turn, NULL::uuid AS erasure, execution_id, said, answered, digest, remembered_at, expires_at
    FROM latest WHERE so_far <= $9
    UNION ALL
    SELECT false, erasure, NULL, NULL, NULL, NULL, NULL, NULL FROM memory_session
    WHERE tenant_id = $1 AND workload_id = $2 AND owner = $3 AND session_id = $4
    ORDER BY remembered_at, execution_id";

const TURNS: &str = "SELECT execution_id, said, answered, digest, remembered_at, expires_at FROM memory_turn
    WHERE tenant_id = $1 AND workload_id = $2 AND owner = $3 AND session_id = $4 AND expires_at > fairway_now()
    ORDER BY remembered_at, execution_id";

static ERASE: Guarded =
    Guarded::new("", "fairway_erase_session(tenant_id, workload_id, owner, session_id, fact_id) = turns");

/// Maximum number of rows that one statement deletes, so that each statement is short.
const DELETE_BATCH: i64 = 1_000;

const DELETE_EXPIRED: &str = "WITH gone AS (
        DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_turn WHERE expires_at <= fairway_now() ORDER BY expires_at LIMIT $1))
        RETURNING 1
    )
    SELECT count(*) AS gone FROM gone";

const DELETE_REVOKED: &str = "SELECT fairway_forget_revoked($1) AS gone";

/// Two days: every run that may still write under an erasure ends or is reclaimed within one day.
const DELETE_STALE_SESSIONS: &str = "WITH gone AS (
        DELETE FROM memory_session WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_session WHERE touched_at < fairway_now() - interval '2 days'
            ORDER BY touched_at LIMIT $1))
            AND touched_at < fairway_now() - interval '2 days'
        RETURNING 1
    )
    SELECT count(*) AS gone FROM gone";

#[async_trait]
impl MemoryStore for Database {
    async fn recall(
        &self,
        scope: TenantScope,
        place: &ConversationKey,
        wanted: &RecallQuery,
    ) -> Result<RecalledTurns, StoreError> {
        let owner = place.owner.to_string();
        let (limit, days) = (i64::from(wanted.limit), i32::try_from(wanted.max_age_days).unwrap_or(i32::MAX));
        let bytes = i64::try_from(MAX_REPLAY_BYTES).unwrap_or(i64::MAX);
        let params: [Param<'_>; 9] = [
            &scope.tenant().uuid(),
            &place.workload.uuid(),
            &owner,
            &locked_session(wanted.scope, place),
            &wanted.asset.uuid(),
            &limit,
            &days,
            &wanted.personal_data.requires_masked_turns(),
            &bytes,
        ];
        let mut recalled = RecalledTurns::default();
        for row in &self.read(RECALL, &params).await? {
            if row.column("is_turn")? {
                recalled.turns.push(turn(row)?);
            } else {
                recalled.last_erasure = row.column("erasure")?;
            }
        }
        Ok(recalled)
    }

    async fn list_turns(&self, scope: TenantScope, place: &ConversationKey) -> Result<Vec<StoredTurn>, StoreError> {
        let owner = place.owner.to_string();
        let params: [Param<'_>; 4] = [&scope.tenant().uuid(), &place.workload.uuid(), &owner, &place.session.as_str()];
        self.read(TURNS, &params).await?.iter().map(turn).collect()
    }

    async fn commit_erasure(&self, scope: TenantScope, erasure: &Erasure) -> Result<(), CommitError> {
        let place = &erasure.conversation;
        let input = Input::new(scope)
            .with("workload_id", place.workload.uuid())
            .with("owner", place.owner.to_string())
            .with("session_id", place.session.as_str())
            .with("turns", i64::from(erasure.turns));
        self.commit_guarded(&ERASE, scope, &erasure.fact, None, input).await.map(|_| ())
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        // Both deletes run, even if one fails: they are independent.
        let (over, revoked) =
            (self.delete_in_batches(DELETE_EXPIRED).await, self.delete_in_batches(DELETE_REVOKED).await);
        self.delete_in_batches(DELETE_STALE_SESSIONS).await?;
        Ok(over?.saturating_add(revoked?))
    }
}

impl Database {
    /// Runs a delete statement until it finds less than a full batch. Returns the number of deleted rows.
    async fn delete_in_batches(&self, statement: &str) -> Result<u64, StoreError> {
        let mut deleted = 0_u64;
        loop {
            let rows = self.write_idempotent(statement, &[&DELETE_BATCH]).await?;
            let gone: i64 = rows.first().map(|row| row.column("gone")).transpose()?.unwrap_or_default();
            deleted = deleted.saturating_add(u64::try_from(gone).unwrap_or_default());
            if gone < DELETE_BATCH {
                return Ok(deleted);
            }
        }
    }
}

fn turn(row: &Row) -> Result<StoredTurn, StoreError> {
    Ok(StoredTurn {
        execution_id: row.id("execution_id")?,
        question: row.column("said")?,
        response: row.column("answered")?,
        digest: decode("digest", <[u8; 32]>::try_from(row.column::<&[u8]>("digest")?).ok())?,
        stored_at: row.timestamp("remembered_at")?,
        expires_at: row.timestamp("expires_at")?,
    })
}

/// The key of a run's `memory_session` row, in the order of the columns of a batch of finishes.
pub(crate) fn session_row_key(tenant: Uuid, scope: MemoryScope, place: &ConversationKey) -> (Uuid, Uuid, String, &str) {
    (tenant, place.workload.uuid(), place.owner.to_string(), locked_session(scope, place))
}
