//! Tests of the audit of a whole log, with logs that were manipulated in many ways.

use crate::{
    audit::leaf_hash,
    transparency_log::{
        Checkpoint, FullTile, LogAudit, LogDefect, LogDefectCause, StoredEntry, TileCoordinate, TreeEdge, TreeHash,
    },
};
use std::collections::HashMap;

/// A log with its published data: full tiles, the right edge, and a checkpoint.
#[derive(Clone)]
struct Published {
    entries: Vec<StoredEntry>,
    tiles: HashMap<TileCoordinate, FullTile>,
    edge: TreeEdge,
    checkpoint: Checkpoint,
}

fn entry(index: usize, text: &str) -> StoredEntry {
    let body = text.as_bytes().to_vec();
    let leaf_hash = Some(TreeHash::new(leaf_hash(&body)));
    StoredEntry { index: index as u64, body: Some(body), leaf_hash }
}

/// Creates a log whose checkpoint covers the first `checkpoint_size` entries, and whose tree covers all entries.
fn published(checkpoint_size: usize, size: usize) -> Published {
    let entries: Vec<StoredEntry> = (0..size).map(|index| entry(index, &format!("entry {index}"))).collect();
    let (mut edge, mut tiles, mut root) = (TreeEdge::default(), HashMap::new(), TreeHash::of_empty_tree());
    for (index, entry) in entries.iter().enumerate() {
        for tile in edge.append(entry.leaf_hash.unwrap()) {
            tiles.insert(tile.coordinate, tile);
        }
        if index + 1 == checkpoint_size {
            root = edge.root();
        }
    }
    let checkpoint = Checkpoint { origin: "logs.example/x".to_owned(), size: checkpoint_size as u64, root };
    Published { entries, tiles, edge, checkpoint }
}

impl Published {
    /// Audits the current entries against the published data.
    fn audit(&self, checkpoint: Option<&Checkpoint>) -> Option<LogDefect> {
        let mut audit = LogAudit::new(checkpoint.cloned());
        for entry in &self.entries {
            if !audit.check_entry(entry) {
                break;
            }
            if let Some(tile) = audit.filled_tile() {
                audit.compare_tile(self.tiles.get(&tile));
            }
        }
        if let Some(tile) = audit.open_tile() {
            audit.compare_tile(self.tiles.get(&tile));
        }
        audit.finish(self.entries.len() as u64, &self.edge)
    }

    fn defect(&self) -> Option<LogDefect> {
        self.audit(Some(&self.checkpoint))
    }

    /// Renumbers the entries in their current order, as an attacker with access to the database could.
    fn renumber(&mut self) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            entry.index = index as u64;
        }
    }

    /// Rebuilds the stored right edge from the current entries.
    fn rebuild_edge(&mut self) {
        self.edge = TreeEdge::default();
        for entry in &self.entries {
            drop(self.edge.append(entry.leaf_hash.unwrap()));
        }
    }
}

fn defect_at(index: usize, cause: LogDefectCause) -> Option<LogDefect> {
    Some(LogDefect { first: index as u64, last: index as u64, cause })
}

/// Pairs of the size of a checkpoint and the size of its log. Many are near multiples of 256, the number of hashes in a
/// full tile.
const SIZES: [(usize, usize); 9] =
    [(1, 1), (5, 5), (255, 256), (256, 256), (256, 300), (300, 300), (300, 900), (700, 750), (1_024, 1_025)];

#[test]
fn whole_log_has_no_defect() {
    for (checkpoint_size, size) in SIZES {
        let log = published(checkpoint_size, size);
        assert_eq!(log.defect(), None, "{checkpoint_size} of {size}");
        assert_eq!(log.audit(None), None, "{size} without a checkpoint");
    }
    assert_eq!(published(0, 0).defect(), None);
    assert_eq!(published(0, 10).defect(), None);
}

/// A changed entry is located exactly, even if the attacker also changes its recorded hash or rebuilds the right edge.
#[test]
fn every_single_change_is_named_by_its_index() {
    for (checkpoint_size, size) in SIZES {
        let indexes = [0, 1, checkpoint_size / 2, checkpoint_size.saturating_sub(2), checkpoint_size - 1];
        for index in indexes.into_iter().filter(|index| *index < checkpoint_size) {
            let unchanged = published(checkpoint_size, size);
            let name = format!("{index} in {checkpoint_size} of {size}");
            let mut edited = unchanged.clone();
            edited.entries[index].body = Some(b"edited".to_vec());
            assert_eq!(edited.defect(), defect_at(index, LogDefectCause::Bytes), "edited bytes, {name}");
            let mut missing = unchanged.clone();
            missing.entries[index].body = None;
            assert_eq!(missing.defect(), defect_at(index, LogDefectCause::Missing), "missing bytes, {name}");
            let mut gap = unchanged.clone();
            gap.entries.remove(index);
            let expected = if index + 1 == size { LogDefectCause::Truncated } else { LogDefectCause::Missing };
            assert_eq!(gap.defect(), defect_at(index, expected), "a gap, {name}");
            let mut rehashed = unchanged.clone();
            rehashed.entries[index] = entry(index, "edited");
            assert_eq!(rehashed.defect(), defect_at(index, LogDefectCause::Changed), "edited with its hash, {name}");
            let mut inserted = unchanged.clone();
            inserted.entries.insert(index, entry(index, "inserted"));
            inserted.renumber();
            assert_eq!(inserted.defect(), defect_at(index, LogDefectCause::Changed), "inserted, {name}");
            if index + 1 < checkpoint_size {
                let mut swapped = unchanged.clone();
                swapped.entries.swap(index, index + 1);
                swapped.renumber();
                assert_eq!(swapped.defect(), defect_at(index, LogDefectCause::Changed), "swapped, {name}");
            }
            let mut truncated = unchanged.clone();
            truncated.entries.truncate(index);
            assert_eq!(truncated.defect(), defect_at(index, LogDefectCause::Truncated), "cut, {name}");
            assert_eq!(truncated.audit(None), None, "without a checkpoint outside, a cut shows nowhere");
        }
    }
}

