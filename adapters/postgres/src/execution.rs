//! Executions: one statement accepts a run, and one statement ends it.

mod accept;
mod evidence_reads;
mod finish;
mod inserts;
mod lease;
mod list;
mod load;
mod progress;
mod queue;
mod resolve_unknown;
mod review;
mod start;
mod step_and_lineage_reads;
mod stored_decision;
mod usage;

pub(crate) use accept::AcceptCommitter;
pub(crate) use evidence_reads::EvidenceLoader;
pub(crate) use finish::FinishCommitter;
pub(crate) use load::RunLoader;
pub(crate) use progress::ProgressCommitter;
pub(crate) use start::StartCommitter;
pub(crate) use step_and_lineage_reads::LineageLoader;

use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    release::{DEPLOYMENT_COLUMNS, decode_deployment},
    row::{Row, require_decoded},
    schema,
    workload::{WORKLOAD_COLUMNS, decode_workload},
};
use async_trait::async_trait;
use diesel::{ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    access::ActorRef,
    evidence::{
        EvidenceArtifactWithContent, EvidenceSnapshot, RunEvidence, StoredEvidenceArtifact,
        lineage::{LineageFilter, LineagePage},
    },
    execution::{
        Acceptance, Execution, ExecutionOutcome, FinishRecord, Payload, RunError, Status, StepRow,
        dispatch::{CancelLease, CancelOutcome, Claim, ClaimedRun, LeaseRef, QueuedStart, StartOutcome},
        ports::{
            AcceptOutcome, EventPage, EventStore, ExecutionFilter, ExecutionReadStore, ExpectedRevisions, LapsedFilter,
            LapsedRun, LeaseState, LeaseStore, RunLocation, RunStore, StoredRun, WorkloadWithDeployment,
        },
        progress::ProgressRecord,
        usage::{ListedExecution, RunUsageSummary},
    },
    id::{ApprovalId, ArtifactId, ExecutionId},
    idempotency::{KeyedOutcome, RequestKey},
    release::lane::Lane,
    slug::Slug,
    store::{CommitError, Page, PageRequest, StoreError},
    tenant::TenantScope,
};
use uuid::Uuid;

const EXECUTION_COLUMNS: &str = "execution.execution_id, execution.workload_id, execution.workspace_id, \
    execution.release_id, execution.environment, execution.lane, execution.submitter, execution.delegate, execution.status, \
    execution.outcome, execution.error_code, execution.error_message, execution.error_offset, execution.started_at, execution.finished_at";

/// The output column of reads that do not return a run's output.
const NULL_OUTPUT: &str = "NULL::text AS output";

/// The reason code column of reads that do not return the reason code.
const NULL_REASON_CODE: &str = "NULL::text AS reason_code";

/// The reason code of a run's strictest decision; of equally strict decisions, the last one counts. The run comes
/// from a join, so PostgreSQL cannot prune partitions and opens those of all months.
const JOINED_REASON_CODE: &str = "(SELECT reason_code FROM policy_decision AS decision
    WHERE decision.tenant_id = execution.tenant_id AND decision.execution_id = execution.execution_id
    ORDER BY array_position(ARRAY['deny', 'allow_with_obligations', 'allow'], outcome), decision_id DESC
    LIMIT 1) AS reason_code";

/// The condition that a row of `table` belongs to a run of the input. Parameters with the first and the last
/// identifier let PostgreSQL prune monthly partitions.
fn run_condition(table: &str) -> String {
    format!(
        "{table}.tenant_id = input.tenant_id AND {table}.execution_id = input.execution_id
            AND {table}.execution_id >= {{first_execution}} AND {table}.execution_id <= {{last_execution}}"
    )
}

/// A `SELECT` of `columns` for the runs of the input.
fn select_runs(columns: &str, joins: &str) -> String {
    let condition = run_condition("execution");
    format!(
        "SELECT found.* FROM input, LATERAL (
            SELECT {columns} FROM execution {joins} WHERE {condition} OFFSET 0) AS found"
    )
}

/// The items of a batch in the order of their runs. The batch locks the leases of its runs in the order of its input,
/// so that two statements with the same runs do not deadlock.
fn in_order_of_runs<'p, T>(pending: &[&'p T], run: impl Fn(&T) -> ExecutionId) -> Vec<&'p T> {
    let mut ordered = pending.to_vec();
    ordered.sort_by_key(|pending| run(pending));
    ordered
}

/// The parameters of a read of one run.
fn run_params<'v>(scope: TenantScope, run: ExecutionId) -> Input<'v> {
    Input::of_params(scope).with_param("execution_id", run.uuid())
}

