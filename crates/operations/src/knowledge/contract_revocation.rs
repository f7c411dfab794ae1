//! Revocation of the access contracts of knowledge bases.

use crate::{
    Failure, MaybeReplayed,
    access::Operation,
    idempotency::{convert_failure_after_commit, keyed_outcome},
    knowledge::KnowledgeBases,
};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::{AssetId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::{
        contract::ContractState,
        contract_revocation::ContractRevocation,
        document::{KnowledgeRefusal, check_accepts_documents},
    },
    tenant::TenantScope,
};

impl KnowledgeBases {
    /// Revokes an access contract of a knowledge base. From the commit on, the contract allows no access in any
    /// process. Revoking it again returns the first revocation.
    ///
    /// # Errors
    /// In these cases: the caller does not see the asset from that workspace or may not edit it; the asset is not a
    /// knowledge base; the knowledge base has no contract of that name.
    pub async fn revoke_contract(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: WorkspaceId,
        contract_id: &str,
        reason: &str,
        key: Option<&RequestKey>,
    ) -> Result<MaybeReplayed<ContractRevocation>, Failure> {
        let (scope, asset) =
            self.assets.authorize_asset_from(caller, Operation::RevokeContract, id, from_workspace).await?;
        match check_accepts_documents(&asset) {
            // The refusal is about the state of the asset. A retired or archived knowledge base is accepted, because
            // its contracts may still be revoked.
            Ok(()) | Err(KnowledgeRefusal::Asset(_)) => {}
            Err(refusal) => return Err(refusal.into()),
        }
        let outcome = self.keyed_requests.idempotent(
            scope,
            key,
            async || self.commit_revocation_of(caller, scope, &asset, contract_id, reason, key).await,
            async |_| self.find_revocation(scope, id, contract_id).await,
        );
        match outcome.await {
            // A request without this key revoked the contract concurrently, so its revocation is the response.
            Err(Failure::Contended) => Ok(MaybeReplayed::first(self.find_revocation(scope, id, contract_id).await?)),
            outcome => outcome,
        }
    }

    async fn commit_revocation_of(
        &self,
        caller: &Caller,
        scope: TenantScope,
        asset: &Asset,
        contract_id: &str,
        reason: &str,
        key: Option<&RequestKey>,
    ) -> Result<ContractRevocation, Failure> {
        let id = asset.asset_id;
        let change =
            ContractRevocation::create(self.context.new_id(), asset, contract_id, reason, &self.context.stamp(caller))?;
        if self.contract_revocation_store.find_revocation(scope, id, contract_id).await?.is_some() {
            return Err(Failure::Contended);
        }
        let states = self.contract_revocation_store.contract_states(scope, &[(id, contract_id.to_owned())]).await?;
        match states.first() {
            // The latest version may no longer contain the contract. It can still be revoked, because older versions
            // may be in use.
            Some(ContractState::InForce | ContractState::Revoked) => {}
            Some(ContractState::Unknown) | None => return Err(Failure::NotFound),
        }
        let outcome = keyed_outcome(key, 200, change.next.revocation_id.uuid());
        self.contract_revocation_store.commit_contract_revocation(scope, change, outcome.as_ref()).await?;
        convert_failure_after_commit(self.find_revocation(scope, id, contract_id).await, key)
    }

    async fn find_revocation(
        &self,
        scope: TenantScope,
        id: AssetId,
        contract_id: &str,
    ) -> Result<ContractRevocation, Failure> {
        self.contract_revocation_store.find_revocation(scope, id, contract_id).await?.ok_or(Failure::NotFound)
    }
}
