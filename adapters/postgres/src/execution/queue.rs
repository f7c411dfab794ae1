//! The queue of runs, and the leases of the workers that claim them.

use super::{
    EXECUTION_COLUMNS, NULL_OUTPUT, NULL_REASON_CODE, execution, lease::lease_params, progress::decode_progress,
    stored_decision::StoredDecision,
};
use crate::{
    database::Database,
    guarded_commit::{Input, Query, claim_keys},
    row::{Row, parse_json, require_decoded},
};
use fairway_domain::{
    access::ActorRef,
    evidence::RecordedDecision,
    execution::{
        Payload,
        dispatch::{CancelLease, CancelOutcome, Claim, ClaimedInputs, ClaimedRun, LeaseRef, RequestContext},
        progress::ProgressRecord,
    },
    id::{ExecutionId, TenantId},
    idempotency::KeyedOutcome,
    store::StoreError,
    tenant::TenantScope,
};
use std::time::Duration;
use uuid::Uuid;

/// Maximum number of tenants that one claim visits.
const MAX_TENANTS: i32 = 16;

/// Claims runs for a worker.
///
/// The claim first returns the runs of the worker's earlier claims whose responses were lost (`lost_leases`). Such
/// a claim may still be in flight, so the worker names it in every claim until the leases of its runs would expire.
/// The check of `cardinality` prevents PostgreSQL from reading the table when there are none.
///
/// Next come expired leases, oldest first, and then queued runs: tenant by tenant in round-robin order, oldest
/// first within a tenant. Rows that another transaction has locked are skipped. So are leases of scripts, because a
/// script is never resumed. A released lease (`-infinity`) does not count as a reclaim.
///
/// Queued runs with inputs longer than `max_input_bytes` are skipped unless `takes_large` is set. They are always
/// skipped for the tenants in `no_large_tenants`. PostgreSQL reads the length of a stored text without reading the
/// text.
static CLAIM: Query = Query::new(
    "WITH RECURSIVE lost AS (
        SELECT tenant_id, execution_id FROM execution_lease
        WHERE cardinality({lost_leases}) > 0 AND token = ANY ({lost_leases}) AND NOT script
        LIMIT {limit} FOR UPDATE SKIP LOCKED
    ),
    recovered AS (
        UPDATE execution_lease AS lease SET token = {token}, lapses_at = fairway_now() + lease_for
        FROM lost WHERE lease.tenant_id = lost.tenant_id AND lease.execution_id = lost.execution_id
        RETURNING lease.tenant_id, lease.execution_id
    ),
    expired AS (
        SELECT tenant_id, execution_id FROM execution_lease
        WHERE lapses_at < fairway_now() AND tenant_id <> ALL ({saturated}) AND token <> ALL ({lost_leases}) AND NOT script
        ORDER BY lapses_at LIMIT least({limit} - (SELECT count(*) FROM lost), {tenant_limit}) FOR UPDATE SKIP LOCKED
    ),
    resumed AS (
        UPDATE execution_lease AS lease SET token = {token}, lapses_at = fairway_now() + lease_for,
            takeovers = least(takeovers + (lapses_at > '-infinity')::integer, 1000)
        FROM expired WHERE lease.tenant_id = expired.tenant_id AND lease.execution_id = expired.execution_id
        RETURNING lease.tenant_id, lease.execution_id
    ),
    visit (tenant_id, number, first) AS (
        SELECT following.tenant_id, 1, following.tenant_id FROM (SELECT coalesce(
            (SELECT tenant_id FROM execution_queue WHERE tenant_id > {after_tenant} ORDER BY tenant_id LIMIT 1),
            (SELECT tenant_id FROM execution_queue ORDER BY tenant_id LIMIT 1)) AS tenant_id) AS following
        UNION ALL
        SELECT following.tenant_id, number + 1, first FROM visit, LATERAL (SELECT coalesce(
            (SELECT queued.tenant_id FROM execution_queue AS queued WHERE queued.tenant_id > visit.tenant_id
             ORDER BY queued.tenant_id LIMIT 1),
            (SELECT queued.tenant_id FROM execution_queue AS queued ORDER BY queued.tenant_id LIMIT 1)) AS tenant_id) AS following
        WHERE following.tenant_id <> first AND number < {max_tenants}
    ),
    next AS MATERIALIZED (
        SELECT queued.tenant_id, queued.execution_id, visit.number FROM visit, LATERAL (
            SELECT tenant_id, execution_id FROM execution_queue AS candidate
            WHERE candidate.tenant_id = visit.tenant_id AND visit.tenant_id <> ALL ({saturated})
                AND (({takes_large} AND visit.tenant_id <> ALL ({no_large_tenants})) OR NOT EXISTS (
                    SELECT FROM execution_input AS input
                    WHERE input.tenant_id = candidate.tenant_id AND input.execution_id = candidate.execution_id
                        AND octet_length(input.body) > {max_input_bytes}))
            ORDER BY execution_id LIMIT {tenant_limit} FOR UPDATE SKIP LOCKED) AS queued
        LIMIT {limit} - (SELECT count(*) FROM lost) - (SELECT count(*) FROM expired)
    ),
    dequeued AS (
        DELETE FROM execution_queue AS queued USING next
        WHERE queued.tenant_id = next.tenant_id AND queued.execution_id = next.execution_id
        RETURNING queued.tenant_id, queued.execution_id
    ),
    new_lease AS (
        INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at)
        SELECT tenant_id, execution_id, {token}, make_interval(secs => {lease_seconds}), fairway_now() + make_interval(secs => {lease_seconds}),
            fairway_now() + make_interval(secs => {deadline_seconds})
        FROM dequeued
        RETURNING tenant_id, execution_id
    )
    SELECT tenant_id, execution_id, 0 AS round_position FROM recovered
    UNION ALL SELECT tenant_id, execution_id, 0 FROM resumed
    UNION ALL SELECT tenant_id, execution_id, number FROM new_lease JOIN next USING (tenant_id, execution_id)",
);

