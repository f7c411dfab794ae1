//! Drafts of releases: their inserts, which the publication of a use case shares, and the update with each change of
//! their bindings.

use crate::guarded_commit::Input;
use fairway_domain::{id::AssetId, release::Release};

/// Adds the columns of a release draft, except its workload, its workspace and its creation. Without a release, the
/// columns are `NULL`. The names of state and revision have a prefix, because the input of a publication also has those
/// of a workload.
pub(crate) fn add_draft_columns<'v>(input: Input<'v>, release: Option<&'v Release>) -> Input<'v> {
    input
        .with("release_id", release.map(|release| release.release_id.uuid()))
        .with("environment", release.map(|release| release.environment.as_str()))
        .with("target_lane", release.map(|release| release.target_lane.as_str()))
        .with("release_state", release.map(|release| release.state.name().as_str()))
        .with("policy_bundle_id", release.and_then(|release| release.policy_bundle_id).map(AssetId::uuid))
        .with("release_revision", release.map(|release| release.revision.get()))
}

/// The `INSERT` of a new release, for an input of [`add_draft_columns`] that also has the other columns of the release.
pub(crate) const INSERT_RELEASE: &str = "
    INSERT INTO release (tenant_id, release_id, workload_id, workspace_id, environment, target_lane, state,
        policy_bundle_id, revision, created_at, created_by, updated_at)
    SELECT tenant_id, release_id, workload_id, workspace_id, environment, target_lane, release_state, policy_bundle_id,
        release_revision, created_at, created_by, created_at
    FROM input";

/// The `INSERT` of the deployment of a release's workload in its environment. A deployment starts with revision 1.
pub(crate) const INSERT_DEPLOYMENT: &str = "
    INSERT INTO deployment (tenant_id, workload_id, environment, revision)
    SELECT tenant_id, workload_id, environment, 1 FROM input";

/// The CTE that inserts bindings. It follows the CTE `new_binding`, which has their columns.
pub(crate) const INSERT_BINDINGS: &str = "
     inserted_binding AS (
        INSERT INTO release_binding (tenant_id, binding_id, release_id, role, asset_version_id, created_at, created_by)
        SELECT tenant_id, binding_id, release_id, role, asset_version_id, created_at, created_by FROM new_binding
        RETURNING 1
     )";

/// The CTE that updates a draft whose bindings change. The update serializes the change with other changes of the
/// release.
pub(super) const UPDATE_DRAFT: &str = "
     updated_release AS (
        UPDATE release SET revision = input.revision, updated_at = input.updated_at
        FROM input
        WHERE release.tenant_id = input.tenant_id AND release.release_id = input.release_id
            AND release.revision = expected_revision AND state = 'draft'
        RETURNING 1
     )";
