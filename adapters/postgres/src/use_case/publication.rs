//! Commits a publication: the use case, its access requests, and the assets, the workload and the release draft
//! that the publication creates.

use super::{CHANGE_USE_CASE, add_change_columns};
use crate::{
    asset::{INSERT_ASSETS, INSERT_VERSIONS},
    database::Database,
    guarded_commit::{GuardedCommit, Input},
    release::{INSERT_BINDINGS, INSERT_DEPLOYMENT, INSERT_RELEASE, add_draft_columns},
    workload::{INSERT_WORKLOAD, add_workload_columns},
};
use fairway_domain::{
    access_request::AccessRequest,
    asset::VersionLabel,
    idempotency::KeyedOutcome,
    store::{Change, ChangeRecord, CommitError},
    tenant::TenantScope,
    use_case::{CreatedResources, Publication},
};

/// The CTE that inserts access requests. It follows the CTE `changed`.
const INSERT_REQUESTS: &str = "
     inserted_requests AS (
        INSERT INTO access_request (tenant_id, access_request_id, workspace_id, use_case_id, connection_name, status,
            requested_by, created_at, revision)
        SELECT tenant_id, request.id, request_workspace_id, use_case_id, request.name, 'pending', actor, next_updated_at, 1
        FROM input, updated_use_case, unnest(request_ids, request_names) AS request (id, name)
        RETURNING 1
     )";

/// Publishes a use case whose assets, workload and release exist from an earlier publication.
static REPUBLISH: GuardedCommit = GuardedCommit::of_parts(
    &["updated_use_case AS (", CHANGE_USE_CASE, " RETURNING 1),", INSERT_REQUESTS],
    "(SELECT count(*) = 1 FROM updated_use_case)",
    "",
);

/// Publishes a use case for the first time. The statement locks the use case and then the reused assets, in the order
/// of their identifiers. All other rows are new.
static PUBLISH: GuardedCommit = GuardedCommit::of_parts(
    &[
        "updated_use_case AS (",
        CHANGE_USE_CASE,
        " RETURNING 1),
         inserted_workload AS (",
        INSERT_WORKLOAD,
        ", updated_use_case RETURNING 1),
         inserted_deployment AS (",
        INSERT_DEPLOYMENT,
        ", updated_use_case),
         inserted_release AS (",
        INSERT_RELEASE,
        ", updated_use_case RETURNING 1),
         locked_assets AS (
            SELECT FROM updated_use_case, input JOIN asset USING (tenant_id)
            WHERE asset.asset_id = ANY (reused_assets) AND lifecycle_state IS NOT DISTINCT FROM 'active'
            ORDER BY asset.asset_id
            FOR SHARE OF asset
         ),
         new_asset AS (
            SELECT tenant_id, piece.id AS asset_id, piece.slug, piece.kind AS asset_kind, owner_ref,
                'active' AS lifecycle_state, 'workspace' AS ownership_tier, workspace_id,
                new_namespace_id AS namespace_id, 1 AS last_ordinal, 1 AS last_label, 1 AS revision, created_at,
                created_by
            FROM input, updated_use_case, unnest(asset_ids, asset_slugs, asset_kinds) AS piece (id, slug, kind)
         ),",
        INSERT_ASSETS,
        ",
         new_version AS (
            SELECT tenant_id, piece.version AS asset_version_id, piece.asset AS asset_id, piece.label, 1 AS ordinal,
                piece.content, piece.artifact_ref, piece.checksum, created_at AS version_created_at,
                created_by AS version_created_by
            FROM input, updated_use_case,
                unnest(version_ids, asset_ids, version_labels, contents, artifact_refs, checksums)
                AS piece (version, asset, label, content, artifact_ref, checksum)
         ),",
        INSERT_VERSIONS,
        ",
         new_binding AS (
            SELECT tenant_id, binding.id AS binding_id, release_id, binding.role,
                binding.version AS asset_version_id, created_at, created_by
            FROM input, updated_use_case, unnest(binding_ids, binding_roles, bound_versions)
                AS binding (id, role, version)
         ),",
        INSERT_BINDINGS,
        ",",
        INSERT_REQUESTS,
    ],
    "(SELECT count(*) = 1 FROM updated_use_case) AND (SELECT count(*) FROM locked_assets) = cardinality(reused_assets)",
    "",
);

pub(super) async fn commit(
    database: &Database,
    scope: TenantScope,
    change: Change<Publication>,
    key: Option<&KeyedOutcome>,
) -> Result<(), CommitError> {
    let ChangeRecord { next: Publication { use_case, requests, created }, expected_revision, fact } =
        change.into_record();
    let input = Input::new(scope)
        .with("actor", fact.actor.to_string())
        .with("request_workspace_id", use_case.workspace_id.uuid())
        .with_list("request_ids", requests.iter().map(|request| request.access_request_id.uuid()).collect())
        .with_list("request_names", requests.iter().map(name_of).collect());
    let input = add_change_columns(input, &use_case, expected_revision);
    let Some(created) = &created else {
        return database.commit_guarded(&REPUBLISH, scope, &fact, key, input).await.map(|_| ());
    };
    let input = add_created_pieces(add_workload_columns(input, scope, &created.workload), created);
    database.commit_guarded(&PUBLISH, scope, &fact, key, input).await.map(|_| ())
}

fn name_of(request: &AccessRequest) -> &str {
    &request.connection_name
}

/// Adds the columns of the new assets, their versions, the release and its bindings.
fn add_created_pieces<'v>(input: Input<'v>, created: &'v CreatedResources) -> Input<'v> {
    let CreatedResources { assets, workload, release, reused_assets } = created;
    let versions = || assets.iter().map(|(_, version)| version);
    let label = |label: Option<&'v VersionLabel>| label.map(VersionLabel::as_str);
    add_draft_columns(input, Some(release))
        .with("new_namespace_id", workload.namespace_id.uuid())
        .with_list("reused_assets", reused_assets.iter().map(|asset| asset.uuid()).collect())
        .with_list("asset_ids", assets.iter().map(|(asset, _)| asset.asset_id.uuid()).collect())
        .with_list("asset_slugs", assets.iter().map(|(asset, _)| asset.slug.as_str()).collect())
        .with_list("asset_kinds", assets.iter().map(|(asset, _)| asset.kind.as_str()).collect())
        .with_list("version_ids", versions().map(|version| version.asset_version_id.uuid()).collect())
        .with_list("version_labels", versions().map(|version| label(version.version_label.as_ref())).collect())
        .with_list("contents", versions().map(|version| version.canonical.text()).collect())
        .with_list("artifact_refs", versions().map(|version| version.artifact_ref.as_str()).collect())
        .with_list("checksums", versions().map(|version| version.canonical.checksum().as_str()).collect())
        .with_list("binding_ids", release.bindings.iter().map(|binding| binding.binding_id.uuid()).collect())
        .with_list("binding_roles", release.bindings.iter().map(|binding| binding.role.as_str()).collect())
        .with_list("bound_versions", release.bindings.iter().map(|binding| binding.asset_version_id.uuid()).collect())
}
