//! The audit of a whole log. It compares each entry with its own hash, and all entries with a checkpoint that was kept
//! outside the database. To locate a change, it also compares the entries with the stored tiles.

use super::{Checkpoint, FullTile, StoredEntry, TILE_HASHES, TileCoordinate, TreeEdge, TreeHash};
use crate::audit::leaf_hash;

/// The kind of defect in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogDefectCause {
    /// The index has no entry, or its entry has no bytes.
    Missing,
    /// The bytes of the entry do not match its recorded hash.
    Bytes,
    /// The log ends before the checkpoint does, or before its own recorded size.
    Truncated,
    /// The checkpoint covers a different entry at this index: an entry was edited, inserted, removed or swapped.
    Changed,
    /// The checkpoint covers a different entry somewhere in this range; the stored tiles do not show where.
    Unlocated,
    /// The log matches the checkpoint, but a stored tile has a different hash for this entry.
    Tile,
}

impl LogDefectCause {
    /// A sentence that describes the defect to people.
    #[must_use]
    pub const fn description(self) -> &'static str {
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

/// The first defect of a log, as far as the audit can locate it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogDefect {
    /// The lowest index at which the defect can be.
    pub first: u64,
    /// The highest index at which the defect can be. It equals `first` if the defect is located exactly.
    pub last: u64,
    /// The kind of the defect.
    pub cause: LogDefectCause,
}

impl LogDefect {
    const fn at(index: u64, cause: LogDefectCause) -> Self {
        Self { first: index, last: index, cause }
    }
}

/// An audit in progress. It compares the entries with a checkpoint, and each tile of entries with the stored tile.
#[derive(Clone, Debug)]
pub struct LogAudit {
    checkpoint: Option<Checkpoint>,
    /// The tree over the entries that were checked so far.
    log: TreeEdge,
    /// The tree over the stored tiles that were compared so far. It ends with the last tile that the checkpoint covers
    /// completely.
    stored: TreeEdge,
    /// The leaf hashes of the entries after the last full tile.
    open: Vec<TreeHash>,
    /// The leaf hashes of the log after the last tile that the checkpoint covers completely. `stored_tail` has the
    /// hashes of the same leaves from a stored tile.
    tail: Vec<TreeHash>,
    stored_tail: Option<Vec<TreeHash>>,
    /// The root of the log at the size of the checkpoint; `None` until the audit reaches that size.
    root: Option<TreeHash>,
    /// The first index at which a stored tile differs from the log.
    difference: Option<u64>,
    /// The first index whose full tile is missing in the store.
    first_unstored: Option<u64>,
    entry_defect: Option<LogDefect>,
}

