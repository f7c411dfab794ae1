//! Accepts runs. The statement writes all rows of a run, or none if a revision that its decision used has changed.
//! Concurrent accepts share a statement.

use super::{
    inserts::{INSERT_DECISION, INSERT_EXCEPTION},
    stored_decision,
};
use crate::{
    database::{StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{FactColumns, GuardedBatchCommit, Input, Query, claim_keys},
    row::Row,
};
use async_trait::async_trait;
use fairway_domain::{
    access::ActorRef,
    audit::Fact,
    execution::{
        Acceptance, AdmissionDecision, ExecutionOutcome, Status,
        dispatch::RequestContext,
        ports::{AcceptOutcome, ExpectedRevisions},
    },
    id::ShareLinkId,
    idempotency::RequestKey,
    store::{CommitError, ConstraintConflict, StoreError},
    tenant::TenantScope,
};
use serde_json::json;
use std::{collections::HashMap, time::Duration};
use time::OffsetDateTime;
use uuid::Uuid;

/// Selects the runs whose expected revisions are current, at their acceptance and at their start. It locks no rows, so
/// that runs of one workload do not wait for each other.
pub(super) const SELECT_CURRENT: &str = "SELECT input.* FROM input
        JOIN deployment USING (tenant_id, workload_id, environment)
        JOIN workload USING (tenant_id, workload_id)
        JOIN tenant USING (tenant_id)
        WHERE deployment.revision = deployment_revision AND workload.revision = expected_workload
            AND workload.status = 'registered' AND tenant.access_revision = expected_access";

/// The CTE with the tenants whose queue is full. It checks the limit once for each tenant, because counting a long
/// queue is slow. A batch may therefore exceed the limit by its own size.
const FULL_QUEUES: &str = "full_queue AS MATERIALIZED (
        SELECT tenant_id FROM (
            SELECT tenant_id, min(queue_limit) AS queue_limit FROM input WHERE queue_limit IS NOT NULL GROUP BY tenant_id
        ) AS queueing
        WHERE EXISTS (SELECT FROM execution_queue AS queued WHERE queued.tenant_id = queueing.tenant_id
            OFFSET queueing.queue_limit - 1)
     ),
     ";

/// The CTEs that claim the keys of current runs and admit the runs whose key was claimed, and those without a key.
fn admit_by_key() -> String {
    format!(
        "{},
         admitted AS MATERIALIZED (
            SELECT current.* FROM current
            WHERE key_name IS NULL OR execution_id IN (SELECT execution_id FROM claimed)
         )",
        claim_keys("current")
    )
}

/// The CTEs that insert the admitted runs with their inputs, decisions and leases. `run_columns` and `lease_columns`
/// are columns that only some runs have, each with a comma before it.
fn insert_runs(run_columns: &str, lease_columns: &str) -> String {
    format!(
        "run AS (
            INSERT INTO execution ({RUN_COLUMNS}{run_columns}) SELECT {RUN_COLUMNS}{run_columns} FROM admitted
         ),
         inputs AS (
            INSERT INTO execution_input (tenant_id, execution_id, salt, body, sender)
            SELECT tenant_id, execution_id, salt, body, sender FROM admitted
         ),
         decision AS ({INSERT_DECISION} FROM admitted),
         lease AS (
            INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at
                {lease_columns})
            SELECT tenant_id, execution_id, lease_token, make_interval(secs => lease_seconds),
                fairway_now() + make_interval(secs => lease_seconds),
                fairway_now() + make_interval(secs => deadline_seconds){lease_columns}
            FROM admitted WHERE lease_token IS NOT NULL
         )"
    )
}

/// The columns of `execution` that every run has when it is accepted.
const RUN_COLUMNS: &str = "tenant_id, execution_id, workload_id, workspace_id, release_id, environment, lane, \
    deployment_revision, submitter, delegate, snapshot, input_digest, status, started_at";

/// The CTEs for the parts that only some runs have: the use of a share link, the queue entry, and the facts of
/// denials and scripts. A link is used after the key is claimed, so a repeated request counts no second use. If the
/// link is closed, PostgreSQL raises an error, and the statement writes nothing.
const INSERT_RARE_PARTS: [&str; 3] = [
    ", used_link AS MATERIALIZED (
        SELECT fairway_use_share_link(tenant_id, workload_id, share_link_id) FROM admitted
        WHERE share_link_id IS NOT NULL AND status <> 'denied'
     ),
     queued AS (
        INSERT INTO execution_queue (tenant_id, execution_id)
        SELECT tenant_id, execution_id FROM admitted WHERE queue_limit IS NOT NULL
     ),
     exception AS (",
    INSERT_EXCEPTION,
    " FROM admitted WHERE status = 'denied'),
     recorded AS (
        SELECT tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash FROM admitted
        WHERE fact_id IS NOT NULL
     )",
];

