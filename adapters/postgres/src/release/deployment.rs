//! Lane changes. One statement writes the deployment, its releases, their rollouts, the history and the rollback
//! document.

use super::input_columns::{add_release_columns, add_rollout_columns};
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
    release::{
        BindingsDigest,
        deployment::{DeploymentChange, SoakEffect},
        lane::Lane,
    },
    slug::Slug,
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use serde_json::json;
use std::collections::HashSet;
use uuid::Uuid;

/// Commits a lane change in one statement.
///
/// Rows are locked in the order that the documentation of `release.rs` defines. The CTE `locked_releases` depends on
/// the update of the deployment, and all later parts depend on that CTE. A release to which a lane returns must still
/// be `superseded`. The shared lock on the workload serializes the change with a retirement of the workload, after
/// which no release receives a lane.
static MOVE_LANES: GuardedCommit = GuardedCommit::returning(
    "locked_workload AS (
        SELECT FROM workload JOIN input USING (tenant_id, workload_id) WHERE status <> 'retired'
        FOR SHARE OF workload
     ),
     updated_deployment AS (
        UPDATE deployment SET restricted_release_id = restricted, guided_release_id = guided,
            standard_release_id = standard, revision = lanes_revision, soaking_lanes = input.soaking
        FROM input
        WHERE deployment.tenant_id = input.tenant_id AND deployment.workload_id = input.workload_id
            AND deployment.environment = input.environment AND deployment.revision = expected_lanes_revision
            AND (NOT assigns_lane OR EXISTS (SELECT FROM locked_workload))
        RETURNING 1
     ),
     locked_releases AS MATERIALIZED (
        SELECT FROM updated_deployment, input JOIN release USING (tenant_id)
        WHERE release.release_id = ANY(input.release_id || superseded || stopped || reinstated)
        ORDER BY release.release_id
        FOR NO KEY UPDATE OF release
     ),
     updated_release AS (
        UPDATE release SET state = input.state, bindings_digest = input.bindings_digest, revision = input.revision,
            updated_at = input.updated_at, supersedes_release_id = input.supersedes,
            rollout_status = input.rollout_status, rollout_lanes = input.rollout_lanes,
            rollout_soak_minutes = input.soak_minutes, rollout_auto_advance = input.auto_advance,
            rollout_index = input.rollout_index, rollout_since = input.rollout_since,
            rollout_holds = input.rollout_holds,
            soak_started_at = CASE WHEN starts_soak THEN fairway_now() ELSE soak_started_at END,
            soak_ends_at = CASE WHEN starts_soak THEN fairway_now() + make_interval(mins => input.soak_minutes)
                ELSE soak_ends_at END
        FROM input
        WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
            AND (SELECT count(*) FROM locked_releases) > 0
            AND release.revision = expected_revision AND (NOT requires_ended_soak OR soak_ends_at <= fairway_now())
        RETURNING soak_started_at
     ),
     displaced_releases AS (
        UPDATE release SET revision = release.revision + 1, updated_at = input.updated_at,
            state = CASE WHEN release.release_id = ANY(superseded) THEN 'superseded' ELSE release.state END,
            rollout_status = CASE
                WHEN release.release_id = ANY(stopped) AND release.rollout_status = 'in_progress' THEN 'rolled_back'
                ELSE release.rollout_status END
        FROM updated_release, input
        WHERE release.tenant_id = input.tenant_id AND release.release_id = ANY(superseded || stopped)
            AND release.state IS NOT DISTINCT FROM 'active'
        RETURNING 1
     ),
     reinstated_releases AS (
        UPDATE release SET state = 'active', revision = release.revision + 1, updated_at = input.updated_at
        FROM updated_release, input
        WHERE release.tenant_id = input.tenant_id AND release.release_id = ANY(reinstated)
            AND release.state = 'superseded'
        RETURNING 1
     ),
     inserted_artifact AS (
        INSERT INTO release_artifact (tenant_id, release_id, artifact_id, artifact_kind, content, checksum,
            created_at, created_by)
        SELECT tenant_id, release_id, artifact_id, artifact_kind, artifact_content, artifact_checksum, updated_at, actor
        FROM updated_release, input WHERE artifact_id IS NOT NULL
     ),
     inserted_history AS (
        INSERT INTO deployment_history (tenant_id, workload_id, environment, revision, lane, from_release_id,
            to_release_id, reason, actor, moved_at)
        SELECT tenant_id, workload_id, environment, lanes_revision, lane_move.lane, lane_move.from_id, lane_move.to_id, reason, actor,
            updated_at
        FROM updated_release, input, unnest(moved_lanes, moved_from, moved_to) AS lane_move (lane, from_id, to_id)
     )",
    "(SELECT count(*) = 1 FROM updated_release)
        AND (SELECT count(*) FROM displaced_releases)
            = (SELECT cardinality(ARRAY(SELECT DISTINCT unnest(superseded || stopped))) FROM input)
        AND (SELECT count(*) FROM reinstated_releases) = (SELECT cardinality(reinstated) FROM input)",
    "(SELECT soak_started_at FROM updated_release) AS soak_started_at",
);

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

