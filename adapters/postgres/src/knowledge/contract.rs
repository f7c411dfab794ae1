//! Status and revocation of access contracts.

use crate::{
    commit_tail::{CommitParams, commit_tail},
    database::Database,
    row::RowExt,
};
use fairway_domain::{
    id::AssetId,
    idempotency::KeyedOutcome,
    knowledge::{contract::ContractState, revocation::ContractRevocation},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use uuid::Uuid;

pub(super) async fn standings(
    database: &Database,
    scope: TenantScope,
    contracts: &[(AssetId, String)],
) -> Result<Vec<ContractState>, StoreError> {
    // A contract is revoked by a version, which sets the column of its row, or by a revocation.
    const SQL: &str = "SELECT held.asset_id IS NOT DISTINCT FROM asked.asset_id AS known,
            coalesce(held.revoked, true) OR EXISTS (
                SELECT FROM contract_revocation AS ended
                WHERE ended.tenant_id = $1 AND ended.contract_id = asked.contract_id
            ) AS revoked
        FROM unnest($2::uuid[], $3::text[]) WITH ORDINALITY AS asked (asset_id, contract_id, place)
        LEFT JOIN access_contract AS held ON held.tenant_id = $1 AND held.contract_id = asked.contract_id
        ORDER BY place";
    let assets: Vec<Uuid> = contracts.iter().map(|(asset, _)| asset.uuid()).collect();
    let names: Vec<&str> = contracts.iter().map(|(_, name)| name.as_str()).collect();
    let rows = database.read(SQL, &[&scope.tenant().uuid(), &assets, &names]).await?;
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
    const SQL: &str = concat!(
        "WITH held AS (
            UPDATE access_contract SET revoked = true
            WHERE tenant_id = $1 AND contract_id = $13 AND asset_id IS NOT DISTINCT FROM $14::uuid
            RETURNING 1
         ),
         made AS (
            INSERT INTO contract_revocation (tenant_id, contract_id, asset_id, revocation_id, revoked_at, revoked_by)
            SELECT $1, $13, $14, $15, $16, $17 FROM held
            ON CONFLICT (tenant_id, contract_id) DO NOTHING
            RETURNING 1
         ),
         said AS (
            INSERT INTO contract_revocation_reason (tenant_id, revocation_id, body)
            SELECT $1, $15, $18 FROM made WHERE $18::text IS NOT NULL
         )
         SELECT fairway_commit((SELECT count(*) = 1 FROM made), ",
        commit_tail!(),
        ")"
    );
    let ChangeRecord { next, decided_on: _, fact } = change.into_record();
    let tail = CommitParams::new(scope, &fact, key);
    let (asset, id) = (next.asset_id.uuid(), next.revocation_id.uuid());
    let (at, by) = (next.revoked_at.to_datetime(), next.revoked_by.to_string());
    let own = tail.with(&[&next.contract_id, &asset, &id, &at, &by, &next.reason]);
    database.commit(SQL, &own).await.map(|_| ())
}

pub(super) async fn find(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    contract_id: &str,
) -> Result<Option<ContractRevocation>, StoreError> {
    const SQL: &str = "SELECT contract_id, revocation_id, asset_id, revoked_at, revoked_by, said.body AS reason
        FROM contract_revocation LEFT JOIN contract_revocation_reason AS said USING (tenant_id, revocation_id)
        WHERE tenant_id = $1 AND contract_id = $2 AND asset_id IS NOT DISTINCT FROM $3::uuid";
    let row = database.read_one(SQL, &[&scope.tenant().uuid(), &contract_id, &asset.uuid()]).await?;
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
