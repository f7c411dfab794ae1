//! Reads documents of knowledge bases.

use crate::{
    database::{Database, PageBounds, RowSizeMeasure, StoredRow},
    row::{parse_json, require_decoded},
    schema::{self, knowledge_document, knowledge_document_text, knowledge_ingest, knowledge_pin},
};
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    Queryable, Selectable, SelectableHelper as _, dsl::Nullable, pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    asset::canonical::Checksum,
    id::{AssetId, IngestId, ReleaseId},
    knowledge::{
        IndexRevision,
        document::{Document, DocumentId, IngestResult},
        ports::IndexPin,
    },
    store::{Page, PageRequest, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// Limits of the measured columns: metadata 8 KiB, a title 300 characters, a source reference 2,000 bytes. The factor 4
/// is the maximum number of bytes of a character.
const MEASURED: RowSizeMeasure = RowSizeMeasure {
    key: "entry_id",
    sql: "coalesce(octet_length(metadata), 0) + coalesce(octet_length(title), 0) + coalesce(octet_length(source_ref), 0)",
    largest: (8 << 10) + (300 + 2_000) * 4,
};

/// A version of a document as stored, including its erasable texts.
#[derive(Queryable, Selectable)]
#[diesel(table_name = knowledge_document, check_for_backend(Pg))]
struct StoredDocument {
    entry_id: Uuid,
    document_id: String,
    digest: String,
    text_bytes: i32,
    chunk_count: i32,
    revision: i64,
    created_at: OffsetDateTime,
    created_by: String,
    #[diesel(select_expression = knowledge_document_text::title.nullable())]
    #[diesel(select_expression_type = Nullable<knowledge_document_text::title>)]
    title: Option<String>,
    #[diesel(select_expression = knowledge_document_text::source_ref.nullable())]
    #[diesel(select_expression_type = Nullable<knowledge_document_text::source_ref>)]
    source_ref: Option<String>,
    #[diesel(select_expression = knowledge_document_text::metadata.nullable())]
    #[diesel(select_expression_type = Nullable<knowledge_document_text::metadata>)]
    metadata: Option<String>,
}

/// A version of a document, and whether it is the document's current version.
type DocumentRow = (StoredDocument, bool);

impl StoredRow for DocumentRow {
    type Value = Document;

    fn id(&self) -> Uuid {
        self.0.entry_id
    }

    fn into_value(self) -> Result<Document, StoreError> {
        let (stored, is_current) = self;
        let count = |name, number| require_decoded(name, u32::try_from(number).ok());
        let metadata = stored.metadata.as_deref().map(parse_json).transpose()?;
        Ok(Document {
            entry_id: stored.entry_id.into(),
            document_id: require_decoded("document_id", DocumentId::parse(&stored.document_id))?,
            title: stored.title,
            source_ref: stored.source_ref,
            metadata: metadata.unwrap_or_default(),
            digest: require_decoded("digest", Checksum::parse(&stored.digest))?,
            text_bytes: count("text_bytes", stored.text_bytes)?,
            chunk_count: count("chunk_count", stored.chunk_count)?,
            index_revision: IndexRevision::new(stored.revision),
            is_current,
            created_at: Timestamp::new(stored.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&stored.created_by).ok())?,
        })
    }
}

diesel::alias!(knowledge_document as later: LaterDocument);

/// A query for the documents of an index with their texts.
#[diesel::dsl::auto_type(no_type_alias)]
fn documents_of(tenant: Uuid, asset: Uuid) -> _ {
    let is_text = knowledge_document_text::tenant_id
        .eq(knowledge_document::tenant_id)
        .and(knowledge_document_text::entry_id.eq(knowledge_document::entry_id));
    let of_index = knowledge_document::tenant_id.eq(tenant).and(knowledge_document::asset_id.eq(asset));
    knowledge_document::table.left_join(knowledge_document_text::table.on(is_text)).filter(of_index)
}

/// The condition that no later version of the document exists.
macro_rules! is_current {
    () => {
        diesel::dsl::not(diesel::dsl::exists(
            later
                .filter(later.field(knowledge_document::tenant_id).eq(knowledge_document::tenant_id))
                .filter(later.field(knowledge_document::asset_id).eq(knowledge_document::asset_id))
                .filter(later.field(knowledge_document::document_id).eq(knowledge_document::document_id))
                .filter(later.field(knowledge_document::revision).gt(knowledge_document::revision)),
        ))
    };
}

