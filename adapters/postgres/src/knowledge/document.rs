//! Reads of documents.

use crate::{
    database::Database,
    guarded::{Input, Query},
    pagination::{ListQuery, RowBytes, SortKey, Values},
    row::{Row, decode, parse_json},
    schema,
};
use diesel::{ExpressionMethods as _, QueryDsl as _};
use fairway_domain::{
    asset::canonical::Checksum,
    id::{AssetId, IngestId, ReleaseId},
    knowledge::{
        IndexRevision,
        document::{Document, DocumentId, IngestResult},
        ports::IndexPin,
    },
    store::{Page, PageRequest, StoreError},
    tenant::TenantScope,
};

/// A document, its erasable texts, and whether it is the current version.
const COLUMNS: &str = "document.*, said.title, said.source_ref, said.metadata, NOT EXISTS (
        SELECT FROM knowledge_document AS later
        WHERE later.tenant_id = document.tenant_id AND later.asset_id = document.asset_id
            AND later.document_id = document.document_id AND later.revision > document.revision
    ) AS current";
const FROM: &str = "FROM knowledge_document AS document
    LEFT JOIN knowledge_document_text AS said
        ON said.tenant_id = document.tenant_id AND said.entry_id = document.entry_id";

/// Metadata has at most 8 KiB, a title 300 characters, and a source reference 2,000.
const ROW_BYTES: RowBytes = RowBytes::Measured {
    sql: "(coalesce(octet_length(metadata), 0) + coalesce(octet_length(title), 0) + coalesce(octet_length(source_ref), 0))",
    largest: (8 << 10) + (300 + 2_000) * 4,
};

fn revision(row: &Row, name: &'static str) -> Result<IndexRevision, StoreError> {
    row.column::<i64>(name).map(IndexRevision::new)
}

fn document(row: &Row) -> Result<Document, StoreError> {
    let count = |name: &'static str| decode(name, u32::try_from(row.column::<i32>(name)?).ok());
    let metadata = row.column::<Option<&str>>("metadata")?.map(parse_json).transpose()?;
    Ok(Document {
        entry_id: row.id("entry_id")?,
        document_id: row.parsed("document_id", DocumentId::parse)?,
        title: row.column("title")?,
        source_ref: row.column("source_ref")?,
        metadata: metadata.unwrap_or_default(),
        digest: row.parsed("digest", Checksum::parse)?,
        text_bytes: count("text_bytes")?,
        chunk_count: count("chunk_count")?,
        index_revision: revision(row, "revision")?,
        is_current: row.column("current")?,
        created_at: row.timestamp("created_at")?,
        created_by: row.actor("created_by")?,
    })
}

pub(super) async fn list(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    page: PageRequest,
) -> Result<Page<Document>, StoreError> {
    let mut values = Values::of_tenant(scope);
    let conditions = vec![
        format!("document.tenant_id = {}", values.tenant()),
        format!("document.asset_id = {}", values.bind(asset.uuid())),
    ];
    let key = SortKey::Id("document.entry_id", "entry_id");
    database.fetch_page(ListQuery::single(COLUMNS, key, FROM, ROW_BYTES, conditions, values), page, document).await
}

pub(super) async fn find_ingest(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
    id: IngestId,
) -> Result<Option<IngestResult>, StoreError> {
    static DOCUMENTS: Query = Query::of_parts(&[
        "SELECT ",
        COLUMNS,
        " ",
        FROM,
        " WHERE document.tenant_id = {tenant_id} AND document.asset_id = {asset_id} AND document.revision = {revision}
          ORDER BY document.entry_id",
    ]);
    let (tenant, ingest) = (scope.tenant().uuid(), id.uuid());
    let find = || {
        schema::knowledge_ingest::table
            .filter(schema::knowledge_ingest::tenant_id.eq(tenant))
            .filter(schema::knowledge_ingest::ingest_id.eq(ingest))
            .filter(schema::knowledge_ingest::asset_id.eq(asset.uuid()))
            .select(schema::knowledge_ingest::revision)
    };
    let found: Option<i64> = database.first("revision of an ingest", find).await?;
    let Some(made) = found.map(IndexRevision::new) else { return Ok(None) };
    let input = Input::of_params(scope).with_param("asset_id", asset.uuid()).with_param("revision", made.get());
    let rows = database.fetch(&DOCUMENTS, input).await?;
    let documents = rows.iter().map(document).collect::<Result<_, _>>()?;
    Ok(Some(IngestResult { ingest_id: id, index_revision: made, documents }))
}

pub(super) async fn present_revision(
    database: &Database,
    scope: TenantScope,
    asset: AssetId,
) -> Result<IndexRevision, StoreError> {
    let key = (scope.tenant().uuid(), asset.uuid());
    let find = || schema::knowledge_index::table.find(key).select(schema::knowledge_index::revision);
    let found: Option<i64> = database.first("revision of an index", find).await?;
    Ok(found.map_or_else(IndexRevision::default, IndexRevision::new))
}

pub(super) async fn pins(
    database: &Database,
    scope: TenantScope,
    release: ReleaseId,
) -> Result<Vec<IndexPin>, StoreError> {
    static PINS: Query = Query::new(
        "SELECT pin.asset_id, pin.revision AS pinned, coalesce((
            SELECT added.revision FROM knowledge_ingest AS added
            WHERE added.tenant_id = pin.tenant_id AND added.asset_id = pin.asset_id AND added.revision > pin.revision
                AND NOT added.reembeds
            ORDER BY added.revision DESC LIMIT 1), pin.revision) AS present
        FROM knowledge_pin AS pin
        WHERE pin.tenant_id = {tenant_id} AND pin.release_id = {release_id} ORDER BY pin.asset_id",
    );
    let rows = database.fetch(&PINS, Input::of_params(scope).with_param("release_id", release.uuid())).await?;
    rows.iter()
        .map(|row| {
            Ok(IndexPin {
                asset: row.id("asset_id")?,
                pinned: revision(row, "pinned")?,
                latest: revision(row, "present")?,
            })
        })
        .collect()
}