/// The statement for batches in which all runs start immediately, without idempotency keys and without rare parts.
/// Each additional CTE and column costs time for the whole batch, so other batches have other statements.
static ACCEPT: Query = Query::from_fn(|| {
    format!(
        "admitted AS MATERIALIZED ({SELECT_CURRENT}), {}
         SELECT execution_id, true AS is_admitted, false AS is_queue_full FROM admitted",
        insert_runs("", "")
    )
});

/// Like [`ACCEPT`], for runs with idempotency keys.
static ACCEPT_WITH_KEYS: Query = Query::from_fn(|| {
    format!(
        "current AS MATERIALIZED ({SELECT_CURRENT}), {}, {}
         SELECT current.execution_id, admitted.execution_id IS NOT NULL AS is_admitted, false AS is_queue_full
         FROM current LEFT JOIN admitted USING (execution_id)",
        admit_by_key(),
        insert_runs("", "")
    )
});

/// The statement for batches with a queued, denied or anonymous run. Runs with and without idempotency keys may be in
/// the batch.
static ACCEPT_WITH_ALL_PARTS: GuardedBatchCommit = GuardedBatchCommit::from_fn(
    || {
        format!(
            "{FULL_QUEUES} current AS MATERIALIZED ({SELECT_CURRENT}
                AND (queue_limit IS NULL OR tenant_id NOT IN (SELECT tenant_id FROM full_queue))), {}, {}{}",
            admit_by_key(),
            insert_runs(", outcome, finished_at, share_link_id, result_token, has_stored_usage", ", script"),
            INSERT_RARE_PARTS.concat()
        )
    },
    "recorded",
    "SELECT current.execution_id, admitted.execution_id IS NOT NULL AS is_admitted, false AS is_queue_full,
        (SELECT count(*) FROM used_link) AS used_links
     FROM current LEFT JOIN admitted USING (execution_id)
     UNION ALL
     SELECT execution_id, false, true, 0 FROM input
     WHERE queue_limit IS NOT NULL AND tenant_id IN (SELECT tenant_id FROM full_queue)",
);

/// Group commit of accepts.
pub(crate) struct AcceptCommitter(pub(crate) StatementPool);

/// A run that waits for the group commit of its acceptance.
pub(crate) struct PendingAccept {
    pub(super) scope: TenantScope,
    pub(super) run: Acceptance,
    pub(super) expected: ExpectedRevisions,
    pub(super) key: Option<RequestKey>,
}

/// Bytes of the inputs, which are the only texts of an acceptance that can be large.
pub(super) fn payload_bytes(acceptance: &Acceptance) -> usize {
    acceptance.inputs.body.len()
}

#[async_trait]
impl BatchCommitter for AcceptCommitter {
    type Item = PendingAccept;
    type Output = AcceptOutcome;
    const LABEL: &'static str = "accepts of runs";

    /// A run by a share link runs alone, because it locks the link, and a closed link would refuse the whole batch.
    /// A second run with the same idempotency key also runs alone, because it must see the row of the first.
    fn is_batchable(pending: &PendingAccept, batch: &[&PendingAccept]) -> bool {
        let is_key_in_batch =
            |key: &RequestKey| batch.iter().any(|other| other.key.as_ref().is_some_and(|other| other.key == key.key));
        pending.run.delegated_access.share_link.is_none() && !pending.key.as_ref().is_some_and(is_key_in_batch)
    }

    fn payload_bytes(pending: &PendingAccept) -> usize {
        payload_bytes(&pending.run)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingAccept],
    ) -> Result<Option<Vec<Result<AcceptOutcome, CommitError>>>, StoreError> {
        let (sql, input) = prepare(pending)?;
        let Some(rows) = commit_batch(&self.0, sql, &input.params()).await? else { return Ok(None) };
        let outcomes: HashMap<Uuid, AcceptOutcome> = rows.iter().map(outcome).collect::<Result<_, _>>()?;
        let outcome = |pending: &&PendingAccept| {
            Ok(outcomes.get(&pending.run.execution_id.uuid()).copied().unwrap_or(AcceptOutcome::Stale))
        };
        Ok(Some(pending.iter().map(outcome).collect()))
    }

    async fn commit_one(&self, pending: &PendingAccept) -> Result<AcceptOutcome, CommitError> {
        let (sql, input) = prepare(&[pending])?;
        let rows = match commit(&self.0, sql, &input.params()).await {
            Err(CommitError::Conflict(ConstraintConflict::ShareLinkClosed)) => return Ok(AcceptOutcome::LinkClosed),
            rows => rows?,
        };
        Ok(rows.first().map(outcome).transpose()?.map_or(AcceptOutcome::Stale, |(_, outcome)| outcome))
    }
}

