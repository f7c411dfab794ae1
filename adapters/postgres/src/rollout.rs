//! Rollouts: soak status, and the rollouts that the rollout controller may advance. An advance is committed as a
//! lane change (`release/deployment.rs`).

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    row::require_decoded,
};
use async_trait::async_trait;
use fairway_domain::{
    id::ReleaseId,
    release::{Release, ports::TenantReleaseKey, recommendation::EndedRuns},
    rollout::{SoakStatus, ports::RolloutStore},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};

/// Counts ended runs and those among them that failed. A `FROM` with the outcomes of ended runs follows.
pub(crate) const COUNT_ENDED_RUNS: &str = "
    SELECT count(*) AS ended, count(*) FILTER (WHERE outcome IN ('failure', 'timeout')) AS failed";

#[async_trait]
impl RolloutStore for Database {
    async fn soak_status(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        limit: u32,
    ) -> Result<Option<SoakStatus>, StoreError> {
        // The statement scans only the newest 10,000 runs of a release. If most of them belong to other lanes, it
        // finds too few, and the controller does not advance the rollout.
        static READ: Query = Query::of_parts(&[
            "SELECT ceil(greatest(extract(epoch FROM soak_ends_at - fairway_now()), 0))::bigint AS soak_left,
                ended, failed
            FROM input JOIN release USING (tenant_id, release_id), LATERAL (",
            COUNT_ENDED_RUNS,
            "   FROM (
                    SELECT outcome FROM (
                        SELECT execution_id, outcome, lane, deployment_revision, finished_at FROM execution AS run
                        WHERE run.tenant_id = release.tenant_id AND run.release_id = release.release_id
                        ORDER BY execution_id DESC LIMIT 10000
                    ) AS newest
                    WHERE lane = rollout_lanes[rollout_index + 1] AND deployment_revision >= rollout_since
                        AND finished_at IS NOT NULL
                    ORDER BY execution_id DESC LIMIT max_runs
                ) AS of_lane
            ) AS counted
            WHERE rollout_status = 'in_progress'",
        ]);
        let input = Input::new(scope).with("release_id", release.uuid()).with("max_runs", i64::from(limit));
        let Some(row) = self.fetch_one(&READ, input).await? else { return Ok(None) };
        let number = |name| require_decoded(name, u32::try_from(row.column::<i64>(name)?).ok());
        Ok(Some(SoakStatus {
            soak_seconds_left: require_decoded("soak_left", u64::try_from(row.column::<i64>("soak_left")?).ok())?,
            runs: EndedRuns { ended: number("ended")?, failed: number("failed")? },
        }))
    }

    async fn list_soaked(
        &self,
        after: Option<TenantReleaseKey>,
        limit: u32,
    ) -> Result<Vec<TenantReleaseKey>, StoreError> {
        static SOAKED: Query = Query::new(
            "SELECT tenant_id, release_id FROM release
            WHERE rollout_status = 'in_progress' AND rollout_auto_advance AND soak_ends_at <= fairway_now()
                AND (tenant_id, release_id) > (SELECT after_tenant, after_release FROM input)
            ORDER BY tenant_id, release_id LIMIT (SELECT max_rows FROM input)",
        );
        self.releases_after(&SOAKED, after, limit).await
    }

    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError> {
        static HOLD: GuardedCommit = GuardedCommit::new(
            "updated_release AS (
                UPDATE release SET rollout_holds = array_append(rollout_holds, hold)
                FROM input
                WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
                    AND rollout_since = input.since AND rollout_status = 'in_progress' AND NOT hold = ANY(rollout_holds)
                RETURNING 1
             )",
            "(SELECT count(*) = 1 FROM updated_release)",
        );
        let ChangeRecord { next, fact, .. } = change.into_record();
        let recorded_hold = next
            .rollout
            .as_ref()
            .and_then(|rollout| Some((rollout.since_revision.get(), rollout.hold_reasons.last()?.as_str())));
        let Some((since, hold)) = recorded_hold else { return Err(CommitError::Stale) };
        let input =
            Input::new(scope).with("release_id", next.release_id.uuid()).with("since", since).with("hold", hold);
        self.commit_guarded(&HOLD, scope, &fact, None, input).await.map(|_| ())
    }
}
