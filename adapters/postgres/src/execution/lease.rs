//! Leases of runs. Every statement compares times with the database's clock.

use super::{EXECUTION_COLUMNS, JOINED_REASON_CODE, NULL_OUTPUT, execution};
use crate::{
    database::Database,
    guarded_commit::{Input, Query},
    row::require_decoded,
};
use fairway_domain::{
    access::ActorRef,
    execution::{
        dispatch::LeaseRef,
        ports::{LapsedFilter, LapsedRun, LapsedWork, LeaseState},
    },
    id::ExecutionId,
    store::StoreError,
    tenant::TenantScope,
};
use uuid::Uuid;

/// Maximum number of expired leases that one statement reclaims.
const MAX_RECLAIMED: i64 = 20;

pub(super) fn lease_params(scope: TenantScope, lease_ref: LeaseRef) -> Input<'static> {
    Input::of_params(scope)
        .with_param("execution_id", lease_ref.execution_id.uuid())
        .with_param("token", lease_ref.lease)
}

pub(super) async fn renew(
    database: &Database,
    scope: TenantScope,
    id: ExecutionId,
    lease: Uuid,
) -> Result<LeaseState, StoreError> {
    static RENEW: Query = Query::new(
        "WITH renewed AS (
            UPDATE execution_lease SET lapses_at = fairway_now() + lease_for
            WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} AND token = {token} RETURNING cancelled_by
         )
         SELECT workload.status = 'registered' AS accepts_runs, renewed.cancelled_by
         FROM renewed, execution JOIN workload USING (tenant_id, workload_id)
         WHERE tenant_id = {tenant_id} AND execution_id = {execution_id}",
    );
    let input = lease_params(scope, LeaseRef { execution_id: id, lease });
    let rows = database.write_idempotent(RENEW.text(&input)?, &input.params()).await?;
    let Some(row) = rows.first() else { return Ok(LeaseState::Lost) };
    let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
    Ok(match (cancelled_by, row.column("accepts_runs")?) {
        (Some(actor), _) => LeaseState::Cancelled(require_decoded("cancelled_by", ActorRef::parse(actor).ok())?),
        (None, true) => LeaseState::Held,
        (None, false) => LeaseState::WorkloadStopped,
    })
}

/// Releases a lease, so that another worker can continue the run immediately. The token is replaced, because the
/// former worker could otherwise still renew the lease. The expiry `-infinity` marks a release, which does not
/// count as a reclaim.
pub(super) async fn release(database: &Database, scope: TenantScope, lease_ref: LeaseRef) -> Result<(), StoreError> {
    static RELEASE: Query = Query::new(
        "UPDATE execution_lease SET lapses_at = '-infinity', token = gen_random_uuid()
         WHERE tenant_id = {tenant_id} AND execution_id = {execution_id} AND token = {token}",
    );
    let input = lease_params(scope, lease_ref);
    database.write_idempotent(RELEASE.text(&input)?, &input.params()).await.map(|_| ())
}

fn reclaim_sql() -> String {
    format!(
        "WITH lapsed AS (
            SELECT tenant_id, execution_id FROM execution_lease WHERE lapses_at < fairway_now() AND (script OR {{includes_steps}})
            ORDER BY lapses_at LIMIT {{limit}} FOR UPDATE SKIP LOCKED
         ),
         reclaimed AS (
            UPDATE execution_lease SET token = {{token}}, lapses_at = fairway_now() + lease_for
            FROM lapsed WHERE execution_lease.tenant_id = lapsed.tenant_id
                AND execution_lease.execution_id = lapsed.execution_id
            RETURNING execution_lease.tenant_id, execution_lease.execution_id, deadline_at < fairway_now() AS is_overdue,
                cancelled_by, script
         )
         SELECT reclaimed.tenant_id, reclaimed.script, reclaimed.is_overdue, reclaimed.cancelled_by, execution.input_digest, {EXECUTION_COLUMNS}, {NULL_OUTPUT}, {JOINED_REASON_CODE},
            (SELECT body::json -> 'workload' ->> 'owner_ref' FROM evidence_snapshot AS snapshot
             WHERE snapshot.tenant_id = execution.tenant_id AND snapshot.digest = execution.snapshot) AS owner_ref,
            (SELECT bool_or('notify_owner' = ANY(obligations)) FROM policy_decision AS decision
             WHERE decision.tenant_id = execution.tenant_id AND decision.execution_id = execution.execution_id) AS notifies_owner
         FROM reclaimed JOIN execution ON execution.tenant_id = reclaimed.tenant_id
            AND execution.execution_id = reclaimed.execution_id"
    )
}

pub(super) async fn reclaim_expired(
    database: &Database,
    lease: Uuid,
    filter: LapsedFilter,
) -> Result<Vec<LapsedRun>, StoreError> {
    let includes_steps = match filter {
        LapsedFilter::All => true,
        LapsedFilter::Scripts => false,
    };
    static RECLAIM: Query = Query::from_fn(reclaim_sql);
    let input = Input::without_rows()
        .with_param("token", lease)
        .with_param("limit", MAX_RECLAIMED)
        .with_param("includes_steps", includes_steps);
    let rows = database.write_idempotent(RECLAIM.text(&input)?, &input.params()).await?;
    rows.iter()
        .map(|row| {
            let digest: &[u8] = row.column("input_digest")?;
            let cancelled_by = row.column::<Option<&str>>("cancelled_by")?;
            let notifies_owner = row.column::<Option<bool>>("notifies_owner")?.unwrap_or_default();
            Ok(LapsedRun {
                scope: TenantScope::for_background_task(row.id("tenant_id")?),
                execution: execution(row)?,
                input_digest: require_decoded("input_digest", digest.try_into().ok())?,
                lease,
                work: if row.column("script")? { LapsedWork::Script } else { LapsedWork::Steps },
                is_past_deadline: row.column("is_overdue")?,
                cancelled_by: cancelled_by
                    .map(|actor| require_decoded("cancelled_by", ActorRef::parse(actor).ok()))
                    .transpose()?,
                owner_to_notify: if notifies_owner { row.column("owner_ref")? } else { None },
            })
        })
        .collect()
}
