//! State of the vector searches of bound knowledge bases, at the index revisions that the release would serve.

use crate::{Failure, knowledge::RetrievalFailure, release::Releases};
use fairway_domain::{
    asset::{content::SovereigntyProfile, kind::AssetKind},
    id::AssetId,
    knowledge::{IndexRevision, KnowledgeBase, ports::SearchScope},
    release::{
        Release,
        vector_search_warnings::{QueryEmbeddingStatus, VectorIndexStatus},
    },
    tenant::TenantScope,
};

/// Failure for a bound version whose stored content cannot be parsed.
const MALFORMED: Failure = Failure::Inconsistent("a bound version cannot be parsed");

impl Releases {
    /// Returns the state of the vector search of each bound knowledge base that uses vectors, in the order of the
    /// bindings.
    pub(crate) async fn vector_reports(
        &self,
        scope: TenantScope,
        release: &Release,
    ) -> Result<Vec<VectorIndexStatus>, Failure> {
        let (mut profile, mut bases) = (None, Vec::new());
        for binding in &release.bindings {
            if !matches!(binding.role, AssetKind::SovereigntyProfile | AssetKind::KnowledgeBase) {
                continue;
            }
            let content = self.bound_version(scope, binding).await?.content().map_err(|_| MALFORMED)?;
            if binding.role == AssetKind::SovereigntyProfile {
                profile = Some(SovereigntyProfile::parse(&content).map_err(|_| MALFORMED)?);
            } else if let Ok(base) = KnowledgeBase::parse(&content) {
                // A knowledge base that cannot be parsed is skipped, because runs that search it fail with another
                // error.
                bases.push((binding.asset_id, binding.asset_slug.to_string(), base));
            }
        }
        bases.retain(|(_, _, base)| base.retrieval.strategy.needs_vectors());
        if bases.is_empty() {
            return Ok(Vec::new());
        }
        let served_revisions = self
            .knowledge_bases
            .served_revisions(scope, release.release_id, release.workspace_id, &release.environment)
            .await?;
        let mut statuses = Vec::new();
        for (asset, slug, base) in bases {
            let current_revision = self.index_revision_store.current_revision(scope, asset).await?;
            let revision = served_revisions
                .pinned_revision_of(asset)
                .map_or(current_revision, |pinned| pinned.min(current_revision));
            statuses.push(self.vector_report(scope, asset, slug, revision, &base, profile.as_ref()).await?);
        }
        Ok(statuses)
    }

    async fn vector_report(
        &self,
        scope: TenantScope,
        asset: AssetId,
        slug: String,
        revision: IndexRevision,
        base: &KnowledgeBase,
        profile: Option<&SovereigntyProfile>,
    ) -> Result<VectorIndexStatus, Failure> {
        let embedding = match self.knowledge_bases.vector_index(scope, asset, revision, profile).await {
            Ok(_) => QueryEmbeddingStatus::Searchable,
            Err(RetrievalFailure::MixedModels) => QueryEmbeddingStatus::Partial,
            Err(RetrievalFailure::NoAccount(model)) => QueryEmbeddingStatus::AccountMissing(model),
            Err(RetrievalFailure::NoRoute(_)) => QueryEmbeddingStatus::RouteRefused,
            Err(RetrievalFailure::Store(error)) => return Err(error.into()),
            // These failures cannot occur here, because this check evaluates no access contract and calls no model.
            Err(RetrievalFailure::Refused(_) | RetrievalFailure::EmbeddingFailed(_)) => QueryEmbeddingStatus::Partial,
        };
        let search_scope = SearchScope { asset, revision, filters: base.retrieval.filters.clone(), limit: 0 };
        let coverage = self.index_revision_store.vector_coverage(scope, &search_scope).await?;
        Ok(VectorIndexStatus { slug, embedding, capped_at: (!coverage.is_complete).then_some(coverage.limit) })
    }
}
