//! Asset versions: reads, and inserts of one version or a batch of versions.

use super::{INSERT_ASSETS, StoredAsset};
use crate::{
    clock_and_length_functions::octet_length,
    database::{Database, StatementPool, commit, commit_batch},
    group_commit::BatchCommitter,
    guarded_commit::{FactColumns, GuardedBatchCommit, GuardedCommit, Input, Query},
    large_reads::{LargeRead, MAX_SMALL_TEXT_BYTES},
    row::{Row, require_decoded},
    schema::{asset, asset_version, asset_version_note, asset_version_source},
};
use async_trait::async_trait;
use diesel::{
    BoolExpressionMethods as _, ExpressionMethods as _, JoinOnDsl as _, NullableExpressionMethods as _, QueryDsl as _,
    Queryable, Selectable, SelectableHelper as _,
    dsl::{Nullable, case_when},
    pg::Pg,
};
use fairway_domain::{
    access::ActorRef,
    asset::{Asset, AssetVersion, NewVersion, VersionLabel, artifact_store::ArtifactPath, canonical::Checksum},
    id::{AssetId, AssetVersionId},
    idempotency::KeyedOutcome,
    note::Note,
    slug::Slug,
    store::{Change, ChangeRecord, CommitError, StoreError},
    tenant::TenantScope,
    time::Timestamp,
};
use std::collections::HashMap;
use time::OffsetDateTime;
use uuid::Uuid;

/// The columns of a version in a list whose pages are limited by bytes. Columns that assets also have are renamed,
/// so that both can be selected together.
pub(super) const VERSION_COLUMNS: &str = "version.asset_version_id, version.asset_id AS version_asset_id, \
    version.version_label, version.ordinal AS version_ordinal, version.checksum, \
    version.created_at AS version_created_at, version.created_by AS version_created_by, note.body AS change_note, \
    version.content";

/// A version as stored, without its content.
#[derive(Queryable, Selectable)]
#[diesel(table_name = asset_version, check_for_backend(Pg))]
struct StoredVersion {
    asset_version_id: Uuid,
    asset_id: Uuid,
    version_label: String,
    checksum: String,
    created_at: OffsetDateTime,
    created_by: String,
    /// The change note. It has a separate table, because it can be erased.
    #[diesel(select_expression = asset_version_note::body.nullable())]
    #[diesel(select_expression_type = Nullable<asset_version_note::body>)]
    change_note: Option<String>,
}

impl StoredVersion {
    fn with_content(self, canonical: String) -> Result<AssetVersion, StoreError> {
        let (asset_id, asset_version_id) = (self.asset_id.into(), self.asset_version_id.into());
        Ok(AssetVersion {
            asset_version_id,
            asset_id,
            version_label: require_decoded("version_label", VersionLabel::parse(&self.version_label))?,
            canonical,
            artifact_ref: ArtifactPath::of_version(asset_id, asset_version_id),
            checksum: require_decoded("checksum", Checksum::parse(&self.checksum))?,
            change_note: self.change_note.as_deref().map(Note::from_stored),
            created_at: Timestamp::new(self.created_at),
            created_by: require_decoded("created_by", ActorRef::parse(&self.created_by).ok())?,
        })
    }
}

/// Decodes a version of a list.
pub(super) fn decode_version(row: &Row) -> Result<AssetVersion, StoreError> {
    let stored = StoredVersion {
        asset_version_id: row.column("asset_version_id")?,
        asset_id: row.column("version_asset_id")?,
        version_label: row.column("version_label")?,
        checksum: row.column("checksum")?,
        created_at: row.column("version_created_at")?,
        created_by: row.column("version_created_by")?,
        change_note: row.column("change_note")?,
    };
    stored.with_content(row.column("content")?)
}

