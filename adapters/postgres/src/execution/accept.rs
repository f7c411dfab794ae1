//! Accepts a run in one statement, which writes everything, or nothing if a revision that the decision used has
//! changed.

use super::{
    accept_delegated,
    accept_script::{SCRIPT, SCRIPT_KEYED},
};
use crate::{
    database::{Param, commit},
    row::{RowExt, decode},
};
use deadpool_postgres::Pool;
use fairway_domain::{
    access::ActorRef,
    audit::{Fact, leaf_hash},
    execution::{
        Acceptance, Admission, Status,
        dispatch::RequestContext,
        ports::{AcceptOutcome, ExpectedRevisions},
    },
    id::ShareLinkId,
    idempotency::RequestKey,
    policy::Outcome,
    store::{CommitError, Conflict},
    tenant::TenantScope,
};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

/// A CTE body with one row if the revisions that the decision used are still current. It locks no row, so runs of one
/// workload never wait for each other.
macro_rules! revision_check_sql {
    ($room:expr) => {
        concat!(
            "AS MATERIALIZED (
            SELECT FROM deployment
            JOIN workload USING (tenant_id, workload_id)
            JOIN tenant USING (tenant_id)
            WHERE tenant_id = $1 AND workload_id = $2 AND environment = $3
                AND deployment.revision = $4 AND workload.revision = $5 AND workload.status = 'registered'
                AND tenant.access_revision = $6",
            $room,
            "
         ), "
        )
    };
}

/// The CTE `admitted` that all inserts read. Without an idempotency key it is the revision check itself.
macro_rules! admission_sql {
    ($room:expr) => {
        concat!("WITH go ", revision_check_sql!($room))
    };
    // With a key, it is the key's row: inserted, or taken over from an expired one.
    ($room:expr, $claimed:literal, $caller:literal, $route:literal, $key:literal, $digest:literal) => {
        concat!(
            "WITH place ",
            revision_check_sql!($room),
            $claimed,
            " AS (
                INSERT INTO idempotency_key AS known
                    (tenant_id, caller, route, key, body_digest, status, resource, created_at)
                SELECT $1, ",
            concat!($caller, ", ", $route, ", ", $key, ", ", $digest),
            ", NULL, $7, fairway_now() FROM place
                ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
                SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
                    created_at = excluded.created_at
                WHERE known.created_at < fairway_now() - fairway_key_lifetime()
                RETURNING 1
             ), "
        )
    };
}

/// `columns` and `values` are the optional columns of a run, each with a leading comma.
macro_rules! insert_run_sql {
    () => {
        insert_run_sql!("", "")
    };
    ($columns:literal, $values:literal) => {
        concat!(
        "run AS (
            INSERT INTO execution (tenant_id, execution_id, workload_id, workspace_id, release_id, environment,
                lane, deployment_revision, submitter, snapshot, input_digest, status, outcome, started_at, finished_at",
        $columns, ")
            SELECT $1, $7, $2, $8, $9, $3, $10, $4, $11, $12, $13, $14, $15, $16, $17", $values, " FROM go
         ),
         input AS (
            INSERT INTO execution_input (tenant_id, execution_id, salt, body, sender) SELECT $1, $7, $18, $19, $26 FROM go
         ),
         decision AS (
            INSERT INTO policy_decision (tenant_id, execution_id, decision_id, outcome, reason_code, obligations,
                rules, evaluated_at)
            SELECT $1, $7, $20, $21, $22, $23, $24, $25 FROM go
         ), ")
    };
}

/// The lease of an admitted run.
macro_rules! insert_lease_sql {
    () => {
        "lease AS (
            INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
            SELECT $1, $7, $27, make_interval(secs => $28), fairway_now() + make_interval(secs => $28),
                fairway_now() + make_interval(secs => $29)
            FROM go
         ) "
    };
}

/// The fact of a denied run, and its row among the runs without a result.
macro_rules! insert_denial_sql {
    () => {
        "told AS (
            INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
            SELECT $1, $27, $8, $28, $29, $30 FROM go
         ),
         waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT $1, $27 FROM go),
         exception AS (
            INSERT INTO execution_exception (tenant_id, status, execution_id, workload_id, workspace_id, release_id)
            SELECT $1, $14, $7, $2, $8, $9 FROM go
         ) "
    };
}

