//! Transitions of releases that leave lanes unchanged, committed alone or in a batch.

use super::rows::{ReferenceRows, ReleaseRow};
use crate::{
    commit_tail::{CommitParams, FactColumns, commit_tail, fact_column_names, fact_placeholders, insert_facts},
    database::{Param, commit, commit_batch},
    group_commit::BatchCommitter,
    row::RowExt,
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    idempotency::KeyedOutcome,
    release::{Release, State},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use std::collections::HashSet;
use time::OffsetDateTime;
use uuid::Uuid;

/// Commits one transition. When it freezes references, shared locks keep the referenced assets active until the
/// commit, as for a binding; a concurrent retirement or archival waits. Assets are locked in one order. A release that
/// is submitted again unchanged has the same digest, and its references exist already.
pub(super) async fn commit_transition(
    pool: &Pool,
    scope: TenantScope,
    change: &Change<Release>,
    key: Option<&KeyedOutcome>,
) -> Result<(), CommitError> {
    const MOVE: &str = concat!(
        "WITH changed AS (
            UPDATE release SET state = $15, bindings_digest = $16, revision = $17, updated_at = $18
            WHERE tenant_id = $1 AND release_id = $13 AND revision = $14
            RETURNING 1
         )
         SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
        commit_tail!(),
        ")"
    );
    const FREEZE: &str = concat!(
        "WITH changed AS (
            UPDATE release SET state = $15, bindings_digest = $16, revision = $17, updated_at = $18
            WHERE tenant_id = $1 AND release_id = $13 AND revision = $14
            RETURNING 1
         ),
         kept AS (
            SELECT FROM changed, asset
            WHERE tenant_id = $1 AND asset_id = ANY($23) AND lifecycle_state IS NOT DISTINCT FROM 'active'
            ORDER BY asset_id
            FOR SHARE OF asset
         ),
         frozen AS (
            INSERT INTO release_reference (tenant_id, release_id, bindings_digest, from_version_id, slug, label,
                to_version_id)
            SELECT $1, $13, $16, reference.from_id, reference.slug, reference.label, reference.to_id
            FROM changed, unnest($19::uuid[], $20::text[], $21::text[], $22::uuid[])
                AS reference (from_id, slug, label, to_id)
            ON CONFLICT DO NOTHING
         )
         SELECT fairway_commit((SELECT count(*) = 1 FROM changed)
            AND (SELECT count(*) FROM kept) = cardinality($23::uuid[]), ",
        commit_tail!(),
        ")"
    );
    let ChangeRecord { next, decided_on, fact } = &**change;
    let tail = CommitParams::new(scope, fact, key);
    let row = ReleaseRow::of(next, *decided_on);
    let frozen = ReferenceRows::of(next);
    let mut own = row.params();
    let sql = if frozen.is_empty() {
        MOVE
    } else {
        own.extend_from_slice(&frozen.params());
        FREEZE
    };
    commit(pool, sql, &tail.with(&own)).await.map(|_| ())
}

/// Commits a batch of transitions without idempotency keys and references. A release whose revision changed is
/// skipped; the others are committed. Rows are locked in one order, so that concurrent batches do not deadlock.
const TRANSITION_BATCH: &str = concat!(
    "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(",
    fact_placeholders!(),
    ", $7::uuid[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::timestamptz[])
            AS asked (",
    fact_column_names!(),
    ", release_id, seen, state, digest, revision, moved_at)
        ORDER BY tenant_id, release_id
    ),
    changed AS (
        UPDATE release SET state = asked.state, bindings_digest = asked.digest, revision = asked.revision,
            updated_at = asked.moved_at
        FROM asked
        WHERE release.tenant_id = asked.tenant_id AND release.release_id = asked.release_id
            AND release.revision = asked.seen
        RETURNING asked.*
    ),
    ",
    insert_facts!("changed"),
    " SELECT fact_id FROM changed"
);

/// Group commit of release transitions.
pub(crate) struct TransitionCommitter(pub(crate) Pool);

/// A transition to commit.
pub(crate) struct PendingTransition {
    pub(super) scope: TenantScope,
    pub(super) change: Change<Release>,
}

#[async_trait]
impl BatchCommitter for TransitionCommitter {
    type Item = PendingTransition;
    type Output = ();
    const LABEL: &'static str = "release transitions";

    /// Transitions that freeze references are rare and run alone. A second transition of the same release must see the
    /// first one's revision.
    fn is_batchable(pending: &PendingTransition, in_front: &[&PendingTransition]) -> bool {
        let release = &pending.change.next;
        let freezes = matches!(release.state, State::ReviewReady { .. }) && !release.references.is_empty();
        !freezes && in_front.iter().all(|other| other.change.next.release_id != release.release_id)
    }

    /// A transition contains a state and digests only.
    fn payload_bytes(_: &PendingTransition) -> usize {
        0
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingTransition],
    ) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let mut batch = BatchColumns::default();
        for pending in pending {
            batch.push(pending);
        }
        let own: [Param<'_>; 6] = [
            &batch.releases,
            &batch.expected_revisions,
            &batch.states,
            &batch.digests,
            &batch.revisions,
            &batch.moments,
        ];
        let Some(rows) = commit_batch(&self.0, TRANSITION_BATCH, &batch.facts.with(&own)).await? else {
            return Ok(None);
        };
        let moved: HashSet<Uuid> = rows.iter().map(|row| row.column("fact_id")).collect::<Result<_, _>>()?;
        let answer = |pending: &&PendingTransition| {
            moved.contains(&pending.change.fact.fact_id.uuid()).then_some(()).ok_or(CommitError::Stale)
        };
        Ok(Some(pending.iter().map(answer).collect()))
    }

    async fn commit_one(&self, pending: &PendingTransition) -> Result<(), CommitError> {
        commit_transition(&self.0, pending.scope, &pending.change, None).await
    }
}

/// A batch of transitions, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    facts: FactColumns,
    releases: Vec<Uuid>,
    expected_revisions: Vec<i64>,
    states: Vec<&'static str>,
    digests: Vec<Option<&'a str>>,
    revisions: Vec<i64>,
    moments: Vec<OffsetDateTime>,
}

impl<'a> BatchColumns<'a> {
    fn push(&mut self, pending: &'a PendingTransition) {
        let ChangeRecord { next, decided_on, fact } = &*pending.change;
        let row = ReleaseRow::of(next, *decided_on);
        self.facts.push(pending.scope, fact);
        self.releases.push(row.id);
        self.expected_revisions.push(row.expected_revision);
        self.states.push(row.state);
        self.digests.push(row.digest);
        self.revisions.push(row.revision);
        self.moments.push(row.at);
    }
}