/// Claims runs for a worker and reads the data with which it resumes them. The claim is sent only once. After a
/// failure its outcome is unknown. The worker's next claim then contains the lease token of the failed claim, and takes
/// over the runs that have this token.
pub(super) async fn claim(database: &Database, claim: &Claim) -> Result<Vec<ClaimedRun>, StoreError> {
    let max_input_bytes = i32::try_from(claim.max_input_bytes).unwrap_or(i32::MAX);
    let tenant_ids = |tenants: &[TenantId]| tenants.iter().map(|tenant| tenant.uuid()).collect::<Vec<Uuid>>();
    let input = Input::without_rows()
        .with_param("token", claim.lease)
        .with_param("lease_seconds", claim.lease_for.as_secs_f64())
        .with_param("deadline_seconds", claim.deadline_after.as_secs_f64())
        .with_param("limit", i64::from(claim.limit))
        .with_param("tenant_limit", i64::from(claim.per_tenant_limit))
        .with_param("after_tenant", claim.after_tenant.map_or(Uuid::nil(), TenantId::uuid))
        .with_list_param("saturated", tenant_ids(&claim.saturated))
        .with_param("max_tenants", MAX_TENANTS)
        .with_list_param("lost_leases", claim.lost_leases.clone())
        .with_param("takes_large", claim.takes_large)
        .with_list_param("no_large_tenants", tenant_ids(&claim.no_large_tenants))
        .with_param("max_input_bytes", max_input_bytes);
    let rows = database.write_without_retry(CLAIM.text(&input)?, &input.params()).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let uuid_column = |name: &'static str| rows.iter().map(|row| row.column(name)).collect::<Result<Vec<Uuid>, _>>();
    let round_positions = rows.iter().map(|row| row.column("round_position")).collect::<Result<Vec<i32>, _>>()?;
    read_claimed(
        database,
        uuid_column("tenant_id")?,
        uuid_column("execution_id")?,
        round_positions,
        claim.lease,
        max_input_bytes,
    )
    .await
}