/// Selects one version.
#[derive(Clone, Copy)]
pub(super) enum VersionSelector<'v> {
    Id(AssetVersionId),
    Labelled(AssetId, &'v VersionLabel),
    NewestOf(&'v Slug),
}

/// Asset, version, and the content if it is small. If the content is large, it is absent, and the last field has
/// its length in bytes.
type FoundVersion = (StoredAsset, StoredVersion, Option<String>, Option<i32>);

/// Finds a version with its asset. A large content is read with a second statement. Versions are immutable, so both
/// statements see the same content.
pub(super) async fn find(
    database: &Database,
    scope: TenantScope,
    selector: VersionSelector<'_>,
) -> Result<Option<(Asset, AssetVersion)>, StoreError> {
    static READ_CONTENT: Query =
        Query::new("SELECT content FROM input JOIN asset_version USING (tenant_id, asset_version_id)");
    let tenant = scope.tenant().uuid();
    let find = || {
        let is_asset = asset::tenant_id.eq(asset_version::tenant_id).and(asset::asset_id.eq(asset_version::asset_id));
        let is_note = asset_version_note::tenant_id
            .eq(asset_version::tenant_id)
            .and(asset_version_note::asset_version_id.eq(asset_version::asset_version_id));
        let bytes = octet_length(asset_version::content);
        let versions = asset_version::table
            .inner_join(asset::table.on(is_asset))
            .left_join(asset_version_note::table.on(is_note))
            .filter(asset_version::tenant_id.eq(tenant))
            .select((
                StoredAsset::as_select(),
                StoredVersion::as_select(),
                case_when(bytes.le(MAX_SMALL_TEXT_BYTES), asset_version::content),
                case_when(bytes.gt(MAX_SMALL_TEXT_BYTES), bytes),
            ))
            .into_boxed::<'static, Pg>();
        match selector {
            VersionSelector::Id(id) => versions.filter(asset_version::asset_version_id.eq(id.uuid())),
            VersionSelector::Labelled(asset, label) => versions
                .filter(asset_version::asset_id.eq(asset.uuid()))
                .filter(asset_version::version_label.eq(label.as_str().to_owned())),
            VersionSelector::NewestOf(slug) => versions
                .filter(asset::tenant_id.eq(tenant).and(asset::slug.eq(slug.to_string())))
                .filter(asset_version::ordinal.eq(asset::last_ordinal)),
        }
    };
    let found: Option<FoundVersion> = database.first("version", find).await?;
    let Some((asset, version, small, bytes)) = found else { return Ok(None) };
    let content = match bytes {
        None => require_decoded("content", small)?,
        Some(bytes) => {
            let large = LargeRead::acquire(scope, i64::from(bytes)).await?;
            let input = Input::new(scope).with("asset_version_id", version.asset_version_id);
            let (rows, _permit) = large.rows(database, READ_CONTENT.text(&input)?, &input.params()).await?;
            require_decoded("content", rows.first())?.column("content")?
        }
    };
    Ok(Some((asset.into_value()?, version.with_content(content)?)))
}

/// The source text of a version, if stored.
pub(super) async fn source_text(
    database: &Database,
    scope: TenantScope,
    version: AssetVersionId,
) -> Result<Option<String>, StoreError> {
    static READ: Query =
        Query::new("SELECT body FROM input JOIN asset_version_source USING (tenant_id, asset_version_id)");
    let key = (scope.tenant().uuid(), version.uuid());
    let find = || {
        let bytes = octet_length(asset_version_source::body);
        asset_version_source::table.find(key).select((
            case_when(bytes.le(MAX_SMALL_TEXT_BYTES), asset_version_source::body),
            case_when(bytes.gt(MAX_SMALL_TEXT_BYTES), bytes),
        ))
    };
    let found: Option<(Option<String>, Option<i32>)> = database.first("source text", find).await?;
    let Some((small, bytes)) = found else { return Ok(None) };
    let Some(bytes) = bytes else { return Ok(small) };
    let large = LargeRead::acquire(scope, i64::from(bytes)).await?;
    let input = Input::new(scope).with("asset_version_id", version.uuid());
    let (rows, _permit) = large.rows(database, READ.text(&input)?, &input.params()).await?;
    rows.first().map(|row| row.column("body")).transpose()
}

/// Adds the columns of a new version, of its source text, its change note and its references.
pub(super) fn add_version_columns<'v>(input: Input<'v>, version: &'v NewVersion) -> Input<'v> {
    let references = &version.references;
    let labels = references.iter().map(|reference| reference.version.as_ref().map(VersionLabel::as_str));
    input
        .with("asset_version_id", version.asset_version_id.uuid())
        .with("chosen_label", version.version_label.as_ref().map(VersionLabel::as_str))
        .with("content", version.canonical.text())
        .with("artifact_ref", version.artifact_ref.as_str())
        .with("checksum", version.canonical.checksum().as_str())
        .with("version_created_at", version.created_at.to_datetime())
        .with("version_created_by", version.created_by.to_string())
        .with("source_text", version.source_text.as_deref())
        .with("change_note", version.change_note.as_ref().map(Note::as_str))
        .with_list("target_slugs", references.iter().map(|reference| reference.slug.as_str()).collect())
        .with_list("target_labels", labels.collect())
        .with_list("pointers", references.iter().map(|reference| reference.pointer.as_str()).collect())
}

/// CTEs that insert the source text, change note and references of the version that the CTE `inserted_version`
/// inserted.
const INSERT_ATTACHMENTS: &str = "
     inserted_source AS (
        INSERT INTO asset_version_source (tenant_id, asset_version_id, body)
        SELECT tenant_id, asset_version_id, source_text FROM input, inserted_version WHERE source_text IS NOT NULL
     ),
     inserted_note AS (
        INSERT INTO asset_version_note (tenant_id, asset_version_id, body)
        SELECT tenant_id, asset_version_id, change_note FROM input, inserted_version WHERE change_note IS NOT NULL
     ),
     inserted_references AS (
        INSERT INTO asset_reference (tenant_id, asset_version_id, position, target_slug, target_label, pointer)
        SELECT tenant_id, asset_version_id, number - 1, reference.slug, reference.label, reference.pointer
        FROM input, inserted_version, unnest(target_slugs, target_labels, pointers) WITH ORDINALITY
            AS reference (slug, label, pointer, number)
     )";

/// The CTE that inserts new versions. It follows the CTE `new_version`, which has their columns, including label and
/// ordinal.
pub(crate) const INSERT_VERSIONS: &str = "
     inserted_version AS (
        INSERT INTO asset_version (tenant_id, asset_version_id, asset_id, version_label, ordinal, content,
            artifact_ref, checksum, created_at, created_by)
        SELECT tenant_id, asset_version_id, asset_id, label, ordinal, content, artifact_ref, checksum,
            version_created_at, version_created_by
        FROM new_version
        RETURNING version_label
     )";

/// The CTE `new_version` for versions of existing assets. Missing and archived assets are skipped. The lock on an
/// asset's row serializes inserts of its versions. Labels are therefore unique, and ordinals are in commit order. An
/// explicit label `vN` whose number fits into `bigint` advances the label counter. The CTE `locked` locks assets in the
/// order of their identifiers, so that concurrent batches do not deadlock.
const UPDATE_PARENTS: &str = "locked AS MATERIALIZED (
        SELECT input.* FROM input JOIN asset USING (tenant_id, asset_id)
        WHERE lifecycle_state <> 'archived'
        ORDER BY tenant_id, asset_id
        FOR NO KEY UPDATE OF asset
     ),
     new_version AS (
        UPDATE asset SET last_ordinal = last_ordinal + 1, last_label = CASE
            WHEN chosen_label IS NULL THEN last_label + 1
            WHEN chosen_label ~ '^v[1-9][0-9]{0,17}$' THEN greatest(last_label, substr(chosen_label, 2)::bigint)
            ELSE last_label END
        FROM locked
        WHERE asset.tenant_id = locked.tenant_id AND asset.asset_id = locked.asset_id
        RETURNING locked.*, coalesce(chosen_label, 'v' || last_label) AS label, last_ordinal AS ordinal
     ),";

