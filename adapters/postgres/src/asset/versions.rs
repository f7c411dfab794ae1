//! Versions: reads, and inserts of one version or of a batch.

use crate::{
    commit_tail::{CommitParams, FactColumns, commit_tail, fact_column_names, fact_placeholders, insert_facts},
    database::{Database, Param, commit, commit_batch},
    group_commit::BatchCommitter,
    large_reads::{LargeRead, small_text_columns},
    row::{RowExt, decode},
};
use async_trait::async_trait;
use deadpool_postgres::Pool;
use fairway_domain::{
    asset::{AssetVersion, NewVersion, VersionLabel, canonical::Checksum, ports::ArtifactPath},
    id::AssetVersionId,
    idempotency::KeyedOutcome,
    note::Note,
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
};
use std::collections::HashMap;
use time::OffsetDateTime;
use tokio_postgres::Row;
use uuid::Uuid;

/// The columns of a version, with a prefix so that they can be selected beside its asset's.
macro_rules! version_columns {
    () => {
        "version.asset_version_id, version.asset_id AS version_asset_id, version.version_label, \
         version.ordinal AS version_ordinal, version.checksum, version.created_at AS version_created_at, \
         version.created_by AS version_created_by, note.body AS change_note"
    };
}

/// The columns of versions in a list, whose pages are bounded by bytes.
pub(super) const VERSION_COLUMNS: &str = concat!(version_columns!(), ", version.content");

/// Labels that advance an asset's label counter, as a regular expression: `v` and a number that fits into `bigint`.
pub(super) const COUNTED_LABEL: &str = "^v[1-9][0-9]{0,17}$";

/// Joins the change note of a version, which is stored apart because it can be erased.
pub(super) const NOTE_JOIN: &str = "LEFT JOIN asset_version_note AS note USING (tenant_id, asset_version_id)";

pub(super) fn version(row: &Row) -> Result<AssetVersion, StoreError> {
    version_with(row, row.column("content")?)
}

fn version_with(row: &Row, canonical: String) -> Result<AssetVersion, StoreError> {
    let (asset_id, asset_version_id) = (row.id("version_asset_id")?, row.id("asset_version_id")?);
    Ok(AssetVersion {
        asset_version_id,
        asset_id,
        version_label: row.parsed("version_label", VersionLabel::parse)?,
        canonical,
        artifact_ref: ArtifactPath::of_version(asset_id, asset_version_id),
        checksum: row.parsed("checksum", Checksum::parse)?,
        change_note: row.column::<Option<&str>>("change_note")?.map(Note::from_stored),
        created_at: row.timestamp("version_created_at")?,
        created_by: row.actor("version_created_by")?,
    })
}

/// The columns of a version that is read alone: large content is omitted.
pub(super) fn single_version_columns() -> String {
    format!("{}, {}", version_columns!(), small_text_columns("version.content", "content"))
}

/// Decodes a version that was read alone, and reads large content with a second statement. Versions are immutable, so
/// both statements see the same content.
pub(super) async fn single_version(
    database: &Database,
    scope: TenantScope,
    row: &Row,
) -> Result<AssetVersion, StoreError> {
    const READ_CONTENT: &str = "SELECT content FROM asset_version WHERE tenant_id = $1 AND asset_version_id = $2";
    let Some(bytes) = row.column("content_bytes")? else { return version(row) };
    let id: Uuid = row.column("asset_version_id")?;
    let large = LargeRead::acquire(scope, bytes).await?;
    let (rows, _permit) = large.rows(database, READ_CONTENT, &[&scope.tenant().uuid(), &id]).await?;
    version_with(row, decode("content", rows.first())?.column("content")?)
}