impl LogAudit {
    /// Starts an audit against a checkpoint. Without a checkpoint, the audit checks only the entries and the
    /// stored tiles.
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
            first_unstored: None,
            entry_defect: None,
        }
    }

    /// The index of the next entry to check.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.log.size()
    }

    /// Checks the next entry; returns whether the audit can continue.
    pub fn check_entry(&mut self, entry: &StoredEntry) -> bool {
        let index = self.next_index();
        let Some(body) = entry.body.as_ref().filter(|_| entry.index == index) else {
            self.entry_defect = Some(LogDefect::at(index, LogDefectCause::Missing));
            return false;
        };
        let leaf = TreeHash::new(leaf_hash(body));
        if entry.leaf_hash != Some(leaf) {
            self.entry_defect = Some(LogDefect::at(index, LogDefectCause::Bytes));
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

    /// The tile that the last entries filled, if any. The caller must pass the stored tile to [`Self::compare_tile`].
    #[must_use]
    pub fn filled_tile(&self) -> Option<TileCoordinate> {
        (self.open.len() == TILE_HASHES).then(|| self.open_tile()).flatten()
    }

    /// The tile that contains the last entries, even if it is not full. It is compared at the end of the audit. `None`
    /// if no entry remains to be compared.
    #[must_use]
    pub fn open_tile(&self) -> Option<TileCoordinate> {
        let hashes = u64::try_from(TILE_HASHES).ok()?;
        let last = self.log.size().checked_sub(1).filter(|_| !self.open.is_empty())?;
        Some(TileCoordinate { level: 0, index: last / hashes })
    }

    /// Compares the last entries with their stored tile, if there is one. The hashes of the tile need not be verified,
    /// because they only locate the defect of a log that does not match its checkpoint.
    pub fn compare_tile(&mut self, tile: Option<&FullTile>) {
        let start = self.log.size().saturating_sub(length(&self.open));
        let is_full = self.open.len() == TILE_HASHES;
        let hashes = tile.map_or(self.open.as_slice(), FullTile::hashes);
        if tile.is_none() && is_full {
            self.first_unstored = self.first_unstored.or(Some(start));
        }
        self.difference = self.difference.or_else(|| first_difference(start, &self.open, hashes));
        let covered_size = self.covered_size();
        let end = start.saturating_add(length(hashes));
        if is_full && end <= covered_size {
            hashes.iter().for_each(|hash| drop(self.stored.append(*hash)));
        } else if tile.is_some() && start < covered_size && covered_size < end {
            let count = usize::try_from(covered_size - start).unwrap_or(0);
            self.stored_tail = Some(hashes.iter().take(count).copied().collect());
        }
        self.open.clear();
    }

    /// Ends the audit, and returns the first defect. `log_size` is the number of entries that the database records, and
    /// `edge` is the right edge that it stores.
    #[must_use]
    pub fn finish(self, log_size: u64, edge: &TreeEdge) -> Option<LogDefect> {
        let checked_size = self.log.size();
        let is_short = checked_size < log_size.max(self.covered_size());
        let entry_defect =
            self.entry_defect.or_else(|| is_short.then(|| LogDefect::at(checked_size, LogDefectCause::Truncated)));
        let Some(checkpoint) = &self.checkpoint else {
            let tile = self.difference.map(|index| LogDefect::at(index, LogDefectCause::Tile));
            return entry_defect.or(tile);
        };
        match self.root {
            // The log ends before the checkpoint. An earlier entry may also have been changed, but then only the stored
            // tiles show it.
            None => {
                let end = entry_defect.map_or(checked_size, |entry_defect| entry_defect.first);
                let earlier = self.difference.filter(|index| *index < end);
                earlier.map(|index| LogDefect::at(index, LogDefectCause::Changed)).or(entry_defect)
            }
            Some(root) if root == checkpoint.root => {
                entry_defect.or_else(|| self.difference.map(|index| LogDefect::at(index, LogDefectCause::Tile)))
            }
            Some(_) => Some(self.locate(checkpoint, edge)),
        }
    }

    /// Locates the difference between the log and its checkpoint, for a log that reaches the size of the checkpoint.
    fn locate(&self, checkpoint: &Checkpoint, edge: &TreeEdge) -> LogDefect {
        let start = self.stored.size();
        let edge_tail = edge.level(0).get(..self.tail.len()).filter(|_| {
            let hashes = u64::try_from(TILE_HASHES).unwrap_or(u64::MAX);
            edge.size() / hashes == checkpoint.size / hashes
        });
        let tails = [self.stored_tail.as_deref(), edge_tail, Some(self.tail.as_slice())];
        let matching_tail = tails.into_iter().flatten().find(|tail| {
            let mut tree = self.stored.clone();
            tail.iter().for_each(|hash| drop(tree.append(*hash)));
            tree.root() == checkpoint.root
        });
        let in_tiles = self.difference.filter(|index| *index < start);
        let in_tail = matching_tail.and_then(|tail| first_difference(start, &self.tail, tail));
        match in_tiles.or(in_tail) {
            Some(index) => LogDefect::at(index, LogDefectCause::Changed),
            None => {
                let first = self.first_unstored.map_or(start, |first_unstored| first_unstored.min(start));
                LogDefect { first, last: checkpoint.size.saturating_sub(1), cause: LogDefectCause::Unlocated }
            }
        }
    }

    fn covered_size(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.size)
    }
}

fn length(hashes: &[TreeHash]) -> u64 {
    u64::try_from(hashes.len()).unwrap_or(u64::MAX)
}

/// The index of the first leaf hash that differs between both lists, whose first hashes have the index `start`.
fn first_difference(start: u64, log: &[TreeHash], stored: &[TreeHash]) -> Option<u64> {
    (start..).zip(log.iter().zip(stored)).find(|(_, (log, stored))| log != stored).map(|(index, _)| index)
}
