//! Document retrieval of runs: checks access contracts and searches knowledge bases with the current rights of the
//! submitter.

use crate::{
    execution::engine::RunEngine,
    knowledge::{ContractCheck, Retrieval, RetrievalFailure, RetrievalRequest},
};
use fairway_domain::{
    access::ActorRef,
    execution::{
        plan::{RunPlan, RunPolicyAttributes},
        retrieval::{RetrievalError, RetrievalQuery, RetrievalResult},
    },
    id::{ExecutionId, ReleaseId, RequestId, WorkspaceId},
    knowledge::contract::{AccessMode, ContractDecision, KnowledgeAccessRequest},
    memory::ConversationKey,
    slug::Slug,
    tenant::TenantScope,
};

/// Failure code of a retrieval when a store does not respond.
const UNAVAILABLE: &str = "knowledge_unavailable";

/// Data that the retrievals of a run need: principals, tenant scope and plan.
pub(super) struct RetrievalContext<'r> {
    pub(super) scope: TenantScope,
    pub(super) execution_id: ExecutionId,
    pub(super) plan: &'r RunPlan,
    pub(super) workspace: WorkspaceId,
    pub(super) release: ReleaseId,
    pub(super) environment: &'r Slug,
    /// The conversation of the run; `None` without a session, or for a submitter without an identity.
    pub(super) conversation: Option<ConversationKey>,
    /// The submitter of the run, and the identifier of its request.
    pub(super) sender: (ActorRef, RequestId),
    /// The submitter and its groups.
    pub(super) principals: Vec<ActorRef>,
}

/// Returns the principals that access contracts can name: the submitter of a run and its groups.
pub(super) fn principals_of(attributes: &RunPolicyAttributes) -> Vec<ActorRef> {
    let names = std::iter::once(&attributes.actor).chain(&attributes.groups);
    // An invalid name identifies no principal, so an access contract cannot name it.
    names.filter_map(|name| ActorRef::parse(name).ok()).collect()
}

impl RetrievalContext<'_> {
    fn access_request(&self, mode: AccessMode) -> KnowledgeAccessRequest<'_> {
        KnowledgeAccessRequest { principals: &self.principals, workspace: self.workspace, mode }
    }
}

impl RunEngine {
    /// Decides an access mode by the access contracts of the bound knowledge bases. Returns `None` if the contracts
    /// cannot be read; the retrieval is then refused.
    pub(super) async fn contract_decisions_for(
        &self,
        reader: &RetrievalContext<'_>,
        mode: AccessMode,
    ) -> Option<Vec<ContractDecision>> {
        let bound_bases = reader.plan.knowledge.iter();
        let checks: Vec<ContractCheck<'_>> = bound_bases
            .map(|bound| ContractCheck { asset: bound.asset, base: &bound.base, request: reader.access_request(mode) })
            .collect();
        let decisions = self.knowledge_bases.contract_decisions(reader.scope, &checks).await;
        decisions
            .inspect_err(|error| {
                tracing::warn!(
                    tenant_id = %reader.scope.tenant(),
                    execution_id = %reader.execution_id,
                    mode = mode.as_str(),
                    error = error as &dyn std::error::Error,
                    "failed to read access contracts; failing the run, or continuing without conversation memory"
                );
            })
            .ok()
    }

    /// Executes a retrieval query of a run.
    pub(super) async fn execute_retrieval(
        &self,
        reader: &RetrievalContext<'_>,
        lookup: &RetrievalQuery,
    ) -> Result<RetrievalResult, RetrievalError> {
        let knowledge_base = reader
            .plan
            .knowledge
            .get(lookup.knowledge_index)
            .ok_or(RetrievalError::Failed("knowledge_base_unknown"))?;
        let served_revisions = self
            .knowledge_bases
            .served_revisions(reader.scope, reader.release, reader.workspace, reader.environment)
            .await
            .map_err(|error| {
                tracing::warn!(
                    tenant_id = %reader.scope.tenant(),
                    execution_id = %reader.execution_id,
                    release_id = %reader.release,
                    error = &error as &dyn std::error::Error,
                    "failed to read pinned index revisions; failing the lookup"
                );
                RetrievalError::Failed(UNAVAILABLE)
            })?;
        let request = RetrievalRequest {
            asset: knowledge_base.asset,
            base: &knowledge_base.base,
            pinned: served_revisions.pinned_revision_of(knowledge_base.asset),
            principals: &reader.principals,
            workspace: reader.workspace,
            mode: AccessMode::Retrieve,
            query: &lookup.query,
            top_k: lookup.top_k,
            // The sovereignty profile forbids an excluded model to embed the query.
            sovereignty: reader.plan.sovereignty.as_ref(),
        };
        match self.knowledge_bases.retrieve(reader.scope, &request).await {
            Ok(Retrieval {
                decision,
                index_revision,
                strategy,
                chunks,
                is_capped,
                retrieved_at,
                asset: _,
                query_embedding,
            }) => Ok(RetrievalResult {
                decision,
                index_revision,
                strategy,
                chunks,
                is_capped,
                query_embedding,
                retrieved_at,
            }),
            Err(RetrievalFailure::Refused(decision)) => Err(RetrievalError::Refused(Box::new(decision))),
            Err(RetrievalFailure::NoRoute(refused)) => Err(RetrievalError::NoRoute(refused)),
            Err(failure) => {
                let code = failure.code().unwrap_or(UNAVAILABLE);
                tracing::warn!(
                    tenant_id = %reader.scope.tenant(),
                    execution_id = %reader.execution_id,
                    asset_id = %knowledge_base.asset,
                    error = &failure as &dyn std::error::Error,
                    "failed to search a knowledge base; failing the lookup"
                );
                Err(RetrievalError::Failed(code))
            }
        }
    }
}