/// The source text of a version, if stored.
pub(super) async fn source_text(
    database: &Database,
    scope: TenantScope,
    version: AssetVersionId,
) -> Result<Option<String>, StoreError> {
    const SOURCE: &str = "FROM asset_version_source WHERE tenant_id = $1 AND asset_version_id = $2";
    let params: [Param<'_>; 2] = [&scope.tenant().uuid(), &version.uuid()];
    let small = format!("SELECT {} {SOURCE}", small_text_columns("body", "body"));
    let Some(row) = database.read_one(&small, &params).await? else { return Ok(None) };
    let Some(bytes) = row.column("body_bytes")? else { return row.column("body") };
    let large = LargeRead::acquire(scope, bytes).await?;
    let (rows, _permit) = large.rows(database, &format!("SELECT body {SOURCE}"), &params).await?;
    rows.first().map(|row| row.column("body")).transpose()
}

/// Inserts a version of an asset in its own statement.
pub(super) async fn insert_version(
    pool: &Pool,
    scope: TenantScope,
    change: &Change<NewVersion>,
    key: Option<&KeyedOutcome>,
) -> Result<AssetVersion, CommitError> {
    let ChangeRecord { next, decided_on: _, fact } = &**change;
    let tail = CommitParams::new(scope, fact, key);
    let row = VersionRow::of(next);
    let (beside, more) = row.attachment_ctes("$13", 21);
    // The update of the asset's row serializes versions of one asset, so labels are unique and ordinals follow commit
    // order. An explicit label of the form `vN` advances the label counter. The call of `fairway_commit` comes first
    // in the final join: after a join to a missing version, PostgreSQL would not evaluate it.
    let sql = format!(
        "WITH parent AS (
            UPDATE asset SET last_ordinal = last_ordinal + 1, last_label = CASE
                WHEN $15::text IS NULL THEN last_label + 1
                WHEN $15 ~ '{COUNTED_LABEL}' THEN greatest(last_label, substr($15, 2)::bigint)
                ELSE last_label END
            WHERE tenant_id = $1 AND asset_id = $14 AND lifecycle_state <> 'archived'
            RETURNING coalesce($15, 'v' || last_label) AS label, last_ordinal AS ordinal
         ),
         made AS (
            INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content,
                artifact_ref, checksum, created_at, created_by)
            SELECT $1, $13, $14, label, ordinal, $16, $17, $18, $19, $20 FROM parent
            RETURNING version_label
         ),
         {beside}
         done AS (SELECT fairway_commit((SELECT count(*) = 1 FROM made), {}))
         SELECT version_label FROM done LEFT JOIN made ON true",
        commit_tail!()
    );
    let mut own = row.params();
    own.extend(more);
    let rows = commit(pool, &sql, &tail.with(&own)).await?;
    let row = decode("version_label", rows.first())?;
    stored_version(next, row)
}

/// Inserts a batch of versions without idempotency keys, explicit labels or attachments. A version whose asset is
/// missing or archived is skipped; the others are inserted. Assets are locked in one order, so that concurrent batches
/// do not deadlock.
const INSERT_BATCH: &str = concat!(
    "WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(",
    fact_placeholders!(),
    ", $7::uuid[], $8::uuid[], $9::text[], $10::text[], $11::text[], $12::timestamptz[], $13::text[])
            AS asked (",
    fact_column_names!(),
    ", asset_version_id, asset_id, content, artifact_ref, checksum, made_at, made_by)
        ORDER BY tenant_id, asset_id
    ),
    parent AS (
        UPDATE asset SET last_ordinal = last_ordinal + 1, last_label = last_label + 1
        FROM asked
        WHERE asset.tenant_id = asked.tenant_id AND asset.asset_id = asked.asset_id AND lifecycle_state <> 'archived'
        RETURNING asked.*, 'v' || last_label AS label, last_ordinal AS ordinal
    ),
    made AS (
        INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content, artifact_ref,
            checksum, created_at, created_by)
        SELECT tenant_id, asset_version_id, asset_id, label, ordinal, content, artifact_ref, checksum, made_at, made_by
        FROM parent
    ),
    ",
    insert_facts!("parent"),
    " SELECT fact_id, label AS version_label FROM parent"
);

/// Group commit of new versions.
pub(crate) struct VersionCommitter(pub(crate) Pool);

/// A version to insert.
pub(crate) struct PendingVersion {
    pub(super) scope: TenantScope,
    pub(super) change: Change<NewVersion>,
}

/// Size of the new version in a statement, in bytes.
pub(super) fn payload_bytes(version: &NewVersion) -> usize {
    let NewVersion { canonical, source_text, references, .. } = version;
    let pointers: usize = references.iter().map(|reference| reference.pointer.len()).sum();
    canonical.text().len() + source_text.as_ref().map_or(0, String::len) + pointers
}

#[async_trait]
impl BatchCommitter for VersionCommitter {
    type Item = PendingVersion;
    type Output = AssetVersion;
    const LABEL: &'static str = "new versions";

    /// Versions with attachments or an explicit label, which may conflict, run alone. So does a second version of the
    /// same asset, whose label follows the first one's.
    fn is_batchable(pending: &PendingVersion, in_front: &[&PendingVersion]) -> bool {
        let NewVersion { asset_id, version_label, source_text, change_note, references, .. } = &pending.change.next;
        version_label.is_none()
            && source_text.is_none()
            && change_note.is_none()
            && references.is_empty()
            && in_front.iter().all(|other| other.change.next.asset_id != *asset_id)
    }

    fn payload_bytes(pending: &PendingVersion) -> usize {
        payload_bytes(&pending.change.next)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingVersion],
    ) -> Result<Option<Vec<Result<AssetVersion, CommitError>>>, StoreError> {
        let mut batch = BatchColumns::default();
        for pending in pending {
            batch.push(pending);
        }
        let own: [Param<'_>; 7] = [
            &batch.versions,
            &batch.assets,
            &batch.contents,
            &batch.artifacts,
            &batch.checksums,
            &batch.created_at,
            &batch.created_by,
        ];
        let Some(rows) = commit_batch(&self.0, INSERT_BATCH, &batch.facts.with(&own)).await? else { return Ok(None) };
        let made: HashMap<Uuid, &Row> =
            rows.iter().map(|row| Ok((row.column("fact_id")?, row))).collect::<Result<_, StoreError>>()?;
        let answer = |pending: &&PendingVersion| match made.get(&pending.change.fact.fact_id.uuid()) {
            Some(row) => stored_version(&pending.change.next, row),
            None => Err(CommitError::Stale),
        };
        Ok(Some(pending.iter().map(answer).collect()))
    }

    async fn commit_one(&self, pending: &PendingVersion) -> Result<AssetVersion, CommitError> {
        insert_version(&self.0, pending.scope, &pending.change, None).await
    }
}