/// The condition that the tenant's queue has room.
macro_rules! queue_room_condition {
    () => {
        " AND NOT EXISTS (SELECT FROM execution_queue WHERE tenant_id = $1 OFFSET $27::bigint - 1)"
    };
}

/// Whether the queue is full. Evaluated only if the run was not admitted, because counting a long queue is slow.
macro_rules! queue_full_condition {
    ($places:literal) => {
        concat!(
            "CASE WHEN EXISTS (SELECT FROM ",
            $places,
            ") THEN false ELSE EXISTS (SELECT FROM execution_queue WHERE tenant_id = $1 OFFSET $27::bigint - 1) END"
        )
    };
}

macro_rules! insert_queue_sql {
    () => {
        "line AS (INSERT INTO execution_queue (tenant_id, execution_id) SELECT $1, $7 FROM go) "
    };
}

/// The result: whether the revisions matched, whether the key was claimed, and whether the queue is full.
macro_rules! result_sql {
    ($places:literal, $full:expr) => {
        concat!(
            "SELECT (SELECT count(*) FROM ",
            $places,
            ") AS places, (SELECT count(*) FROM go) AS gone, ",
            $full,
            " AS line_full"
        )
    };
}

pub(super) use {
    admission_sql, insert_denial_sql, insert_lease_sql, insert_queue_sql, insert_run_sql, queue_full_condition,
    queue_room_condition, result_sql, revision_check_sql,
};

const RUN: &str = concat!(admission_sql!(""), insert_run_sql!(), insert_lease_sql!(), result_sql!("go", "false"));
const DENY: &str = concat!(admission_sql!(""), insert_run_sql!(), insert_denial_sql!(), result_sql!("go", "false"));
const QUEUE: &str = concat!(
    admission_sql!(queue_room_condition!()),
    insert_run_sql!(),
    insert_queue_sql!(),
    result_sql!("go", queue_full_condition!("go"))
);
const RUN_KEYED: &str = concat!(
    admission_sql!("", "go", "$30", "$31", "$32", "$33"),
    insert_run_sql!(),
    insert_lease_sql!(),
    result_sql!("place", "false")
);
const DENY_KEYED: &str = concat!(
    admission_sql!("", "go", "$31", "$32", "$33", "$34"),
    insert_run_sql!(),
    insert_denial_sql!(),
    result_sql!("place", "false")
);
const QUEUE_KEYED: &str = concat!(
    admission_sql!(queue_room_condition!(), "go", "$28", "$29", "$30", "$31"),
    insert_run_sql!(),
    insert_queue_sql!(),
    result_sql!("place", queue_full_condition!("place"))
);

/// The values that every form of the statement binds first, in its order.
struct RunColumns<'r> {
    run: &'r Acceptance,
    tenant: Uuid,
    workload: Uuid,
    expected_deployment: i64,
    expected_workload: i64,
    expected_access: i64,
    execution: Uuid,
    workspace: Uuid,
    release: Uuid,
    environment: &'r str,
    lane: &'static str,
    submitter: String,
    snapshot: &'r [u8],
    input_digest: Vec<u8>,
    status: &'static str,
    outcome: Option<&'static str>,
    started: OffsetDateTime,
    finished: Option<OffsetDateTime>,
    salt: &'r [u8],
    decision: Uuid,
    verdict: &'static str,
    evaluated: OffsetDateTime,
    request_context: String,
}

