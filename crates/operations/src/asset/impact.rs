//! The blast radius of an asset: the releases and workloads that depend on it.
//!
//! A breadth-first search follows references backwards from the asset and visits each version once. The paths are
//! therefore shortest paths, and the search terminates on circular references.

use crate::{Failure, access::Operation, asset::Assets};
use fairway_domain::{
    access::{Caller, Permission, ResourcePosition},
    asset::{
        Asset, VersionLabel,
        impact::{BindingRelease, BindingTarget, ImpactStore, ReferenceTarget, Referrer},
    },
    id::{AssetId, AssetVersionId, ReleaseId, WorkloadId, WorkspaceId},
    release::frozen_reference::MAX_REFERENCES,
    slug::Slug,
    tenant::TenantScope,
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// Maximum number of bindings that the search reads.
const MAX_BINDINGS: u32 = 2_000;

/// Maximum number of versions that the result lists, nearest first.
const MAX_LISTED_VERSIONS: usize = 2_000;

/// Maximum total number of hops in the paths of all listed releases. A single path may be as long as the reference
/// limit of a release, so thousands of releases could have a million hops.
const MAX_PATH_HOPS: usize = 2_000;

/// Limits of the search, so that it ends on any graph of references.
#[derive(Clone, Copy)]
struct SearchLimits {
    /// Maximum number of versions that the search follows at each distance from the asset.
    versions: u32,
    /// Maximum distance from the asset.
    depth: usize,
    /// Number of versions after which the search reads no greater distance.
    total: usize,
}

/// Limits in production. A release has fewer than [`MAX_REFERENCES`] resolved references, so no release depends on a
/// version at a greater distance.
const SEARCH_LIMITS: SearchLimits = SearchLimits { versions: 1_000, depth: MAX_REFERENCES, total: 10_000 };

/// The dependents of an asset that the caller may see.
#[derive(Clone, Debug, Default)]
pub struct BlastRadius {
    /// Releases that bind a version of the asset or of a dependent, newest first.
    pub releases: Vec<ImpactedRelease>,
    /// The workloads of these releases.
    pub workloads: Vec<ImpactedWorkload>,
    /// Versions that refer to the asset, directly or indirectly, nearest first.
    pub via: Vec<Arc<ReferenceHop>>,
    /// Whether a limit of the search excluded dependents from the lists.
    pub truncated: bool,
}

/// A release that depends on an asset.
#[derive(Clone, Debug)]
pub struct ImpactedRelease {
    /// The release, with the version that it binds.
    pub release: BindingRelease,
    /// The path from the asset to the bound version. The first hop refers to the asset, and each later hop refers to
    /// the hop before it. The path is empty if the release binds the asset itself. A hop is `None` if the caller may
    /// not see its version.
    pub path: Vec<Option<Arc<ReferenceHop>>>,
}

/// A workload with releases that depend on an asset.
#[derive(Clone, Debug)]
pub struct ImpactedWorkload {
    /// The identifier of the workload to which the releases belong.
    pub workload_id: WorkloadId,
    /// The slug of that workload.
    pub slug: Slug,
    /// The workspace in which the workload is.
    pub workspace_id: WorkspaceId,
    /// Those releases in [`BlastRadius::releases`] that belong to the workload.
    pub releases: Vec<ReleaseId>,
}

/// A version on a path of references to the asset.
#[derive(Clone, Debug)]
pub struct ReferenceHop {
    /// The version, with the position of the reference in its content.
    pub referrer: Referrer,
    /// The version to which the reference leads, one hop nearer; `None` for the asset itself.
    pub towards: Option<AssetVersionId>,
}

impl Assets {
    /// Returns the dependents of an asset.
    ///
    /// # Errors
    /// Not found when the caller does not see the asset from the given workspace, or from any workspace if none is
    /// given.
    pub async fn blast_radius(
        &self,
        caller: &Caller,
        id: AssetId,
        from_workspace: Option<WorkspaceId>,
    ) -> Result<BlastRadius, Failure> {
        let (scope, asset) = match from_workspace {
            Some(from_workspace) => {
                self.authorize_asset_from(caller, Operation::ReadBlastRadius, id, from_workspace).await?
            }
            None => self.authorize_asset_from_anywhere(caller, Operation::ReadBlastRadius, id).await?,
        };
        let (hops, mut truncated) = find_referrers(&*self.impact_store, scope, &asset, SEARCH_LIMITS).await?;
        let mut bound = self.impact_store.binding_releases(scope, BindingTarget::Asset(id), MAX_BINDINGS).await?;
        truncated |= is_full(&bound, MAX_BINDINGS);
        let versions: Vec<AssetVersionId> = hops.iter().map(|hop| hop.referrer.asset_version_id).collect();
        let indirectly_bound =
            self.impact_store.binding_releases(scope, BindingTarget::Versions(&versions), MAX_BINDINGS).await?;
        truncated |= is_full(&indirectly_bound, MAX_BINDINGS);
        bound.extend(indirectly_bound);
        let visible_assets = self.visible_assets(caller, hops.iter().map(|hop| &hop.referrer.asset)).await?;
        let is_visible = |hop: &ReferenceHop| visible_assets.contains(&hop.referrer.asset.asset_id);
        let hops: Vec<Arc<ReferenceHop>> = hops.into_iter().map(Arc::new).collect();
        let (releases, workloads, omits_releases) = visible_impact(caller, bound, &hops, is_visible);
        let mut via: Vec<Arc<ReferenceHop>> = hops.into_iter().filter(|hop| is_visible(hop)).collect();
        truncated |= omits_releases || via.len() > MAX_LISTED_VERSIONS;
        via.truncate(MAX_LISTED_VERSIONS);
        Ok(BlastRadius { releases, workloads, via, truncated })
    }
}

/// Returns the versions that refer to the asset, directly or indirectly, nearest first, and whether more exist. If more
/// versions refer from one distance than the limit permits, the search continues from the versions that it read.
async fn find_referrers(
    store: &dyn ImpactStore,
    scope: TenantScope,
    asset: &Asset,
    limits: SearchLimits,
) -> Result<(Vec<ReferenceHop>, bool), Failure> {
    let (mut hops, mut truncated): (Vec<ReferenceHop>, bool) = (Vec::new(), false);
    let mut visited: HashSet<AssetVersionId> = HashSet::new();
    // Found versions by the names that a reference can use: slug with label, or slug only.
    let mut version_by_name: HashMap<(Slug, Option<VersionLabel>), AssetVersionId> = HashMap::new();
    let mut targets = vec![ReferenceTarget { slug: asset.slug.clone(), labels: None }];
    for _ in 0..limits.depth {
        if targets.is_empty() || hops.len() >= limits.total {
            break;
        }
        let visited_versions: Vec<AssetVersionId> = visited.iter().copied().collect();
        let referrers = store.referrers(scope, &targets, &visited_versions, limits.versions).await?;
        truncated |= is_full(&referrers, limits.versions);
        let mut next_targets: BTreeMap<String, ReferenceTarget> = BTreeMap::new();
        let first_new_hop = hops.len();
        for referrer in referrers {
            // The search starts from the asset's own versions, so it does not list them.
            if !visited.insert(referrer.asset_version_id) || referrer.asset.asset_id == asset.asset_id {
                continue;
            }
            let slug = referrer.asset.slug.clone();
            let target =
                next_targets.entry(slug.to_string()).or_insert(ReferenceTarget { slug, labels: Some(Vec::new()) });
            target.labels.get_or_insert_default().push(referrer.version_label.clone());
            let towards = version_by_name.get(&(referrer.target_slug.clone(), referrer.target_label.clone())).copied();
            hops.push(ReferenceHop { referrer, towards });
        }
        for ReferenceHop { referrer, .. } in hops.iter().skip(first_new_hop) {
            let slug = &referrer.asset.slug;
            version_by_name.insert((slug.clone(), Some(referrer.version_label.clone())), referrer.asset_version_id);
            version_by_name.insert((slug.clone(), None), referrer.asset_version_id);
        }
        targets = next_targets.into_values().collect();
    }
    Ok((hops, truncated || !targets.is_empty()))
}

fn is_full<T>(rows: &[T], limit: u32) -> bool {
    u32::try_from(rows.len()).is_ok_and(|rows| rows >= limit)
}

/// Selects the releases and workloads that the caller may see. Each release appears once, with its shortest path. The
/// returned flag is true if [`MAX_PATH_HOPS`] excluded releases.
fn visible_impact(
    caller: &Caller,
    bound: Vec<BindingRelease>,
    hops: &[Arc<ReferenceHop>],
    is_visible: impl Fn(&ReferenceHop) -> bool,
) -> (Vec<ImpactedRelease>, Vec<ImpactedWorkload>, bool) {
    let by_version: HashMap<AssetVersionId, &Arc<ReferenceHop>> =
        hops.iter().map(|hop| (hop.referrer.asset_version_id, hop)).collect();
    let lengths = path_lengths(hops);
    let mut workloads: BTreeMap<WorkloadId, ImpactedWorkload> = BTreeMap::new();
    let mut shortest: BTreeMap<ReleaseId, (usize, BindingRelease)> = BTreeMap::new();
    for release in bound {
        let position = ResourcePosition::workspace(caller.tenant, release.namespace_id, release.workspace_id);
        let position = position.for_workload(release.workload_id);
        if caller.rights.allow(Permission::WorkloadView, &position) {
            workloads.entry(release.workload_id).or_insert_with(|| ImpactedWorkload {
                workload_id: release.workload_id,
                slug: release.workload_slug.clone(),
                workspace_id: release.workspace_id,
                releases: Vec::new(),
            });
        }
        if caller.rights.allow(Permission::ReleaseView, &position) {
            let length = lengths.get(&release.asset_version_id).copied().unwrap_or(0);
            if shortest.get(&release.release_id).is_none_or(|(shortest_length, _)| length < *shortest_length) {
                shortest.insert(release.release_id, (length, release));
            }
        }
    }
    let (mut releases, mut remaining_hops, mut omits_releases) = (Vec::new(), MAX_PATH_HOPS, false);
    for (length, release) in shortest.into_values().rev() {
        let Some(remaining) = remaining_hops.checked_sub(length) else {
            omits_releases = true;
            continue;
        };
        remaining_hops = remaining;
        if let Some(workload) = workloads.get_mut(&release.workload_id) {
            workload.releases.push(release.release_id);
        }
        let path = path_to(release.asset_version_id, &by_version, &is_visible);
        releases.push(ImpactedRelease { release, path });
    }
    (releases, workloads.into_values().rev().collect(), omits_releases)
}

/// Returns the path length of each version. `hops` lists nearer versions first, so the length of the next hop is
/// already known.
fn path_lengths(hops: &[Arc<ReferenceHop>]) -> HashMap<AssetVersionId, usize> {
    let mut lengths: HashMap<AssetVersionId, usize> = HashMap::with_capacity(hops.len());
    for hop in hops {
        let nearer_length = hop.towards.and_then(|version| lengths.get(&version)).copied().unwrap_or(0);
        lengths.insert(hop.referrer.asset_version_id, nearer_length.saturating_add(1));
    }
    lengths
}

/// Returns the path from the asset to a version; hidden versions are `None`.
fn path_to(
    version: AssetVersionId,
    by_version: &HashMap<AssetVersionId, &Arc<ReferenceHop>>,
    is_visible: &impl Fn(&ReferenceHop) -> bool,
) -> Vec<Option<Arc<ReferenceHop>>> {
    let mut path = Vec::new();
    let mut current = Some(version);
    // Each hop leads to a nearer version, so the loop ends.
    while let Some(hop) = current.and_then(|version| by_version.get(&version)) {
        path.push(is_visible(hop).then(|| Arc::clone(hop)));
        current = hop.towards;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests;