/// A batch of new versions, one vector for each column.
#[derive(Default)]
struct BatchColumns<'a> {
    facts: FactColumns,
    versions: Vec<Uuid>,
    assets: Vec<Uuid>,
    contents: Vec<&'a str>,
    artifacts: Vec<&'a str>,
    checksums: Vec<&'a str>,
    created_at: Vec<OffsetDateTime>,
    created_by: Vec<String>,
}

impl<'a> BatchColumns<'a> {
    fn push(&mut self, pending: &'a PendingVersion) {
        let row = VersionRow::of(&pending.change.next);
        self.facts.push(pending.scope, &pending.change.fact);
        self.versions.push(row.id);
        self.assets.push(row.asset);
        self.contents.push(row.content);
        self.artifacts.push(row.artifact);
        self.checksums.push(row.checksum);
        self.created_at.push(row.at);
        self.created_by.push(row.by);
    }
}

/// The values of a version's insert, alive while the statement runs.
pub(super) struct VersionRow<'a> {
    id: Uuid,
    asset: Uuid,
    label: Option<&'a str>,
    content: &'a str,
    artifact: &'a str,
    checksum: &'a str,
    at: time::OffsetDateTime,
    by: String,
    source: Option<&'a str>,
    note: Option<&'a str>,
    slugs: Vec<&'a str>,
    labels: Vec<Option<&'a str>>,
    pointers: Vec<&'a str>,
}

impl<'a> VersionRow<'a> {
    pub(super) fn of(version: &'a NewVersion) -> Self {
        Self {
            id: version.asset_version_id.uuid(),
            asset: version.asset_id.uuid(),
            label: version.version_label.as_ref().map(VersionLabel::as_str),
            content: version.canonical.text(),
            artifact: version.artifact_ref.as_str(),
            checksum: version.canonical.checksum().as_str(),
            at: version.created_at.to_datetime(),
            by: version.created_by.to_string(),
            source: version.source_text.as_deref(),
            note: version.change_note.as_ref().map(Note::as_str),
            slugs: version.references.iter().map(|reference| reference.slug.as_str()).collect(),
            labels: version
                .references
                .iter()
                .map(|reference| reference.version.as_ref().map(VersionLabel::as_str))
                .collect(),
            pointers: version.references.iter().map(|reference| reference.pointer.as_str()).collect(),
        }
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![&self.id, &self.asset, &self.label, &self.content, &self.artifact, &self.checksum, &self.at, &self.by]
    }

    /// CTEs that insert the attachments of the version (source, note, references), with their parameters from
    /// placeholder `first` on. Absent attachments add no CTE: most versions have none, and each CTE costs planning and
    /// execution time.
    pub(super) fn attachment_ctes(&self, id: &str, first: usize) -> (String, Vec<Param<'_>>) {
        let (mut sql, mut values): (String, Vec<Param<'_>>) = (String::new(), Vec::new());
        for (table, body) in [("asset_version_source", &self.source), ("asset_version_note", &self.note)] {
            if body.is_some() {
                let value = first.saturating_add(values.len());
                sql.push_str(&format!(
                    "{table}_made AS (
                        INSERT INTO {table} (tenant_id, asset_version_id, body) SELECT $1, {id}, ${value} FROM made
                     ),"
                ));
                values.push(body);
            }
        }
        if !self.slugs.is_empty() {
            let slugs = first.saturating_add(values.len());
            let (labels, pointers) = (slugs.saturating_add(1), slugs.saturating_add(2));
            sql.push_str(&format!(
                "referred AS (
                    INSERT INTO asset_reference (tenant_id, asset_version_id, position, target_slug, target_label,
                        pointer)
                    SELECT $1, {id}, place - 1, slug, label, pointer
                    FROM made, unnest(${slugs}::text[], ${labels}::text[], ${pointers}::text[]) WITH ORDINALITY
                        AS named (slug, label, pointer, place)
                 ),"
            ));
            values.extend_from_slice(&[&self.slugs, &self.labels, &self.pointers]);
        }
        (sql, values)
    }
}

/// The stored version, with the label that the statement assigned.
pub(super) fn stored_version(version: &NewVersion, row: &Row) -> Result<AssetVersion, CommitError> {
    Ok(AssetVersion {
        asset_version_id: version.asset_version_id,
        asset_id: version.asset_id,
        version_label: row.parsed("version_label", VersionLabel::parse)?,
        canonical: version.canonical.text().to_owned(),
        artifact_ref: version.artifact_ref.clone(),
        checksum: version.canonical.checksum().clone(),
        change_note: version.change_note.clone(),
        created_at: version.created_at,
        created_by: version.created_by.clone(),
    })
}
