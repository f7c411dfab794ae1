//! The queue of runs, and the leases of the workers that claim them.

use super::{EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution, progress::decode_chunks};
use crate::{
    database::{Database, Param},
    row::{RowExt, decode, parse_json},
};
use fairway_domain::{
    access::ActorRef,
    evidence::RecordedDecision,
    execution::{
        Payload,
        dispatch::{CancelLease, CancelOutcome, Claim, ClaimedInputs, ClaimedRun, LeaseRef, RequestContext},
        progress::ProgressRecord,
    },
    id::ExecutionId,
    idempotency::KeyedOutcome,
    policy::Outcome,
    store::StoreError,
    tenant::TenantScope,
    time::Timestamp,
};
use serde::Deserialize;
use std::time::Duration;
use tokio_postgres::Row;
use uuid::Uuid;

/// Maximum number of tenants that one claim visits.
const MAX_TENANTS: i32 = 16;

/// Claims runs for a worker: first expired leases, oldest first; then queued runs, tenant by tenant in round-robin
/// order, oldest first within a tenant. Rows locked by another transaction are skipped. Scripts are skipped, because a
/// script is never resumed. A released lease (`-infinity`) does not count as a reclaim.
///
/// Before these, the statement takes the runs of the worker's earlier claims whose answers were lost (`$9`). Such a
/// claim may still be in flight, so the worker names it in every claim until the leases of its runs would expire. The
/// check of `cardinality` keeps PostgreSQL from reading the table when there are none.
///
/// Queued runs with inputs longer than `$12` bytes are skipped unless `$10` is set, and always for the tenants in
/// `$11`. PostgreSQL reads the length of a stored text without the text.
const CLAIM: &str = "WITH RECURSIVE lost AS (
        SELECT tenant_id, execution_id FROM execution_lease
        WHERE cardinality($9::uuid[]) > 0 AND token = ANY ($9::uuid[]) AND NOT script
        LIMIT $4::bigint FOR UPDATE SKIP LOCKED
    ),
    found AS (
        UPDATE execution_lease AS lease SET token = $1, lapses_at = fairway_now() + lease_for
        FROM lost WHERE lease.tenant_id = lost.tenant_id AND lease.execution_id = lost.execution_id
        RETURNING lease.tenant_id, lease.execution_id
    ),
    silent AS (
        SELECT tenant_id, execution_id FROM execution_lease
        WHERE lapses_at < fairway_now() AND tenant_id <> ALL ($7::uuid[]) AND token <> ALL ($9::uuid[]) AND NOT script
        ORDER BY lapses_at LIMIT least($4::bigint - (SELECT count(*) FROM lost), $5::bigint) FOR UPDATE SKIP LOCKED
    ),
    resumed AS (
        UPDATE execution_lease AS lease SET token = $1, lapses_at = fairway_now() + lease_for,
            takeovers = least(takeovers + (lapses_at > '-infinity')::integer, 1000)
        FROM silent WHERE lease.tenant_id = silent.tenant_id AND lease.execution_id = silent.execution_id
        RETURNING lease.tenant_id, lease.execution_id
    ),
    turn (tenant_id, number, first) AS (
        SELECT following.tenant_id, 1, following.tenant_id FROM (SELECT coalesce(
            (SELECT tenant_id FROM execution_queue WHERE tenant_id > $6 ORDER BY tenant_id LIMIT 1),
            (SELECT tenant_id FROM execution_queue ORDER BY tenant_id LIMIT 1)) AS tenant_id) AS following
        UNION ALL
        SELECT following.tenant_id, number + 1, first FROM turn, LATERAL (SELECT coalesce(
            (SELECT line.tenant_id FROM execution_queue AS line WHERE line.tenant_id > turn.tenant_id
             ORDER BY line.tenant_id LIMIT 1),
            (SELECT line.tenant_id FROM execution_queue AS line ORDER BY line.tenant_id LIMIT 1)) AS tenant_id) AS following
        WHERE following.tenant_id <> first AND number < $8
    ),
    next AS MATERIALIZED (
        SELECT line.tenant_id, line.execution_id, turn.number FROM turn, LATERAL (
            SELECT tenant_id, execution_id FROM execution_queue AS waiting
            WHERE waiting.tenant_id = turn.tenant_id AND turn.tenant_id <> ALL ($7::uuid[])
                AND (($10 AND turn.tenant_id <> ALL ($11::uuid[])) OR NOT EXISTS (
                    SELECT FROM execution_input AS input
                    WHERE input.tenant_id = waiting.tenant_id AND input.execution_id = waiting.execution_id
                        AND octet_length(input.body) > $12))
            ORDER BY execution_id LIMIT $5 FOR UPDATE SKIP LOCKED) AS line
        LIMIT $4 - (SELECT count(*) FROM lost) - (SELECT count(*) FROM silent)
    ),
    gone AS (
        DELETE FROM execution_queue AS line USING next
        WHERE line.tenant_id = next.tenant_id AND line.execution_id = next.execution_id
        RETURNING line.tenant_id, line.execution_id
    ),
    begun AS (
        INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
        SELECT tenant_id, execution_id, $1, make_interval(secs => $2), fairway_now() + make_interval(secs => $2),
            fairway_now() + make_interval(secs => $3)
        FROM gone
        RETURNING tenant_id, execution_id
    )
    SELECT tenant_id, execution_id, 0 AS turn FROM found
    UNION ALL SELECT tenant_id, execution_id, 0 FROM resumed
    UNION ALL SELECT tenant_id, execution_id, number FROM begun JOIN next USING (tenant_id, execution_id)";

