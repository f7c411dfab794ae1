//! Lane changes: one statement writes the deployment, its releases, their rollouts, the history and the rollback
//! document.

use super::rows::{ReleaseRow, RolloutRow};
use crate::{
    commit_tail::{CommitParams, FactColumns, commit_tail, fact_column_names, fact_placeholders, insert_facts},
    database::{Param, commit, commit_batch},
    group_commit::BatchCommitter,
    row::{RowExt, decode},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    id::ReleaseId,
    idempotency::KeyedOutcome,
    release::lane::{DeploymentChange, Soak},
    store::{CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use std::collections::HashSet;
use time::OffsetDateTime;
use uuid::Uuid;

/// Moves lanes in one statement.
///
/// The deployment's row is locked first and all other parts depend on it, so concurrent changes queue and do not
/// deadlock. A returning release must still be `superseded`. The shared lock on the workload orders the change with
/// a concurrent retirement, after which no release gets a lane.
const MOVE_LANES: &str = concat!(
    "WITH accepting AS (
        SELECT FROM workload WHERE tenant_id = $1 AND workload_id = $19 AND status <> 'retired'
        FOR SHARE
     ),
     lanes AS (
        UPDATE deployment SET restricted_release_id = $22, guided_release_id = $23, standard_release_id = $24,
            revision = $25, soaking_lanes = $47
        WHERE tenant_id = $1 AND workload_id = $19 AND environment = $20 AND revision = $21
            AND (NOT $49 OR EXISTS (SELECT FROM accepting))
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
        WHERE tenant_id = $1 AND release_id = ANY($27::uuid[] || $48::uuid[]) AND state IS NOT DISTINCT FROM 'active'
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

/// Commits a lane change. Returns the start of the current soak of the release's rollout.
pub(super) async fn commit_lane_change(
    pool: &Pool,
    scope: TenantScope,
    change: &DeploymentChange,
    key: Option<&KeyedOutcome>,
) -> Result<Option<Timestamp>, CommitError> {
    let next = &change.deployment;
    let tail = CommitParams::new(scope, &change.fact, key);
    let row = ReleaseRow::of(&change.release, Some(change.release_decided_on));
    let (workload, environment) = (next.workload_id.uuid(), next.environment.as_str());
    let (seen, revision) = (change.deployment_decided_on.get(), next.revision.get());
    let holder = |release: Option<ReleaseId>| release.map(ReleaseId::uuid);
    let (restricted, guided, standard) = (holder(next.restricted), holder(next.guided), holder(next.standard));
    let supersedes = holder(change.release.supersedes_release_id);
    let superseded: Vec<Uuid> = change.superseded.iter().map(|id| id.uuid()).collect();
    let stopped: Vec<Uuid> = change.stopped_rollouts.iter().map(|id| id.uuid()).collect();
    let soaking: Vec<&str> = next.soaking.iter().map(|lane| lane.as_str()).collect();
    let rollout = RolloutRow::of(change);
    let returned: Vec<Uuid> = change.reinstated.iter().map(|id| id.uuid()).collect();
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
    let takes = assigns_lane(change);
    own.extend_from_slice(&[&soaking, &stopped, &takes]);
    let rows = commit(pool, MOVE_LANES, &tail.with(&own)).await?;
    Ok(decode("soak_started_at", rows.first())?.optional_timestamp("soak_started_at")?)
}

/// Whether the change gives a lane to a release. A retired workload allows no such change.
fn assigns_lane(change: &DeploymentChange) -> bool {
    change.moves.iter().any(|moved| moved.to.is_some())
}

/// Commits a batch of lane changes that supersede no release, return none and belong to no rollout, as most
/// single-lane changes do. The CTE `locked` checks and locks all rows first, so a change is applied as a whole or not
/// at all. Deployments are locked in one order, so that concurrent batches do not deadlock.
const COMMIT_BATCH: &str = concat!(
    "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(",
    fact_placeholders!(),
    ", $7::uuid[], $8::bigint[], $9::text[], $10::text[], $11::bigint[], $12::timestamptz[], $13::uuid[], $14::uuid[],
            $15::text[], $16::bigint[], $17::uuid[], $18::uuid[], $19::uuid[], $20::bigint[], $27::boolean[])
            AS asked (",
    fact_column_names!(),
    ", release_id, seen, state, digest, revision, moved_at, supersedes, workload_id, environment, lanes_seen, restricted,
            guided, standard, lanes_revision, takes_lanes)
        ORDER BY tenant_id, workload_id, environment
    ),
    held AS MATERIALIZED (
        SELECT asked.* FROM asked
        JOIN deployment AS lanes ON lanes.tenant_id = asked.tenant_id AND lanes.workload_id = asked.workload_id
            AND lanes.environment = asked.environment AND lanes.revision = asked.lanes_seen
        JOIN release AS moved ON moved.tenant_id = asked.tenant_id AND moved.release_id = asked.release_id
            AND moved.revision = asked.seen
        JOIN workload AS accepting ON accepting.tenant_id = asked.tenant_id
            AND accepting.workload_id = asked.workload_id AND (accepting.status <> 'retired' OR NOT asked.takes_lanes)
        FOR UPDATE OF lanes, moved FOR SHARE OF accepting
    ),
    lanes AS (
        UPDATE deployment SET restricted_release_id = held.restricted, guided_release_id = held.guided,
            standard_release_id = held.standard, revision = held.lanes_revision
        FROM held
        WHERE deployment.tenant_id = held.tenant_id AND deployment.workload_id = held.workload_id
            AND deployment.environment = held.environment
    ),
    changed AS (
        UPDATE release SET state = held.state, bindings_digest = held.digest, revision = held.revision,
            updated_at = held.moved_at, supersedes_release_id = held.supersedes
        FROM held
        WHERE release.tenant_id = held.tenant_id AND release.release_id = held.release_id
    ),
    history AS (
        INSERT INTO deployment_history (tenant_id, workload_id, environment, revision, lane, from_release_id,
            to_release_id, reason, actor, moved_at)
        SELECT tenant_id, workload_id, environment, lanes_revision, lane, from_id, to_id, reason, actor, moved_at
        FROM held
        JOIN unnest($21::uuid[], $22::text[], $23::uuid[], $24::uuid[], $25::text[], $26::text[])
            AS moved (fact_id, lane, from_id, to_id, reason, actor) USING (fact_id)
    ),
    ",
    insert_facts!("held"),
    " SELECT fact_id FROM held"
);

/// Group commit of lane changes.
pub(crate) struct LaneChangeCommitter(pub(crate) Pool);

/// A lane change to commit.
pub(crate) struct PendingLaneChange {
    pub(super) scope: TenantScope,
    pub(super) change: DeploymentChange,
}

impl PendingLaneChange {
    /// The key of the deployment.
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

    fn is_batchable(pending: &PendingLaneChange, in_front: &[&PendingLaneChange]) -> bool {
        let change = &pending.change;
        let alone = change.superseded.is_empty() && change.reinstated.is_empty() && change.evidence.is_none();
        let rolls = change.release.rollout.is_some()
            || change.soak != Soak::Kept
            || change.requires_soak
            || !change.stopped_rollouts.is_empty()
            || !change.deployment.soaking.is_empty();
        alone && !rolls && in_front.iter().all(|other| other.deployment_key() != pending.deployment_key())
    }

    /// A batched change contains identifiers, states and digests only.
    fn payload_bytes(_: &PendingLaneChange) -> usize {
        0
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingLaneChange],
    ) -> Result<Option<Vec<Result<Option<Timestamp>, CommitError>>>, StoreError> {
        let mut batch = BatchColumns::default();
        for pending in pending {
            batch.push(pending);
        }
        let Some(rows) = commit_batch(&self.0, COMMIT_BATCH, &batch.facts.with(&batch.params())).await? else {
            return Ok(None);
        };
        let moved: HashSet<Uuid> = rows.iter().map(|row| row.column("fact_id")).collect::<Result<_, _>>()?;
        let answer = |pending: &&PendingLaneChange| {
            moved.contains(&pending.change.fact.fact_id.uuid()).then_some(None).ok_or(CommitError::Stale)
        };
        Ok(Some(pending.iter().map(answer).collect()))
    }

    async fn commit_one(&self, pending: &PendingLaneChange) -> Result<Option<Timestamp>, CommitError> {
        commit_lane_change(&self.0, pending.scope, &pending.change, None).await
    }
}

