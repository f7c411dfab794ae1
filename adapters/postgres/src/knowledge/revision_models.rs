//! The embedding model of an index revision, and the revisions with the same documents. Vector searches read both to
//! select a revision and its model.

use super::revision_params;
use crate::{database::Database, guarded_commit::Query};
use fairway_domain::{
    id::AssetId,
    knowledge::{
        IndexRevision,
        ports::SameDocumentRevisions,
        retrieval::{EmbeddingModel, IndexEmbeddingModels},
    },
    store::StoreError,
    tenant::TenantScope,
};

/// Finds the embedding model of a revision. For each model that the index ever used, it reads the number of the
/// revision's chunks. An index uses few models.
pub(super) async fn model_of_revision(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    revision: IndexRevision,
) -> Result<IndexEmbeddingModels, StoreError> {
    // `embedded_by` cannot be split into account and model, because a model name may contain the separator. The
    // query therefore searches for the ingest with this account and model.
    static FIND_MODEL: Query = Query::new(
        "WITH RECURSIVE model AS (
            (SELECT embedded_by FROM knowledge_index_model
            WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} ORDER BY embedded_by LIMIT 1)
            UNION ALL
            SELECT next_model.embedded_by FROM model CROSS JOIN LATERAL (
                SELECT embedded_by FROM knowledge_index_model
                WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND embedded_by > model.embedded_by ORDER BY embedded_by LIMIT 1
            ) AS next_model
        )
        SELECT embedding_account, embedding_model
        FROM (
            SELECT model.embedded_by FROM model CROSS JOIN LATERAL (
                SELECT chunks FROM knowledge_index_model
                WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND embedded_by = model.embedded_by AND revision <= {revision}
                ORDER BY revision DESC LIMIT 1
            ) AS counted
            WHERE counted.chunks > 0 LIMIT 2
        ) AS used_model
        LEFT JOIN LATERAL (
            SELECT embedding_account, embedding_model FROM knowledge_ingest
            WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND revision <= {revision}
                AND embedding_account || '/' || embedding_model = used_model.embedded_by
            ORDER BY revision DESC LIMIT 1
        ) AS ingest ON true",
    );
    let rows = database.fetch(&FIND_MODEL, revision_params(scope, asset, revision)).await?;
    let row = match rows.as_slice() {
        [] => return Ok(IndexEmbeddingModels::Empty),
        [row] => row,
        [_, ..] => return Ok(IndexEmbeddingModels::Mixed),
    };
    let (account, model) = (row.column("embedding_account")?, row.column("embedding_model")?);
    Ok(match (account, model) {
        (Some(account), Some(model)) => IndexEmbeddingModels::Uniform(EmbeddingModel { account, model }),
        (_, _) => IndexEmbeddingModels::Mixed,
    })
}

pub(super) async fn revisions_with_same_documents(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    revision: IndexRevision,
) -> Result<SameDocumentRevisions, StoreError> {
    static FIND_RANGE: Query = Query::new(
        "SELECT coalesce((
                SELECT revision FROM knowledge_ingest
                WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND revision <= {revision} AND NOT reembeds
                ORDER BY revision DESC LIMIT 1), {revision}) AS first,
            coalesce((
                SELECT revision - 1 FROM knowledge_ingest
                WHERE tenant_id = {tenant_id} AND asset_id = {asset_id} AND revision > {revision} AND NOT reembeds
                ORDER BY revision LIMIT 1
            ), (
                SELECT revision FROM knowledge_index WHERE tenant_id = {tenant_id} AND asset_id = {asset_id}
            ), {revision}) AS last",
    );
    let Some(row) = database.fetch_one(&FIND_RANGE, revision_params(scope, asset, revision)).await? else {
        return Ok(SameDocumentRevisions { first: revision, last: revision });
    };
    let number = |name: &'static str| row.column::<i64>(name).map(IndexRevision::new);
    Ok(SameDocumentRevisions { first: number("first")?, last: number("last")? })
}