/// The statement that reads the data with which a worker resumes claimed runs. The range of identifiers lets
/// PostgreSQL prune monthly partitions.
fn claimed_sql() -> String {
    let [decision, progress, run, inputs] = ["decision", "progress", "execution", "inputs"].map(|table| {
        format!(
            "{table}.tenant_id = input.tenant_id AND {table}.execution_id = input.execution_id
                AND {table}.execution_id >= {{first_execution}} AND {table}.execution_id <= {{last_execution}}"
        )
    });
    format!(
        "SELECT claimed.*, input.tenant_id AS tenant, input.round_position FROM input, LATERAL (
            SELECT {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {NULL_REASON_CODE}, execution.snapshot, execution.input_digest,
                execution.share_link_id,
                greatest(extract(epoch FROM lease.deadline_at - fairway_now()), 0)::float8 AS time_left,
                lease.takeovers, lease.cancelled_by, inputs.salt, inputs.sender,
                inputs.body IS NOT NULL AS has_inputs,
                CASE WHEN octet_length(inputs.body) <= {{max_input_bytes}} THEN inputs.body END AS body,
                (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', decision.outcome,
                    'reason_code', decision.reason_code, 'obligations', obligations, 'rules', rules,
                    'evaluated_at', evaluated_at) ORDER BY decision_id)::text FROM policy_decision AS decision
                 WHERE {decision}) AS decisions,
                (SELECT json_agg(json_build_object('position', position, 'answer', answer, 'events', events)
                    ORDER BY position)::text FROM execution_progress AS progress
                 WHERE {progress}) AS progress
            FROM execution_lease AS lease
            JOIN execution ON {run}
            LEFT JOIN execution_input AS inputs ON {inputs}
            WHERE lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
                AND lease.token = {{token}} OFFSET 0) AS claimed"
    )
}

/// Reads the resume data of claimed runs. The result omits runs that another worker has reclaimed meanwhile, and
/// rows that this version cannot decode at all.
async fn read_claimed(
    database: &Database,
    tenants: Vec<Uuid>,
    runs: Vec<Uuid>,
    round_positions: Vec<i32>,
    lease: Uuid,
    max_input_bytes: i32,
) -> Result<Vec<ClaimedRun>, StoreError> {
    static READ_CLAIMED: Query = Query::from_fn(claimed_sql);
    let (first, last) = (runs.iter().min().copied(), runs.iter().max().copied());
    let input = Input::many()
        .with_column("tenant_id", tenants)
        .with_column("execution_id", runs)
        .with_column("round_position", round_positions)
        .with_param("token", lease)
        .with_param("first_execution", first)
        .with_param("last_execution", last)
        .with_param("max_input_bytes", max_input_bytes);
    let rows = database.fetch(&READ_CLAIMED, input).await?;
    Ok(rows.iter().filter_map(|row| decode_claimed(row, lease)).collect())
}

/// Decodes a claimed run. If this version cannot decode the resume data, the run is returned without it, and the
/// worker ends the run. Returns `None` for a row that this version cannot decode at all.
fn decode_claimed(row: &Row, lease: Uuid) -> Option<ClaimedRun> {
    let error = match build_claimed(row, lease, ResumeData::of) {
        Ok(claimed) => return Some(claimed),
        Err(error) => error,
    };
    let uuid_column = |name: &'static str| row.column::<Uuid>(name).ok();
    let (tenant_id, execution_id) = (uuid_column("tenant"), uuid_column("execution_id"));
    let claimed = build_claimed(row, lease, |_| Ok(ResumeData::default())).ok();
    if claimed.is_some() {
        tracing::error!(
            tenant_id = tenant_id.map(tracing::field::display),
            execution_id = execution_id.map(tracing::field::display),
            error = &error as &dyn std::error::Error,
            "failed to decode the resume data of a claimed run; ending the run"
        );
    } else {
        tracing::error!(
            tenant_id = tenant_id.map(tracing::field::display),
            execution_id = execution_id.map(tracing::field::display),
            error = &error as &dyn std::error::Error,
            "failed to decode a claimed run; a worker claims it again when its lease expires"
        );
    }
    claimed
}

