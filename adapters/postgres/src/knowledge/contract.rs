//! Status and revocation of access contracts.

use crate::{
    database::Database,
    guarded_commit::{GuardedCommit, Input, Query},
    row::require_decoded,
    schema::{contract_revocation, contract_revocation_reason},
};
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    Queryable, Selectable, SelectableHelper as _, dsl::Nullable, pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    id::AssetId,
    idempotency::KeyedOutcome,
    knowledge::{contract::ContractState, contract_revocation::ContractRevocation},
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// A revocation as stored, including its reason.
#[derive(Queryable, Selectable)]
#[diesel(table_name = contract_revocation, check_for_backend(Pg))]
struct StoredRevocation {
    contract_id: String,
    revocation_id: Uuid,
    asset_id: Uuid,
    revoked_at: OffsetDateTime,
    revoked_by: String,
    #[diesel(select_expression = contract_revocation_reason::body.nullable())]
    #[diesel(select_expression_type = Nullable<contract_revocation_reason::body>)]
    reason: Option<String>,
}

impl StoredRevocation {
    fn into_value(self) -> Result<ContractRevocation, StoreError> {
        Ok(ContractRevocation {
            revocation_id: self.revocation_id.into(),
            asset_id: self.asset_id.into(),
            contract_id: self.contract_id,
            reason: self.reason,
            revoked_at: Timestamp::new(self.revoked_at),
            revoked_by: require_decoded("revoked_by", ActorRef::parse(&self.revoked_by).ok())?,
        })
    }
}

pub(super) async fn contract_states(
    database: &Database,
    scope: TenantScope,
    contracts: &[(AssetId, String)],
) -> Result<Vec<ContractState>, StoreError> {
    // A contract can be revoked in two ways: by an asset version, which sets `revoked` in the contract's row, or by
    // a row in `contract_revocation`.
    static READ: Query = Query::new(
        "SELECT contract.asset_id IS NOT DISTINCT FROM requested.asset_id AS known,
            coalesce(contract.revoked, true) OR EXISTS (
                SELECT FROM contract_revocation AS revocation
                WHERE revocation.tenant_id = input.tenant_id AND revocation.contract_id = requested.contract_id
            ) AS revoked
        FROM input CROSS JOIN LATERAL unnest(assets, contracts) WITH ORDINALITY AS requested (asset_id, contract_id, number)
        LEFT JOIN access_contract AS contract ON contract.tenant_id = input.tenant_id AND contract.contract_id = requested.contract_id
        ORDER BY number",
    );
    let input = Input::new(scope)
        .with_list("assets", contracts.iter().map(|(asset, _)| asset.uuid()).collect())
        .with_list("contracts", contracts.iter().map(|(_, name)| name.as_str()).collect());
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
    // The update locks the contract's row. A concurrent insert of a version that names the contract waits for the
    // lock and then sees the revocation.
    static REVOKE: GuardedCommit = GuardedCommit::new(
        "revoked_contract AS (
            UPDATE access_contract AS contract SET revoked = true
            FROM input
            WHERE contract.tenant_id = input.tenant_id AND contract.contract_id = input.contract_id
                AND contract.asset_id IS NOT DISTINCT FROM input.asset_id
            RETURNING 1
         ),
         inserted_contract_revocation AS (
            INSERT INTO contract_revocation (tenant_id, contract_id, asset_id, revocation_id, revoked_at, revoked_by)
            SELECT tenant_id, contract_id, asset_id, revocation_id, revoked_at, revoked_by FROM input, revoked_contract
            ON CONFLICT (tenant_id, contract_id) DO NOTHING
            RETURNING 1
         ),
         reasoned AS (
            INSERT INTO contract_revocation_reason (tenant_id, revocation_id, body)
            SELECT tenant_id, revocation_id, reason FROM input, inserted_contract_revocation WHERE reason IS NOT NULL
         )",
        "(SELECT count(*) = 1 FROM inserted_contract_revocation)",
    );
    let ChangeRecord { next, expected_revision: _, fact } = change.into_record();
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
    let (key, asset) = ((scope.tenant().uuid(), contract_id.to_owned()), asset.uuid());
    let find = || {
        let is_reason = contract_revocation_reason::tenant_id
            .eq(contract_revocation::tenant_id)
            .and(contract_revocation_reason::revocation_id.eq(contract_revocation::revocation_id));
        contract_revocation::table
            .left_join(contract_revocation_reason::table.on(is_reason))
            .filter(contract_revocation::tenant_id.eq(key.0).and(contract_revocation::contract_id.eq(key.1.clone())))
            .filter(contract_revocation::asset_id.eq(asset))
            .select(StoredRevocation::as_select())
    };
    database.first("contract revocation", find).await?.map(StoredRevocation::into_value).transpose()
}
