//! Lane changes, committed alone or in a batch. One statement writes the deployments, their releases, the rollouts, the
//! history and the rollback documents.

use super::input_columns::{add_changed_release_columns, holders_literal, lanes_literal, releases_literal};
use crate::{
    database::{Database, StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{FactColumns, GuardedBatchCommit, GuardedCommit, Input},
    row::require_decoded,
    schema::deployment as table,
};
use async_trait::async_trait;
use diesel::{BoolExpressionMethods as _, ExpressionMethods as _, QueryDsl as _, pg::Pg};
use fairway_domain::{
    id::{ReleaseId, WorkloadId},
    idempotency::KeyedOutcome,
    release::{deployment::DeploymentChange, lane::Lane},
    slug::Slug,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use std::collections::HashMap;
use uuid::Uuid;

/// The CTEs that change lanes. A change is applied completely or, if one of its conditions fails, not at all; the other
/// changes of its batch are applied.
///
/// The first CTEs check and lock all rows of a change in the order that the documentation of `release.rs` defines,
/// before other CTEs write. Each of the three locks its rows in key order. The conditions on counts make PostgreSQL
/// complete each CTE before the next one starts, so that concurrent commits lock all rows in the same order. A release
/// to which a lane returns must still be `superseded`. The reasons of holds are kept within one stage of a rollout,
/// because the rollout controller records them without a new revision. `change_release` is a CTE of its own: after a
/// wait for a lock, PostgreSQL checks a row again, and finds it only if the locking query joins CTEs and not a union.
/// The shared lock on the workload serializes the change with a retirement of the workload, after which no release
/// receives a lane.
const CHANGE_LANES: &str = "locked_workload AS MATERIALIZED (
        SELECT fact_id FROM input JOIN workload USING (tenant_id, workload_id)
        WHERE workload.status <> 'retired' OR NOT assigns_lane
        ORDER BY tenant_id, workload_id
        FOR SHARE OF workload
     ),
     locked_deployment AS MATERIALIZED (
        SELECT fact_id FROM locked_workload JOIN input USING (fact_id)
            JOIN deployment USING (tenant_id, workload_id, environment)
        WHERE deployment.revision = expected_lanes_revision AND (SELECT count(*) FROM locked_workload) > 0
        ORDER BY tenant_id, workload_id, environment
        FOR NO KEY UPDATE OF deployment
     ),
     other_release AS MATERIALIZED (
        SELECT DISTINCT tenant_id, fact_id, other.release_id
        FROM locked_deployment JOIN input USING (fact_id),
            unnest(superseded::uuid[] || stopped::uuid[] || reinstated::uuid[]) AS other (release_id)
     ),
     change_release AS MATERIALIZED (
        SELECT tenant_id, fact_id, release_id FROM locked_deployment JOIN input USING (fact_id)
        UNION ALL SELECT tenant_id, fact_id, release_id FROM other_release
     ),
     locked_release AS MATERIALIZED (
        SELECT fact_id
        FROM change_release JOIN release USING (tenant_id, release_id) JOIN input USING (fact_id)
        WHERE (SELECT count(*) FROM locked_deployment) > 0 AND CASE
            WHEN release.release_id = input.release_id
                THEN release.revision = expected_revision AND (NOT requires_ended_soak OR soak_ends_at <= fairway_now())
            WHEN release.release_id = ANY(reinstated::uuid[]) THEN release.state = 'superseded'
            ELSE release.state = 'active'
        END
        ORDER BY release.tenant_id, release.release_id
        FOR NO KEY UPDATE OF release
     ),
     locked AS MATERIALIZED (
        SELECT input.* FROM locked_deployment JOIN input USING (fact_id)
        WHERE (SELECT count(*) FROM locked_release WHERE locked_release.fact_id = locked_deployment.fact_id)
            = (SELECT count(*) FROM change_release WHERE change_release.fact_id = locked_deployment.fact_id)
     ),
     updated_deployment AS (
        UPDATE deployment SET restricted_release_id = locked.restricted, guided_release_id = locked.guided,
            standard_release_id = locked.standard, revision = locked.lanes_revision,
            soaking_lanes = locked.soaking::text[]
        FROM locked
        WHERE deployment.tenant_id = locked.tenant_id AND deployment.workload_id = locked.workload_id
            AND deployment.environment = locked.environment
     ),
     updated_release AS (
        UPDATE release SET state = locked.state, bindings_digest = locked.bindings_digest, revision = locked.revision,
            updated_at = locked.updated_at, supersedes_release_id = locked.supersedes,
            rollout_status = locked.rollout_status, rollout_lanes = locked.rollout_lanes::text[],
            rollout_soak_minutes = locked.soak_minutes, rollout_auto_advance = locked.auto_advance,
            rollout_index = locked.rollout_index, rollout_since = locked.rollout_since,
            rollout_holds = CASE WHEN release.rollout_since = locked.rollout_since AND NOT starts_soak
                THEN release.rollout_holds ELSE locked.rollout_holds::text[] END,
            soak_started_at = CASE WHEN starts_soak THEN fairway_now() ELSE soak_started_at END,
            soak_ends_at = CASE WHEN starts_soak THEN fairway_now() + make_interval(mins => locked.soak_minutes)
                ELSE soak_ends_at END
        FROM locked
        WHERE release.tenant_id = locked.tenant_id AND release.release_id = locked.release_id
        RETURNING locked.fact_id, soak_started_at
     ),
     updated_other_release AS (
        UPDATE release SET revision = release.revision + 1, updated_at = locked.updated_at,
            state = CASE
                WHEN release.release_id = ANY(superseded::uuid[]) THEN 'superseded'
                WHEN release.release_id = ANY(reinstated::uuid[]) THEN 'active'
                ELSE release.state END,
            rollout_status = CASE
                WHEN release.release_id = ANY(stopped::uuid[]) AND release.rollout_status = 'in_progress'
                    THEN 'rolled_back'
                ELSE release.rollout_status END
        FROM locked JOIN other_release USING (fact_id)
        WHERE release.tenant_id = other_release.tenant_id AND release.release_id = other_release.release_id
     ),
     inserted_artifact AS (
        INSERT INTO release_artifact (tenant_id, release_id, artifact_id, artifact_kind, content, checksum,
            created_at, created_by)
        SELECT tenant_id, release_id, artifact_id, artifact_kind, artifact_content, artifact_checksum, updated_at, actor
        FROM locked WHERE artifact_id IS NOT NULL
     ),
     inserted_history AS (
        INSERT INTO deployment_history (tenant_id, workload_id, environment, revision, lane, from_release_id,
            to_release_id, reason, actor, moved_at)
        SELECT tenant_id, workload_id, environment, lanes_revision, lane_move.lane, lane_move.from_id, lane_move.to_id,
            reason, actor, updated_at
        FROM locked,
            unnest(moved_lanes::text[], moved_from::uuid[], moved_to::uuid[]) AS lane_move (lane, from_id, to_id)
     )";

/// Commits one lane change, which may have an idempotency key. Returns when the current soak of the release's rollout
/// began.
pub(super) async fn commit_lane_change(
    pool: &StatementPool,
    pending: &PendingLaneChange,
    key: Option<&KeyedOutcome>,
) -> Result<Option<Timestamp>, CommitError> {
    static CHANGE: GuardedCommit = GuardedCommit::returning(
        CHANGE_LANES,
        "(SELECT count(*) = 1 FROM locked)",
        "(SELECT soak_started_at FROM updated_release) AS soak_started_at",
    );
    let PendingLaneChange { scope, change } = pending;
    let (sql, input) = CHANGE.prepare(*scope, &change.fact, key, input_of(&[pending]))?;
    let rows = commit(pool, sql, &input.params()).await?;
    Ok(require_decoded("soak_started_at", rows.first())?.optional_timestamp("soak_started_at")?)
}

/// Commits a batch of lane changes without idempotency keys.
static LANE_CHANGES: GuardedBatchCommit =
    GuardedBatchCommit::new(CHANGE_LANES, "locked", "SELECT fact_id, soak_started_at FROM updated_release");

/// Group commit of lane changes.
pub(crate) struct LaneChangeCommitter(pub(crate) StatementPool);

/// A lane change that waits for its commit.
pub(crate) struct PendingLaneChange {
    pub(super) scope: TenantScope,
    pub(super) change: DeploymentChange,
}

impl PendingLaneChange {
    fn deployment_key(&self) -> (Uuid, Uuid, &str) {
        let deployment = &self.change.deployment;
        (self.scope.tenant().uuid(), deployment.workload_id.uuid(), deployment.environment.as_str())
    }
}

#[async_trait]
impl BatchCommitter for LaneChangeCommitter {
    type Item = PendingLaneChange;
    type Output = Option<Timestamp>;
    const LABEL: &'static str = "lane changes";

    /// A second change of the same deployment must see the revision that the first one wrote.
    fn is_batchable(pending: &PendingLaneChange, batch: &[&PendingLaneChange]) -> bool {
        batch.iter().all(|other| other.deployment_key() != pending.deployment_key())
    }

    /// The bytes of a rollback document. All other values of a change are identifiers, states and digests.
    fn payload_bytes(pending: &PendingLaneChange) -> usize {
        pending.change.evidence.as_ref().map_or(0, |artifact| artifact.content.len())
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingLaneChange],
    ) -> Result<Option<Vec<Result<Option<Timestamp>, CommitError>>>, StoreError> {
        let mut facts = FactColumns::default();
        pending.iter().for_each(|pending| facts.push(pending.scope, &pending.change.fact));
        let input = facts.add_to_input(input_of(pending));
        let Some(rows) = commit_batch(&self.0, LANE_CHANGES.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let committed: HashMap<Uuid, Option<Timestamp>> = rows
            .iter()
            .map(|row| Ok((row.column("fact_id")?, row.optional_timestamp("soak_started_at")?)))
            .collect::<Result<_, StoreError>>()?;
        let result_of = |pending: &&PendingLaneChange| {
            committed.get(&pending.change.fact.fact_id.uuid()).copied().ok_or(CommitError::Stale)
        };
        Ok(Some(pending.iter().map(result_of).collect()))
    }

    async fn commit_one(&self, pending: &PendingLaneChange) -> Result<Option<Timestamp>, CommitError> {
        commit_lane_change(&self.0, pending, None).await
    }
}

/// Whether the change assigns a lane to a release, which a retired workload does not allow.
fn assigns_lane(change: &DeploymentChange) -> bool {
    change.moves.iter().any(|lane_move| lane_move.to.is_some())
}

/// Builds the input columns of lane changes, without their facts.
fn input_of<'v>(pending: &[&'v PendingLaneChange]) -> Input<'v> {
    let changes = || pending.iter().map(|pending| &pending.change);
    let deployments = || changes().map(|change| &change.deployment);
    let input = Input::many().with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()));
    let input = add_changed_release_columns(input, changes)
        .with_column("workload_id", deployments().map(|next| next.workload_id.uuid()))
        .with_column("environment", deployments().map(|next| next.environment.as_str()))
        .with_column("expected_lanes_revision", changes().map(|change| change.expected_deployment_revision.get()))
        .with_column("restricted", deployments().map(|next| next.restricted.map(ReleaseId::uuid)))
        .with_column("guided", deployments().map(|next| next.guided.map(ReleaseId::uuid)))
        .with_column("standard", deployments().map(|next| next.standard.map(ReleaseId::uuid)))
        .with_column("lanes_revision", deployments().map(|next| next.revision.get()))
        .with_column("soaking", deployments().map(|next| lanes_literal(next.soaking.iter().copied())))
        .with_column("assigns_lane", changes().map(assigns_lane))
        .with_column("reason", changes().map(|change| change.reason.as_str()))
        .with_column("actor", changes().map(|change| change.fact.actor.to_string()));
    let artifacts = || changes().map(|change| change.evidence.as_ref());
    input
        .with_column("superseded", changes().map(|change| releases_literal(&change.superseded)))
        .with_column("stopped", changes().map(|change| releases_literal(&change.stopped_rollouts)))
        .with_column("reinstated", changes().map(|change| releases_literal(&change.reinstated)))
        .with_column(
            "moved_lanes",
            changes().map(|change| lanes_literal(change.moves.iter().map(|lane_move| lane_move.lane))),
        )
        .with_column("moved_from", changes().map(|change| holders_literal(&change.moves, |lane_move| lane_move.from)))
        .with_column("moved_to", changes().map(|change| holders_literal(&change.moves, |lane_move| lane_move.to)))
        .with_column("artifact_id", artifacts().map(|artifact| artifact.map(|artifact| artifact.artifact_id.uuid())))
        .with_column("artifact_kind", artifacts().map(|artifact| artifact.map(|artifact| artifact.kind.as_str())))
        .with_column("artifact_content", artifacts().map(|artifact| artifact.map(|artifact| artifact.content.as_str())))
        .with_column(
            "artifact_checksum",
            artifacts().map(|artifact| artifact.map(|artifact| artifact.checksum.as_str())),
        )
}

/// Finds the environments in which this lane, or a more general one, has an active release.
pub(super) async fn environments_serving(
    database: &Database,
    scope: TenantScope,
    workload: WorkloadId,
    lane: Lane,
    limit: u32,
) -> Result<Vec<Slug>, StoreError> {
    let (tenant, workload) = (scope.tenant().uuid(), workload.uuid());
    let serving = || {
        let of_workload = table::tenant_id.eq(tenant).and(table::workload_id.eq(workload));
        let (restricted, guided) = (table::restricted_release_id.is_not_null(), table::guided_release_id.is_not_null());
        let standard = table::standard_release_id.is_not_null();
        let found = table::table
            .filter(of_workload)
            .select(table::environment)
            .order(table::environment)
            .limit(i64::from(limit))
            .into_boxed::<'static, Pg>();
        match lane {
            Lane::Standard => found.filter(standard),
            Lane::Guided => found.filter(standard.or(guided)),
            Lane::Restricted => found.filter(standard.or(guided).or(restricted)),
        }
    };
    let found: Vec<String> = database.load("environments that serve a lane", serving).await?;
    found.iter().map(|name| require_decoded("environment", Slug::parse(name).ok())).collect()
}
