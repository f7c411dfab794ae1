//! Releases and deployments.

mod deployment;
mod load;
mod rows;
mod transition;

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::{Database, Param},
    pagination::{ListQuery, RowBytes, SortKey, UNBOUNDED_ROW_BYTES, UnionArm, Values, visible_arms},
    row::{RowExt, decode},
};
use async_trait::async_trait;
pub(crate) use deployment::LaneChangeCommitter;
use deployment::PendingLaneChange;
use fairway_domain::{
    id::{ApprovalId, ArtifactId, BindingId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    note::MAX_NOTE_CHARS,
    release::{
        Release,
        lane::{Deployment, DeploymentChange, Lane, LaneHistoryEntry, MoveReason},
        ports::{
            DeploymentStore, RecommendationStore, ReleaseFilter, ReleaseStore, ReleaseWithDeployment, Revisions,
            TenantRelease,
        },
        recommendation::EndedRuns,
        review::{Approval, ReviewedRelease},
        rollback::ReleaseArtifact,
    },
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
pub(crate) use load::ReleaseLoader;
pub(crate) use rows::{DEPLOYMENT_COLUMNS, deployment};
use rows::{RELEASE_COLUMNS, ReleaseRow, release};
use transition::PendingTransition;
pub(crate) use transition::TransitionCommitter;

#[async_trait]
impl ReleaseStore for Database {
    async fn find(&self, scope: TenantScope, id: ReleaseId) -> Result<Option<ReleaseWithDeployment>, StoreError> {
        self.releases.load((scope.tenant().uuid(), id.uuid())).await
    }

    async fn location(
        &self,
        scope: TenantScope,
        id: ReleaseId,
    ) -> Result<Option<(WorkspaceId, WorkloadId)>, StoreError> {
        const SQL: &str = "SELECT workspace_id, workload_id FROM release WHERE tenant_id = $1 AND release_id = $2";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &id.uuid()]).await?;
        row.map(|row| Ok((row.id("workspace_id")?, row.id("workload_id")?))).transpose()
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: PageRequest,
    ) -> Result<Page<Release>, StoreError> {
        const FROM: &str = "FROM release";
        let mut values = Values::default();
        let mut conditions = vec![format!("tenant_id = {}", values.bind(scope.tenant().uuid()))];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workspace_id = {}", values.bind(workspace.uuid())));
        }
        if let Some(workload) = filter.workload {
            conditions.push(format!("workload_id = {}", values.bind(workload.uuid())));
        }
        if let Some(environment) = &filter.environment {
            conditions.push(format!("environment = {}", values.bind(environment.to_string())));
        }
        if let Some(state) = filter.state {
            conditions.push(format!("state = {}", values.bind(state.as_str())));
        }
        let (with, branches) = match &filter.visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let key = SortKey::Id("release_id", "release_id");
        let listing = ListQuery {
            with,
            columns: RELEASE_COLUMNS,
            key,
            post_join: None,
            row_bytes: RowBytes::Small,
            arms: branches,
            values,
            is_append_only: false,
        };
        self.fetch_page(listing, page, release).await
    }

    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<Approval>, StoreError> {
        let mut values = Values::default();
        let conditions = vec![
            format!("tenant_id = {}", values.bind(scope.tenant().uuid())),
            format!("release_id = {}", values.bind(release.uuid())),
        ];
        let key = SortKey::Id("approval_id", "approval_id");
        let row_bytes = RowBytes::Measured { sql: "octet_length(body)", largest: MAX_NOTE_CHARS * 4 };
        let plain = ListQuery::single(rows::APPROVAL_COLUMNS, key, "FROM approval", row_bytes, conditions, values);
        let listing = ListQuery { post_join: Some(rows::APPROVAL_NOTE.to_owned()), ..plain };
        self.fetch_page(listing, page, rows::approval_with_note).await
    }

    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        approval: ApprovalId,
    ) -> Result<Option<Approval>, StoreError> {
        let sql = format!(
            "SELECT {}, body FROM approval {}
             WHERE tenant_id = $1 AND approval_id = $2 AND release_id IS NOT DISTINCT FROM $3",
            rows::APPROVAL_COLUMNS,
            rows::APPROVAL_NOTE
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &approval.uuid(), &release.uuid()]).await?;
        row.as_ref().map(rows::approval_with_note).transpose()
    }

    async fn commit_draft(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH accepting AS (
                SELECT FROM workload WHERE tenant_id = $1 AND workload_id = $14 AND status <> 'retired'
                FOR SHARE
             ),
             made AS (
                INSERT INTO release (tenant_id, release_id, workload_id, workspace_id, environment, target_lane, state,
                    policy_bundle_id, revision, created_at, created_by, updated_at)
                SELECT $1, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $21 FROM accepting
                RETURNING 1
             ),
             lanes AS (
                INSERT INTO deployment (tenant_id, workload_id, environment, revision)
                SELECT $1, $14, $16, 1 FROM accepting
                ON CONFLICT DO NOTHING
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on: _, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let (id, workload, workspace) = (next.release_id.uuid(), next.workload_id.uuid(), next.workspace_id.uuid());
        let (environment, target, state) =
            (next.environment.as_str(), next.target_lane.as_str(), next.state.name().as_str());
        let bundle = next.policy_bundle_id.map(fairway_domain::id::AssetId::uuid);
        let (revision, at, by) = (next.revision.get(), next.created_at.to_datetime(), next.created_by.to_string());
        let own: [Param<'_>; 10] =
            [&id, &workload, &workspace, &environment, &target, &state, &bundle, &revision, &at, &by];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The shared lock keeps the asset active until the commit; a concurrent archival waits and then finds the
        // binding. Every binding locks the release's row first, so that two of them do not deadlock.
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE release SET revision = $15, updated_at = $16
                WHERE tenant_id = $1 AND release_id = $13 AND revision = $14 AND state = 'draft'
                RETURNING 1
             ),
             kept AS (
                SELECT FROM changed, asset_version JOIN asset USING (tenant_id, asset_id)
                WHERE tenant_id = $1 AND asset_version_id = $19 AND lifecycle_state IS NOT DISTINCT FROM 'active'
                FOR SHARE OF asset
             ),
             bound AS (
                INSERT INTO release_binding (tenant_id, binding_id, release_id, role, asset_version_id, created_at,
                    created_by)
                SELECT $1, $17, $13, $18, $19, $20, $21 FROM kept
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM bound), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let Some(binding) = next.bindings.last() else {
            return Err(CommitError::Stale);
        };
        let tail = CommitParams::new(scope, &fact, key);
        let (id, seen) = (next.release_id.uuid(), decided_on.unwrap_or(next.revision).get());
        let (revision, updated) = (next.revision.get(), next.updated_at.to_datetime());
        let (binding_id, role, version) =
            (binding.binding_id.uuid(), binding.role.as_str(), binding.asset_version_id.uuid());
        let (at, by) = (binding.created_at.to_datetime(), binding.created_by.to_string());
        let own: [Param<'_>; 9] = [&id, &seen, &revision, &updated, &binding_id, &role, &version, &at, &by];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit_binding_removal(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        binding: BindingId,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE release SET revision = $15, updated_at = $16
                WHERE tenant_id = $1 AND release_id = $13 AND revision = $14 AND state = 'draft'
                RETURNING 1
             ),
             unbound AS (
                DELETE FROM release_binding USING changed
                WHERE tenant_id = $1 AND release_id = $13 AND binding_id = $17
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM unbound), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, None);
        let (id, seen) = (next.release_id.uuid(), decided_on.unwrap_or(next.revision).get());
        let (revision, updated) = (next.revision.get(), next.updated_at.to_datetime());
        let own: [Param<'_>; 5] = [&id, &seen, &revision, &updated, &binding.uuid()];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit_review(
        &self,
        scope: TenantScope,
        change: Change<ReviewedRelease>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH lanes AS (
                UPDATE deployment SET revision = revision + 1
                WHERE tenant_id = $1 AND workload_id = $25 AND environment = $26 AND $27::boolean
                RETURNING 1
             ),
             changed AS (
                UPDATE release SET state = $15, bindings_digest = $16, revision = $17, updated_at = $18
                WHERE tenant_id = $1 AND release_id = $13 AND revision = $14
                    AND (SELECT count(*) FROM lanes) = $27::boolean::integer
                RETURNING 1
             ),
             said AS (
                INSERT INTO approval (tenant_id, approval_id, release_id, outcome, subject_digest, approved_by,
                    approved_at, release_revision)
                SELECT $1, $19, $13, $20, $21, $22, $23, $17 FROM changed
                RETURNING 1
             ),
             noted AS (
                INSERT INTO approval_note (tenant_id, approval_id, body)
                SELECT $1, $19, $24 FROM said WHERE $24::text IS NOT NULL
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM said), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next: ReviewedRelease { release, approval }, decided_on, fact } = change.into_record();
        let tail = CommitParams::new(scope, &fact, key);
        let row = ReleaseRow::of(&release, decided_on);
        let (approval_id, verdict) = (approval.approval_id.uuid(), approval.verdict.as_str());
        let (digest, by, at) = (approval.subject_digest.as_str(), approval.by.to_string(), approval.at.to_datetime());
        let mut own = row.params();
        // A verdict on a live release changes its lanes' data and the evidence of its runs, so the deployment's
        // revision rises.
        let (workload, environment, live) =
            (release.workload_id.uuid(), release.environment.as_str(), release.state.holds_lanes());
        own.extend_from_slice(&[&approval_id, &verdict, &digest, &by, &at, &approval.note]);
        own.extend_from_slice(&[&workload, &environment, &live]);
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }

    async fn commit_transition(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        match key {
            None => self.transitions.commit(PendingTransition { scope, change }).await,
            Some(_) => {
                self.in_flight()
                    .track(transition::commit_transition(&self.transitions.operation.committer.0, scope, &change, key))
                    .await
            }
        }
    }
}

