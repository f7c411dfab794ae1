//! The line in which runs wait for workers, and the leases under which workers have them.

use super::{EXECUTION_COLUMNS, NO_ANSWER, NO_REASON, execution, progress::pieces};
use crate::{
    database::{Database, Param},
    row::{Columns, known, parsed},
};
use fairway_domain::{
    access::ActorRef,
    evidence::RecordedDecision,
    execution::{
        Payload,
        dispatch::{Claim, Claimed, Held, Stopping},
    },
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

/// Tenants that are looked at in one turn.
const TENANTS: i32 = 16;

/// Those who fell silent first, the longest silent first; then the line, tenant by tenant from the one whose turn it is,
/// each tenant's in the order in which they came. Rows that somebody else takes at this moment are passed over.
const CLAIM: &str = "WITH RECURSIVE silent AS (
        SELECT tenant_id, execution_id FROM execution_lease WHERE lapses_at < fairway_now()
        ORDER BY lapses_at LIMIT $4 FOR UPDATE SKIP LOCKED
    ),
    resumed AS (
        UPDATE execution_lease AS lease SET token = $1, lapses_at = fairway_now() + lease_for, takeovers = takeovers + 1
        FROM silent WHERE lease.tenant_id = silent.tenant_id AND lease.execution_id = silent.execution_id
        RETURNING lease.tenant_id, lease.execution_id, lease.deadline_at, lease.takeovers, lease.cancelled_by
    ),
    turn (tenant_id, number) AS (
        (SELECT tenant_id, 1 FROM execution_queue WHERE tenant_id > $6 ORDER BY tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT line.tenant_id FROM execution_queue AS line WHERE line.tenant_id > turn.tenant_id
                ORDER BY line.tenant_id LIMIT 1), number + 1
        FROM turn WHERE turn.tenant_id IS NOT NULL AND number < $8
    ),
    next AS MATERIALIZED (
        SELECT line.tenant_id, line.execution_id FROM turn, LATERAL (
            SELECT tenant_id, execution_id FROM execution_queue AS waiting
            WHERE waiting.tenant_id = turn.tenant_id AND turn.tenant_id <> ALL ($7::uuid[])
            ORDER BY execution_id LIMIT $5 FOR UPDATE SKIP LOCKED) AS line
        LIMIT $4 - (SELECT count(*) FROM silent)
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
        RETURNING tenant_id, execution_id, deadline_at, takeovers, cancelled_by
    )
    SELECT * FROM resumed UNION ALL SELECT * FROM begun";

#[derive(Deserialize)]
struct DecisionBody {
    decision_id: Uuid,
    outcome: String,
    reason_code: String,
    obligations: Vec<String>,
    rules: Vec<String>,
    evaluated_at: Timestamp,
}

/// Takes runs for a worker, and reads what it needs to go on with them.
pub(super) async fn claim(database: &Database, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
    let (lease_for, deadline_in) = (claim.lease_for.as_secs_f64(), claim.deadline_in.as_secs_f64());
    let (most, most_of_one) = (i64::from(claim.most), i64::from(claim.most_of_one));
    let after = claim.after.map_or(Uuid::nil(), fairway_domain::id::TenantId::uuid);
    let sated: Vec<Uuid> = claim.sated.iter().map(|tenant| tenant.uuid()).collect();
    let params: [Param<'_>; 8] =
        [&claim.lease, &lease_for, &deadline_in, &most, &most_of_one, &after, &sated, &TENANTS];
    let taken = database.write_repeatable(CLAIM, &params).await?;
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let of = |name: &'static str| taken.iter().map(|row| row.column(name)).collect::<Result<Vec<Uuid>, _>>();
    read(database, (&of("tenant_id")?, &of("execution_id")?), claim.lease).await
}

/// What whoever took runs needs of them. A run that somebody else took in the meantime is not among them.
async fn read(
    database: &Database,
    (tenants, runs): (&[Uuid], &[Uuid]),
    lease: Uuid,
) -> Result<Vec<Claimed>, StoreError> {
    let sql = format!(
        "SELECT told.*, asked.tenant FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant, run), LATERAL (
            SELECT {EXECUTION_COLUMNS}, {NO_ANSWER}, {NO_REASON}, execution.snapshot, execution.input_digest,
                execution.share_link_id IS NOT NULL AS by_link,
                greatest(extract(epoch FROM lease.deadline_at - fairway_now()), 0)::float8 AS time_left,
                lease.takeovers, lease.cancelled_by, input.salt, input.body, input.sender,
                (SELECT json_agg(json_build_object('decision_id', decision_id, 'outcome', decision.outcome,
                    'reason_code', decision.reason_code, 'obligations', obligations, 'rules', rules,
                    'evaluated_at', evaluated_at) ORDER BY decision_id)::text FROM policy_decision AS decision
                 WHERE decision.tenant_id = asked.tenant AND decision.execution_id = asked.run) AS decisions,
                (SELECT json_agg(json_build_object('position', position, 'answer', answer, 'events', events)
                    ORDER BY position)::text FROM execution_progress AS progress
                 WHERE progress.tenant_id = asked.tenant AND progress.execution_id = asked.run) AS progress
            FROM execution_lease AS lease
            JOIN execution ON execution.tenant_id = asked.tenant AND execution.execution_id = asked.run
            LEFT JOIN execution_input AS input ON input.tenant_id = asked.tenant AND input.execution_id = asked.run
            WHERE lease.tenant_id = asked.tenant AND lease.execution_id = asked.run AND lease.token = $3 OFFSET 0) AS told"
    );
    let rows = database.read(&sql, &[&tenants, &runs, &lease]).await?;
    rows.iter().map(|row| claimed(row, lease)).collect()
}

