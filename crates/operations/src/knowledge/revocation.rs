//! Ending access contracts.

use crate::{Done, Failure, Services, access::Operation, once::keyed};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::{AssetId, WorkspaceId},
    idempotency::RequestKey,
    knowledge::{
        contract::ContractStanding,
        document::{KnowledgeRefusal, takes_documents},
        revocation::ContractRevocation,
    },
    store::CommitError,
    tenant::TenantScope,
};

impl Services {
    /// Ends an access contract of a knowledge base. It allows nothing from then on, in any process; whoever ends it again
    /// is told of the first time.
    ///
    /// # Errors
    /// When the caller does not see the asset from there or may not edit it, it is no knowledge base, or it has no
    /// contract of that name.
    pub async fn revoke_contract(
        &self,
        caller: &Caller,
        (id, from): (AssetId, WorkspaceId),
        (contract_id, reason): (&str, &str),
        key: Option<&RequestKey>,
    ) -> Result<Done<ContractRevocation>, Failure> {
        let (scope, asset) = self.asset_from(caller, Operation::RevokeContract, id, from).await?;
        match takes_documents(&asset) {
            // A contract can be ended whatever became of its knowledge base.
            Ok(()) | Err(KnowledgeRefusal::Asset(_)) => {}
            Err(refusal) => return Err(refusal.into()),
        }
        self.once(
            scope,
            key,
            async || self.end_contract(caller, (scope, &asset), (contract_id, reason), key).await,
            async |_| self.ended(scope, id, contract_id).await,
        )
        .await
    }

    async fn end_contract(
        &self,
        caller: &Caller,
        (scope, asset): (TenantScope, &Asset),
        said: (&str, &str),
        key: Option<&RequestKey>,
    ) -> Result<ContractRevocation, Failure> {
        let (id, contract_id) = (asset.asset_id, said.0);
        let change = ContractRevocation::say(self.id(), asset, said, &self.stamp(caller))?;
        if let Some(first) = self.stores.knowledge.find_revocation(scope, id, contract_id).await? {
            return Ok(first);
        }
        let standing = self.stores.knowledge.standings(scope, &[(id, contract_id.to_owned())]).await?;
        match standing.first() {
            // What a version has ended can be ended in so many words as well.
            Some(ContractStanding::InForce | ContractStanding::Revoked) => {}
            Some(ContractStanding::Unknown) | None => return Err(Failure::NotFound),
        }
        let outcome = keyed(key, 200, change.next.revocation_id.uuid());
        match self.stores.knowledge.commit_revocation(scope, change, outcome.as_ref()).await {
            // Somebody else was faster.
            Err(CommitError::Stale) => {}
            committed => committed?,
        }
        self.ended(scope, id, contract_id).await
    }

    async fn ended(&self, scope: TenantScope, id: AssetId, contract_id: &str) -> Result<ContractRevocation, Failure> {
        self.stores.knowledge.find_revocation(scope, id, contract_id).await?.ok_or(Failure::NotFound)
    }
}