/// Only the right edge contains the hashes of the last, partial tile. If the attacker rebuilds the edge, the audit
/// locates a change in this tile only as a range. It still locates a change in a full tile exactly.
#[test]
fn rebuilt_edges_hide_the_place_in_the_last_tile_only() {
    let unchanged = published(700, 700);
    let mut edited_early = unchanged.clone();
    edited_early.entries[300] = entry(300, "edited");
    edited_early.rebuild_edge();
    assert_eq!(edited_early.defect(), defect_at(300, LogDefectCause::Changed));
    let mut edited_late = unchanged.clone();
    edited_late.entries[600] = entry(600, "edited");
    edited_late.rebuild_edge();
    let range = LogDefect { first: 512, last: 699, cause: LogDefectCause::Unlocated };
    assert_eq!(edited_late.defect(), Some(range));
    let mut edited_twice = edited_early.clone();
    edited_twice.entries[600] = entry(600, "edited");
    edited_twice.rebuild_edge();
    assert_eq!(edited_twice.defect(), defect_at(300, LogDefectCause::Changed));
    // Later entries filled the tile, so the artifact store has a copy that the attacker did not change.
    let mut longer_log = published(700, 800);
    longer_log.entries[600] = entry(600, "edited");
    longer_log.rebuild_edge();
    assert_eq!(longer_log.defect(), defect_at(600, LogDefectCause::Changed));
}

/// Without tiles and right edge, the checkpoint shows only that some entry changed.
#[test]
fn lost_tiles_leave_a_range() {
    let mut log = published(700, 700);
    log.entries[300] = entry(300, "edited");
    log.rebuild_edge();
    log.tiles.clear();
    assert_eq!(log.defect(), Some(LogDefect { first: 0, last: 699, cause: LogDefectCause::Unlocated }));
}

#[test]
fn first_of_several_defects_is_named() {
    let mut log = published(700, 700);
    log.entries[650].body = None;
    log.entries[20] = entry(20, "edited");
    assert_eq!(log.defect(), defect_at(20, LogDefectCause::Changed));
    log.entries[3].body = None;
    assert_eq!(log.defect(), defect_at(3, LogDefectCause::Missing));
    // A database that was restored from an old dump and then received other entries.
    let mut restored = published(700, 700);
    restored.entries.truncate(400);
    restored.entries.extend((400..800).map(|index| entry(index, &format!("other entry {index}"))));
    assert_eq!(restored.defect(), defect_at(400, LogDefectCause::Changed));
}

#[test]
fn changed_tiles_and_later_entries_are_told_apart() {
    let mut log = published(700, 750);
    let coordinate = TileCoordinate { level: 0, index: 1 };
    let mut hashes = log.tiles[&coordinate].hashes().to_vec();
    hashes[4] = TreeHash::of_empty_tree();
    log.tiles.insert(coordinate, FullTile::from_hashes(coordinate, hashes).unwrap());
    assert_eq!(log.defect(), defect_at(260, LogDefectCause::Tile));
    assert_eq!(log.audit(None), defect_at(260, LogDefectCause::Tile));
    let mut edited_later = published(700, 750);
    edited_later.entries[720].leaf_hash = None;
    assert_eq!(edited_later.defect(), defect_at(720, LogDefectCause::Bytes));
    // The edited entry is covered by no checkpoint and by no full tile, so the audit cannot detect the edit.
    edited_later.entries[720] = entry(720, "edited");
    assert_eq!(edited_later.defect(), None);
}

#[test]
fn forged_checkpoints_are_refused() {
    let log = published(700, 700);
    let forged_checkpoint = Checkpoint { root: TreeHash::of_empty_tree(), ..log.checkpoint.clone() };
    assert_eq!(log.audit(Some(&forged_checkpoint)).unwrap().cause, LogDefectCause::Unlocated);
    let longer_checkpoint = Checkpoint { size: 701, ..log.checkpoint.clone() };
    assert_eq!(log.audit(Some(&longer_checkpoint)), defect_at(700, LogDefectCause::Truncated));
}