#[derive(Deserialize)]
struct DecisionBody {
    decision_id: Uuid,
    outcome: String,
    reason_code: String,
    obligations: Vec<String>,
    rules: Vec<String>,
    evaluated_at: Timestamp,
}

/// Claims runs for a worker and reads the data to resume them. The claim is sent once: after a failure its outcome is
/// unknown, so the worker names it in its next claim.
pub(super) async fn claim(database: &Database, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError> {
    let (lease_for, deadline_in) = (claim.lease_for.as_secs_f64(), claim.deadline_after.as_secs_f64());
    let (limit, per_tenant_limit) = (i64::from(claim.limit), i64::from(claim.per_tenant_limit));
    let after = claim.after_tenant.map_or(Uuid::nil(), fairway_domain::id::TenantId::uuid);
    let sated: Vec<Uuid> = claim.saturated.iter().map(|tenant| tenant.uuid()).collect();
    let no_large_of: Vec<Uuid> = claim.no_large_tenants.iter().map(|tenant| tenant.uuid()).collect();
    let max_input_bytes = i32::try_from(claim.max_input_bytes).unwrap_or(i32::MAX);
    let params: [Param<'_>; 12] = [
        &claim.lease,
        &lease_for,
        &deadline_in,
        &limit,
        &per_tenant_limit,
        &after,
        &sated,
        &MAX_TENANTS,
        &claim.lost_leases,
        &claim.takes_large,
        &no_large_of,
        &max_input_bytes,
    ];
    let taken = database.write_once(CLAIM, &params).await?;
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let of = |name: &'static str| taken.iter().map(|row| row.column(name)).collect::<Result<Vec<Uuid>, _>>();
    let turns = taken.iter().map(|row| row.column("turn")).collect::<Result<Vec<i32>, _>>()?;
    read_claimed(database, &of("tenant_id")?, &of("execution_id")?, &turns, claim.lease, max_input_bytes).await
}

/// Reads the data of claimed runs. Runs that another worker reclaimed meanwhile are missing, and so are rows that this
/// version cannot decode.
async fn read_claimed(
    database: &Database,
    tenants: &[Uuid],
    runs: &[Uuid],
    turns: &[i32],
    lease: Uuid,
    max_input_bytes: i32,
) -> Result<Vec<ClaimedRun>, StoreError> {
    let sql = format!(
        "SELECT told.*, asked.tenant, asked.turn
         FROM unnest($1::uuid[], $2::uuid[], $4::integer[]) AS asked (tenant, run, turn), LATERAL (
            SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, execution.snapshot, execution.input_digest,
                execution.share_link_id,
                greatest(extract(epoch FROM lease.deadline_at - fairway_now()), 0)::float8 AS time_left,
                lease.takeovers, lease.cancelled_by, input.salt, input.sender,
                input.body IS NOT NULL AS has_inputs,
                CASE WHEN octet_length(input.body) <= $7 THEN input.body END AS body,
                (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', decision.outcome,
                    'reason_code', decision.reason_code, 'obligations', obligations, 'rules', rules,
                    'evaluated_at', evaluated_at) ORDER BY decision_id)::text FROM policy_decision AS decision
                 WHERE decision.tenant_id = asked.tenant AND decision.execution_id = asked.run
                    AND decision.execution_id >= $5 AND decision.execution_id <= $6) AS decisions,
                (SELECT json_agg(json_build_object('position', position, 'answer', answer, 'events', events)
                    ORDER BY position)::text FROM execution_progress AS progress
                 WHERE progress.tenant_id = asked.tenant AND progress.execution_id = asked.run
                    AND progress.execution_id >= $5 AND progress.execution_id <= $6) AS progress
            FROM execution_lease AS lease
            JOIN execution ON execution.tenant_id = asked.tenant AND execution.execution_id = asked.run
                AND execution.execution_id >= $5 AND execution.execution_id <= $6
            LEFT JOIN execution_input AS input ON input.tenant_id = asked.tenant AND input.execution_id = asked.run
                AND input.execution_id >= $5 AND input.execution_id <= $6
            WHERE lease.tenant_id = asked.tenant AND lease.execution_id = asked.run AND lease.token = $3 OFFSET 0) AS told"
    );
    // The range of identifiers lets PostgreSQL prune monthly partitions.
    let (first, last) = (runs.iter().min(), runs.iter().max());
    let rows = database.read(&sql, &[&tenants, &runs, &lease, &turns, &first, &last, &max_input_bytes]).await?;
    Ok(rows.iter().filter_map(|row| decode_claimed(row, lease)).collect())
}

