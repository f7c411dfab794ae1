//! The generation of proofs from tiles: selects the tiles that a proof needs, and computes the hashes of the proof from
//! them.

use super::{
    TreeHash,
    merkle::fold_subtrees,
    tile::{TILE_HASHES, TileCoordinate, subtree_root},
};
use std::collections::BTreeSet;

/// A function that returns the hashes of a full or partial tile; `None` if it does not have the tile.
pub type TileReader<'t> = dyn Fn(TileCoordinate) -> Option<&'t [TreeHash]> + 't;

/// A range of leaves whose root hash is a part of a proof. INVARIANT: the range is not empty, and its complete subtrees
/// are aligned in tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LeafRange {
    start: u64,
    end: u64,
}

/// The position of a complete subtree: `count` hashes of a tile, starting at `offset`.
struct SubtreePosition {
    tile: TileCoordinate,
    offset: usize,
    count: usize,
}

impl LeafRange {
    /// The complete subtrees of the range, from left to right.
    fn subtrees(self) -> impl Iterator<Item = SubtreePosition> {
        let mut start = self.start;
        std::iter::from_fn(move || {
            let height = self.end.checked_sub(start).filter(|leaves| *leaves > 0)?.ilog2();
            let level = height / 8;
            let level_index = start >> (8 * level);
            let position = SubtreePosition {
                tile: TileCoordinate { level: u8::try_from(level).ok()?, index: level_index / TILE_HASHES as u64 },
                offset: usize::try_from(level_index % TILE_HASHES as u64).ok()?,
                count: 1 << (height % 8),
            };
            start += 1 << height;
            Some(position)
        })
    }

    fn root(self, tiles: &TileReader<'_>) -> Option<TreeHash> {
        let subtrees: Option<Vec<TreeHash>> = self
            .subtrees()
            .map(|SubtreePosition { tile, offset, count }| {
                tiles(tile)?.get(offset..offset.checked_add(count)?).map(subtree_root)
            })
            .collect();
        fold_subtrees(subtrees?.into_iter())
    }
}

/// The plan of a proof: the ranges of leaves whose root hashes form it. No tile is read yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProofPlan {
    ranges: Vec<LeafRange>,
}

impl ProofPlan {
    /// Plans the proof that a tree contains a leaf (RFC 6962, 2.1.1); `None` if the tree has no leaf with this index.
    #[must_use]
    pub fn inclusion(index: u64, tree_size: u64) -> Option<Self> {
        if index >= tree_size {
            return None;
        }
        let (mut start, mut end, mut ranges) = (0, tree_size, Vec::new());
        while end - start > 1 {
            let middle = start + split(end - start);
            if index < middle {
                ranges.push(LeafRange { start: middle, end });
                end = middle;
            } else {
                ranges.push(LeafRange { start, end: middle });
                start = middle;
            }
        }
        ranges.reverse();
        Some(Self { ranges })
    }

    /// Plans the proof that a tree is a prefix of a later tree (RFC 6962, 2.1.2); `None` if the later tree is smaller.
    /// The proof is empty for equal sizes, and for the empty tree.
    #[must_use]
    pub fn consistency(from_size: u64, to_size: u64) -> Option<Self> {
        if from_size > to_size {
            return None;
        }
        if from_size == 0 || from_size == to_size {
            return Some(Self { ranges: Vec::new() });
        }
        let (mut start, mut end, mut ranges) = (0, to_size, Vec::new());
        while from_size != end {
            let middle = start + split(end - start);
            if from_size <= middle {
                ranges.push(LeafRange { start: middle, end });
                end = middle;
            } else {
                ranges.push(LeafRange { start, end: middle });
                start = middle;
            }
        }
        // The verifier knows the root hash of the earlier tree. The proof therefore omits a subtree that equals the
        // earlier tree.
        if start != 0 {
            ranges.push(LeafRange { start, end });
        }
        ranges.reverse();
        Some(Self { ranges })
    }

    /// Plans the root hash of a tree of this size. The hashes of the plan are this single hash, or none for the empty
    /// tree.
    #[must_use]
    pub fn root(tree_size: u64) -> Self {
        let all_leaves = LeafRange { start: 0, end: tree_size };
        Self { ranges: (tree_size > 0).then_some(all_leaves).into_iter().collect() }
    }

    /// The tiles that the proof needs.
    #[must_use]
    pub fn tiles(&self) -> BTreeSet<TileCoordinate> {
        self.ranges.iter().flat_map(|range| range.subtrees().map(|subtree| subtree.tile)).collect()
    }

    /// Computes the hashes of the proof; `None` if a tile is missing or has too few hashes.
    #[must_use]
    pub fn hashes(&self, tiles: &TileReader<'_>) -> Option<Vec<TreeHash>> {
        self.ranges.iter().map(|range| range.root(tiles)).collect()
    }
}

/// The size of the left subtree of a tree with at least two leaves: the largest power of two that is smaller than
/// `size`.
const fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}
