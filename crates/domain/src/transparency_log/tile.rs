//! Tiles: groups of 256 adjacent hashes of one level of a tree. C2SP `tlog-tiles` defines their names and bytes.

use super::{TreeHash, merkle::fold_subtrees};
use std::fmt::Write as _;

/// The number of hashes in a full tile.
pub const TILE_HASHES: usize = 256;
/// The highest level of a tile. A tree with tiles on the next level would have 256^8 leaves, which exceeds 64 bits.
const MAX_LEVEL: u8 = 7;
/// The maximum number of three-digit groups in the path of a tile index.
const MAX_INDEX_GROUPS: usize = 7;

/// The position of a tile in a tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TileCoordinate {
    /// The level of the tile. Each of its hashes covers 256^level leaves.
    pub level: u8,
    /// The index of the tile within its level, from 0.
    pub index: u64,
}

impl TileCoordinate {
    /// The number of hashes that this tile has in a tree of this size: 256 for a full tile, 0 for a tile outside of the
    /// tree.
    #[must_use]
    pub fn width_in(self, tree_size: u64) -> usize {
        let level_size = tree_size.checked_shr(8 * u32::from(self.level)).unwrap_or(0);
        let preceding = self.index.saturating_mul(TILE_HASHES as u64);
        usize::try_from(level_size.saturating_sub(preceding)).unwrap_or(TILE_HASHES).min(TILE_HASHES)
    }

    /// The tile that contains the root hash of this tile, with the position of that hash in it; `None` at the highest
    /// level.
    #[must_use]
    pub fn parent(self) -> Option<(Self, usize)> {
        let level = self.level.checked_add(1).filter(|level| *level <= MAX_LEVEL)?;
        let position = usize::try_from(self.index % TILE_HASHES as u64).ok()?;
        Some((Self { level, index: self.index / TILE_HASHES as u64 }, position))
    }

    /// The index as a path of three-digit groups. All groups but the last start with `x`: 1234067 becomes
    /// `x001/x234/067`.
    #[must_use]
    pub fn index_path(self) -> String {
        let mut path = format!("{:03}", self.index % 1_000);
        let mut remaining = self.index / 1_000;
        while remaining > 0 {
            path.insert_str(0, &format!("x{:03}/", remaining % 1_000));
            remaining /= 1_000;
        }
        path
    }
}

/// The text is not the path of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a tile has the path `<level>/<index>` or `<level>/<index>.p/<width>`")]
pub struct TileRefusal;

/// The request of a reader for a full tile, or for the first hashes of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TileRequest {
    /// The position of the tile.
    pub coordinate: TileCoordinate,
    /// The number of requested hashes, from 1 to 256.
    pub width: usize,
}

impl TileRequest {
    /// Parses the part of a path after `tile/`. Only the spelling of the specification is accepted, so that each tile
    /// has exactly one address.
    ///
    /// # Errors
    /// When the text is not the path of a tile.
    pub fn parse(level: &str, index: &str) -> Result<Self, TileRefusal> {
        let level: u8 = parse_number(level).filter(|level| *level <= MAX_LEVEL).ok_or(TileRefusal)?;
        let (digits, width) = match index.split_once(".p/") {
            None => (index, TILE_HASHES),
            Some((digits, width)) => {
                let width = parse_number(width).filter(|width| (1..TILE_HASHES).contains(width));
                (digits, width.ok_or(TileRefusal)?)
            }
        };
        let mut number: u64 = 0;
        let groups: Vec<&str> = digits.split('/').collect();
        if groups.len() > MAX_INDEX_GROUPS {
            return Err(TileRefusal);
        }
        for group in &groups {
            let group = group.strip_prefix('x').unwrap_or(group);
            if group.len() != 3 || !group.bytes().all(|digit| digit.is_ascii_digit()) {
                return Err(TileRefusal);
            }
            let group: u64 = group.parse().map_err(|_| TileRefusal)?;
            number = number.checked_mul(1_000).and_then(|number| number.checked_add(group)).ok_or(TileRefusal)?;
        }
        let coordinate = TileCoordinate { level, index: number };
        if coordinate.index_path() == digits { Ok(Self { coordinate, width }) } else { Err(TileRefusal) }
    }

    /// The path of the tile after `tile/`, as the specification spells it.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = format!("{}/{}", self.coordinate.level, self.coordinate.index_path());
        if self.width < TILE_HASHES {
            // Writing to a string cannot fail.
            let _ = write!(path, ".p/{}", self.width);
        }
        path
    }
}

/// Parses a decimal number that has no sign and no leading zeros.
fn parse_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_canonical = text == "0" || !text.starts_with('0');
    if is_decimal && is_canonical { text.parse().ok() } else { None }
}

/// A tile with all its hashes. INVARIANT: the tile has 256 hashes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FullTile {
    /// The position of the tile.
    pub coordinate: TileCoordinate,
    hashes: Vec<TreeHash>,
}

impl FullTile {
    /// The length of a stored tile, in bytes.
    pub const BYTES: usize = TILE_HASHES * TreeHash::BYTES;

    /// Creates a full tile from its hashes; `None` unless there are exactly 256.
    #[must_use]
    pub fn from_hashes(coordinate: TileCoordinate, hashes: Vec<TreeHash>) -> Option<Self> {
        (hashes.len() == TILE_HASHES).then_some(Self { coordinate, hashes })
    }

    /// Parses the stored bytes of a full tile; `None` if their length is wrong.
    #[must_use]
    pub fn from_bytes(coordinate: TileCoordinate, bytes: &[u8]) -> Option<Self> {
        Self::from_hashes(coordinate, tile_hashes(bytes)?)
    }

    /// The hashes of the tile, in order.
    #[must_use]
    pub fn hashes(&self) -> &[TreeHash] {
        &self.hashes
    }

    /// The bytes to store: the concatenated hashes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        tile_bytes(&self.hashes)
    }

    /// The root hash over the hashes of the tile. The tile's parent contains it.
    #[must_use]
    pub fn root(&self) -> TreeHash {
        subtree_root(&self.hashes)
    }
}

/// The concatenated bytes of hashes.
pub(super) fn tile_bytes(hashes: &[TreeHash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// Splits concatenated hashes; `None` if the length is not a multiple of the length of a hash.
pub(super) fn tile_hashes(bytes: &[u8]) -> Option<Vec<TreeHash>> {
    let chunks = bytes.chunks_exact(TreeHash::BYTES);
    if chunks.remainder().is_empty() { chunks.map(TreeHash::from_slice).collect() } else { None }
}

/// The root hash over subtrees of equal size; without subtrees, the root hash of the empty tree.
pub(super) fn subtree_root(hashes: &[TreeHash]) -> TreeHash {
    match hashes {
        [] => TreeHash::of_empty_tree(),
        [hash] => *hash,
        hashes => {
            // RFC 6962 splits a tree at the largest power of two that is smaller than the number of leaves.
            let split = hashes.len().next_power_of_two() / 2;
            let (left, right) = hashes.split_at(split);
            fold_subtrees([subtree_root(left), subtree_root(right)].into_iter()).unwrap_or_else(TreeHash::of_empty_tree)
        }
    }
}
