//! The right edge of a tree: the hashes in its partial tiles. They suffice to append leaves and to compute the root.

use super::{
    TreeHash,
    merkle::fold_subtrees,
    tile::{FullTile, TILE_HASHES, TileCoordinate, tile_bytes, tile_hashes},
};

/// The hashes in the partial tiles, one tile for each level. INVARIANT: each level has at most 255 hashes, and the
/// highest level has at least one. The numbers of hashes are thus the digits of the tree's size in base 256.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeEdge {
    levels: Vec<Vec<TreeHash>>,
}

impl TreeEdge {
    /// Restores the edge of a tree of this size from the bytes of its partial tiles, lowest level first. `None` if the
    /// lengths do not match the size.
    #[must_use]
    pub fn restore(size: u64, levels: &[Vec<u8>]) -> Option<Self> {
        let levels: Vec<Vec<TreeHash>> = levels.iter().map(|bytes| tile_hashes(bytes)).collect::<Option<_>>()?;
        let edge = Self { levels };
        let is_valid = edge.levels.iter().all(|level| level.len() < TILE_HASHES)
            && edge.levels.last().is_none_or(|level| !level.is_empty())
            && edge.levels.len() <= 8;
        (is_valid && edge.size() == size).then_some(edge)
    }

    /// The bytes of the partial tiles to store, lowest level first.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<Vec<u8>> {
        self.levels.iter().map(|level| tile_bytes(level)).collect()
    }

    /// The number of leaves of the tree.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.levels
            .iter()
            .rev()
            .fold(0, |size: u64, level| size.saturating_mul(TILE_HASHES as u64).saturating_add(level.len() as u64))
    }

    /// Appends a leaf; returns the tiles that it fills, lowest level first.
    #[must_use]
    pub fn append(&mut self, leaf: TreeHash) -> Vec<FullTile> {
        let mut filled = Vec::new();
        let mut hash = leaf;
        // The number of hashes that the whole tree had on this level before the leaf.
        let mut level_size = self.size();
        let mut level: u8 = 0;
        loop {
            let position = usize::from(level);
            if self.levels.len() <= position {
                self.levels.resize(position + 1, Vec::new());
            }
            let Some(hashes) = self.levels.get_mut(position) else { return filled };
            hashes.push(hash);
            if hashes.len() < TILE_HASHES {
                return filled;
            }
            let coordinate = TileCoordinate { level, index: level_size / TILE_HASHES as u64 };
            let Some(tile) = FullTile::from_hashes(coordinate, std::mem::take(hashes)) else { return filled };
            hash = tile.root();
            filled.push(tile);
            level_size /= TILE_HASHES as u64;
            level += 1;
        }
    }

    /// The root hash of the whole tree, computed from the edge.
    #[must_use]
    pub fn root(&self) -> TreeHash {
        // A level with k hashes has one complete subtree for each bit that is set in k, the largest first.
        let subtrees = self.levels.iter().rev().flat_map(|level| {
            let mut remaining = level.as_slice();
            let mut roots = Vec::new();
            while !remaining.is_empty() {
                let (subtree, tail) = remaining.split_at(1 << remaining.len().ilog2());
                roots.push(super::tile::subtree_root(subtree));
                remaining = tail;
            }
            roots
        });
        let subtrees: Vec<TreeHash> = subtrees.collect();
        fold_subtrees(subtrees.into_iter()).unwrap_or_else(TreeHash::of_empty_tree)
    }

    /// The hashes in the partial tile of this level.
    #[must_use]
    pub fn level(&self, level: u8) -> &[TreeHash] {
        self.levels.get(usize::from(level)).map_or(&[], Vec::as_slice)
    }

    /// The hashes of the tile at this position if it is a partial tile of the edge; `None` for any other tile.
    #[must_use]
    pub fn tile(&self, coordinate: TileCoordinate) -> Option<&[TreeHash]> {
        let width = coordinate.width_in(self.size());
        let hashes = self.level(coordinate.level);
        (width > 0 && width < TILE_HASHES && width == hashes.len()).then_some(hashes)
    }
}
