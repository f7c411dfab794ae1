//! Transitions of releases that change no lanes, committed alone or in a batch.

use super::input_columns::{ReferenceRows, add_release_columns, frozen_references};
use crate::{
    database::{StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{FactColumns, GuardedBatchCommit, GuardedCommit, Input},
};
use async_trait::async_trait;
use fairway_domain::{
    idempotency::KeyedOutcome,
    release::{BindingsDigest, Release},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use std::collections::HashSet;
use uuid::Uuid;

/// The CTEs that move releases to their next states. A release whose revision has changed is skipped. The CTE `locked`
/// locks releases in the order of their identifiers, so that concurrent batches do not deadlock.
const MOVE_RELEASES: &str = "locked AS MATERIALIZED (
        SELECT input.* FROM input JOIN release USING (tenant_id, release_id)
        WHERE release.revision = expected_revision
        ORDER BY tenant_id, release_id
        FOR NO KEY UPDATE OF release
     ),
     updated_release AS (
        UPDATE release SET state = locked.state, bindings_digest = locked.bindings_digest, revision = locked.revision,
            updated_at = locked.updated_at
        FROM locked
        WHERE release.tenant_id = locked.tenant_id AND release.release_id = locked.release_id
        RETURNING locked.*
     )";

/// Commits one transition, which may have an idempotency key. If it freezes references, shared locks keep the
/// referenced assets active until the commit, and a concurrent retirement or archival of an asset waits. The release
/// is locked first, because `locked_assets` reads the updated row. If a release
/// is submitted again without changes, it has the same digest, and its references are already stored. Most transitions
/// freeze no references; the lists are then empty, and the statement neither locks assets nor inserts references.
pub(super) async fn commit_transition(
    pool: &StatementPool,
    scope: TenantScope,
    change: &Change<Release>,
    key: Option<&KeyedOutcome>,
) -> Result<(), CommitError> {
    static MOVE: GuardedCommit = GuardedCommit::of_parts(
        &[
            MOVE_RELEASES,
            ", locked_assets AS (
                SELECT FROM updated_release JOIN asset USING (tenant_id)
                WHERE asset.asset_id = ANY(referenced_assets) AND lifecycle_state IS NOT DISTINCT FROM 'active'
                ORDER BY asset.asset_id
                FOR SHARE OF asset
             ),
             inserted_references AS (
                INSERT INTO release_reference (tenant_id, release_id, bindings_digest, from_version_id, slug, label,
                    to_version_id)
                SELECT tenant_id, release_id, bindings_digest, reference.from_id, reference.slug, reference.label,
                    reference.to_id
                FROM updated_release, unnest(from_versions, slugs, labels, to_versions)
                    AS reference (from_id, slug, label, to_id)
                ON CONFLICT DO NOTHING
             )",
        ],
        "(SELECT count(*) = 1 FROM updated_release)
            AND (SELECT count(*) FROM locked_assets) = (SELECT cardinality(referenced_assets) FROM input)",
        "",
    );
    let ChangeRecord { next, fact, .. } = &**change;
    let input = add_release_columns(Input::new(scope), next, change.replaced_revision()?);
    let (sql, input) = MOVE.prepare(scope, fact, key, ReferenceRows::of(next).add_to_input(input))?;
    commit(pool, sql, &input.params()).await.map(|_| ())
}

/// Commits a batch of transitions without idempotency keys and references. The transitions of skipped releases are not
/// committed; the others are.
static TRANSITIONS: GuardedBatchCommit =
    GuardedBatchCommit::new(MOVE_RELEASES, "updated_release", "SELECT fact_id FROM updated_release");

/// Group commit of release transitions.
pub(crate) struct TransitionCommitter(pub(crate) StatementPool);

/// A transition that waits for its group commit.
pub(crate) struct PendingTransition {
    pub(super) scope: TenantScope,
    pub(super) change: Change<Release>,
}

#[async_trait]
impl BatchCommitter for TransitionCommitter {
    type Item = PendingTransition;
    type Output = ();
    const LABEL: &'static str = "release transitions";

    /// Transitions that freeze references are rare and run alone. A second transition of the same release must see
    /// the revision that the first one wrote.
    fn is_batchable(pending: &PendingTransition, batch: &[&PendingTransition]) -> bool {
        let release = &pending.change.next;
        frozen_references(release).is_empty()
            && batch.iter().all(|other| other.change.next.release_id != release.release_id)
    }

    /// Zero, because a transition contains only a state and digests.
    fn payload_bytes(_: &PendingTransition) -> usize {
        0
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingTransition],
    ) -> Result<Option<Vec<Result<(), CommitError>>>, StoreError> {
        let mut facts = FactColumns::default();
        pending.iter().for_each(|pending| facts.push(pending.scope, &pending.change.fact));
        let records = || pending.iter().map(|pending| &*pending.change);
        let releases = || records().map(|record| &record.next);
        let expected_revision: Vec<i64> =
            records().map(|record| Ok(record.replaced_revision()?.get())).collect::<Result<_, StoreError>>()?;
        let input = Input::many()
            .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
            .with_column("release_id", releases().map(|release| release.release_id.uuid()))
            .with_column("expected_revision", expected_revision)
            .with_column("state", releases().map(|release| release.state.name().as_str()))
            .with_column(
                "bindings_digest",
                releases().map(|release| release.state.digest().map(BindingsDigest::as_str)),
            )
            .with_column("revision", releases().map(|release| release.revision.get()))
            .with_column("updated_at", releases().map(|release| release.updated_at.to_datetime()));
        let input = facts.add_to_input(input);
        let Some(rows) = commit_batch(&self.0, TRANSITIONS.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let committed: HashSet<Uuid> = rows.iter().map(|row| row.column("fact_id")).collect::<Result<_, _>>()?;
        let result = |pending: &&PendingTransition| {
            committed.contains(&pending.change.fact.fact_id.uuid()).then_some(()).ok_or(CommitError::Stale)
        };
        Ok(Some(pending.iter().map(result).collect()))
    }

    async fn commit_one(&self, pending: &PendingTransition) -> Result<(), CommitError> {
        commit_transition(&self.0, pending.scope, &pending.change, None).await
    }
}