/// The data with which a worker resumes a run.
#[derive(Default)]
struct ResumeData {
    sender: Option<RequestContext>,
    decisions: Vec<RecordedDecision>,
    progress: Vec<ProgressRecord>,
}

impl ResumeData {
    fn of(row: &Row) -> Result<Self, StoreError> {
        let decisions: Vec<StoredDecision> =
            row.column::<Option<&str>>("decisions")?.map(parse_json).transpose()?.unwrap_or_default();
        Ok(Self {
            sender: row.column::<Option<&str>>("sender")?.map(parse_json).transpose()?,
            decisions: decisions.into_iter().map(StoredDecision::into_decision).collect::<Result<_, _>>()?,
            progress: decode_progress(row.column("progress")?)?,
        })
    }
}

fn build_claimed(
    row: &Row,
    lease: Uuid,
    decode_resume_data: fn(&Row) -> Result<ResumeData, StoreError>,
) -> Result<ClaimedRun, StoreError> {
    let bytes = |name: &'static str| -> Result<[u8; 32], StoreError> {
        require_decoded(name, row.column::<&[u8]>(name)?.try_into().ok())
    };
    let salt =
        row.column::<Option<&[u8]>>("salt")?.map(|salt| require_decoded("salt", salt.try_into().ok())).transpose()?;
    let body: Option<String> = row.column("body")?;
    let ResumeData { sender, decisions, progress } = decode_resume_data(row)?;
    let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
    let time_left: f64 = row.column("time_left")?;
    Ok(ClaimedRun {
        scope: TenantScope::for_background_task(row.id("tenant")?),
        execution: execution(row)?,
        snapshot: bytes("snapshot")?,
        inputs: match (row.column("has_inputs")?, salt.zip(body)) {
            (_, Some((salt, body))) => ClaimedInputs::Loaded(Payload { body: body.into(), salt }),
            (true, None) => ClaimedInputs::NotLoaded,
            (false, None) => ClaimedInputs::Erased,
        },
        input_digest: bytes("input_digest")?,
        request_context: sender,
        share_link: row.optional_id("share_link_id")?,
        lease,
        time_left: Duration::try_from_secs_f64(time_left).unwrap_or_default(),
        reclaims: u16::try_from(row.column::<i16>("takeovers")?).unwrap_or_default(),
        round_position: u16::try_from(row.column::<i32>("round_position")?).unwrap_or_default(),
        cancelled_by: cancelled_by
            .map(|actor| require_decoded("cancelled_by", ActorRef::parse(actor).ok()))
            .transpose()?,
        decisions,
        progress,
    })
}

pub(super) async fn read_inputs(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
) -> Result<Option<Payload>, StoreError> {
    static READ: Query = Query::new(
        "SELECT salt, body FROM execution_input WHERE tenant_id = {tenant_id} AND execution_id = {execution_id}",
    );
    let row = database.fetch_one(&READ, Input::of_params(scope).with_param("execution_id", id.uuid())).await?;
    let Some(row) = row else { return Ok(None) };
    let salt =
        row.column::<Option<&[u8]>>("salt")?.map(|salt| require_decoded("salt", salt.try_into().ok())).transpose()?;
    let body: Option<String> = row.column("body")?;
    Ok(salt.zip(body).map(|(salt, body)| Payload { body: body.into(), salt }))
}

