//! Routes of knowledge bases: documents, re-embedding, and revocation of access contracts.

use crate::{
    asset::{CONTENT_LIMIT, VisibleFromQuery, WorkspaceQuery},
    caller::IdentifiedCaller,
    compose::Api,
    error::{ApiError, FieldErrors, FieldProblem},
    http::{
        body::{Body, DeferredBody},
        idempotency::IdempotencyHeader,
        paging::ListRequest,
        path::PathId,
        query::Query,
    },
    openapi::{IdempotencyKeyParams, PageParams, ReadRefusals, WriteRefusals},
    response::ResourceResponse,
    value_rules::{self, RuleResult, limit},
};
use actix_web::{HttpResponse, get, http::StatusCode, post, web};
use fairway_domain::{
    id::AssetId,
    knowledge::{
        contract_revocation::{ContractRevocation, check_reason},
        document::{
            Document, DocumentDraft, DocumentFault, DocumentId, DocumentSource, IngestResult, MAX_CHUNKS_PER_COMMIT,
            MAX_DOCUMENTS_PER_INGEST, MAX_SOURCE_REF_BYTES, MAX_TEXT_BYTES, MAX_TITLE_CHARS, validate_text,
        },
        reembedding::ChunkLimit,
        retrieval::IndexWarning,
    },
    note::MAX_NOTE_CHARS,
    text::is_name,
};
use fairway_operations::{
    access::Operation,
    knowledge::{IngestReport, ReembeddingReport},
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use uuid::Uuid;
use validator::Validate;

/// A document of a knowledge base.
#[derive(Serialize, ToSchema)]
#[schema(as = Document)]
pub(crate) struct DocumentView {
    /// Identifier of this version of the document.
    entry_id: Uuid,
    /// Name of the document; answers cite it as `[document_id]`.
    document_id: String,
    /// Human-readable title; null if there is none, or it was erased.
    title: Option<String>,
    /// Source of the text; null if the text was sent inline, or the source was erased.
    source_ref: Option<String>,
    /// Values that retrievals can filter by.
    #[schema(value_type = Object)]
    metadata: Map<String, Value>,
    /// BLAKE3 digest of the text: `blake3:<hex>`.
    digest: String,
    /// Length of the text in bytes.
    text_bytes: u32,
    /// Number of chunks into which the text is split.
    chunk_count: u32,
    /// The index revision that added the document.
    #[schema(minimum = 1)]
    index_revision: i64,
    /// Whether the current index revision contains the document: no later document has the same name.
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
            current: document.is_current,
            created_at: document.created_at.to_string(),
            created_by: document.created_by.to_string(),
        }
    }
}

/// Documents that one request added.
#[derive(Serialize, ToSchema)]
#[schema(as = Ingest)]
pub(crate) struct IngestView {
    ingest_id: Uuid,
    asset_id: Uuid,
    /// The index revision that the request created.
    #[schema(minimum = 1)]
    index_revision: i64,
    documents: Vec<DocumentView>,
    /// Warnings about the index revision, such as chunks that vector search omits.
    warnings: Vec<IndexWarningView>,
}

/// A warning about the index of a knowledge base.
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

/// Options of a re-embedding.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewReembedding {
    /// Maximum number of chunks that this call embeds; default 2000.
    #[schema(minimum = 1, maximum = 2000)]
    #[validate(range(min = 1, max = ChunkLimit::max().get()))]
    max_chunks: Option<u32>,
    /// Workspace from which the knowledge base must be visible. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// The result of a re-embedding.
#[derive(Serialize, ToSchema)]
#[schema(as = Reembedding)]
pub(crate) struct ReembeddingView {
    asset_id: Uuid,
    /// The new index revision, or the current one if no chunk needed a vector.
    #[schema(minimum = 0)]
    index_revision: i64,
    /// The provider account of the embedding model.
    embedding_account: String,
    embedding_model: String,
    /// Number of chunks with a new vector.
    chunk_count: u32,
    /// Whether every chunk of the revision has a vector of this model; if not, call again.
    complete: bool,
    /// Warnings about the index revision.
    warnings: Vec<IndexWarningView>,
}

/// Documents to add to a knowledge base.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewDocuments {
    #[schema(min_items = 1, max_items = 100)]
    #[validate(length(min = 1, max = limit(MAX_DOCUMENTS_PER_INGEST), code = "out_of_bounds"), nested)]
    documents: Vec<NewDocument>,
    /// Workspace from which the knowledge base must be visible. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