impl<'r> RunColumns<'r> {
    fn of(scope: TenantScope, run: &'r Acceptance, expected: ExpectedRevisions) -> Self {
        let started = run.started_at.to_datetime();
        let (status, outcome, finished) = match &run.admission {
            Admission::Run { .. } | Admission::Script { .. } => (Status::Running, None, None),
            Admission::Queue { .. } => (Status::Queued, None, None),
            Admission::Deny(_) => {
                (Status::Denied, Some(fairway_domain::execution::ExecutionOutcome::Denied.as_str()), Some(started))
            }
        };
        Self {
            run,
            tenant: scope.tenant().uuid(),
            workload: run.workload_id.uuid(),
            expected_deployment: expected.deployment.get(),
            expected_workload: expected.workload.get(),
            expected_access: expected.access.get(),
            execution: run.execution_id.uuid(),
            workspace: run.workspace_id.uuid(),
            release: run.release_id.uuid(),
            environment: run.environment.as_str(),
            lane: run.lane.as_str(),
            submitter: run.submitter.to_string(),
            snapshot: run.snapshot.as_slice(),
            input_digest: run.inputs.digest().to_vec(),
            status: status.as_str(),
            outcome,
            started,
            finished,
            salt: run.inputs.salt.as_slice(),
            decision: run.decision.decision_id.uuid(),
            verdict: Outcome::as_str(run.decision.outcome),
            evaluated: run.decision.evaluated_at.to_datetime(),
            request_context: request_context_json(&run.request_context),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        let decision = &self.run.decision;
        vec![
            &self.tenant,
            &self.workload,
            &self.environment,
            &self.expected_deployment,
            &self.expected_workload,
            &self.expected_access,
            &self.execution,
            &self.workspace,
            &self.release,
            &self.lane,
            &self.submitter,
            &self.snapshot,
            &self.input_digest,
            &self.status,
            &self.outcome,
            &self.started,
            &self.finished,
            &self.salt,
            &self.run.inputs.body,
            &self.decision,
            &self.verdict,
            &decision.reason_code,
            &decision.obligations,
            &decision.rules,
            &self.evaluated,
            &self.request_context,
        ]
    }
}

pub(super) async fn accept(
    points: &Pool,
    scope: TenantScope,
    run: &Acceptance,
    on: ExpectedRevisions,
    key: Option<&RequestKey>,
) -> Result<AcceptOutcome, CommitError> {
    let claim = key.map(|key| (key.caller.to_string(), key.body_digest.as_slice()));
    let columns = RunColumns::of(scope, run, on);
    let mut params = columns.params();
    let (lease, room, fact);
    let stored = |fact: &Fact| {
        let body = fact.canonical_bytes(scope.tenant());
        (fact.fact_id.uuid(), fact.kind.as_str(), leaf_hash(&body).to_vec(), body)
    };
    let (plain, keyed) = match &run.admission {
        Admission::Run { lease: token, lease_for, deadline_in } => {
            lease = (token, lease_for.as_secs_f64(), deadline_in.as_secs_f64());
            params.extend_from_slice(&[lease.0, &lease.1, &lease.2]);
            (RUN, RUN_KEYED)
        }
        Admission::Script { lease: token, lease_for, deadline_in, fact: told } => {
            lease = (token, lease_for.as_secs_f64(), deadline_in.as_secs_f64());
            fact = stored(told);
            params.extend_from_slice(&[lease.0, &lease.1, &lease.2, &fact.0, &fact.1, &fact.3, &fact.2]);
            (SCRIPT, SCRIPT_KEYED)
        }
        Admission::Queue { limit } => {
            room = i64::from(*limit);
            params.push(&room);
            (QUEUE, QUEUE_KEYED)
        }
        Admission::Deny(denied) => {
            fact = stored(denied);
            params.extend_from_slice(&[&fact.0, &fact.1, &fact.3, &fact.2]);
            (DENY, DENY_KEYED)
        }
    };
    let guest = &run.delegated_access;
    let (link, result_token) = (guest.share_link.map(ShareLinkId::uuid), guest.result_token.as_ref());
    let result_token = result_token.map(|hash| hash.bytes().as_slice());
    let delegate = guest.delegate.as_ref().map(ActorRef::to_string);
    let (plain, keyed) = if guest.is_empty() || matches!(run.admission, Admission::Script { .. }) {
        (plain, keyed)
    } else {
        params.extend_from_slice(&[&link, &result_token, &delegate]);
        accept_delegated::statements(&run.admission)
    };
    let sent = match (key, &claim) {
        (Some(key), Some((caller, digest))) => {
            params.extend_from_slice(&[caller, &key.route, &key.key, digest]);
            commit(points, keyed, &params).await
        }
        (_, _) => commit(points, plain, &params).await,
    };
    let rows = match sent {
        Err(CommitError::Conflict(Conflict::ShareLinkClosed)) => return Ok(AcceptOutcome::LinkClosed),
        sent => sent?,
    };
    let row = decode("gone", rows.first())?;
    let (places, gone): (i64, i64) = (row.column("places")?, row.column("gone")?);
    Ok(match (places, gone) {
        (0, _) if row.column("line_full")? => AcceptOutcome::QueueFull,
        (0, _) => AcceptOutcome::Stale,
        (_, 0) => AcceptOutcome::DuplicateKey,
        (_, _) => AcceptOutcome::Accepted,
    })
}

/// The stored form of a run's request context.
pub(super) fn request_context_json(sender: &RequestContext) -> String {
    json!(sender).to_string()
}