/// Cancels a run. If a lease with this token exists, an earlier attempt wrote the lease and the idempotency key,
/// and its response was lost. The statement then reports success again.
static CANCEL: Query = Query::from_fn(|| {
    let claimed = claim_keys("current");
    format!(
        "dequeued AS (
        DELETE FROM execution_queue USING input
        WHERE execution_queue.tenant_id = input.tenant_id AND execution_queue.execution_id = input.execution_id
        RETURNING 1
     ),
     own_lease AS (
        SELECT FROM execution_lease AS lease, input
        WHERE lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
            AND lease.token = input.token
     ),
     new_lease AS (
        INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at, cancelled_by)
        SELECT tenant_id, execution_id, token, make_interval(secs => lease_seconds),
            fairway_now() + make_interval(secs => lease_seconds),
            fairway_now() + make_interval(secs => deadline_seconds), canceller
        FROM input, dequeued
     ),
     notified AS (
        UPDATE execution_lease AS lease SET cancelled_by = coalesce(cancelled_by, canceller) FROM input
        WHERE lease.tenant_id = input.tenant_id AND lease.execution_id = input.execution_id
            AND NOT EXISTS (SELECT FROM dequeued)
        RETURNING 1
     ),
     current AS (
        SELECT * FROM input WHERE EXISTS (SELECT FROM dequeued) OR EXISTS (SELECT FROM notified)
     ),
     {claimed}
     SELECT EXISTS (SELECT FROM dequeued) OR EXISTS (SELECT FROM own_lease) AS is_leased,
        EXISTS (SELECT FROM notified) AS is_notified,
        EXISTS (SELECT FROM claimed) OR EXISTS (SELECT FROM own_lease) AS is_key_claimed"
    )
});

/// Cancels a run. A queued run leaves the queue, and the caller receives its lease. For a run in progress, the
/// lease is marked as cancelled, so that its worker ends the run.
pub(super) async fn cancel(
    database: &Database,
    scope: TenantScope,
    CancelLease { lease_ref, lease_for, deadline_in }: CancelLease,
    actor: &ActorRef,
    key: Option<&KeyedOutcome>,
) -> Result<CancelOutcome, StoreError> {
    let key_columns = key.map(|key| &key.key);
    let input = Input::new(scope)
        .with("execution_id", lease_ref.execution_id.uuid())
        .with("token", lease_ref.lease)
        .with("canceller", actor.to_string())
        .with("lease_seconds", lease_for.as_secs_f64())
        .with("deadline_seconds", deadline_in.as_secs_f64())
        .with("key_caller", key_columns.map(|key| key.caller.to_string()))
        .with("key_route", key_columns.map(|key| key.route.as_str()))
        .with("key_name", key_columns.map(|key| key.key.as_str()))
        .with("key_digest", key_columns.map(|key| key.body_digest.as_slice()))
        .with("key_status", key.and_then(|key| i16::try_from(key.outcome.status).ok()));
    let rows = database.commit_idempotent(CANCEL.text(&input)?, &input.params()).await?;
    let row = require_decoded("is_leased", rows.first())?;
    let is_key_claimed = key.is_none() || row.column("is_key_claimed")?;
    Ok(match (row.column("is_leased")?, row.column("is_notified")?) {
        (false, false) => CancelOutcome::AlreadyEnded,
        (true, _) | (_, true) if !is_key_claimed => CancelOutcome::DuplicateKey,
        (true, _) => CancelOutcome::LeaseTaken,
        (false, true) => CancelOutcome::WorkerNotified,
    })
}

/// Takes over the lease of a run from its worker. Later writes of the worker name the old token and store nothing.
pub(super) async fn take_lease(
    database: &Database,
    scope: TenantScope,
    lease_ref: LeaseRef,
) -> Result<bool, StoreError> {
    static TAKE_OVER: Query = Query::new(
        "UPDATE execution_lease SET token = {token}, lapses_at = fairway_now() + lease_for
         WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} RETURNING 1",
    );
    let input = lease_params(scope, lease_ref);
    Ok(!database.write_idempotent(TAKE_OVER.text(&input)?, &input.params()).await?.is_empty())
}