/// Commits a lane change. Returns when the current soak of the release's rollout began.
pub(super) async fn commit_lane_change(
    pool: &StatementPool,
    scope: TenantScope,
    change: &DeploymentChange,
    key: Option<&KeyedOutcome>,
) -> Result<Option<Timestamp>, CommitError> {
    let next = &change.deployment;
    let holder = |release: Option<ReleaseId>| release.map(ReleaseId::uuid);
    let ids = |releases: &[ReleaseId]| releases.iter().map(|id| id.uuid()).collect::<Vec<Uuid>>();
    let evidence = change.evidence.as_ref();
    let input = add_release_columns(Input::new(scope), &change.release, change.expected_release_revision)
        .with("workload_id", next.workload_id.uuid())
        .with("environment", next.environment.as_str())
        .with("expected_lanes_revision", change.expected_deployment_revision.get())
        .with("lanes_revision", next.revision.get())
        .with("restricted", holder(next.restricted))
        .with("guided", holder(next.guided))
        .with("standard", holder(next.standard))
        .with_list("soaking", next.soaking.iter().map(|lane| lane.as_str()).collect())
        .with("assigns_lane", assigns_lane(change))
        .with("supersedes", holder(change.release.supersedes_release_id))
        .with_list("superseded", ids(&change.superseded))
        .with_list("stopped", ids(&change.stopped_rollouts))
        .with_list("reinstated", ids(&change.reinstated))
        .with_list("moved_lanes", change.moves.iter().map(|lane_move| lane_move.lane.as_str()).collect())
        .with_list("moved_from", change.moves.iter().map(|lane_move| holder(lane_move.from)).collect())
        .with_list("moved_to", change.moves.iter().map(|lane_move| holder(lane_move.to)).collect())
        .with("reason", change.reason.as_str())
        .with("actor", change.fact.actor.to_string())
        .with("artifact_id", evidence.map(|artifact| artifact.artifact_id.uuid()))
        .with("artifact_kind", evidence.map(|artifact| artifact.kind.as_str()))
        .with("artifact_content", evidence.map(|artifact| artifact.content.as_str()))
        .with("artifact_checksum", evidence.map(|artifact| artifact.checksum.as_str()));
    let (sql, input) = MOVE_LANES.prepare(scope, &change.fact, key, add_rollout_columns(input, change))?;
    let rows = commit(pool, sql, &input.params()).await?;
    Ok(require_decoded("soak_started_at", rows.first())?.optional_timestamp("soak_started_at")?)
}

/// Whether the change assigns a lane to a release, which a retired workload does not allow.
fn assigns_lane(change: &DeploymentChange) -> bool {
    change.moves.iter().any(|lane_move| lane_move.to.is_some())
}

/// Commits a batch of lane changes that supersede no release, reinstate no release and belong to no rollout. Most
/// changes of a single lane are of this kind.
///
/// Three CTEs check and lock all rows of a change before other CTEs write, so a change is applied completely or not
/// at all. Each of the three locks its rows in key order. The conditions on counts make PostgreSQL complete each
/// CTE before the next one starts, so that concurrent batches lock all rows in the same order.
static LANE_CHANGES: GuardedBatchCommit = GuardedBatchCommit::new(
    "locked_workload AS MATERIALIZED (
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
     locked AS MATERIALIZED (
        SELECT input.* FROM locked_deployment JOIN input USING (fact_id) JOIN release USING (tenant_id, release_id)
        WHERE release.revision = expected_revision AND (SELECT count(*) FROM locked_deployment) > 0
        ORDER BY tenant_id, release_id
        FOR NO KEY UPDATE OF release
     ),
     updated_deployment AS (
        UPDATE deployment SET restricted_release_id = locked.restricted, guided_release_id = locked.guided,
            standard_release_id = locked.standard, revision = locked.lanes_revision
        FROM locked
        WHERE deployment.tenant_id = locked.tenant_id AND deployment.workload_id = locked.workload_id
            AND deployment.environment = locked.environment
     ),
     updated_release AS (
        UPDATE release SET state = locked.state, bindings_digest = locked.bindings_digest, revision = locked.revision,
            updated_at = locked.updated_at, supersedes_release_id = locked.supersedes
        FROM locked
        WHERE release.tenant_id = locked.tenant_id AND release.release_id = locked.release_id
     ),
     inserted_history AS (
        INSERT INTO deployment_history (tenant_id, workload_id, environment, revision, lane, from_release_id,
            to_release_id, reason, actor, moved_at)
        SELECT tenant_id, workload_id, environment, lanes_revision, lane_move ->> 'lane', (lane_move ->> 'from')::uuid,
            (lane_move ->> 'to')::uuid, reason, actor, updated_at
        FROM locked, jsonb_array_elements(moves) AS lane_move
     )",
    "locked",
    "SELECT fact_id FROM locked",
);