pub(super) async fn list(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    page: PageRequest,
) -> Result<Page<Document>, StoreError> {
    let (tenant, asset) = (scope.tenant().uuid(), asset.uuid());
    let rows = |bounds: PageBounds| {
        // `as_select` cannot be part of a tuple, so the columns are selected with `construct_selection`.
        let newest = documents_of(tenant, asset)
            .select((<StoredDocument as Selectable<Pg>>::construct_selection(), is_current!()))
            .order(knowledge_document::entry_id.desc())
            .limit(bounds.limit)
            .offset(bounds.offset)
            .into_boxed::<'static, Pg>();
        match bounds.after {
            None => newest,
            Some(id) => newest.filter(knowledge_document::entry_id.lt(id)),
        }
    };
    let ids = || documents_of(tenant, asset).select(knowledge_document::entry_id);
    database.typed_measured_page::<_, _, DocumentRow>("list of documents", MEASURED, page, ids, rows).await
}

pub(super) async fn find_ingest(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    id: IngestId,
) -> Result<Option<IngestResult>, StoreError> {
    let (tenant, ingest) = (scope.tenant().uuid(), id.uuid());
    let find = || {
        knowledge_ingest::table
            .filter(knowledge_ingest::tenant_id.eq(tenant))
            .filter(knowledge_ingest::ingest_id.eq(ingest))
            .filter(knowledge_ingest::asset_id.eq(asset.uuid()))
            .select(knowledge_ingest::revision)
    };
    let found: Option<i64> = database.first("revision of an ingest", find).await?;
    let Some(revision) = found.map(IndexRevision::new) else { return Ok(None) };
    let asset = asset.uuid();
    let find = || {
        documents_of(tenant, asset)
            .filter(knowledge_document::revision.eq(revision.get()))
            .order(knowledge_document::entry_id)
            .select((StoredDocument::as_select(), is_current!()))
    };
    let found: Vec<DocumentRow> = database.load("documents of an ingest", find).await?;
    let documents = found.into_iter().map(StoredRow::into_value).collect::<Result<_, _>>()?;
    Ok(Some(IngestResult { ingest_id: id, index_revision: revision, documents }))
}

pub(super) async fn current_revision(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
) -> Result<IndexRevision, StoreError> {
    let key = (scope.tenant().uuid(), asset.uuid());
    let find = || schema::knowledge_index::table.find(key).select(schema::knowledge_index::revision);
    let found: Option<i64> = database.first("revision of an index", find).await?;
    Ok(found.map_or_else(IndexRevision::default, IndexRevision::new))
}

pub(super) async fn release_pins(
    database: &Database,
    scope: TenantScope,
    release: ReleaseId,
) -> Result<Vec<IndexPin>, StoreError> {
    let (tenant, release) = (scope.tenant().uuid(), release.uuid());
    let pins = || {
        let newest_ingest = knowledge_ingest::table
            .filter(knowledge_ingest::tenant_id.eq(knowledge_pin::tenant_id))
            .filter(knowledge_ingest::asset_id.eq(knowledge_pin::asset_id))
            .filter(knowledge_ingest::revision.gt(knowledge_pin::revision))
            .filter(diesel::dsl::not(knowledge_ingest::reembeds))
            .order(knowledge_ingest::revision.desc())
            .select(knowledge_ingest::revision)
            .limit(1)
            .single_value();
        knowledge_pin::table
            .filter(knowledge_pin::tenant_id.eq(tenant).and(knowledge_pin::release_id.eq(release)))
            .order(knowledge_pin::asset_id)
            .select((knowledge_pin::asset_id, knowledge_pin::revision, newest_ingest))
    };
    let found: Vec<(Uuid, i64, Option<i64>)> = database.load("pins of a release", pins).await?;
    let pin = |(asset, pinned, newest): (Uuid, i64, Option<i64>)| IndexPin {
        asset: asset.into(),
        pinned: IndexRevision::new(pinned),
        latest: IndexRevision::new(newest.unwrap_or(pinned)),
    };
    Ok(found.into_iter().map(pin).collect())
}
