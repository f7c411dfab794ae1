//! Queries of knowledge bases outside of runs.

use super::{ContractCheck, Retrieval, RetrievalFailure, RetrievalRequest};
use crate::{
    Failure, ToolRefusal,
    access::{Operation, authorize},
    knowledge::KnowledgeBases,
};
use fairway_domain::{
    access::Caller,
    asset::Asset,
    id::WorkspaceId,
    knowledge::{
        contract::{AccessMode, ContractDecision, KnowledgeAccessRequest},
        document::{KnowledgeRefusal, check_accepts_documents},
        query_audit::QueryAuditStage,
    },
    slug::Slug,
    tenant::TenantScope,
};

/// The parameters of a query outside of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnowledgeQuery {
    /// The slug of the knowledge base to query.
    pub base: Slug,
    /// The query text.
    pub query: String,
    /// Maximum number of chunks; it cannot exceed the limit of the knowledge base.
    pub top_k: Option<u32>,
    /// The workspace from which the caller queries; `None` selects the workspace that the caller's roles determine.
    pub workspace: Option<WorkspaceId>,
}

impl KnowledgeBases {
    /// Searches the newest version of a knowledge base if its current access contract allows it. The search or its
    /// refusal is recorded as a fact before the response.
    ///
    /// # Errors
    /// In these cases: the caller may not use tools in that workspace; the caller does not see the knowledge base from
    /// there; the access contract refuses; the index cannot be searched.
    pub async fn query_knowledge(&self, caller: &Caller, query: &KnowledgeQuery) -> Result<Retrieval, Failure> {
        let position =
            self.scope_resolver.position_for_new_resource(caller, Operation::CallTool, query.workspace).await?;
        let scope = authorize::authorize(caller, Operation::CallTool, &position)?;
        let workspace = position.workspace.ok_or(Failure::Inconsistent("the scope of a workspace has no workspace"))?;
        let stored_id = self.asset_store.find_id(scope, &query.base).await?;
        // A hidden knowledge base is looked up by its identifier. For an unknown one, a new identifier causes the same
        // lookup, so that the response time does not reveal whether it exists.
        let id = stored_id.unwrap_or_else(|| self.context.new_id());
        let (_, asset) = self.assets.authorize_asset_from(caller, Operation::ReadAsset, id, workspace).await?;
        // A retired knowledge base is refused here. Only runs whose release binds it can search it.
        check_accepts_documents(&asset)?;
        let base = self.latest_base(scope, &asset).await?;
        let principals = caller.principals();
        let request = RetrievalRequest {
            asset: asset.asset_id,
            base: &base,
            pinned: None,
            principals: &principals,
            workspace,
            mode: AccessMode::Retrieve,
            query: &query.query,
            top_k: query.top_k,
            sovereignty: None,
        };
        if base.retrieval.strategy.embeds_query() {
            // The fact is committed before the search. It therefore exists even if the search fails or the caller
            // disconnects.
            let check = ContractCheck {
                asset: asset.asset_id,
                base: &base,
                request: KnowledgeAccessRequest { principals: &principals, workspace, mode: AccessMode::Retrieve },
            };
            if let Some(decision) =
                self.contract_decisions(scope, &[check]).await?.pop().filter(ContractDecision::is_allowed)
            {
                self.record_query(caller, scope, &asset, workspace, QueryAuditStage::Embedding, &decision).await?;
            }
        }
        match self.retrieve(scope, &request).await {
            Ok(retrieval) => {
                let stage = QueryAuditStage::Returned(retrieval.index_revision, &retrieval.chunks);
                self.record_query(caller, scope, &asset, workspace, stage, &retrieval.decision).await?;
                Ok(retrieval)
            }
            Err(RetrievalFailure::Refused(decision)) => {
                self.record_query(caller, scope, &asset, workspace, QueryAuditStage::Refused, &decision).await?;
                Err(ToolRefusal::ContractDenied.into())
            }
            Err(RetrievalFailure::MixedModels | RetrievalFailure::NoAccount(_) | RetrievalFailure::NoRoute(_)) => {
                Err(ToolRefusal::EmbeddingMismatch.into())
            }
            Err(RetrievalFailure::EmbeddingFailed(error)) => {
                tracing::warn!(
                    tenant_id = %scope.tenant(),
                    asset_id = %asset.asset_id,
                    error = &error as &dyn std::error::Error,
                    "failed to embed a query; failing the query"
                );
                Err(KnowledgeRefusal::NoVectors.into())
            }
            Err(RetrievalFailure::Store(error)) => Err(error.into()),
        }
    }

    async fn record_query(
        &self,
        caller: &Caller,
        scope: TenantScope,
        asset: &Asset,
        workspace: WorkspaceId,
        stage: QueryAuditStage<'_>,
        decision: &ContractDecision,
    ) -> Result<(), Failure> {
        let fact = stage.fact(asset, workspace, decision, &self.context.stamp(caller));
        self.audit_store.commit_fact(scope, fact).await?;
        self.context.notify_facts();
        Ok(())
    }
}