/// Decodes a claimed run. If this version cannot decode its resume data, the run is returned without them, and the
/// worker ends it.
fn decode_claimed(row: &Row, lease: Uuid) -> Option<ClaimedRun> {
    let error = match build_claimed(row, lease, ResumeData::of) {
        Ok(claimed) => return Some(claimed),
        Err(error) => error,
    };
    let execution_id: Option<Uuid> = row.column("execution_id").ok();
    tracing::error!(error = &error as &dyn std::error::Error, ?execution_id, "failed to decode claimed run; ending it");
    build_claimed(row, lease, |_| Ok(ResumeData::default())).ok()
}

/// The data with which another process resumes a run.
#[derive(Default)]
struct ResumeData {
    sender: Option<RequestContext>,
    decisions: Vec<RecordedDecision>,
    progress: Vec<ProgressRecord>,
}

impl ResumeData {
    fn of(row: &Row) -> Result<Self, StoreError> {
        let decisions: Vec<DecisionBody> =
            row.column::<Option<&str>>("decisions")?.map(parse_json).transpose()?.unwrap_or_default();
        Ok(Self {
            sender: row.column::<Option<&str>>("sender")?.map(parse_json).transpose()?,
            decisions: decisions.into_iter().map(recorded_decision).collect::<Result<_, _>>()?,
            progress: decode_chunks(row.column("progress")?)?,
        })
    }
}

fn build_claimed(
    row: &Row,
    lease: Uuid,
    carried: fn(&Row) -> Result<ResumeData, StoreError>,
) -> Result<ClaimedRun, StoreError> {
    let bytes = |name: &'static str| -> Result<[u8; 32], StoreError> {
        decode(name, row.column::<&[u8]>(name)?.try_into().ok())
    };
    let salt = row.column::<Option<&[u8]>>("salt")?.map(|salt| decode("salt", salt.try_into().ok())).transpose()?;
    let body: Option<String> = row.column("body")?;
    let ResumeData { sender, decisions, progress } = carried(row)?;
    let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
    let time_left: f64 = row.column("time_left")?;
    Ok(ClaimedRun {
        scope: TenantScope::for_background_task(row.id("tenant")?),
        execution: execution(row)?,
        snapshot: bytes("snapshot")?,
        inputs: match (row.column("has_inputs")?, salt.zip(body)) {
            (_, Some((salt, body))) => ClaimedInputs::Loaded(Payload { body, salt }),
            (true, None) => ClaimedInputs::NotLoaded,
            (false, None) => ClaimedInputs::Erased,
        },
        input_digest: bytes("input_digest")?,
        request_context: sender,
        share_link: row.optional_id("share_link_id")?,
        lease,
        time_left: Duration::try_from_secs_f64(time_left).unwrap_or_default(),
        reclaims: u16::try_from(row.column::<i16>("takeovers")?).unwrap_or_default(),
        round_position: u16::try_from(row.column::<i32>("turn")?).unwrap_or_default(),
        cancelled_by: cancelled_by.map(|by| decode("cancelled_by", ActorRef::parse(by).ok())).transpose()?,
        decisions,
        progress,
    })
}

fn recorded_decision(body: DecisionBody) -> Result<RecordedDecision, StoreError> {
    Ok(RecordedDecision {
        decision_id: body.decision_id.into(),
        outcome: decode("decisions", Outcome::parse(&body.outcome))?,
        reason_code: body.reason_code,
        obligations: body.obligations,
        rules: body.rules,
        evaluated_at: body.evaluated_at,
    })
}