/// The input of a read of runs by [`select_runs`].
fn input_of_runs<'v>(keys: &[(Uuid, Uuid)]) -> Input<'v> {
    let (tenants, runs): (Vec<Uuid>, Vec<Uuid>) = keys.iter().copied().unzip();
    let (first, last) = (runs.iter().min().copied(), runs.iter().max().copied());
    Input::many()
        .with_column("tenant_id", tenants)
        .with_column("execution_id", runs)
        .with_param("first_execution", first)
        .with_param("last_execution", last)
}

fn execution(row: &Row) -> Result<Execution, StoreError> {
    let outcome: Option<&str> = row.column("outcome")?;
    let code: Option<String> = row.column("error_code")?;
    let message: Option<String> = row.column("error_message")?;
    let offset = row.column::<Option<i64>>("error_offset")?.and_then(|offset| u32::try_from(offset).ok());
    Ok(Execution {
        execution_id: row.id("execution_id")?,
        workload_id: row.id("workload_id")?,
        workspace_id: row.id("workspace_id")?,
        release_id: row.id("release_id")?,
        environment: row.slug("environment")?,
        lane: row.parse_column("lane", Lane::parse)?,
        submitter: row.actor("submitter")?,
        delegate: row
            .column::<Option<&str>>("delegate")?
            .map(|service| require_decoded("delegate", ActorRef::parse(service).ok()))
            .transpose()?,
        status: row.parse_column("status", Status::parse)?,
        outcome: outcome.map(|text| require_decoded("outcome", ExecutionOutcome::parse(text))).transpose()?,
        error: code.zip(message).map(|(code, message)| RunError { code, message, offset }),
        output: row.column::<Option<&str>>("output")?.map(Into::into),
        reason_code: row.column::<Option<String>>("reason_code")?.unwrap_or_default(),
        started_at: row.timestamp("started_at")?,
        finished_at: row.optional_timestamp("finished_at")?,
    })
}

#[async_trait]
impl EventStore for Database {
    async fn events(&self, scope: TenantScope, id: ExecutionId, after: u16) -> Result<EventPage, StoreError> {
        progress::events(self, scope, id, after).await
    }

    async fn steps(&self, scope: TenantScope, id: ExecutionId) -> Result<Vec<StepRow>, StoreError> {
        step_and_lineage_reads::read_steps(self, scope, id).await
    }
}