/// Group commit of lane changes.
pub(crate) struct LaneChangeCommitter(pub(crate) StatementPool);

/// A lane change that waits for its group commit.
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

    fn is_batchable(pending: &PendingLaneChange, batch: &[&PendingLaneChange]) -> bool {
        let change = &pending.change;
        let affects_one_release =
            change.superseded.is_empty() && change.reinstated.is_empty() && change.evidence.is_none();
        let affects_rollout = change.release.rollout.is_some()
            || change.soak != SoakEffect::Kept
            || change.requires_ended_soak
            || !change.stopped_rollouts.is_empty()
            || !change.deployment.soaking.is_empty();
        affects_one_release
            && !affects_rollout
            && batch.iter().all(|other| other.deployment_key() != pending.deployment_key())
    }

    /// Zero, because a batched change contains only identifiers, states and digests.
    fn payload_bytes(_: &PendingLaneChange) -> usize {
        0
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingLaneChange],
    ) -> Result<Option<Vec<Result<Option<Timestamp>, CommitError>>>, StoreError> {
        let input = batch_input(pending);
        let Some(rows) = commit_batch(&self.0, LANE_CHANGES.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let committed: HashSet<Uuid> = rows.iter().map(|row| row.column("fact_id")).collect::<Result<_, _>>()?;
        let result_of = |pending: &&PendingLaneChange| {
            committed.contains(&pending.change.fact.fact_id.uuid()).then_some(None).ok_or(CommitError::Stale)
        };
        Ok(Some(pending.iter().map(result_of).collect()))
    }

    async fn commit_one(&self, pending: &PendingLaneChange) -> Result<Option<Timestamp>, CommitError> {
        commit_lane_change(&self.0, pending.scope, &pending.change, None).await
    }
}

/// Builds the input columns of a batch of lane changes.
fn batch_input<'v>(pending: &[&'v PendingLaneChange]) -> Input<'v> {
    let holder = |release: Option<ReleaseId>| release.map(ReleaseId::uuid);
    let mut facts = FactColumns::default();
    pending.iter().for_each(|pending| facts.push(pending.scope, &pending.change.fact));
    let changes = || pending.iter().map(|pending| &pending.change);
    let deployments = || changes().map(|change| &change.deployment);
    let releases = || changes().map(|change| &change.release);
    let moves = |change: &DeploymentChange| {
        change
            .moves
            .iter()
            .map(|lane_move| json!({ "lane": lane_move.lane.as_str(), "from": lane_move.from, "to": lane_move.to }))
            .collect()
    };
    let input = Input::many()
        .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
        .with_column("release_id", releases().map(|release| release.release_id.uuid()))
        .with_column("expected_revision", changes().map(|change| change.expected_release_revision.get()))
        .with_column("state", releases().map(|release| release.state.name().as_str()))
        .with_column("bindings_digest", releases().map(|release| release.state.digest().map(BindingsDigest::as_str)))
        .with_column("revision", releases().map(|release| release.revision.get()))
        .with_column("updated_at", releases().map(|release| release.updated_at.to_datetime()))
        .with_column("supersedes", releases().map(|release| holder(release.supersedes_release_id)))
        .with_column("workload_id", deployments().map(|next| next.workload_id.uuid()))
        .with_column("environment", deployments().map(|next| next.environment.as_str()))
        .with_column("expected_lanes_revision", changes().map(|change| change.expected_deployment_revision.get()))
        .with_column("restricted", deployments().map(|next| holder(next.restricted)))
        .with_column("guided", deployments().map(|next| holder(next.guided)))
        .with_column("standard", deployments().map(|next| holder(next.standard)))
        .with_column("lanes_revision", deployments().map(|next| next.revision.get()))
        .with_column("assigns_lane", changes().map(assigns_lane))
        .with_column("reason", changes().map(|change| change.reason.as_str()))
        .with_column("actor", changes().map(|change| change.fact.actor.to_string()))
        .with_column("moves", changes().map(moves).collect::<Vec<serde_json::Value>>());
    facts.add_to_input(input)
}