/// A batch of lane changes, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    facts: FactColumns,
    releases: Vec<Uuid>,
    expected_revisions: Vec<i64>,
    states: Vec<&'static str>,
    digests: Vec<Option<&'a str>>,
    revisions: Vec<i64>,
    moments: Vec<OffsetDateTime>,
    supersedes: Vec<Option<Uuid>>,
    workloads: Vec<Uuid>,
    environments: Vec<&'a str>,
    expected_deployment_revisions: Vec<i64>,
    restricted: Vec<Option<Uuid>>,
    guided: Vec<Option<Uuid>>,
    standard: Vec<Option<Uuid>>,
    lanes_revisions: Vec<i64>,
    history_facts: Vec<Uuid>,
    lanes: Vec<&'static str>,
    from: Vec<Option<Uuid>>,
    to: Vec<Option<Uuid>>,
    reasons: Vec<&'static str>,
    actors: Vec<String>,
    assigns_lane: Vec<bool>,
}

impl<'a> BatchColumns<'a> {
    fn push(&mut self, pending: &'a PendingLaneChange) {
        let change = &pending.change;
        let (row, next) = (ReleaseRow::of(&change.release, Some(change.release_decided_on)), &change.deployment);
        let holder = |release: Option<ReleaseId>| release.map(ReleaseId::uuid);
        self.facts.push(pending.scope, &change.fact);
        self.releases.push(row.id);
        self.expected_revisions.push(row.expected_revision);
        self.states.push(row.state);
        self.digests.push(row.digest);
        self.revisions.push(row.revision);
        self.moments.push(row.at);
        self.supersedes.push(holder(change.release.supersedes_release_id));
        self.workloads.push(next.workload_id.uuid());
        self.environments.push(next.environment.as_str());
        self.expected_deployment_revisions.push(change.deployment_decided_on.get());
        self.restricted.push(holder(next.restricted));
        self.guided.push(holder(next.guided));
        self.standard.push(holder(next.standard));
        self.lanes_revisions.push(next.revision.get());
        self.assigns_lane.push(assigns_lane(change));
        for moved in &change.moves {
            self.history_facts.push(change.fact.fact_id.uuid());
            self.lanes.push(moved.lane.as_str());
            self.from.push(holder(moved.from));
            self.to.push(holder(moved.to));
            self.reasons.push(change.reason.as_str());
            self.actors.push(change.fact.actor.to_string());
        }
    }

    fn params(&self) -> [Param<'_>; 21] {
        [
            &self.releases,
            &self.expected_revisions,
            &self.states,
            &self.digests,
            &self.revisions,
            &self.moments,
            &self.supersedes,
            &self.workloads,
            &self.environments,
            &self.expected_deployment_revisions,
            &self.restricted,
            &self.guided,
            &self.standard,
            &self.lanes_revisions,
            &self.history_facts,
            &self.lanes,
            &self.from,
            &self.to,
            &self.reasons,
            &self.actors,
            &self.assigns_lane,
        ]
    }
}