#[async_trait]
impl ExecutionReadStore for Database {
    async fn find(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Execution>, StoreError> {
        load::find(self, scope, id).await
    }

    async fn find_state(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<StoredRun>, StoreError> {
        let found = self.runs.load((scope.tenant().uuid(), id.uuid())).await?;
        Ok(found.map(load::FoundRun::into_state))
    }

    async fn location(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunLocation>, StoreError> {
        let key = (scope.tenant().uuid(), id.uuid());
        let find = || {
            schema::execution::table.find(key).select((
                schema::execution::workspace_id,
                schema::execution::workload_id,
                schema::execution::submitter,
            ))
        };
        let found: Option<(Uuid, Uuid, String)> = self.first("location of a run", find).await?;
        let location = |(workspace, workload, submitter): (Uuid, Uuid, String)| {
            Ok(RunLocation {
                workspace: workspace.into(),
                workload: workload.into(),
                submitter: require_decoded("submitter", ActorRef::parse(&submitter).ok())?,
            })
        };
        found.map(location).transpose()
    }

    async fn lineage(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        filter: LineageFilter,
        limit: u32,
        offset: u32,
    ) -> Result<Option<LineagePage>, StoreError> {
        step_and_lineage_reads::read_lineage(self, scope, id, filter, limit, offset).await
    }

    async fn artifact(
        &self,
        scope: TenantScope,
        id: ExecutionId,
        artifact: ArtifactId,
    ) -> Result<Option<(Execution, EvidenceArtifactWithContent)>, StoreError> {
        evidence_reads::find_artifact(self, scope, id, artifact).await
    }

    async fn evidence_documents(
        &self,
        scope: TenantScope,
        id: ExecutionId,
    ) -> Result<Vec<StoredEvidenceArtifact>, StoreError> {
        evidence_reads::read_documents(self, scope, id).await
    }

    async fn list(
        &self,
        scope: TenantScope,
        filter: &ExecutionFilter,
        page: PageRequest,
    ) -> Result<Page<ListedExecution>, StoreError> {
        list::list(self, scope, filter, page).await
    }

    async fn summary(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunUsageSummary>, StoreError> {
        Ok(usage::computed_summaries(self, scope, &[id]).await?.remove(&id))
    }

    async fn evidence(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<RunEvidence>, StoreError> {
        self.evidence.load((scope.tenant().uuid(), id.uuid())).await
    }

    async fn approval_notes(
        &self,
        scope: TenantScope,
        approvals: &[ApprovalId],
    ) -> Result<Vec<(ApprovalId, String)>, StoreError> {
        evidence_reads::approval_notes(self, scope, approvals).await
    }
}

#[async_trait]
impl RunStore for Database {
    async fn find_workload_with_deployment(
        &self,
        scope: TenantScope,
        slug: &Slug,
        environment: &Slug,
    ) -> Result<Option<WorkloadWithDeployment>, StoreError> {
        static FIND: Query = Query::of_parts(&[
            "SELECT ",
            WORKLOAD_COLUMNS,
            ", {environment} AS environment, ",
            DEPLOYMENT_COLUMNS,
            " FROM workload JOIN workspace USING (tenant_id, workspace_id)
              LEFT JOIN deployment ON deployment.tenant_id = {tenant_id}
                AND deployment.workload_id = workload.workload_id AND deployment.environment = {environment}
              WHERE workload.tenant_id = {tenant_id} AND workload.slug = {slug}",
        ]);
        let input =
            Input::of_params(scope).with_param("slug", slug.as_str()).with_param("environment", environment.as_str());
        let Some(row) = self.fetch_one(&FIND, input).await? else {
            return Ok(None);
        };
        let deployed = row.column::<Option<i64>>("deployment_revision")?.is_some();
        let deployment = deployed.then(|| decode_deployment(&row)).transpose()?;
        Ok(Some(WorkloadWithDeployment { workload: decode_workload(&row)?, deployment }))
    }

    async fn store_evidence_snapshot(&self, scope: TenantScope, snapshot: &EvidenceSnapshot) -> Result<(), StoreError> {
        let insert = || {
            let row = (
                schema::evidence_snapshot::tenant_id.eq(scope.tenant().uuid()),
                schema::evidence_snapshot::digest.eq(snapshot.digest.to_vec()),
                schema::evidence_snapshot::body.eq(snapshot.body.clone()),
            );
            diesel::insert_into(schema::evidence_snapshot::table).values(row).on_conflict_do_nothing()
        };
        self.execute("evidence snapshot", insert).await.map(drop)
    }

    async fn accept(
        &self,
        scope: TenantScope,
        acceptance: &Acceptance,
        expected: ExpectedRevisions,
        key: Option<&RequestKey>,
    ) -> Result<AcceptOutcome, CommitError> {
        let bytes = accept::payload_bytes(acceptance);
        let pending = || accept::PendingAccept { scope, run: acceptance.clone(), expected, key: key.cloned() };
        self.accepts.commit_with_size(bytes, pending).await
    }

    async fn finish(&self, scope: TenantScope, ending: &FinishRecord) -> Result<(), CommitError> {
        let pending = || finish::PendingFinish { scope, ending: ending.clone() };
        self.finishes.commit_with_size(finish::payload_bytes(ending), pending).await
    }

    async fn inputs(&self, scope: TenantScope, id: ExecutionId) -> Result<Option<Payload>, StoreError> {
        queue::read_inputs(self, scope, id).await
    }

    async fn start(&self, scope: TenantScope, start: &QueuedStart) -> Result<StartOutcome, CommitError> {
        self.starts.commit(start::PendingStart::of(scope, start)?).await
    }

    async fn record_progress(
        &self,
        scope: TenantScope,
        lease: LeaseRef,
        progress: &ProgressRecord,
    ) -> Result<(), CommitError> {
        self.advances.commit(progress::PendingProgress::of(scope, lease, progress)?).await
    }
}

#[async_trait]
impl LeaseStore for Database {
    async fn renew(&self, scope: TenantScope, id: ExecutionId, lease: Uuid) -> Result<LeaseState, StoreError> {
        lease::renew(self, scope, id, lease).await
    }

    async fn release_lease(&self, scope: TenantScope, lease: LeaseRef) -> Result<(), StoreError> {
        lease::release(self, scope, lease).await
    }

    async fn claim_lapsed(&self, lease: Uuid, filter: LapsedFilter) -> Result<Vec<LapsedRun>, StoreError> {
        lease::reclaim_expired(self, lease, filter).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError> {
        queue::claim(self, claim).await
    }

    async fn request_cancel(
        &self,
        scope: TenantScope,
        lease: CancelLease,
        actor: &ActorRef,
        key: Option<&KeyedOutcome>,
    ) -> Result<CancelOutcome, StoreError> {
        queue::cancel(self, scope, lease, actor, key).await
    }

    async fn take_over_lease(&self, scope: TenantScope, lease: LeaseRef) -> Result<bool, StoreError> {
        queue::take_lease(self, scope, lease).await
    }
}
