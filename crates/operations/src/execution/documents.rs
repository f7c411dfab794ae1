//! Documents for a run: its contracts are asked, and its lookups answered, with the rights of who asks at that moment.

use crate::{
    Services,
    knowledge::{ContractQuestion, Retrieval, RetrievalFailure, RetrievalRequest},
};
use fairway_domain::{
    access::ActorRef,
    execution::{
        plan::{RunFacts, RunPlan},
        retrieval::{Lookup, Retrieved, Unretrieved},
    },
    id::{ReleaseId, RequestId, WorkspaceId},
    knowledge::contract::{AccessMode, Asked, ContractDecision},
    memory::MemoryPlace,
    slug::Slug,
    tenant::TenantScope,
};

/// What cannot be said of an index while a store does not answer.
const UNAVAILABLE: &str = "knowledge_unavailable";

/// Who reads, from where.
pub(super) struct Reader<'r> {
    pub(super) scope: TenantScope,
    pub(super) plan: &'r RunPlan,
    pub(super) workspace: WorkspaceId,
    pub(super) release: ReleaseId,
    pub(super) environment: &'r Slug,
    /// Whose conversation it is, where it is one that can be remembered.
    pub(super) conversation: Option<MemoryPlace>,
    /// Who asked for the run, by which request.
    pub(super) sender: (ActorRef, RequestId),
    principals: Vec<ActorRef>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(
        (scope, workspace): (TenantScope, WorkspaceId),
        (release, environment): (ReleaseId, &'r Slug),
        plan: &'r RunPlan,
        (facts, conversation): (&RunFacts, Option<MemoryPlace>),
        sender: (ActorRef, RequestId),
    ) -> Self {
        let names = std::iter::once(&facts.actor).chain(&facts.groups);
        // A name that is none is nobody's, and no contract can name it.
        let principals = names.filter_map(|name| ActorRef::parse(name).ok()).collect();
        Self { scope, plan, workspace, release, environment, conversation, sender, principals }
    }

    fn asked(&self, mode: AccessMode) -> Asked<'_> {
        Asked { principals: &self.principals, workspace: self.workspace, mode }
    }
}

impl Services {
    /// What the contracts of the bound knowledge bases say of an access mode. `None` where the books cannot be read: then nobody may read
    /// anything else.
    pub(super) async fn contracts_say(&self, reader: &Reader<'_>, mode: AccessMode) -> Option<Vec<ContractDecision>> {
        let bound = reader.plan.knowledge.iter();
        let questions: Vec<ContractQuestion<'_>> = bound
            .map(|bound| ContractQuestion { asset: bound.asset, base: &bound.base, asked: reader.asked(mode) })
            .collect();
        let decisions = self.contract_decisions(reader.scope, &questions).await;
        decisions
            .inspect_err(|error| {
                tracing::warn!(error = error as &dyn std::error::Error, "contracts could not be looked up");
            })
            .ok()
    }

    /// Answers a lookup of a run.
    pub(super) async fn look_up(&self, reader: &Reader<'_>, lookup: &Lookup) -> Result<Retrieved, Unretrieved> {
        let bound = reader.plan.knowledge.get(lookup.knowledge).ok_or(Unretrieved::Failed("knowledge_base_unknown"))?;
        let place = (reader.workspace, reader.environment);
        let served = self.served_revisions(reader.scope, reader.release, place).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "pinned revisions could not be looked up");
            Unretrieved::Failed(UNAVAILABLE)
        })?;
        let request = RetrievalRequest {
            asset: bound.asset,
            base: &bound.base,
            pinned: served.of(bound.asset),
            principals: &reader.principals,
            workspace: reader.workspace,
            mode: AccessMode::Retrieve,
            query: &lookup.query,
            top_k: lookup.top_k,
            // What is looked for must not leave to where the release says that nothing may go.
            sovereignty: reader.plan.sovereignty.as_ref(),
        };
        match self.retrieve(reader.scope, &request).await {
            Ok(Retrieval { decision, index_revision, strategy, chunks, capped, retrieved_at, asset: _, embedded }) => {
                Ok(Retrieved { decision, index_revision, strategy, chunks, capped, embedded, retrieved_at })
            }
            Err(RetrievalFailure::Refused(decision)) => Err(Unretrieved::Refused(Box::new(decision))),
            Err(RetrievalFailure::NoRoute(refused)) => Err(Unretrieved::NoRoute(refused)),
            Err(failure) => {
                let code = failure.code().unwrap_or(UNAVAILABLE);
                tracing::warn!(error = &failure as &dyn std::error::Error, "a knowledge base could not be searched");
                Err(Unretrieved::Failed(code))
            }
        }
    }
}
