//! Rollouts: lane metrics, and the rollouts that the rollout controller may advance.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use fairway_domain::{
    id::ReleaseId,
    release::{Release, ports::TenantRelease, recommendation::EndedRuns},
    rollout::{SoakStatus, ports::RolloutStore},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};

#[async_trait]
impl RolloutStore for Database {
    async fn soak_status(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        newest: u32,
    ) -> Result<Option<SoakStatus>, StoreError> {
        // Only the newest 10,000 runs of a release are scanned. If most belong to other lanes, too few are found and
        // the controller holds the rollout.
        const SQL: &str =
            "SELECT ceil(greatest(extract(epoch FROM soak_ends_at - fairway_now()), 0))::bigint AS soak_left,
                ended, failed
            FROM release, LATERAL (
                SELECT count(*) AS ended, count(*) FILTER (WHERE outcome IN ('failure', 'timeout')) AS failed
                FROM (
                    SELECT outcome FROM (
                        SELECT execution_id, outcome, lane, deployment_revision, finished_at FROM execution AS run
                        WHERE run.tenant_id = release.tenant_id AND run.release_id = release.release_id
                        ORDER BY execution_id DESC LIMIT 10000
                    ) AS newest
                    WHERE lane = rollout_lanes[rollout_index + 1] AND deployment_revision >= rollout_since
                        AND finished_at IS NOT NULL
                    ORDER BY execution_id DESC LIMIT $3
                ) AS of_lane
            ) AS counted
            WHERE tenant_id = $1 AND release_id = $2 AND rollout_status = 'in_progress'";
        let params: [Param<'_>; 3] = [&scope.tenant().uuid(), &release.uuid(), &i64::from(newest)];
        let Some(row) = self.read_one(SQL, &params).await? else { return Ok(None) };
        let number = |name| decode(name, u32::try_from(row.column::<i64>(name)?).ok());
        Ok(Some(SoakStatus {
            soak_seconds_left: decode("soak_left", u64::try_from(row.column::<i64>("soak_left")?).ok())?,
            runs: EndedRuns { ended: number("ended")?, failed: number("failed")? },
        }))
    }

    async fn list_soaked(&self, after: Option<TenantRelease>, most: u32) -> Result<Vec<TenantRelease>, StoreError> {
        const SQL: &str = "SELECT tenant_id, release_id FROM release
            WHERE rollout_status = 'in_progress' AND rollout_auto_advance AND soak_ends_at <= fairway_now()
                AND (tenant_id, release_id) > ($1, $2)
            ORDER BY tenant_id, release_id LIMIT $3";
        self.releases_after(SQL, after, most).await
    }

    async fn commit_hold(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE release SET rollout_holds = array_append(rollout_holds, $15)
                WHERE tenant_id = $1 AND release_id = $13 AND rollout_since = $14 AND rollout_status = 'in_progress'
                    AND NOT $15 = ANY(rollout_holds)
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, fact, .. } = change.into_record();
        let told = next
            .rollout
            .as_ref()
            .and_then(|rollout| Some((rollout.since_revision.get(), rollout.hold_reasons.last()?.as_str())));
        let Some((since, hold)) = told else { return Err(CommitError::Stale) };
        let tail = CommitParams::new(scope, &fact, None);
        let own: [Param<'_>; 3] = [&next.release_id.uuid(), &since, &hold];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }
}