const IS_INSERTED: &str = "(SELECT count(*) = 1 FROM inserted_version)";
const ASSIGNED_LABEL: &str = "(SELECT version_label FROM inserted_version) AS version_label";

/// Creates an asset with its first version. If the label is `vN` and N fits into `bigint`, the label counter starts
/// at N.
pub(super) static CREATE_WITH_VERSION: GuardedCommit = GuardedCommit::of_parts(
    &[
        "new_asset AS (
            SELECT input.*, 1 AS last_ordinal, CASE WHEN chosen_label IS NULL THEN 1
                WHEN chosen_label ~ '^v[1-9][0-9]{0,17}$' THEN substr(chosen_label, 2)::bigint ELSE 0 END AS last_label
            FROM input
         ),",
        INSERT_ASSETS,
        ",
         new_version AS (
            SELECT input.*, coalesce(chosen_label, 'v1') AS label, 1::bigint AS ordinal FROM input, inserted_asset
         ),",
        INSERT_VERSIONS,
        ",",
        INSERT_ATTACHMENTS,
    ],
    IS_INSERTED,
    ASSIGNED_LABEL,
);

/// Inserts a version of an asset in its own statement.
pub(super) async fn insert_version(
    pool: &StatementPool,
    scope: TenantScope,
    change: &Change<NewVersion>,
    key: Option<&KeyedOutcome>,
) -> Result<AssetVersion, CommitError> {
    static INSERT: GuardedCommit = GuardedCommit::of_parts(
        &[UPDATE_PARENTS, INSERT_VERSIONS, ",", INSERT_ATTACHMENTS],
        IS_INSERTED,
        ASSIGNED_LABEL,
    );
    let ChangeRecord { next, expected_revision: _, fact } = &**change;
    let input = add_version_columns(Input::new(scope).with("asset_id", next.asset_id.uuid()), next);
    let (sql, input) = INSERT.prepare(scope, fact, key, input)?;
    let rows = commit(pool, sql, &input.params()).await?;
    stored_version(next, require_decoded("version_label", rows.first())?)
}