/// Reads the inputs of a run.
pub(super) async fn read_inputs(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Option<Payload>, StoreError> {
    const SQL: &str = "SELECT salt, body FROM execution_input WHERE tenant_id = $1 AND execution_id = $2";
    let row = database.read_one(SQL, &[&scope.tenant().uuid(), &id.uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    let salt = row.column::<Option<&[u8]>>("salt")?.map(|salt| decode("salt", salt.try_into().ok())).transpose()?;
    let body: Option<String> = row.column("body")?;
    Ok(salt.zip(body).map(|(salt, body)| Payload { body, salt }))
}

/// Cancels a run: removes it from the queue under a lease of the caller, or marks its lease as cancelled for the
/// worker.
pub(super) async fn cancel(
    database: &Database,
    scope: TenantScope,
    CancelLease { lease_ref: held, lease_for, deadline_in }: CancelLease,
    by: &ActorRef,
    key: Option<&KeyedOutcome>,
) -> Result<CancelOutcome, StoreError> {
    // A lease with this token was written by an earlier attempt whose answer was lost, and so was its idempotency key.
    const SQL: &str = "WITH gone AS (
            DELETE FROM execution_queue WHERE tenant_id = $1 AND execution_id = $2 RETURNING 1
        ),
        mine AS (
            SELECT FROM execution_lease WHERE tenant_id = $1 AND execution_id = $2 AND token = $3
        ),
        taken AS (
            INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at, cancelled_by)
            SELECT $1, $2, $3, make_interval(secs => $10), fairway_now() + make_interval(secs => $10),
                fairway_now() + make_interval(secs => $11), $4
            FROM gone
        ),
        told AS (
            UPDATE execution_lease SET cancelled_by = coalesce(cancelled_by, $4)
            WHERE tenant_id = $1 AND execution_id = $2 AND NOT EXISTS (SELECT FROM gone) RETURNING 1
        ),
        known AS (
            INSERT INTO idempotency_key AS known
                (tenant_id, caller, route, key, body_digest, status, resource, created_at)
            SELECT $1, $5::text, $6::text, $7::text, $8::bytea, $9::smallint, $2, fairway_now()
            WHERE $7 IS NOT NULL AND (EXISTS (SELECT FROM gone) OR EXISTS (SELECT FROM told))
            ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
            SET body_digest = excluded.body_digest, status = excluded.status, resource = excluded.resource,
                created_at = excluded.created_at
            WHERE known.created_at < fairway_now() - fairway_key_lifetime()
            RETURNING 1
        )
        SELECT EXISTS (SELECT FROM gone) OR EXISTS (SELECT FROM mine) AS taken, EXISTS (SELECT FROM told) AS told,
            EXISTS (SELECT FROM known) OR EXISTS (SELECT FROM mine) AS keyed";
    let by = by.to_string();
    let caller = key.map(|key| key.key.caller.to_string());
    let (route, name) = (key.map(|key| key.key.route.as_str()), key.map(|key| key.key.key.as_str()));
    let digest = key.map(|key| key.key.body_digest.as_slice());
    let status = key.and_then(|key| i16::try_from(key.outcome.status).ok());
    let (lease_for, deadline_in) = (lease_for.as_secs_f64(), deadline_in.as_secs_f64());
    let (tenant, run) = (scope.tenant().uuid(), held.execution_id.uuid());
    let params: [Param<'_>; 11] =
        [&tenant, &run, &held.lease, &by, &caller, &route, &name, &digest, &status, &lease_for, &deadline_in];
    let rows = database.commit_idempotent(SQL, &params).await?;
    let row = decode("taken", rows.first())?;
    let keyed = key.is_none() || row.column("keyed")?;
    Ok(match (row.column("taken")?, row.column("told")?) {
        (false, false) => CancelOutcome::AlreadyEnded,
        (true, _) | (_, true) if !keyed => CancelOutcome::DuplicateKey,
        (true, _) => CancelOutcome::LeaseTaken,
        (false, true) => CancelOutcome::WorkerNotified,
    })
}

/// Takes the lease of a run from its worker. Later writes of that worker store nothing.
pub(super) async fn take_lease(database: &Database, scope: TenantScope, held: LeaseRef) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE execution_lease SET token = $3, lapses_at = fairway_now() + lease_for
        WHERE tenant_id = $1 AND execution_id = $2 RETURNING 1";
    let params: [Param<'_>; 3] = [&scope.tenant().uuid(), &held.execution_id.uuid(), &held.lease];
    Ok(!database.write_idempotent(SQL, &params).await?.is_empty())
}
