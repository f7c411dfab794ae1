//! Leases, by the database's clock only.

use super::{EXECUTION_COLUMNS, JOINED_REASON_CODE, NULL_OUTPUT, execution};
use crate::{
    database::{Database, Param},
    row::{RowExt, decode},
};
use fairway_domain::{
    access::ActorRef,
    execution::{
        dispatch::LeaseRef,
        ports::{LapsedFilter, LapsedRun, LeaseState, WorkKind},
    },
    id::ExecutionId,
    store::StoreError,
    tenant::TenantScope,
};
use uuid::Uuid;

/// Maximum number of expired leases that one statement takes over.
const MAX_RECLAIMED: i64 = 20;

pub(super) async fn renew(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    lease: Uuid,
) -> Result<LeaseState, StoreError> {
    const SQL: &str = "WITH held AS (
            UPDATE execution_lease SET lapses_at = fairway_now() + lease_for
            WHERE tenant_id = $1 AND execution_id = $2 AND token = $3 RETURNING cancelled_by
        )
        SELECT workload.status = 'registered' AS goes_on, held.cancelled_by
        FROM held, execution JOIN workload USING (tenant_id, workload_id)
        WHERE tenant_id = $1 AND execution_id = $2";
    let rows = database.write_idempotent(SQL, &[&scope.tenant().uuid(), &id.uuid(), &lease]).await?;
    let Some(row) = rows.first() else { return Ok(LeaseState::Lost) };
    let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
    Ok(match (cancelled_by, row.column("goes_on")?) {
        (Some(by), _) => LeaseState::Cancelled(decode("cancelled_by", ActorRef::parse(by).ok())?),
        (None, true) => LeaseState::Held,
        (None, false) => LeaseState::WorkloadStopped,
    })
}

/// Releases a lease. The token is replaced, because the former worker may still renew with the old one. `-infinity`
/// marks a release, so that it is not counted as a reclaim.
pub(super) async fn release(database: &Database, scope: TenantScope, held: LeaseRef) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE execution_lease SET lapses_at = '-infinity', token = gen_random_uuid()
        WHERE tenant_id = $1 AND execution_id = $2 AND token = $3";
    let params: [Param<'_>; 3] = [&scope.tenant().uuid(), &held.execution_id.uuid(), &held.lease];
    database.write_idempotent(SQL, &params).await.map(|_| ())
}

pub(super) async fn reclaim_expired(
    database: &Database,
    lease: Uuid,
    whose: LapsedFilter,
) -> Result<Vec<LapsedRun>, StoreError> {
    let every = match whose {
        LapsedFilter::All => true,
        LapsedFilter::Scripts => false,
    };
    let sql = format!(
        "WITH lapsed AS (
            SELECT tenant_id, execution_id FROM execution_lease WHERE lapses_at < fairway_now() AND (script OR $3)
            ORDER BY lapses_at LIMIT $2 FOR UPDATE SKIP LOCKED
         ),
         taken AS (
            UPDATE execution_lease SET token = $1, lapses_at = fairway_now() + lease_for
            FROM lapsed WHERE execution_lease.tenant_id = lapsed.tenant_id
                AND execution_lease.execution_id = lapsed.execution_id
            RETURNING execution_lease.tenant_id, execution_lease.execution_id, deadline_at < fairway_now() AS overdue,
                cancelled_by, script
         )
         SELECT taken.tenant_id, taken.script, taken.overdue, taken.cancelled_by, execution.input_digest, {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {JOINED_REASON_CODE},
            (SELECT body::json -> 'workload' ->> 'owner_ref' FROM evidence_snapshot AS chain
             WHERE chain.tenant_id = execution.tenant_id AND chain.digest = execution.snapshot) AS owner_ref,
            (SELECT bool_or('notify_owner' = ANY(obligations)) FROM policy_decision AS decision
             WHERE decision.tenant_id = execution.tenant_id AND decision.execution_id = execution.execution_id) AS owed_to_owner
         FROM taken JOIN execution ON execution.tenant_id = taken.tenant_id
            AND execution.execution_id = taken.execution_id"
    );
    let rows = database.write_idempotent(&sql, &[&lease, &MAX_RECLAIMED, &every]).await?;
    rows.iter()
        .map(|row| {
            let digest: &[u8] = row.column("input_digest")?;
            let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
            let owed = row.column::<Option<bool>>("owed_to_owner")?.unwrap_or_default();
            Ok(LapsedRun {
                scope: TenantScope::for_background_task(row.id("tenant_id")?),
                execution: execution(row)?,
                input_digest: decode("input_digest", digest.try_into().ok())?,
                lease,
                work_kind: if row.column("script")? { WorkKind::Script } else { WorkKind::Steps },
                is_past_deadline: row.column("overdue")?,
                cancelled_by: cancelled_by.map(|by| decode("cancelled_by", ActorRef::parse(by).ok())).transpose()?,
                owner_to_notify: if owed { row.column("owner_ref")? } else { None },
            })
        })
        .collect()
}