/// Inserts a batch of versions without idempotency keys, explicit labels or attachments. The versions of skipped assets
/// are not inserted; the others are.
static INSERT_BATCH: GuardedBatchCommit = GuardedBatchCommit::from_fn(
    || [UPDATE_PARENTS, INSERT_VERSIONS].concat(),
    "new_version",
    "SELECT fact_id, label AS version_label FROM new_version",
);

/// Group commit of new versions.
pub(crate) struct VersionCommitter(pub(crate) StatementPool);

/// A new version that waits for its group commit.
pub(crate) struct PendingVersion {
    pub(super) scope: TenantScope,
    pub(super) change: Change<NewVersion>,
}

/// Bytes of the new version's texts in a statement.
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

    /// A version with attachments or an explicit label runs alone, because it may violate a constraint. A second
    /// version of the same asset runs alone too, because its label follows that of the first.
    fn is_batchable(pending: &PendingVersion, batch: &[&PendingVersion]) -> bool {
        let NewVersion { asset_id, version_label, source_text, change_note, references, .. } = &pending.change.next;
        version_label.is_none()
            && source_text.is_none()
            && change_note.is_none()
            && references.is_empty()
            && batch.iter().all(|other| other.change.next.asset_id != *asset_id)
    }

    fn payload_bytes(pending: &PendingVersion) -> usize {
        payload_bytes(&pending.change.next)
    }

    async fn commit_batch(
        &self,
        pending: &[&PendingVersion],
    ) -> Result<Option<Vec<Result<AssetVersion, CommitError>>>, StoreError> {
        let mut facts = FactColumns::default();
        pending.iter().for_each(|pending| facts.push(pending.scope, &pending.change.fact));
        let versions = || pending.iter().map(|pending| &pending.change.next);
        let input = Input::many()
            .with_column("tenant_id", pending.iter().map(|pending| pending.scope.tenant().uuid()))
            .with_column("asset_version_id", versions().map(|version| version.asset_version_id.uuid()))
            .with_column("asset_id", versions().map(|version| version.asset_id.uuid()))
            .with_column(
                "chosen_label",
                versions().map(|version| version.version_label.as_ref().map(VersionLabel::as_str)),
            )
            .with_column("content", versions().map(|version| version.canonical.text()))
            .with_column("artifact_ref", versions().map(|version| version.artifact_ref.as_str()))
            .with_column("checksum", versions().map(|version| version.canonical.checksum().as_str()))
            .with_column("version_created_at", versions().map(|version| version.created_at.to_datetime()))
            .with_column("version_created_by", versions().map(|version| version.created_by.to_string()));
        let input = facts.add_to_input(input);
        let Some(rows) = commit_batch(&self.0, INSERT_BATCH.text(&input)?, &input.params()).await? else {
            return Ok(None);
        };
        let rows_by_fact: HashMap<Uuid, &Row> =
            rows.iter().map(|row| Ok((row.column("fact_id")?, row))).collect::<Result<_, StoreError>>()?;
        let result = |pending: &&PendingVersion| match rows_by_fact.get(&pending.change.fact.fact_id.uuid()) {
            Some(row) => stored_version(&pending.change.next, row),
            None => Err(CommitError::Stale),
        };
        Ok(Some(pending.iter().map(result).collect()))
    }

    async fn commit_one(&self, pending: &PendingVersion) -> Result<AssetVersion, CommitError> {
        insert_version(&self.0, pending.scope, &pending.change, None).await
    }
}

/// The stored version, with the label that the statement assigned.
pub(super) fn stored_version(version: &NewVersion, row: &Row) -> Result<AssetVersion, CommitError> {
    Ok(AssetVersion {
        asset_version_id: version.asset_version_id,
        asset_id: version.asset_id,
        version_label: row.parse_column("version_label", VersionLabel::parse)?,
        canonical: version.canonical.text().to_owned(),
        artifact_ref: version.artifact_ref.clone(),
        checksum: version.canonical.checksum().clone(),
        change_note: version.change_note.clone(),
        created_at: version.created_at,
        created_by: version.created_by.clone(),
    })
}