fn claimed(row: &Row, lease: Uuid) -> Result<Claimed, StoreError> {
    let bytes = |name: &'static str| -> Result<[u8; 32], StoreError> {
        known(name, row.column::<&[u8]>(name)?.try_into().ok())
    };
    let salt = row.column::<Option<&[u8]>>("salt")?.map(|salt| known("salt", salt.try_into().ok())).transpose()?;
    let body: Option<String> = row.column("body")?;
    let decisions: Vec<DecisionBody> =
        row.column::<Option<&str>>("decisions")?.map(parsed).transpose()?.unwrap_or_default();
    let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
    let time_left: f64 = row.column("time_left")?;
    Ok(Claimed {
        scope: TenantScope::for_relay(row.id("tenant")?),
        execution: execution(row)?,
        snapshot: bytes("snapshot")?,
        inputs: salt.zip(body).map(|(salt, body)| Payload { body, salt }),
        input_digest: bytes("input_digest")?,
        sender: row.column::<Option<&str>>("sender")?.map(parsed).transpose()?,
        by_link: row.column("by_link")?,
        lease,
        time_left: Duration::try_from_secs_f64(time_left).unwrap_or_default(),
        takeovers: u16::try_from(row.column::<i16>("takeovers")?).unwrap_or_default(),
        cancelled_by: cancelled_by.map(|by| known("cancelled_by", ActorRef::parse(by).ok())).transpose()?,
        decisions: decisions.into_iter().map(decision).collect::<Result<_, _>>()?,
        progress: pieces(row.column("progress")?)?,
    })
}

fn decision(body: DecisionBody) -> Result<RecordedDecision, StoreError> {
    Ok(RecordedDecision {
        decision_id: body.decision_id.into(),
        outcome: known("decisions", Outcome::parse(&body.outcome))?,
        reason_code: body.reason_code,
        obligations: body.obligations,
        rules: body.rules,
        evaluated_at: body.evaluated_at,
    })
}

/// Takes a run out of the line for whoever stops it, or tells whoever works on it.
pub(super) async fn stop(
    database: &Database,
    scope: TenantScope,
    held: Held,
    (by, key): (&ActorRef, Option<&KeyedOutcome>),
) -> Result<Stopping, StoreError> {
    const SQL: &str = "WITH gone AS (
            DELETE FROM execution_queue WHERE tenant_id = $1 AND execution_id = $2 RETURNING 1
        ),
        taken AS (
            INSERT INTO execution_lease (tenant_id, execution_id, token, lease_for, lapses_at, deadline_at, cancelled_by)
            SELECT $1, $2, $3, interval '30 seconds', fairway_now() + interval '30 seconds',
                fairway_now() + interval '10 minutes', $4
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
        SELECT EXISTS (SELECT FROM gone) AS taken, EXISTS (SELECT FROM told) AS told, EXISTS (SELECT FROM known) AS keyed";
    let by = by.to_string();
    let caller = key.map(|key| key.key.caller.to_string());
    let (route, name) = (key.map(|key| key.key.route.as_str()), key.map(|key| key.key.key.as_str()));
    let digest = key.map(|key| key.key.body_digest.as_slice());
    let status = key.and_then(|key| i16::try_from(key.outcome.status).ok());
    let params: [Param<'_>; 9] =
        [&scope.tenant().uuid(), &held.execution_id.uuid(), &held.lease, &by, &caller, &route, &name, &digest, &status];
    let rows = database.write_repeatable(SQL, &params).await?;
    let row = known("taken", rows.first())?;
    let keyed = key.is_none() || row.column("keyed")?;
    Ok(match (row.column("taken")?, row.column("told")?) {
        (false, false) => Stopping::Over,
        (true, _) | (_, true) if !keyed => Stopping::KeyTaken,
        (true, _) => Stopping::Taken,
        (false, true) => Stopping::Told,
    })
}

/// Takes a run over whoever works on it: its next word of it stores nothing.
pub(super) async fn take_over(database: &Database, scope: TenantScope, held: Held) -> Result<bool, StoreError> {
    const SQL: &str = "UPDATE execution_lease SET token = $3, lapses_at = fairway_now() + lease_for
        WHERE tenant_id = $1 AND execution_id = $2 RETURNING 1";
    let params: [Param<'_>; 3] = [&scope.tenant().uuid(), &held.execution_id.uuid(), &held.lease];
    Ok(!database.write_repeatable(SQL, &params).await?.is_empty())
}
