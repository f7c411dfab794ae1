//! Tiles of transparency logs. The database contains incomplete tiles as a part of the tree's edge; the artifact store
//! contains full tiles.

use crate::{
    Failure,
    cache::{CACHE_BYTE_LIMITS, weighted_cache},
};
use fairway_domain::{
    asset::artifact_store::{ArtifactPath, ArtifactStore},
    id::TenantId,
    tenant::TenantScope,
    transparency_log::{FullTile, ProofPlan, TileCoordinate, TileRequest, TreeEdge, TreeHash},
};
use moka::sync::Cache;
use std::{collections::HashMap, sync::Arc};

/// Cache of verified full tiles.
pub(crate) type TileCache = Cache<(TenantId, TileCoordinate), Arc<FullTile>>;

pub(crate) fn new_tile_cache() -> TileCache {
    weighted_cache(CACHE_BYTE_LIMITS.log_tiles, |_, _: &Arc<FullTile>| FullTile::BYTES).build()
}

/// Reads tiles and verifies them. The root of a tile from the artifact store must equal the tile's hash in its parent
/// tile. Parent tiles are verified in the same way, up to the edge in the database.
#[derive(Clone)]
pub(super) struct VerifiedTileLoader {
    artifact_store: Arc<dyn ArtifactStore>,
    cache: TileCache,
}

impl VerifiedTileLoader {
    pub(super) fn new(artifact_store: Arc<dyn ArtifactStore>, cache: TileCache) -> Self {
        Self { artifact_store, cache }
    }

    /// Returns the hashes that a proof plan requires.
    pub(super) async fn proof_hashes(
        &self,
        scope: TenantScope,
        edge: &TreeEdge,
        plan: &ProofPlan,
    ) -> Result<Vec<TreeHash>, Failure> {
        let mut full_tiles = HashMap::new();
        for coordinate in plan.tiles().into_iter().filter(|tile| edge.tile(*tile).is_none()) {
            full_tiles.insert(coordinate, self.full_tile(scope, edge, coordinate).await?);
        }
        let hashes = plan.hashes(&|tile| match full_tiles.get(&tile) {
            Some(tile) => Some(tile.hashes()),
            None => edge.tile(tile),
        });
        hashes.ok_or(Failure::Inconsistent("a tile is shorter than the tree"))
    }

    /// Returns the bytes of the first hashes of a tile. The caller has checked that the tree contains them.
    pub(super) async fn first_hashes(
        &self,
        scope: TenantScope,
        edge: &TreeEdge,
        request: TileRequest,
    ) -> Result<Vec<u8>, Failure> {
        let TileRequest { coordinate, width } = request;
        let bytes = |hashes: &[TreeHash]| hashes.iter().take(width).flat_map(|hash| *hash.as_bytes()).collect();
        match edge.tile(coordinate) {
            Some(hashes) => Ok(bytes(hashes)),
            None => Ok(bytes(self.full_tile(scope, edge, coordinate).await?.hashes())),
        }
    }

    async fn full_tile(
        &self,
        scope: TenantScope,
        edge: &TreeEdge,
        coordinate: TileCoordinate,
    ) -> Result<Arc<FullTile>, Failure> {
        const MISSING: Failure = Failure::Inconsistent("a tile is not part of the tree");
        let tenant = scope.tenant();
        if let Some(tile) = self.cache.get(&(tenant, coordinate)) {
            return Ok(tile);
        }
        // The tiles to read: the requested tile and its parents, up to the first tile whose hash in its parent is
        // already verified.
        let mut unread = vec![coordinate];
        let mut current = coordinate;
        let mut root = loop {
            let (parent, position) = current.parent().ok_or(MISSING)?;
            if let Some(hashes) = edge.tile(parent) {
                break *hashes.get(position).ok_or(MISSING)?;
            }
            if let Some(tile) = self.cache.get(&(tenant, parent)) {
                break *tile.hashes().get(position).ok_or(MISSING)?;
            }
            unread.push(parent);
            current = parent;
        };
        while let Some(tile_coordinate) = unread.pop() {
            let tile = Arc::new(self.read(tenant, tile_coordinate, root).await?);
            self.cache.insert((tenant, tile_coordinate), Arc::clone(&tile));
            let Some(child) = unread.last() else { return Ok(tile) };
            let (_, position) = child.parent().ok_or(MISSING)?;
            root = *tile.hashes().get(position).ok_or(MISSING)?;
        }
        Err(MISSING)
    }

    async fn read(&self, tenant: TenantId, tile: TileCoordinate, root: TreeHash) -> Result<FullTile, Failure> {
        let path = ArtifactPath::of_log_tile(tenant, tile);
        let bytes = self.artifact_store.read(&path, FullTile::BYTES).await?;
        let bytes =
            bytes.ok_or(Failure::Inconsistent("a tile of the transparency log is missing in the artifact store"))?;
        bytes
            .verify_tile(tile, root)
            .map_err(|_| Failure::Inconsistent("a tile in the artifact store does not match the tree of its log"))
    }
}
