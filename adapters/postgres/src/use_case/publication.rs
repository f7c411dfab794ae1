//! Commits a publication: the use case, its access requests, and the assets, the workload and the release draft
//! that the publication creates.

use super::{CHANGE_USE_CASE, add_change_columns};
use crate::{
    access_request::INSERT_REQUESTS,
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

/// Publishes a use case. The statement locks the use case and then the reused assets, in the order of their
/// identifiers. All other rows are new. If an earlier publication created the resources, the columns of the workload
/// and of the release are `NULL`, the lists of assets and bindings are empty, and the statement inserts only access
/// requests.
static PUBLISH: GuardedCommit = GuardedCommit::of_parts(
    &[
        "updated_use_case AS (",
        CHANGE_USE_CASE,
        " RETURNING 1),
         inserted_workload AS (",
        INSERT_WORKLOAD,
        ", updated_use_case WHERE workload_id IS NOT NULL RETURNING 1),
         inserted_deployment AS (",
        INSERT_DEPLOYMENT,
        ", inserted_workload),
         inserted_release AS (",
        INSERT_RELEASE,
        ", inserted_workload RETURNING 1),
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
        ",
         inserted_requests AS (",
        INSERT_REQUESTS,
        " RETURNING 1)",
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
    let created = created.as_deref();
    let input = add_workload_columns(input, scope, created.map(|created| &created.workload));
    let input = add_draft_columns(input, created.map(|created| &created.release));
    database.commit_guarded(&PUBLISH, scope, &fact, key, add_created_pieces(input, created)).await.map(|_| ())
}

fn name_of(request: &AccessRequest) -> &str {
    &request.connection_name
}

/// Adds the columns of the new assets, their versions and the bindings of the release.
fn add_created_pieces<'v>(input: Input<'v>, created: Option<&'v CreatedResources>) -> Input<'v> {
    let assets = || created.into_iter().flat_map(|created| &created.assets);
    let versions = || assets().map(|(_, version)| version);
    let bindings = || created.into_iter().flat_map(|created| &created.release.bindings);
    let reused_assets = created.into_iter().flat_map(|created| &created.reused_assets);
    let labels = versions().map(|version| version.version_label.as_ref().map(VersionLabel::as_str));
    input
        .with("new_namespace_id", created.map(|created| created.workload.namespace_id.uuid()))
        .with_list("reused_assets", reused_assets.map(|asset| asset.uuid()).collect())
        .with_list("asset_ids", assets().map(|(asset, _)| asset.asset_id.uuid()).collect())
        .with_list("asset_slugs", assets().map(|(asset, _)| asset.slug.as_str()).collect())
        .with_list("asset_kinds", assets().map(|(asset, _)| asset.kind.as_str()).collect())
        .with_list("version_ids", versions().map(|version| version.asset_version_id.uuid()).collect())
        .with_list("version_labels", labels.collect())
        .with_list("contents", versions().map(|version| version.canonical.text()).collect())
        .with_list("artifact_refs", versions().map(|version| version.artifact_ref.as_str()).collect())
        .with_list("checksums", versions().map(|version| version.canonical.checksum().as_str()).collect())
        .with_list("binding_ids", bindings().map(|binding| binding.binding_id.uuid()).collect())
        .with_list("binding_roles", bindings().map(|binding| binding.role.as_str()).collect())
        .with_list("bound_versions", bindings().map(|binding| binding.asset_version_id.uuid()).collect())
}
