//! Queries of a knowledge base outside of a run.

use super::{ContractQuestion, Retrieval, RetrievalFailure, RetrievalRequest};
use crate::{
    Failure, Services, ToolRefusal,
    access::{Operation, gate},
};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::WorkspaceId,
    knowledge::{
        contract::{AccessMode, Asked, ContractDecision},
        document::{KnowledgeRefusal, takes_documents},
        reading::Reading,
    },
    slug::Slug,
    tenant::TenantScope,
};

/// The parameters of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnowledgeQuery {
    /// The knowledge base.
    pub base: Slug,
    /// The query text.
    pub query: String,
    /// Maximum number of chunks, at most that of the knowledge base.
    pub top_k: Option<u32>,
    /// The workspace; the caller's home workspace by default.
    pub workspace: Option<WorkspaceId>,
}

impl Services {
    /// Searches the newest version of a knowledge base under its current access contract. The search or its refusal
    /// is recorded as a fact before the response.
    ///
    /// # Errors
    /// When the caller may not use tools in that workspace, does not see the knowledge base from there, its contract
    /// refuses, or the index cannot be searched.
    pub async fn query_knowledge(&self, caller: &Caller, asked: &KnowledgeQuery) -> Result<Retrieval, Failure> {
        let place = self.place_for(caller, Operation::CallTool, asked.workspace).await?;
        let scope = gate::enter(caller, Operation::CallTool, &place)?;
        let workspace = place.workspace.ok_or(Failure::Corrupt("the scope of a workspace has no workspace"))?;
        let found = self.stores.assets.find_id(scope, &asked.base).await?;
        // A hidden knowledge base costs a lookup by identifier, so an unknown one does too: the response time
        // reveals nothing.
        let id = found.unwrap_or_else(|| self.id());
        let (_, asset) = self.asset_from(caller, Operation::ReadAsset, id, workspace).await?;
        // A retired knowledge base is available only to runs that bind it.
        takes_documents(&asset)?;
        let base = self.latest_base(scope, &asset).await?;
        let principals = caller.principals();
        let request = RetrievalRequest {
            asset: asset.asset_id,
            base: &base,
            pinned: None,
            principals: &principals,
            workspace,
            mode: AccessMode::Retrieve,
            query: &asked.query,
            top_k: asked.top_k,
            sovereignty: None,
        };
        if base.retrieval.strategy.asks_a_model() {
            // Recorded before the search, so that the fact exists whatever happens to search and caller.
            let question = ContractQuestion {
                asset: asset.asset_id,
                base: &base,
                asked: Asked { principals: &principals, workspace, mode: AccessMode::Retrieve },
            };
            if let Some(decision) =
                self.contract_decisions(scope, &[question]).await?.pop().filter(ContractDecision::is_allowed)
            {
                self.say(caller, (scope, &asset, workspace), Reading::Asked, &decision).await?;
            }
        }
        match self.retrieve(scope, &request).await {
            Ok(retrieval) => {
                let shown = Reading::Shown(retrieval.index_revision, &retrieval.chunks);
                self.say(caller, (scope, &asset, workspace), shown, &retrieval.decision).await?;
                Ok(retrieval)
            }
            Err(RetrievalFailure::Refused(decision)) => {
                self.say(caller, (scope, &asset, workspace), Reading::Refused, &decision).await?;
                Err(ToolRefusal::Contract.into())
            }
            Err(RetrievalFailure::OtherModel | RetrievalFailure::NoAccount(_) | RetrievalFailure::NoRoute(_)) => {
                Err(ToolRefusal::OtherModel.into())
            }
            Err(RetrievalFailure::NoVector(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "failed to embed a query; the query fails");
                Err(KnowledgeRefusal::NoVectors.into())
            }
            Err(RetrievalFailure::Store(error)) => Err(error.into()),
        }
    }

    async fn say(
        &self,
        caller: &Caller,
        (scope, asset, from): (TenantScope, &Asset, WorkspaceId),
        reading: Reading<'_>,
        decision: &ContractDecision,
    ) -> Result<(), Failure> {
        let fact = reading.fact(asset, from, decision, &self.stamp(caller));
        self.stores.audit.commit_alone(scope, fact).await?;
        self.wake.facts();
        Ok(())
    }
}
