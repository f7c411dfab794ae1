//! Knowledge bases: their documents, and the end of their access contracts.

use crate::{
    answer::Answer,
    asset::{CONTENT_LIMIT, FromWorkspace, InWorkspace},
    caller::Identified,
    compose::Api,
    document::{KeyParams, PageParams, ReadRefusals, WriteRefusals},
    error::{ApiError, FieldProblem, Fields},
    http::{
        body::{Body, DeferredBody},
        idempotency::Keyed,
        paging::List,
        path::PathId,
        query::Query,
    },
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    id::AssetId,
    knowledge::{
        document::{Document, DocumentDraft, DocumentSource, Ingested, MAX_CHUNKS},
        reembedding::ChunkLimit,
        retrieval::IndexWarning,
        revocation::ContractRevocation,
    },
};
use fairway_operations::{
    access::Operation,
    knowledge::{IngestReport, ReembeddingReport},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;

/// A document of a knowledge base, as it was added.
#[derive(Serialize, ToSchema)]
#[schema(as = Document)]
pub(crate) struct DocumentView {
    /// Identifies it among all that were ever added.
    entry_id: Uuid,
    /// Its name: an answer cites it as `[document_id]`.
    document_id: String,
    /// What it is called for people; null if nothing was said, or it was erased.
    title: Option<String>,
    /// Where its text came from; null if it was handed in, or it was erased.
    source_ref: Option<String>,
    /// Values that retrievals can be narrowed to.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// BLAKE3 over its text: `blake3:<hex>`.
    digest: String,
    /// How many bytes the text has.
    text_bytes: u32,
    /// Into how many pieces it was cut.
    chunk_count: u32,
    /// The revision of the index that it came with.
    #[schema(minimum = 1)]
    index_revision: i64,
    /// Whether retrievals of the present revision find it: none of the same name was added later.
    current: bool,
    #[schema(format = DateTime)]
    created_at: String,
    created_by: String,
}

impl DocumentView {
    fn of(document: Document) -> Self {
        Self {
            entry_id: document.entry_id.uuid(),
            document_id: document.document_id.to_string(),
            title: document.title,
            source_ref: document.source_ref,
            metadata: document.metadata,
            digest: document.digest.as_str().to_owned(),
            text_bytes: document.text_bytes,
            chunk_count: document.chunk_count,
            index_revision: document.index_revision.get(),
            current: document.current,
            created_at: document.created_at.to_string(),
            created_by: document.created_by.to_string(),
        }
    }
}

/// Documents that were added at once.
#[derive(Serialize, ToSchema)]
#[schema(as = Ingest)]
pub(crate) struct IngestView {
    ingest_id: Uuid,
    asset_id: Uuid,
    /// The revision of the index that they made.
    #[schema(minimum = 1)]
    index_revision: i64,
    documents: Vec<DocumentView>,
    /// What there is to know of that revision, such as pieces that searches by vectors leave out.
    warnings: Vec<IndexWarningView>,
}

/// Something about the index of a knowledge base.
#[derive(Serialize, ToSchema)]
#[schema(as = IndexWarning)]
pub(crate) struct IndexWarningView {
    /// `vector_search_capped`, `embedding_mismatch` or `embedding_model_kept`.
    code: &'static str,
    message: String,
}

impl IndexWarningView {
    fn of(warning: IndexWarning) -> Self {
        Self { code: warning.code(), message: warning.message() }
    }
}

/// Which documents to embed again.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReembedding {
    /// Most pieces of this call; as many as are allowed where nothing is said.
    #[schema(minimum = 1)]
    max_chunks: Option<u32>,
    /// The knowledge base must be visible from this workspace. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// Documents that were embedded again.
#[derive(Serialize, ToSchema)]
#[schema(as = Reembedding)]
pub(crate) struct ReembeddingView {
    asset_id: Uuid,
    /// The revision of the index that it made; the present one where no piece needed a vector.
    #[schema(minimum = 0)]
    index_revision: i64,
    /// The account and the model that made the vectors.
    embedding_account: String,
    embedding_model: String,
    /// How many pieces got a vector.
    chunk_count: u32,
    /// Whether every piece of the revision has a vector of this model; else call again.
    complete: bool,
    /// What there is to know of that revision.
    warnings: Vec<IndexWarningView>,
}

/// Documents to add.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDocuments {
    #[schema(min_items = 1, max_items = 100)]
    documents: Vec<NewDocument>,
    /// The knowledge base must be visible from this workspace. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// A document to add. One of a name that is there takes its place.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDocument {
    /// Its name: an answer cites it as `[document_id]`.
    document_id: String,
    /// What it is called for people: one line.
    title: Option<String>,
    /// What it says, where the knowledge base's `source_type` is `inline`.
    #[schema(min_length = 1, max_length = 1_048_576)]
    text: Option<String>,
    /// Where its text is: of `artifact`, the `artifact_ref` of a version that you may see; of `http`, an address.
    #[schema(min_length = 1, max_length = 2000)]
    source_ref: Option<String>,
    /// Values that retrievals can be narrowed to: at most 50, in 8192 bytes.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

impl NewDocument {
    fn draft(self, position: usize) -> Result<DocumentDraft, FieldProblem> {
        let Self { document_id, title, text, source_ref, metadata } = self;
        let source = match (text, source_ref) {
            (Some(text), None) => DocumentSource::Text(text),
            (None, Some(source)) => DocumentSource::Ref(source),
            (Some(_), Some(_)) => {
                let rule = "a document has a `text` or a `source_ref`";
                return Err(FieldProblem::new(format!("documents[{position}].source_ref"), "invalid", rule));
            }
            (None, None) => return Err(FieldProblem::missing(format!("documents[{position}].text"))),
        };
        Ok(DocumentDraft { document_id, title, source, metadata: metadata.unwrap_or_default() })
    }
}

/// The end of an access contract.
#[derive(Serialize, ToSchema)]
#[schema(as = ContractRevocation)]
pub(crate) struct RevocationView {
    revocation_id: Uuid,
    asset_id: Uuid,
    contract_id: String,
    /// Why; null if it was erased.
    reason: Option<String>,
    #[schema(format = DateTime)]
    revoked_at: String,
    revoked_by: String,
}

impl RevocationView {
    fn of(revocation: ContractRevocation) -> Self {
        Self {
            revocation_id: revocation.revocation_id.uuid(),
            asset_id: revocation.asset_id.uuid(),
            contract_id: revocation.contract_id,
            reason: revocation.reason,
            revoked_at: revocation.revoked_at.to_string(),
            revoked_by: revocation.revoked_by.to_string(),
        }
    }
}

/// An access contract to end.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewContractRevocation {
    /// The contract's name, as the knowledge base's content has it.
    contract_id: String,
    /// Why, for those who look later.
    reason: String,
    /// The knowledge base must be visible from this workspace. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// Adds documents to a knowledge base; they are found from the next retrieval on.
#[utoipa::path(
    operation_id = "add_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), InWorkspace, KeyParams),
    request_body = NewDocuments,
    responses((status = 201, description = "The documents, and the revision that they made", body = IngestView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/documents")]
pub(crate) async fn add_documents(
    api: web::Data<Api>,
    caller: Identified,
    asset: PathId<AssetId>,
    query: Query<InWorkspace>,
    keyed: Keyed,
    body: DeferredBody<NewDocuments, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let authorize = api.services.authorize_asset_write(&caller, Operation::AddDocuments, *asset, query.named());
    let body = body.read_authorized(authorize).await?;
    let key = keyed.of_caller(&caller.actor, || body.digest());
    let NewDocuments { documents, workspace_id } = body.into_inner();
    let mut fields = Fields::default();
    let from = fields.read(query.required(workspace_id));
    let drafts: Vec<Option<DocumentDraft>> =
        documents.into_iter().enumerate().map(|(position, new)| fields.read(new.draft(position))).collect();
    let (drafts, from) = fields.whole(|| Some((drafts.into_iter().collect::<Option<Vec<_>>>()?, from?)))?;
    let done = api.services.add_documents(&caller, (*asset, from), drafts, key.as_ref()).await?;
    let (IngestReport { ingested, warnings }, done) = done.apart();
    let Ingested { ingest_id, index_revision, documents } = ingested;
    let view = IngestView {
        ingest_id: ingest_id.uuid(),
        asset_id: asset.uuid(),
        index_revision: index_revision.get(),
        documents: documents.into_iter().map(DocumentView::of).collect(),
        warnings: warnings.into_iter().map(IndexWarningView::of).collect(),
    };
    let location = format!("/v1/assets/{}/documents?workspace_id={from}", *asset);
    Ok(Answer::made(&done, &view, location)?.send())
}

/// Embeds documents of a knowledge base again: pieces without a vector of the configured embedding model get one, in a new
/// revision of the index. Earlier revisions keep their vectors. A large knowledge base takes several calls, until `complete`
/// is true; meanwhile searches read the revision before the first, unless documents are added.
#[utoipa::path(
    operation_id = "reembed_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), InWorkspace, KeyParams),
    request_body = NewReembedding,
    responses((status = 200, description = "How far it came", body = ReembeddingView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/documents/reembed")]
pub(crate) async fn reembed_documents(
    api: web::Data<Api>,
    caller: Identified,
    asset: PathId<AssetId>,
    query: Query<InWorkspace>,
    keyed: Keyed,
    body: Body<NewReembedding>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.of_caller(&caller.actor, || body.digest());
    let NewReembedding { max_chunks, workspace_id } = body.into_inner();
    let mut fields = Fields::default();
    let from = fields.read(query.required(workspace_id));
    let limit = fields.read(chunk_limit(max_chunks));
    let (from, limit) = fields.whole(|| Some((from?, limit?)))?;
    let done = api.services.reembed_documents(&caller, (*asset, from), limit, key.as_ref()).await?;
    let (report, done) = done.apart();
    let ReembeddingReport { index_revision, embedded_by, chunk_count, is_complete, warnings } = report;
    let view = ReembeddingView {
        asset_id: asset.uuid(),
        index_revision: index_revision.get(),
        embedding_account: embedded_by.account,
        embedding_model: embedded_by.model,
        chunk_count,
        complete: is_complete,
        warnings: warnings.into_iter().map(IndexWarningView::of).collect(),
    };
    Ok(Answer::once(&done, &view, StatusCode::OK)?.send())
}

fn chunk_limit(asked: Option<u32>) -> Result<ChunkLimit, FieldProblem> {
    let limit = asked.map_or_else(|| Some(ChunkLimit::max()), ChunkLimit::new);
    let bounds = || format!("1 to {MAX_CHUNKS} pieces are embedded at once");
    limit.ok_or_else(|| FieldProblem::new("max_chunks", "out_of_bounds", bounds()))
}

/// A knowledge base's documents, newest first, those that others took the place of among them.
#[utoipa::path(
    operation_id = "list_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), FromWorkspace, PageParams),
    responses((status = 200, description = "A page of documents, without their texts", body = Vec<DocumentView>), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/documents")]
pub(crate) async fn list_documents(
    api: web::Data<Api>,
    caller: Identified,
    asset: PathId<AssetId>,
    list: List<FromWorkspace>,
) -> Result<HttpResponse, ApiError> {
    let documents = api.services.list_documents(&caller, (*asset, list.filter.id()), list.paging()).await?;
    Ok(list.answer(&documents.map(DocumentView::of)))
}

/// Ends an access contract: nothing is read by it any more, and nothing ever restores it. Whoever ends it again is told of
/// the first time.
#[utoipa::path(
    operation_id = "revoke_access_contract",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), InWorkspace, KeyParams),
    request_body = NewContractRevocation,
    responses((status = 200, description = "The end of the contract", body = RevocationView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/access-contract/revoke")]
pub(crate) async fn revoke_access_contract(
    api: web::Data<Api>,
    caller: Identified,
    asset: PathId<AssetId>,
    query: Query<InWorkspace>,
    keyed: Keyed,
    body: Body<NewContractRevocation>,
) -> Result<HttpResponse, ApiError> {
    let key = keyed.of_caller(&caller.actor, || body.digest());
    let NewContractRevocation { contract_id, reason, workspace_id } = body.into_inner();
    let from = query.required(workspace_id)?;
    let said = (contract_id.as_str(), reason.as_str());
    let done = api.services.revoke_contract(&caller, (*asset, from), said, key.as_ref()).await?;
    let (revocation, done) = done.apart();
    Ok(Answer::once(&done, &RevocationView::of(revocation), StatusCode::OK)?.send())
}
