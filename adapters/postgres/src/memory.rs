//! Turns of conversations. They are written with the ends of their runs (`execution/finish/memory.rs`).

use crate::{
    database::{Database, Param},
    guarded::{Tail, commit_tail},
    row::{Columns, known},
};
use async_trait::async_trait;
use fairway_domain::{
    memory::{
        Erasure, KeptTurn, MAX_REPLAY_BYTES, MemoryPlace, Recalled, Scope,
        ports::{MemoryStore, Wanted},
    },
    store::{CommitError, StoreError},
    tenant::TenantScope,
};
use tokio_postgres::Row;
use uuid::Uuid;

/// The session that stands for all of an owner's.
pub(crate) const ALL_SESSIONS: &str = "";

/// The session in whose row what writes under this scope meets what erases.
pub(crate) fn meeting(scope: Scope, place: &MemoryPlace) -> &str {
    match scope {
        Scope::Session => place.session.as_str(),
        Scope::User => ALL_SESSIONS,
    }
}

/// The latest turns within the bytes that a run is given, and the last erasure in a row of its own, so that there is a row
/// where there is no turn. Of a session and of all of an owner's it is asked apart: each has an index that begins with the latest.
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

const ERASE: &str =
    concat!("SELECT fairway_commit(fairway_erase_session($1, $13, $14, $15, $2) = $16::bigint, ", commit_tail!(), ")");

/// Most rows that one statement forgets, so that none takes long however many there are.
const AT_ONCE: i64 = 1_000;

const FORGET_OVER: &str = "WITH gone AS (
        DELETE FROM memory_turn WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_turn WHERE expires_at <= fairway_now() ORDER BY expires_at LIMIT $1))
        RETURNING 1
    )
    SELECT count(*) AS gone FROM gone";

const FORGET_REVOKED: &str = "SELECT fairway_forget_revoked($1) AS gone";

/// A run is over or somebody else's long before a day has passed since it was told of an erasure.
const FORGET_SESSIONS: &str = "WITH gone AS (
        DELETE FROM memory_session WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM memory_session WHERE touched_at < fairway_now() - interval '2 days'
            ORDER BY touched_at LIMIT $1))
            AND touched_at < fairway_now() - interval '2 days'
        RETURNING 1
    )
    SELECT count(*) AS gone FROM gone";

#[async_trait]
impl MemoryStore for Database {
    async fn recall(&self, scope: TenantScope, place: &MemoryPlace, wanted: &Wanted) -> Result<Recalled, StoreError> {
        let owner = place.owner.to_string();
        let (most, days) = (i64::from(wanted.most), i32::try_from(wanted.days).unwrap_or(i32::MAX));
        let bytes = i64::try_from(MAX_REPLAY_BYTES).unwrap_or(i64::MAX);
        let params: [Param<'_>; 9] = [
            &scope.tenant().uuid(),
            &place.workload.uuid(),
            &owner,
            &meeting(wanted.scope, place),
            &wanted.asset.uuid(),
            &most,
            &days,
            &wanted.personal_data.wants_clean(),
            &bytes,
        ];
        let mut recalled = Recalled::default();
        for row in &self.read(RECALL, &params).await? {
            if row.column("is_turn")? {
                recalled.turns.push(turn(row)?);
            } else {
                recalled.erasure = row.column("erasure")?;
            }
        }
        Ok(recalled)
    }

    async fn turns(&self, scope: TenantScope, place: &MemoryPlace) -> Result<Vec<KeptTurn>, StoreError> {
        let owner = place.owner.to_string();
        let params: [Param<'_>; 4] = [&scope.tenant().uuid(), &place.workload.uuid(), &owner, &place.session.as_str()];
        self.read(TURNS, &params).await?.iter().map(turn).collect()
    }

    async fn commit_erasure(&self, scope: TenantScope, erasure: &Erasure) -> Result<(), CommitError> {
        let tail = Tail::new(scope, &erasure.fact, None);
        let place = &erasure.place;
        let (workload, owner, turns) = (place.workload.uuid(), place.owner.to_string(), i64::from(erasure.turns));
        let session = place.session.as_str();
        let own = tail.with(&[&workload, &owner, &session, &turns]);
        self.commit(ERASE, &own).await.map(|_| ())
    }

    async fn forget(&self) -> Result<u64, StoreError> {
        // What stands in the way of one is none of the others' business.
        let (over, revoked) = (self.forget_by(FORGET_OVER).await, self.forget_by(FORGET_REVOKED).await);
        self.forget_by(FORGET_SESSIONS).await?;
        Ok(over?.saturating_add(revoked?))
    }
}

impl Database {
    /// Forgets what a statement finds, piece by piece; answers how many rows.
    async fn forget_by(&self, statement: &str) -> Result<u64, StoreError> {
        let mut forgotten = 0_u64;
        loop {
            let rows = self.write_repeatable(statement, &[&AT_ONCE]).await?;
            let gone: i64 = rows.first().map(|row| row.column("gone")).transpose()?.unwrap_or_default();
            forgotten = forgotten.saturating_add(u64::try_from(gone).unwrap_or_default());
            if gone < AT_ONCE {
                return Ok(forgotten);
            }
        }
    }
}

fn turn(row: &Row) -> Result<KeptTurn, StoreError> {
    Ok(KeptTurn {
        execution_id: row.id("execution_id")?,
        said: row.column("said")?,
        answered: row.column("answered")?,
        digest: known("digest", <[u8; 32]>::try_from(row.column::<&[u8]>("digest")?).ok())?,
        remembered_at: row.moment("remembered_at")?,
        expires_at: row.moment("expires_at")?,
    })
}

/// Of what session and owner a run's row is, as it stands among those that are ended at once.
pub(crate) fn row_of(tenant: Uuid, scope: Scope, place: &MemoryPlace) -> (Uuid, Uuid, String, &str) {
    (tenant, place.workload.uuid(), place.owner.to_string(), meeting(scope, place))
}
