//! The audit of a whole log: each entry against its own hash, all entries against a checkpoint that was kept outside the
//! database, and against the stored tiles, which say where a change is.

use super::{Checkpoint, FullTile, StoredEntry, TILE_HASHES, TileCoordinate, TreeEdge, TreeHash};
use crate::audit::leaf_hash;

/// What is wrong with a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogDefectCause {
    /// An index without an entry, or an entry without bytes.
    Missing,
    /// The bytes of the entry do not have its recorded hash.
    Bytes,
    /// The log ends before the checkpoint or before its own size.
    Truncated,
    /// The checkpoint covers another entry at this index: it was edited, inserted, removed or swapped.
    Changed,
    /// The checkpoint covers another entry in this range. The tiles do not say where.
    Unlocated,
    /// The log matches the checkpoint, and a stored tile has another hash for this entry.
    Tile,
}

impl LogDefectCause {
    /// The sentence for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "the entry is missing",
            Self::Bytes => "the bytes of the entry do not have its recorded hash",
            Self::Truncated => "the log ends here",
            Self::Changed => "the checkpoint covers another entry",
            Self::Unlocated => "the checkpoint covers another entry in this range",
            Self::Tile => "the stored tile has another hash than the entry",
        }
    }
}

/// The first defect of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDefect {
    /// The first index that can be bad.
    pub first: u64,
    /// The last index that can be the first bad one; mostly the same.
    pub last: u64,
    /// What is wrong.
    pub cause: LogDefectCause,
}

impl LogDefect {
    const fn at(index: u64, cause: LogDefectCause) -> Self {
        Self { first: index, last: index, cause }
    }
}

/// Compares a log with a checkpoint, entry by entry, and with the stored tiles, tile by tile.
#[derive(Clone, Debug)]
pub struct LogAudit {
    checkpoint: Option<Checkpoint>,
    /// The tree of the entries so far.
    log: TreeEdge,
    /// The tree of the stored tiles so far, up to the last tile that is full in the checkpoint.
    stored: TreeEdge,
    /// The leaves since the last full tile.
    open: Vec<TreeHash>,
    /// The leaves of the checkpoint behind its last full tile: those of the log, and those of a later full tile.
    tail: Vec<TreeHash>,
    stored_tail: Option<Vec<TreeHash>>,
    /// The root of the log at the size of the checkpoint.
    root: Option<TreeHash>,
    /// The first index at which a stored tile differs.
    difference: Option<u64>,
    /// The first index whose tile is not stored.
    unstored: Option<u64>,
    broken: Option<LogDefect>,
}