/// Decodes the outcome of a run whose revisions were current, or whose queue was full. Other runs have no row: they
/// are stale.
fn outcome(row: &Row) -> Result<(Uuid, AcceptOutcome), StoreError> {
    let outcome = match (row.column("is_queue_full")?, row.column("is_admitted")?) {
        (true, _) => AcceptOutcome::QueueFull,
        (false, true) => AcceptOutcome::Accepted,
        (false, false) => AcceptOutcome::DuplicateKey,
    };
    Ok((row.column("execution_id")?, outcome))
}

/// The columns whose values depend on how a run is admitted: started, queued or denied.
#[derive(Default)]
struct AdmissionColumns<'a> {
    status: &'static str,
    outcome: Option<&'static str>,
    finished_at: Option<OffsetDateTime>,
    lease: Option<(Uuid, Duration, Duration)>,
    is_script: bool,
    queue_limit: Option<i64>,
    fact: Option<&'a Fact>,
}

impl<'a> AdmissionColumns<'a> {
    fn of(run: &'a Acceptance) -> Self {
        let running = Self { status: Status::Running.as_str(), ..Self::default() };
        match &run.admission {
            AdmissionDecision::Run { lease, lease_for, deadline_in } => {
                Self { lease: Some((*lease, *lease_for, *deadline_in)), ..running }
            }
            AdmissionDecision::Script { lease, lease_for, deadline_in, fact } => {
                Self { lease: Some((*lease, *lease_for, *deadline_in)), is_script: true, fact: Some(fact), ..running }
            }
            AdmissionDecision::Queue { limit } => {
                Self { status: Status::Queued.as_str(), queue_limit: Some(i64::from(*limit)), ..Self::default() }
            }
            AdmissionDecision::Deny(fact) => Self {
                status: Status::Denied.as_str(),
                outcome: Some(ExecutionOutcome::Denied.as_str()),
                finished_at: Some(run.started_at.to_datetime()),
                fact: Some(fact),
                ..Self::default()
            },
        }
    }
}

/// Selects the statement that has all parts that the `pending` runs need, and builds its input.
fn prepare<'v>(pending: &[&'v PendingAccept]) -> Result<(&'static str, Input<'v>), StoreError> {
    let is_plain = |Acceptance { admission, delegated_access, .. }: &Acceptance| {
        let is_anonymous = delegated_access.share_link.is_some() || delegated_access.result_token.is_some();
        matches!(admission, AdmissionDecision::Run { .. }) && !is_anonymous
    };
    let admissions: Vec<AdmissionColumns<'v>> =
        pending.iter().map(|pending| AdmissionColumns::of(&pending.run)).collect();
    let input = started_input(pending, &admissions);
    let is_any_keyed = pending.iter().any(|pending| pending.key.is_some());
    match (pending.iter().all(|pending| is_plain(&pending.run)), is_any_keyed) {
        (true, false) => Ok((ACCEPT.text(&input)?, input)),
        (true, true) => {
            let input = add_key_columns(input, pending);
            Ok((ACCEPT_WITH_KEYS.text(&input)?, input))
        }
        (false, _) => {
            let input = add_rare_columns(add_key_columns(input, pending), pending, &admissions);
            Ok((ACCEPT_WITH_ALL_PARTS.text(&input)?, input))
        }
    }
}