/// A document to add. It replaces a document with the same name.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = one_source, skip_on_field_errors = false))]
pub(crate) struct NewDocument {
    /// Name of the document; answers cite it as `[document_id]`.
    #[validate(length(min = 1, max = limit(DocumentId::MAX_CHARS)), custom(function = document_id_rule))]
    document_id: String,
    /// Human-readable title of one line.
    #[schema(min_length = 1, max_length = 300)]
    #[validate(length(min = 1, max = limit(MAX_TITLE_CHARS)), custom(function = title_rule))]
    title: Option<String>,
    /// The text, if the `source_type` of the knowledge base is `inline`.
    #[schema(min_length = 1, max_length = 1_048_576)]
    #[validate(length(min = 1, max = limit(MAX_TEXT_BYTES)), custom(function = text_rule))]
    text: Option<String>,
    /// Source of the text: for `artifact` the `artifact_ref` of a version that you may see, for `http` a URL.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_SOURCE_REF_BYTES), code = "source_not_found"))]
    source_ref: Option<String>,
    /// Values that retrievals can filter by. The canonical JSON has at most 50 members and 8192 bytes in total.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// `validator` serializes a refused list into its error. Each document serializes as unit, because the server never
/// reads that copy.
impl Serialize for NewDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

/// Checks that a document has exactly one source: `text` or `source_ref`.
fn one_source(new: &NewDocument) -> RuleResult {
    value_rules::accept_unless(match (&new.text, &new.source_ref) {
        (Some(_), None) | (None, Some(_)) => None,
        (Some(_), Some(_)) => {
            Some(FieldProblem::new("source_ref", "invalid", "a document has either a `text` or a `source_ref`"))
        }
        (None, None) => Some(FieldProblem::missing("text")),
    })
}

fn document_id_rule(text: &str) -> RuleResult {
    accept_document(if DocumentId::parse(text).is_some() { Ok(()) } else { Err(DocumentFault::InvalidId) })
}

fn title_rule(text: &str) -> RuleResult {
    accept_document(if is_name(text, MAX_TITLE_CHARS) { Ok(()) } else { Err(DocumentFault::InvalidTitle) })
}

fn text_rule(text: &str) -> RuleResult {
    accept_document(validate_text(text))
}

fn accept_document(validated: Result<(), DocumentFault>) -> RuleResult {
    value_rules::accept(validated.map_err(|fault| FieldProblem::new(fault.field(), fault.code(), fault.to_string())))
}

impl NewDocument {
    /// The document for the domain, or `None` if it does not have exactly one source.
    fn into_draft(self) -> Option<DocumentDraft> {
        let Self { document_id, title, text, source_ref, metadata } = self;
        let source = match (text, source_ref) {
            (Some(text), None) => DocumentSource::Text(text),
            (None, Some(source)) => DocumentSource::Reference(source),
            (Some(_), Some(_)) | (None, None) => return None,
        };
        Some(DocumentDraft { document_id, title, source, metadata: metadata.unwrap_or_default() })
    }
}

/// The revocation of an access contract.
#[derive(Serialize, ToSchema)]
#[schema(as = ContractRevocation)]
pub(crate) struct RevocationView {
    revocation_id: Uuid,
    asset_id: Uuid,
    contract_id: String,
    /// Reason of the revocation; null if it was erased.
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

/// An access contract to revoke.
#[derive(Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewContractRevocation {
    /// Name of the contract in the content of the knowledge base.
    contract_id: String,
    /// Reason of the revocation.
    #[schema(min_length = 1, max_length = 2000)]
    #[validate(length(min = 1, max = limit(MAX_NOTE_CHARS)), custom(function = reason_rule))]
    reason: String,
    /// Workspace from which the knowledge base must be visible. Required, here or in the query.
    workspace_id: Option<Uuid>,
}

fn reason_rule(text: &str) -> RuleResult {
    let refusal = check_reason(text).err();
    value_rules::accept_unless(refusal.map(|refusal| FieldProblem::new("reason", refusal.code(), refusal.to_string())))
}

/// Adds documents to a knowledge base; the next retrieval finds them.
#[utoipa::path(
    operation_id = "add_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewDocuments,
    responses((status = 201, description = "The documents and the new index revision", body = IngestView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/documents")]
pub(crate) async fn add_documents(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: DeferredBody<NewDocuments, CONTENT_LIMIT>,
) -> Result<HttpResponse, ApiError> {
    let authorize =
        api.services.assets.preauthorize_asset_write(&caller, Operation::AddDocuments, *asset, query.query_workspace());
    let body = body.read_authorizing_first_if_large(authorize).await?;
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let NewDocuments { documents, workspace_id } = body.into_inner();
    let workspace = query.resolve_required(workspace_id)?;
    let drafts: Option<Vec<DocumentDraft>> = documents.into_iter().map(NewDocument::into_draft).collect();
    let drafts = drafts.ok_or_else(ApiError::internal)?;
    let outcome = api.services.knowledge_bases.add_documents(&caller, *asset, workspace, drafts, key.as_ref()).await?;
    let (IngestReport { ingested, warnings }, outcome) = outcome.into_parts();
    let IngestResult { ingest_id, index_revision, documents } = ingested;
    let view = IngestView {
        ingest_id: ingest_id.uuid(),
        asset_id: asset.uuid(),
        index_revision: index_revision.get(),
        documents: documents.into_iter().map(DocumentView::of).collect(),
        warnings: warnings.into_iter().map(IndexWarningView::of).collect(),
    };
    let location = format!("/v1/assets/{}/documents?workspace_id={workspace}", *asset);
    Ok(ResourceResponse::created(&outcome, &view, location)?.into_response())
}

/// Re-embeds the documents of a knowledge base.
///
/// Each chunk without a vector of the configured embedding model receives such a vector, in a new index revision.
/// Earlier revisions keep their vectors. A large knowledge base needs several calls, until `complete` is true. Until
/// then, searches use the revision before the first call, unless documents are added.
#[utoipa::path(
    operation_id = "reembed_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewReembedding,
    responses((status = 200, description = "The progress of the re-embedding", body = ReembeddingView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/documents/reembed")]
pub(crate) async fn reembed_documents(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<NewReembedding>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let NewReembedding { max_chunks, workspace_id } = body.into_inner();
    let mut fields = FieldErrors::default();
    let workspace = fields.check(query.resolve_required(workspace_id));
    let limit = fields.check(chunk_limit(max_chunks));
    let (workspace, limit) = fields.finish(|| Some((workspace?, limit?)))?;
    let outcome =
        api.services.knowledge_bases.reembed_next_chunks(&caller, *asset, workspace, limit, key.as_ref()).await?;
    let (report, outcome) = outcome.into_parts();
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
    Ok(ResourceResponse::idempotent(&outcome, &view, StatusCode::OK)?.into_response())
}

fn chunk_limit(requested: Option<u32>) -> Result<ChunkLimit, FieldProblem> {
    let limit = requested.map_or_else(|| Some(ChunkLimit::max()), ChunkLimit::new);
    let bounds = || format!("must be 1 to {MAX_CHUNKS_PER_COMMIT}");
    limit.ok_or_else(|| FieldProblem::new("max_chunks", "out_of_bounds", bounds()))
}

/// Lists the documents of a knowledge base, newest first, including replaced ones.
#[utoipa::path(
    operation_id = "list_documents",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), VisibleFromQuery, PageParams),
    responses((status = 200, description = "A page of documents, without their texts", body = Vec<DocumentView>), ReadRefusals)
)]
#[get("/v1/assets/{asset_id}/documents")]
pub(crate) async fn list_documents(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    list: ListRequest<VisibleFromQuery>,
) -> Result<HttpResponse, ApiError> {
    let documents =
        api.services.knowledge_bases.list_documents(&caller, *asset, list.filter.id(), list.paging()).await?;
    Ok(list.respond(&documents.map(DocumentView::of)))
}

/// Revokes an access contract permanently.
///
/// Retrievals under the contract are denied from then on. A repeated revocation returns the first one.
#[utoipa::path(
    operation_id = "revoke_access_contract",
    tag = "assets",
    params(("asset_id" = Uuid, Path, description = "The knowledge base"), WorkspaceQuery, IdempotencyKeyParams),
    request_body = NewContractRevocation,
    responses((status = 200, description = "The revocation", body = RevocationView), WriteRefusals)
)]
#[post("/v1/assets/{asset_id}/access-contract/revoke")]
pub(crate) async fn revoke_access_contract(
    api: web::Data<Api>,
    caller: IdentifiedCaller,
    asset: PathId<AssetId>,
    query: Query<WorkspaceQuery>,
    idempotency: IdempotencyHeader,
    body: Body<NewContractRevocation>,
) -> Result<HttpResponse, ApiError> {
    let key = idempotency.into_request_key(&caller.actor, || body.digest());
    let NewContractRevocation { contract_id, reason, workspace_id } = body.into_inner();
    let workspace = query.resolve_required(workspace_id)?;
    let outcome = api
        .services
        .knowledge_bases
        .revoke_contract(&caller, *asset, workspace, &contract_id, &reason, key.as_ref())
        .await?;
    let (revocation, outcome) = outcome.into_parts();
    Ok(ResourceResponse::idempotent(&outcome, &RevocationView::of(revocation), StatusCode::OK)?.into_response())
}
