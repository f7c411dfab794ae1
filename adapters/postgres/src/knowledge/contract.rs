//! Status and revocation of access contracts.

use crate::{
    database::Database,
    guarded_commit::Guarded,
    query::{Input, Query},
    row::RowExt,
};
use fairway_domain::{
    id::AssetId,
    idempotency::KeyedOutcome,
    knowledge::{contract::ContractState, revocation::ContractRevocation},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};

pub(super) async fn standings(
    database: &Database,
    scope: TenantScope,
    contracts: &[(AssetId, String)],
) -> Result<Vec<ContractState>, StoreError> {
    // A contract is revoked by a version, which sets the column of its row, or by a revocation.
    static READ: Query = Query::new(
        "SELECT held.asset_id IS NOT DISTINCT FROM asked.asset_id AS known,
            coalesce(held.revoked, true) OR EXISTS (
                SELECT FROM contract_revocation AS ended
                WHERE ended.tenant_id = input.tenant_id AND ended.contract_id = asked.contract_id
            ) AS revoked
        FROM input CROSS JOIN LATERAL unnest(assets, contracts) WITH ORDINALITY AS asked (asset_id, contract_id, place)
        LEFT JOIN access_contract AS held ON held.tenant_id = input.tenant_id AND held.contract_id = asked.contract_id
        ORDER BY place",
    );
    let input = Input::new(scope)
        .with_all("assets", contracts.iter().map(|(asset, _)| asset.uuid()).collect())
        .with_all("contracts", contracts.iter().map(|(_, name)| name.as_str()).collect());
    let rows = database.fetch(&READ, input).await?;
    rows.iter()
        .map(|row| {
            Ok(match (row.column("known")?, row.column("revoked")?) {
                (false, _) => ContractState::Unknown,
                (true, true) => ContractState::Revoked,
                (true, false) => ContractState::InForce,
            })
        })
        .collect()
}

pub(super) async fn revoke(
    database: &Database,
    scope: TenantScope,
    change: Change<ContractRevocation>,
    key: Option<&KeyedOutcome>,
) -> Result<(), CommitError> {
    // A concurrent insert of a version that names the contract waits for the row lock and then sees the revocation.
    static REVOKE: Guarded = Guarded::new(
        "held AS (
            UPDATE access_contract AS contract SET revoked = true
            FROM input
            WHERE contract.tenant_id = input.tenant_id AND contract.contract_id = input.contract_id
                AND contract.asset_id IS NOT DISTINCT FROM input.asset_id
            RETURNING 1
         ),
         made AS (
            INSERT INTO contract_revocation (tenant_id, contract_id, asset_id, revocation_id, revoked_at, revoked_by)
            SELECT tenant_id, contract_id, asset_id, revocation_id, revoked_at, revoked_by FROM input, held
            ON CONFLICT (tenant_id, contract_id) DO NOTHING
            RETURNING 1
         ),
         reasoned AS (
            INSERT INTO contract_revocation_reason (tenant_id, revocation_id, body)
            SELECT tenant_id, revocation_id, reason FROM input, made WHERE reason IS NOT NULL
         )",
        "(SELECT count(*) = 1 FROM made)",
    );
    let ChangeRecord { next, decided_on: _, fact } = change.into_record();
    let input = Input::new(scope)
        .with("contract_id", next.contract_id.as_str())
        .with("asset_id", next.asset_id.uuid())
        .with("revocation_id", next.revocation_id.uuid())
        .with("revoked_at", next.revoked_at.to_datetime())
        .with("revoked_by", next.revoked_by.to_string())
        .with("reason", next.reason.as_deref());
    database.commit_guarded(&REVOKE, scope, &fact, key, input).await.map(|_| ())
}

pub(super) async fn find(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    contract_id: &str,
) -> Result<Option<ContractRevocation>, StoreError> {
    static FIND: Query = Query::new(
        "SELECT contract_id, revocation_id, revocation.asset_id, revoked_at, revoked_by, reason.body AS reason
        FROM input JOIN contract_revocation AS revocation USING (tenant_id, contract_id)
        LEFT JOIN contract_revocation_reason AS reason USING (tenant_id, revocation_id)
        WHERE revocation.asset_id IS NOT DISTINCT FROM input.asset_id",
    );
    let input = Input::new(scope).with("contract_id", contract_id).with("asset_id", asset.uuid());
    let row = database.fetch_one(&FIND, input).await?;
    row.map(|row| {
        Ok(ContractRevocation {
            revocation_id: row.id("revocation_id")?,
            asset_id: row.id("asset_id")?,
            contract_id: row.column("contract_id")?,
            reason: row.column("reason")?,
            revoked_at: row.timestamp("revoked_at")?,
            revoked_by: row.actor("revoked_by")?,
        })
    })
    .transpose()
}
