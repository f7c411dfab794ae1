//! Moves of lanes: the deployment, its releases, their rollouts, the history and the document, in one statement.

use super::rows::{ReleaseRow, RolloutRow};
use crate::{
    database::Database,
    guarded::{Tail, commit_tail},
    row::{Columns, known},
};
use fairway_domain::{
    id::ReleaseId, idempotency::KeyedOutcome, release::lane::DeploymentChange, store::CommitError, tenant::TenantScope,
    time::Timestamp,
};
use uuid::Uuid;

/// Stores the move; answers when the present lane of the release's rollout began to soak.
pub(super) async fn commit(
    database: &Database,
    scope: TenantScope,
    change: &DeploymentChange,
    key: Option<&KeyedOutcome>,
) -> Result<Option<Timestamp>, CommitError> {
    // The deployment's row is locked first and everything else hangs on it, so movers queue up and never deadlock.
    // Whoever comes back must still be what it was when that was decided: not retired, for one.
    const SQL: &str = concat!(
        "WITH lanes AS (
            UPDATE deployment SET restricted_release_id = $22, guided_release_id = $23, standard_release_id = $24,
                revision = $25, soaking_lanes = $47
            WHERE tenant_id = $1 AND workload_id = $19 AND environment = $20 AND revision = $21
            RETURNING 1
         ),
         changed AS (
            UPDATE release SET state = $15, bindings_digest = $16, revision = $17, updated_at = $18,
                supersedes_release_id = $26, rollout_status = $38, rollout_lanes = $39, rollout_soak_minutes = $40,
                rollout_auto_advance = $41, rollout_index = $42, rollout_since = $43, rollout_holds = $44,
                soak_started_at = CASE WHEN $45 THEN fairway_now() ELSE soak_started_at END,
                soak_ends_at = CASE WHEN $45 THEN fairway_now() + make_interval(mins => $40) ELSE soak_ends_at END
            FROM lanes
            WHERE tenant_id = $1 AND release_id = $13 AND revision = $14
                AND (NOT $46 OR soak_ends_at <= fairway_now())
            RETURNING soak_started_at
         ),
         displaced AS (
            UPDATE release SET revision = revision + 1, updated_at = $18,
                state = CASE WHEN release_id = ANY($27) THEN 'superseded' ELSE state END,
                rollout_status = CASE WHEN release_id = ANY($48) AND rollout_status = 'in_progress' THEN 'rolled_back'
                    ELSE rollout_status END
            FROM changed
            WHERE tenant_id = $1 AND release_id = ANY($27::uuid[] || $48::uuid[]) AND state = 'active'
            RETURNING 1
         ),
         returned AS (
            UPDATE release SET state = 'active', revision = revision + 1, updated_at = $18
            FROM changed
            WHERE tenant_id = $1 AND release_id = ANY($33) AND state = 'superseded'
            RETURNING 1
         ),
         kept AS (
            INSERT INTO release_artifact (tenant_id, release_id, artifact_id, artifact_kind, content, checksum,
                created_at, created_by)
            SELECT $1, $13, $34, $35, $36, $37, $18, $32 FROM changed WHERE $34::uuid IS NOT NULL
         ),
         told AS (
            INSERT INTO deployment_history (tenant_id, workload_id, environment, revision, lane, from_release_id,
                to_release_id, reason, actor, moved_at)
            SELECT $1, $19, $20, $25, moved.lane, moved.from_id, moved.to_id, $31, $32, $18
            FROM changed, unnest($28::text[], $29::uuid[], $30::uuid[]) AS moved (lane, from_id, to_id)
         )
         SELECT fairway_commit((SELECT count(*) = 1 FROM changed)
            AND (SELECT count(*) FROM displaced) = cardinality(ARRAY(SELECT DISTINCT unnest($27::uuid[] || $48::uuid[])))
            AND (SELECT count(*) FROM returned) = cardinality($33::uuid[]), ",
        commit_tail!(),
        "), (SELECT soak_started_at FROM changed) AS soak_started_at"
    );
    let next = &change.deployment;
    let tail = Tail::new(scope, &change.fact, key);
    let row = ReleaseRow::of(&change.release, Some(change.release_decided_on));
    let (workload, environment) = (next.workload_id.uuid(), next.environment.as_str());
    let (seen, revision) = (change.deployment_decided_on.get(), next.revision.get());
    let holder = |release: Option<ReleaseId>| release.map(ReleaseId::uuid);
    let (restricted, guided, standard) = (holder(next.restricted), holder(next.guided), holder(next.standard));
    let supersedes = holder(change.release.supersedes_release_id);
    let superseded: Vec<Uuid> = change.superseded.iter().map(|id| id.uuid()).collect();
    let stopped: Vec<Uuid> = change.stopped.iter().map(|id| id.uuid()).collect();
    let soaking: Vec<&str> = next.soaking.iter().map(|lane| lane.as_str()).collect();
    let rollout = RolloutRow::of(change);
    let returned: Vec<Uuid> = change.returned.iter().map(|id| id.uuid()).collect();
    let evidence = change.evidence.as_ref();
    let artifact = evidence.map(|artifact| artifact.artifact_id.uuid());
    let kind = evidence.map(|artifact| artifact.kind.as_str());
    let content = evidence.map(|artifact| artifact.content.as_str());
    let checksum = evidence.map(|artifact| artifact.checksum.as_str());
    let lanes: Vec<&str> = change.moves.iter().map(|moved| moved.lane.as_str()).collect();
    let from: Vec<Option<Uuid>> = change.moves.iter().map(|moved| holder(moved.from)).collect();
    let to: Vec<Option<Uuid>> = change.moves.iter().map(|moved| holder(moved.to)).collect();
    let (reason, actor) = (change.reason.as_str(), change.fact.actor.to_string());
    let mut own = row.params();
    own.extend_from_slice(&[
        &workload,
        &environment,
        &seen,
        &restricted,
        &guided,
        &standard,
        &revision,
        &supersedes,
        &superseded,
        &lanes,
        &from,
        &to,
        &reason,
        &actor,
        &returned,
        &artifact,
        &kind,
        &content,
        &checksum,
    ]);
    own.extend_from_slice(&rollout.params());
    own.extend_from_slice(&[&soaking, &stopped]);
    let rows = database.commit(SQL, &tail.with(&own)).await?;
    Ok(known("soak_started_at", rows.first())?.optional_moment("soak_started_at")?)
}
