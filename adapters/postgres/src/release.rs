//! The stores of releases and deployments.
//!
//! Each commit is one statement. It locks existing rows in this order: workload (shared), deployment, release, asset
//! (shared), idempotency key. A commit that locks several rows of one table locks them in the order of their
//! identifiers. Commits therefore wait for each other but do not deadlock. Foreign keys add key-share locks, which
//! conflict with none of these locks, because no commit changes the key of a row.
//!
//! Two commits insert rows after they claimed their idempotency key, because their guards do not name the inserts:
//! - A new draft inserts the missing deployment of its environment. It waits only for the same insert of another draft,
//!   which then waits for no other lock.
//! - The first publication of a use case locks the use case and the reused assets. Then it inserts the workload, the
//!   deployment and the release, which no other commit sees.
//!
//! | commit | workload | deployment | release | asset |
//! |---|---|---|---|---|
//! | new draft | shared | inserted, if missing | inserted | |
//! | first publication of a use case, after the use case itself | inserted | inserted | inserted | shared |
//! | bind | | | updated | shared |
//! | unbind | | | updated | |
//! | submit with references | | | updated | shared |
//! | reopen, approve, submit without references; also in batches | | | updated; an approval also inserts pins of its knowledge bases by a trigger | |
//! | hold a rollout, recommend a rollback | | | updated | |
//! | verdict | | updated if the release holds lanes | updated | |
//! | activate, advance, roll back, retire; also in batches | shared | updated | the release, and those that it displaces, stops or returns from `superseded` | |