#[async_trait]
impl DeploymentStore for Database {
    async fn deployment(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Deployment>, StoreError> {
        let sql = format!(
            "SELECT workload_id, environment, {DEPLOYMENT_COLUMNS} FROM deployment
             WHERE tenant_id = $1 AND workload_id = $2 AND environment = $3"
        );
        let params: [Param<'_>; 3] = [&scope.tenant().uuid(), &workload.uuid(), &environment.as_str()];
        let row = self.read_one(&sql, &params).await?;
        row.as_ref().map(deployment).transpose()
    }

    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        most: u32,
    ) -> Result<Vec<LaneHistoryEntry>, StoreError> {
        const SQL: &str = "SELECT revision, lane, from_release_id, to_release_id, reason, moved_at
            FROM unnest(ARRAY['restricted', 'guided', 'standard']) AS asked (lane), LATERAL (
                SELECT revision, from_release_id, to_release_id, reason, moved_at FROM deployment_history AS told
                WHERE tenant_id = $1 AND workload_id = $2 AND environment = $3 AND told.lane = asked.lane
                ORDER BY revision DESC LIMIT $4
            ) AS moved
            ORDER BY revision DESC";
        let params: [Param<'_>; 4] =
            [&scope.tenant().uuid(), &workload.uuid(), &environment.as_str(), &i64::from(most)];
        let rows = self.read(SQL, &params).await?;
        rows.iter()
            .map(|row| {
                Ok(LaneHistoryEntry {
                    revision: row.revision("revision")?,
                    lane: row.parsed("lane", Lane::parse)?,
                    from: row.optional_id("from_release_id")?,
                    to: row.optional_id("to_release_id")?,
                    reason: row.parsed("reason", MoveReason::parse)?,
                    at: row.timestamp("moved_at")?,
                })
            })
            .collect()
    }

    async fn current_revisions(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
    ) -> Result<Option<Revisions>, StoreError> {
        let place = (scope.tenant().uuid(), workload.uuid(), environment.to_string());
        self.deployment_revisions.load(place).await
    }

    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseArtifact>, StoreError> {
        let sql = format!(
            "SELECT {} FROM release_artifact WHERE tenant_id = $1 AND release_id = $2 AND artifact_id = $3",
            rows::ARTIFACT_COLUMNS
        );
        let row = self.read_one(&sql, &[&scope.tenant().uuid(), &release.uuid(), &artifact.uuid()]).await?;
        row.as_ref().map(rows::artifact).transpose()
    }

    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseArtifact>, StoreError> {
        let mut values = Values::default();
        let conditions = vec![
            format!("tenant_id = {}", values.bind(scope.tenant().uuid())),
            format!("release_id = {}", values.bind(release.uuid())),
        ];
        let key = SortKey::Id("artifact_id", "artifact_id");
        let listing = ListQuery::single(
            rows::ARTIFACT_COLUMNS,
            key,
            "FROM release_artifact",
            RowBytes::Measured { sql: "octet_length(content)", largest: UNBOUNDED_ROW_BYTES },
            conditions,
            values,
        );
        self.fetch_page(listing, page, rows::artifact).await
    }

    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, newest: u32) -> Result<EndedRuns, StoreError> {
        const SQL: &str =
            "SELECT count(*) AS ended, count(*) FILTER (WHERE outcome IN ('failure', 'timeout')) AS failed
            FROM (
                SELECT outcome FROM execution
                WHERE tenant_id = $1 AND release_id = $2 AND finished_at IS NOT NULL
                ORDER BY execution_id DESC LIMIT $3
            ) AS newest";
        let row = self.read_one(SQL, &[&scope.tenant().uuid(), &release.uuid(), &i64::from(newest)]).await?;
        let row = decode("ended", row)?;
        let number = |name| decode(name, u32::try_from(row.column::<i64>(name)?).ok());
        Ok(EndedRuns { ended: number("ended")?, failed: number("failed")? })
    }

    async fn list_serving(&self, after: Option<TenantRelease>, most: u32) -> Result<Vec<TenantRelease>, StoreError> {
        const SQL: &str = "SELECT tenant_id, release_id FROM release
            WHERE state = 'active' AND (tenant_id, release_id) > ($1, $2)
            ORDER BY tenant_id, release_id LIMIT $3";
        self.releases_after(SQL, after, most).await
    }

    async fn commit_deployment(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<Timestamp>, CommitError> {
        match key {
            None => self.lane_changes.commit(PendingLaneChange { scope, change }).await,
            Some(_) => {
                self.in_flight()
                    .track(deployment::commit_lane_change(
                        &self.lane_changes.operation.committer.0,
                        scope,
                        &change,
                        key,
                    ))
                    .await
            }
        }
    }
}

#[async_trait]
impl RecommendationStore for Database {
    async fn claim_recommendation_job(&self) -> Result<bool, StoreError> {
        const SQL: &str = "UPDATE chore SET due_at = fairway_now() + interval '15 seconds'
            WHERE name = 'advise_rollbacks' AND due_at <= fairway_now() RETURNING name";
        Ok(!self.write_idempotent(SQL, &[]).await?.is_empty())
    }

    async fn commit_recommendation(&self, scope: TenantScope, change: Change<Release>) -> Result<(), CommitError> {
        const SQL: &str = concat!(
            "WITH changed AS (
                UPDATE release SET rollback_advised = $14
                WHERE tenant_id = $1 AND release_id = $13 AND state = 'active' AND rollback_advised <> $14
                RETURNING 1
             )
             SELECT fairway_commit((SELECT count(*) = 1 FROM changed), ",
            commit_tail!(),
            ")"
        );
        let ChangeRecord { next, fact, .. } = change.into_record();
        let tail = CommitParams::new(scope, &fact, None);
        let own: [Param<'_>; 2] = [&next.release_id.uuid(), &next.rollback_recommended];
        self.commit(SQL, &tail.with(&own)).await.map(|_| ())
    }
}