impl LogAudit {
    /// An audit against a checkpoint, or, without one, of the entries alone.
    #[must_use]
    pub fn new(checkpoint: Option<Checkpoint>) -> Self {
        let is_empty = checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.size == 0);
        Self {
            checkpoint,
            log: TreeEdge::default(),
            stored: TreeEdge::default(),
            open: Vec::new(),
            tail: Vec::new(),
            stored_tail: None,
            root: is_empty.then(TreeHash::of_empty_tree),
            difference: None,
            unstored: None,
            broken: None,
        }
    }

    /// The index that comes next.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.log.size()
    }

    /// Checks the next entry; returns whether the audit continues behind it.
    pub fn check_entry(&mut self, entry: &StoredEntry) -> bool {
        let index = self.next_index();
        let Some(body) = entry.body.as_ref().filter(|_| entry.index == index) else {
            self.broken = Some(LogDefect::at(index, LogDefectCause::Missing));
            return false;
        };
        let leaf = TreeHash::new(leaf_hash(body));
        if entry.leaf_hash != Some(leaf) {
            self.broken = Some(LogDefect::at(index, LogDefectCause::Bytes));
            return false;
        }
        drop(self.log.append(leaf));
        self.open.push(leaf);
        if self.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.size == self.log.size()) {
            self.root = Some(self.log.root());
            self.tail = if self.open.len() == TILE_HASHES { Vec::new() } else { self.open.clone() };
        }
        true
    }

    /// The tile that the last entries fill, which [`Self::compare_tile`] expects.
    #[must_use]
    pub fn filled_tile(&self) -> Option<TileCoordinate> {
        (self.open.len() == TILE_HASHES).then(|| self.open_tile()).flatten()
    }

    /// The tile of the last entries, which they may not fill: for the comparison at the end. `None` without entries in it.
    #[must_use]
    pub fn open_tile(&self) -> Option<TileCoordinate> {
        let hashes = u64::try_from(TILE_HASHES).ok()?;
        let last = self.log.size().checked_sub(1).filter(|_| !self.open.is_empty())?;
        Some(TileCoordinate { level: 0, index: last / hashes })
    }

    /// Compares the last entries with their stored tile, if there is one. Its hashes need no verification: they only say
    /// where a log differs that does not match its checkpoint.
    pub fn compare_tile(&mut self, tile: Option<&FullTile>) {
        let start = self.log.size().saturating_sub(length(&self.open));
        let is_full = self.open.len() == TILE_HASHES;
        let hashes = tile.map_or(self.open.as_slice(), FullTile::hashes);
        if tile.is_none() && is_full {
            self.unstored = self.unstored.or(Some(start));
        }
        self.difference = self.difference.or_else(|| first_difference(start, &self.open, hashes));
        let covered = self.covered();
        let end = start.saturating_add(length(hashes));
        if is_full && end <= covered {
            hashes.iter().for_each(|hash| drop(self.stored.append(*hash)));
        } else if tile.is_some() && start < covered && covered < end {
            let count = usize::try_from(covered - start).unwrap_or(0);
            self.stored_tail = Some(hashes.iter().take(count).copied().collect());
        }
        self.open.clear();
    }

    /// The first defect of the log. `log_size` is the number of entries that the database claims, `edge` its right edge.
    #[must_use]
    pub fn finish(self, log_size: u64, edge: &TreeEdge) -> Option<LogDefect> {
        let walked = self.log.size();
        let is_short = walked < log_size.max(self.covered());
        let own = self.broken.or_else(|| is_short.then(|| LogDefect::at(walked, LogDefectCause::Truncated)));
        let Some(checkpoint) = &self.checkpoint else {
            let tile = self.difference.map(|index| LogDefect::at(index, LogDefectCause::Tile));
            return own.or(tile);
        };
        match self.root {
            // An entry before the end of the walk may have been changed, too. Only the tiles know.
            None => {
                let end = own.map_or(walked, |own| own.first);
                let earlier = self.difference.filter(|index| *index < end);
                earlier.map(|index| LogDefect::at(index, LogDefectCause::Changed)).or(own)
            }
            Some(root) if root == checkpoint.root => {
                own.or_else(|| self.difference.map(|index| LogDefect::at(index, LogDefectCause::Tile)))
            }
            Some(_) => Some(self.locate(checkpoint, edge)),
        }
    }

    /// Where a log that reaches its checkpoint differs from it.
    fn locate(&self, checkpoint: &Checkpoint, edge: &TreeEdge) -> LogDefect {
        let start = self.stored.size();
        let of_edge = edge.level(0).get(..self.tail.len()).filter(|_| {
            let hashes = u64::try_from(TILE_HASHES).unwrap_or(u64::MAX);
            edge.size() / hashes == checkpoint.size / hashes
        });
        let tails = [self.stored_tail.as_deref(), of_edge, Some(self.tail.as_slice())];
        let confirmed = tails.into_iter().flatten().find(|tail| {
            let mut tree = self.stored.clone();
            tail.iter().for_each(|hash| drop(tree.append(*hash)));
            tree.root() == checkpoint.root
        });
        let in_tiles = self.difference.filter(|index| *index < start);
        let in_tail = confirmed.and_then(|tail| first_difference(start, &self.tail, tail));
        match in_tiles.or(in_tail) {
            Some(index) => LogDefect::at(index, LogDefectCause::Changed),
            None => {
                let first = self.unstored.map_or(start, |unstored| unstored.min(start));
                LogDefect { first, last: checkpoint.size.saturating_sub(1), cause: LogDefectCause::Unlocated }
            }
        }
    }

    fn covered(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size)
    }
}

fn length(hashes: &[TreeHash]) -> u64 {
    u64::try_from(hashes.len()).unwrap_or(u64::MAX)
}

/// The index of the first leaf that differs; `start` is that of the first leaf.
fn first_difference(start: u64, log: &[TreeHash], stored: &[TreeHash]) -> Option<u64> {
    (start..).zip(log.iter().zip(stored)).find(|(_, (log, stored))| log != stored).map(|(index, _)| index)
}