/// The input of a batch whose runs all start immediately.
fn started_input<'v>(pending: &[&'v PendingAccept], admissions: &[AdmissionColumns<'v>]) -> Input<'v> {
    let runs = || pending.iter().map(|pending| &pending.run);
    let expected = || pending.iter().map(|pending| pending.expected);
    let decisions = || runs().map(|run| &run.decision);
    let seconds = |duration: Duration| duration.as_secs_f64();
    let leases = || admissions.iter().map(|admission| admission.lease);
    Input::many()
        .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
        .with_column("workload_id", runs().map(|run| run.workload_id.uuid()))
        .with_column("environment", runs().map(|run| run.environment.as_str()))
        .with_column("deployment_revision", expected().map(|expected| expected.deployment.get()))
        .with_column("expected_workload", expected().map(|expected| expected.workload.get()))
        .with_column("expected_access", expected().map(|expected| expected.access.get()))
        .with_column("execution_id", runs().map(|run| run.execution_id.uuid()))
        .with_column("workspace_id", runs().map(|run| run.workspace_id.uuid()))
        .with_column("release_id", runs().map(|run| run.release_id.uuid()))
        .with_column("lane", runs().map(|run| run.lane.as_str()))
        .with_column("submitter", runs().map(|run| run.submitter.to_string()))
        .with_column("delegate", runs().map(|run| run.delegated_access.delegate.as_ref().map(ActorRef::to_string)))
        .with_column("snapshot", runs().map(|run| run.snapshot.as_slice()))
        .with_column("input_digest", runs().map(|run| run.inputs.digest().to_vec()))
        .with_column("status", admissions.iter().map(|admission| admission.status))
        .with_column("started_at", runs().map(|run| run.started_at.to_datetime()))
        .with_column("salt", runs().map(|run| run.inputs.salt.as_slice()))
        .with_column("body", runs().map(|run| &*run.inputs.body))
        .with_column("sender", runs().map(|run| request_context_json(&run.request_context)))
        .with_column("decision_id", decisions().map(|decision| decision.decision_id.uuid()))
        .with_column("decision_outcome", decisions().map(|decision| decision.outcome.as_str()))
        .with_column("reason_code", decisions().map(|decision| decision.reason_code.as_str()))
        .with_column("obligations", decisions().map(stored_decision::obligations_literal))
        .with_column("rules", decisions().map(stored_decision::rules_literal))
        .with_column("evaluated_at", decisions().map(|decision| decision.evaluated_at.to_datetime()))
        .with_column("lease_token", leases().map(|lease| lease.map(|(token, ..)| token)))
        .with_column("lease_seconds", leases().map(|lease| lease.map(|lease| seconds(lease.1))))
        .with_column("deadline_seconds", leases().map(|lease| lease.map(|lease| seconds(lease.2))))
}

fn add_key_columns<'v>(input: Input<'v>, pending: &[&'v PendingAccept]) -> Input<'v> {
    let keys = || pending.iter().map(|pending| pending.key.as_ref());
    input
        .with_column("key_caller", keys().map(|key| key.map(|key| key.caller.to_string())))
        .with_column("key_route", keys().map(|key| key.map(|key| key.route.as_str())))
        .with_column("key_name", keys().map(|key| key.map(|key| key.key.as_str())))
        .with_column("key_digest", keys().map(|key| key.map(|key| key.body_digest.as_slice())))
        // A run's key has no status, because the response is computed from the run.
        .with_column("key_status", keys().map(|_| None::<i16>))
}

/// Adds the parts that only some runs have: anonymous access, the end of a denied run, the limit of the queue, and
/// facts.
fn add_rare_columns<'v>(
    input: Input<'v>,
    pending: &[&'v PendingAccept],
    admissions: &[AdmissionColumns<'v>],
) -> Input<'v> {
    let access = || pending.iter().map(|pending| &pending.run.delegated_access);
    let admission = || admissions.iter();
    let mut facts = FactColumns::default();
    for (pending, admission) in pending.iter().zip(admissions) {
        facts.push_fact_or_nulls(pending.scope, admission.fact);
    }
    let input = input
        .with_column("outcome", admission().map(|admission| admission.outcome))
        .with_column("finished_at", admission().map(|admission| admission.finished_at))
        // A denied run has called no model, so its totals stay null.
        .with_column("has_stored_usage", admissions.iter().map(|admission| admission.finished_at.map(|_| true)))
        .with_column("share_link_id", access().map(|access| access.share_link.map(ShareLinkId::uuid)))
        .with_column(
            "result_token",
            access().map(|access| access.result_token.as_ref().map(|hash| hash.bytes().as_slice())),
        )
        .with_column("script", admission().map(|admission| admission.is_script))
        .with_column("queue_limit", admission().map(|admission| admission.queue_limit));
    facts.add_to_input(input)
}

/// A run's request context as it is stored.
fn request_context_json(context: &RequestContext) -> String {
    json!(context).to_string()
}