mod approval_reads;
mod deployment;
mod draft;
mod input_columns;
mod load;
mod recommendation;
mod rows;
mod transition_without_lanes;

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    pagination::{ListQuery, PageByteLimit, SortKey, UNBOUNDED_ROW_BYTES, UnionArm, visible_arms},
    rollout::COUNT_ENDED_RUNS,
    row::require_decoded,
    schema,
    workload::LOCK_WORKLOAD,
};
use async_trait::async_trait;
pub(crate) use deployment::LaneChangeCommitter;
use deployment::PendingLaneChange;
use diesel::{QueryDsl as _, SelectableHelper as _};
use draft::UPDATE_DRAFT;
pub(crate) use draft::{INSERT_BINDINGS, INSERT_DEPLOYMENT, INSERT_RELEASE, add_draft_columns};
use fairway_domain::{
    id::{ApprovalId, ArtifactId, BindingId, ReleaseId, WorkloadId, WorkspaceId},
    idempotency::KeyedOutcome,
    release::{
        Release,
        deployment::{Deployment, DeploymentChange},
        lane::{Lane, LaneHistoryEntry, MoveReason},
        ports::{
            DeploymentAccessRevisions, DeploymentStore, ReleaseEvidenceStore, ReleaseFilter, ReleaseStore,
            ReleaseWithDeployment, ServingReleaseStore, TenantReleaseKey,
        },
        recommendation::EndedRuns,
        review::{ReviewedRelease, ReviewerVerdict},
        rollback::ReleaseEvidenceArtifact,
    },
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
pub(crate) use load::ReleaseLoader;
pub(crate) use rows::{DEPLOYMENT_COLUMNS, decode_deployment};
use rows::{NOT_BUILTIN, RELEASE_COLUMNS, StoredArtifact, decode_release};
use transition_without_lanes::PendingTransition;
pub(crate) use transition_without_lanes::TransitionCommitter;
use uuid::Uuid;

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
        let key = (scope.tenant().uuid(), id.uuid());
        let find =
            || schema::release::table.find(key).select((schema::release::workspace_id, schema::release::workload_id));
        let found: Option<(Uuid, Uuid)> = self.first("location of a release", find).await?;
        Ok(found.map(|(workspace, workload)| (workspace.into(), workload.into())))
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &ReleaseFilter,
        page: PageRequest,
    ) -> Result<Page<Release>, StoreError> {
        const FROM: &str = "FROM release";
        let mut values = Input::of_params(scope);
        let mut conditions = vec!["tenant_id = {tenant_id}".to_owned()];
        if let Some(workspace) = filter.workspace {
            conditions.push(format!("workspace_id = {}", values.bind("workspace_id", workspace.uuid())));
        }
        if let Some(workload) = filter.workload {
            conditions.push(format!("workload_id = {}", values.bind("workload_id", workload.uuid())));
        }
        if let Some(environment) = &filter.environment {
            conditions.push(format!("environment = {}", values.bind("environment", environment.to_string())));
        }
        if let Some(state) = filter.state {
            conditions.push(format!("state = {}", values.bind("state", state.as_str())));
        }
        if filter.excludes_builtin {
            conditions.push(NOT_BUILTIN.to_owned());
        }
        let (with, arms) = match &filter.visible_scopes {
            None => (String::new(), vec![UnionArm { from: FROM.to_owned(), conditions, lateral: None }]),
            Some(visible_scopes) => {
                visible_arms(visible_scopes, FROM, "workspace_id", "workload_id", &conditions, &mut values)
            }
        };
        let key = SortKey::Id("release_id", "release_id");
        let query = ListQuery {
            with,
            columns: RELEASE_COLUMNS,
            key,
            post_join: None,
            byte_limit: PageByteLimit::Small,
            arms,
            values,
            is_append_only: false,
            stored_count: None,
        };
        self.fetch_page(query, page, decode_release).await
    }

    async fn approvals(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReviewerVerdict>, StoreError> {
        approval_reads::list(self, scope, release, page).await
    }

    async fn approval(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        id: ApprovalId,
    ) -> Result<Option<ReviewerVerdict>, StoreError> {
        approval_reads::find(self, scope, release, id).await
    }

    async fn commit_draft(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        static CREATE: GuardedCommit = GuardedCommit::of_parts(
            &[
                LOCK_WORKLOAD,
                ", inserted_release AS (",
                INSERT_RELEASE,
                ", locked_workload RETURNING 1),
                 inserted_deployment AS (",
                INSERT_DEPLOYMENT,
                ", locked_workload ON CONFLICT DO NOTHING)",
            ],
            "(SELECT count(*) = 1 FROM inserted_release)",
            "",
        );
        let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
        let input = add_draft_columns(Input::new(scope), Some(&next))
            .with("workload_id", next.workload_id.uuid())
            .with("workspace_id", next.workspace_id.uuid())
            .with("created_at", next.created_at.to_datetime())
            .with("created_by", next.created_by.to_string());
        self.commit_guarded(&CREATE, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_binding(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // The shared lock keeps the asset active until the commit. A concurrent archival of the asset waits for the
        // lock and then finds the binding. The release is locked first, because `locked_asset` reads the updated row.
        static BIND: GuardedCommit = GuardedCommit::of_parts(
            &[
                UPDATE_DRAFT,
                ", locked_asset AS (
                    SELECT FROM updated_release, input
                    JOIN asset_version USING (tenant_id, asset_version_id) JOIN asset USING (tenant_id, asset_id)
                    WHERE lifecycle_state IS NOT DISTINCT FROM 'active'
                    FOR SHARE OF asset
                 ),
                 new_binding AS (SELECT input.* FROM input, locked_asset),",
                INSERT_BINDINGS,
            ],
            "(SELECT count(*) = 1 FROM inserted_binding)",
            "",
        );
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let Some(binding) = next.bindings.last() else {
            return Err(CommitError::Stale);
        };
        let input = Input::new(scope)
            .with("release_id", next.release_id.uuid())
            .with("expected_revision", expected_revision.get())
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("binding_id", binding.binding_id.uuid())
            .with("role", binding.role.as_str())
            .with("asset_version_id", binding.asset_version_id.uuid())
            .with("created_at", binding.created_at.to_datetime())
            .with("created_by", binding.created_by.to_string());
        self.commit_guarded(&BIND, scope, &fact, key, input).await.map(|_| ())
    }

    async fn commit_binding_removal(
        &self,
        scope: TenantScope,
        change: Change<Release>,
        binding: BindingId,
    ) -> Result<(), CommitError> {
        static UNBIND: GuardedCommit = GuardedCommit::of_parts(
            &[
                UPDATE_DRAFT,
                ", deleted_binding AS (
                    DELETE FROM release_binding AS binding USING updated_release, input
                    WHERE binding.tenant_id = input.tenant_id AND binding.release_id = input.release_id
                        AND binding.binding_id = input.binding_id
                    RETURNING 1
                 )",
            ],
            "(SELECT count(*) = 1 FROM deleted_binding)",
            "",
        );
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next, fact, .. } = change.into_record();
        let input = Input::new(scope)
            .with("release_id", next.release_id.uuid())
            .with("expected_revision", expected_revision.get())
            .with("revision", next.revision.get())
            .with("updated_at", next.updated_at.to_datetime())
            .with("binding_id", binding.uuid());
        self.commit_guarded(&UNBIND, scope, &fact, None, input).await.map(|_| ())
    }

    async fn commit_review(
        &self,
        scope: TenantScope,
        change: Change<ReviewedRelease>,
        key: Option<&KeyedOutcome>,
    ) -> Result<(), CommitError> {
        // A verdict changes what caches store about the lanes that the release holds, and the evidence of its later
        // runs. The statement therefore increments the revision of the deployment. The update of the release counts the
        // updated deployments, so PostgreSQL locks the deployment first.
        static REVIEW: GuardedCommit = GuardedCommit::new(
            "updated_deployment AS (
                UPDATE deployment SET revision = deployment.revision + 1
                FROM input
                WHERE deployment.tenant_id = input.tenant_id AND deployment.workload_id = input.workload_id
                    AND deployment.environment = input.environment AND holds_lanes
                RETURNING 1
             ),
             updated_release AS (
                UPDATE release SET state = input.state, bindings_digest = input.bindings_digest,
                    revision = input.revision, updated_at = input.updated_at
                FROM input
                WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
                    AND release.revision = expected_revision
                    AND (SELECT count(*) FROM updated_deployment) = holds_lanes::integer
                RETURNING 1
             ),
             inserted_approval AS (
                INSERT INTO approval (tenant_id, approval_id, release_id, outcome, subject_digest, approved_by,
                    approved_at, release_revision)
                SELECT tenant_id, approval_id, release_id, outcome, subject_digest, approved_by, approved_at, revision
                FROM input, updated_release
                RETURNING 1
             ),
             inserted_note AS (
                INSERT INTO approval_note (tenant_id, approval_id, body)
                SELECT tenant_id, approval_id, note FROM input, inserted_approval WHERE note IS NOT NULL
             )",
            "(SELECT count(*) = 1 FROM inserted_approval)",
        );
        let expected_revision = change.replaced_revision()?;
        let ChangeRecord { next: ReviewedRelease { release, approval }, fact, .. } = change.into_record();
        let input = input_columns::add_release_columns(Input::new(scope), &release, expected_revision)
            .with("approval_id", approval.approval_id.uuid())
            .with("outcome", approval.verdict.as_str())
            .with("subject_digest", approval.subject_digest.as_str())
            .with("approved_by", approval.by.to_string())
            .with("approved_at", approval.at.to_datetime())
            .with("note", approval.note.as_deref())
            .with("workload_id", release.workload_id.uuid())
            .with("environment", release.environment.as_str())
            .with("holds_lanes", release.state.can_hold_lanes());
        self.commit_guarded(&REVIEW, scope, &fact, key, input).await.map(|_| ())
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
                self.statements_in_flight()
                    .track(transition_without_lanes::commit_transition(self.point_pool(), scope, &change, key))
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
        static FIND_DEPLOYMENT: Query = Query::of_parts(&[
            "SELECT workload_id, environment, ",
            DEPLOYMENT_COLUMNS,
            " FROM input JOIN deployment USING (tenant_id, workload_id, environment)",
        ]);
        let input = Input::new(scope).with("workload_id", workload.uuid()).with("environment", environment.as_str());
        self.fetch_one(&FIND_DEPLOYMENT, input).await?.as_ref().map(decode_deployment).transpose()
    }

    async fn environments_serving(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        lane: Lane,
        limit: u32,
    ) -> Result<Vec<Slug>, StoreError> {
        deployment::environments_serving(self, scope, workload, lane, limit).await
    }

    async fn lane_history(
        &self,
        scope: TenantScope,
        workload: WorkloadId,
        environment: &Slug,
        limit: u32,
    ) -> Result<Vec<LaneHistoryEntry>, StoreError> {
        static READ: Query = Query::new(
            "SELECT revision, lane, from_release_id, to_release_id, reason, moved_at
            FROM input, unnest(ARRAY['restricted', 'guided', 'standard']) AS requested (lane), LATERAL (
                SELECT revision, from_release_id, to_release_id, reason, moved_at FROM deployment_history AS history
                WHERE history.tenant_id = input.tenant_id AND history.workload_id = input.workload_id
                    AND history.environment = input.environment AND history.lane = requested.lane
                ORDER BY revision DESC LIMIT max_entries
            ) AS entry
            ORDER BY revision DESC",
        );
        let input = Input::new(scope)
            .with("workload_id", workload.uuid())
            .with("environment", environment.as_str())
            .with("max_entries", i64::from(limit));
        let rows = self.fetch(&READ, input).await?;
        rows.iter()
            .map(|row| {
                Ok(LaneHistoryEntry {
                    revision: row.revision("revision")?,
                    lane: row.parse_column("lane", Lane::parse)?,
                    from: row.optional_id("from_release_id")?,
                    to: row.optional_id("to_release_id")?,
                    reason: row.parse_column("reason", MoveReason::parse)?,
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
    ) -> Result<Option<DeploymentAccessRevisions>, StoreError> {
        let key = (scope.tenant().uuid(), workload.uuid(), environment.to_string());
        self.deployment_revisions.load(key).await
    }

    async fn commit_lane_change(
        &self,
        scope: TenantScope,
        change: DeploymentChange,
        key: Option<&KeyedOutcome>,
    ) -> Result<Option<Timestamp>, CommitError> {
        match key {
            None => self.lane_changes.commit(PendingLaneChange { scope, change }).await,
            Some(_) => {
                let pending = PendingLaneChange { scope, change };
                self.statements_in_flight()
                    .track(deployment::commit_lane_change(self.point_pool(), &pending, key))
                    .await
            }
        }
    }
}

#[async_trait]
impl ReleaseEvidenceStore for Database {
    async fn find_artifact(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        artifact: ArtifactId,
    ) -> Result<Option<ReleaseEvidenceArtifact>, StoreError> {
        let key = (scope.tenant().uuid(), release.uuid(), artifact.uuid());
        let find = || schema::release_artifact::table.find(key).select(StoredArtifact::as_select());
        self.first("artifact of a release", find).await?.map(StoredArtifact::into_value).transpose()
    }

    async fn list_artifacts(
        &self,
        scope: TenantScope,
        release: ReleaseId,
        page: PageRequest,
    ) -> Result<Page<ReleaseEvidenceArtifact>, StoreError> {
        let mut values = Input::of_params(scope);
        let conditions = vec![
            "tenant_id = {tenant_id}".to_owned(),
            format!("release_id = {}", values.bind("release_id", release.uuid())),
        ];
        let key = SortKey::Id("artifact_id", "artifact_id");
        let query = ListQuery::single(
            rows::ARTIFACT_COLUMNS,
            key,
            "FROM release_artifact",
            PageByteLimit::Measured { sql: "octet_length(content)", largest: UNBOUNDED_ROW_BYTES },
            conditions,
            values,
        );
        self.fetch_page(query, page, rows::decode_artifact).await
    }
}

#[async_trait]
impl ServingReleaseStore for Database {
    async fn ended_runs(&self, scope: TenantScope, release: ReleaseId, limit: u32) -> Result<EndedRuns, StoreError> {
        static COUNT: Query = Query::of_parts(&[
            COUNT_ENDED_RUNS,
            " FROM (
                SELECT outcome FROM execution
                WHERE tenant_id = (SELECT tenant_id FROM input) AND release_id = (SELECT release_id FROM input)
                    AND finished_at IS NOT NULL
                ORDER BY execution_id DESC LIMIT (SELECT max_runs FROM input)
            ) AS newest",
        ]);
        let input = Input::new(scope).with("release_id", release.uuid()).with("max_runs", i64::from(limit));
        let row = self.fetch_one(&COUNT, input).await?;
        let row = require_decoded("ended", row)?;
        let number = |name| require_decoded(name, u32::try_from(row.column::<i64>(name)?).ok());
        Ok(EndedRuns { ended: number("ended")?, failed: number("failed")? })
    }

    async fn list_serving(
        &self,
        after: Option<TenantReleaseKey>,
        limit: u32,
    ) -> Result<Vec<TenantReleaseKey>, StoreError> {
        static SERVING: Query = Query::new(
            "SELECT tenant_id, release_id FROM release
            WHERE state = 'active' AND (tenant_id, release_id) > (SELECT after_tenant, after_release FROM input)
            ORDER BY tenant_id, release_id LIMIT (SELECT max_rows FROM input)",
        );
        self.releases_after(&SERVING, after, limit).await
    }
}
