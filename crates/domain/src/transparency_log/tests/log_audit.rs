//! Tests of the audit of a whole log, with logs that were changed in every way.

use crate::{
    audit::leaf_hash,
    transparency_log::{
        Checkpoint, FullTile, LogAudit, LogDefect, LogDefectCause, StoredEntry, TileCoordinate, TreeEdge, TreeHash,
    },
};
use std::collections::HashMap;

/// A log together with its published data: full tiles, the right edge, and a checkpoint.
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

/// Creates a log whose checkpoint covers the first `covered` entries, and whose tree covers all entries.
fn published(covered: usize, size: usize) -> Published {
    let entries: Vec<StoredEntry> = (0..size).map(|index| entry(index, &format!("entry {index}"))).collect();
    let (mut edge, mut tiles, mut root) = (TreeEdge::default(), HashMap::new(), TreeHash::of_empty_tree());
    for (index, entry) in entries.iter().enumerate() {
        for tile in edge.append(entry.leaf_hash.unwrap()) {
            tiles.insert(tile.coordinate, tile);
        }
        if index + 1 == covered {
            root = edge.root();
        }
    }
    let checkpoint = Checkpoint { origin: "logs.example/x".to_owned(), size: covered as u64, root };
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

    /// Renumbers the entries in their current order, as an attacker who knows the schema would.
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

fn at(index: usize, cause: LogDefectCause) -> Option<LogDefect> {
    Some(LogDefect { first: index as u64, last: index as u64, cause })
}

/// Sizes of checkpoint and log that are close to the sizes of full tiles.
const SIZES: [(usize, usize); 9] =
    [(1, 1), (5, 5), (255, 256), (256, 256), (256, 300), (300, 300), (300, 900), (700, 750), (1_024, 1_025)];

#[test]
fn whole_log_has_no_defect() {
    for (covered, size) in SIZES {
        let log = published(covered, size);
        assert_eq!(log.defect(), None, "{covered} of {size}");
        assert_eq!(log.audit(None), None, "{size} without a checkpoint");
    }
    assert_eq!(published(0, 0).defect(), None);
    assert_eq!(published(0, 10).defect(), None);
}

/// A changed entry is located exactly, even if the attacker also changes its hash or rebuilds the right edge.
#[test]
fn every_single_change_is_named_by_its_index() {
    for (covered, size) in SIZES {
        let places = [0, 1, covered / 2, covered.saturating_sub(2), covered - 1];
        for index in places.into_iter().filter(|index| *index < covered) {
            let whole = published(covered, size);
            let name = format!("{index} in {covered} of {size}");
            let mut edited = whole.clone();
            edited.entries[index].body = Some(b"edited".to_vec());
            assert_eq!(edited.defect(), at(index, LogDefectCause::Bytes), "edited bytes, {name}");
            let mut missing = whole.clone();
            missing.entries[index].body = None;
            assert_eq!(missing.defect(), at(index, LogDefectCause::Missing), "missing bytes, {name}");
            let mut gap = whole.clone();
            gap.entries.remove(index);
            let expected = if index + 1 == size { LogDefectCause::Truncated } else { LogDefectCause::Missing };
            assert_eq!(gap.defect(), at(index, expected), "a gap, {name}");
            let mut consistent = whole.clone();
            consistent.entries[index] = entry(index, "edited");
            assert_eq!(consistent.defect(), at(index, LogDefectCause::Changed), "edited with its hash, {name}");
            let mut inserted = whole.clone();
            inserted.entries.insert(index, entry(index, "inserted"));
            inserted.renumber();
            assert_eq!(inserted.defect(), at(index, LogDefectCause::Changed), "inserted, {name}");
            if index + 1 < covered {
                let mut swapped = whole.clone();
                swapped.entries.swap(index, index + 1);
                swapped.renumber();
                assert_eq!(swapped.defect(), at(index, LogDefectCause::Changed), "swapped, {name}");
            }
            let mut cut = whole.clone();
            cut.entries.truncate(index);
            assert_eq!(cut.defect(), at(index, LogDefectCause::Truncated), "cut, {name}");
            assert_eq!(cut.audit(None), None, "without a checkpoint outside, a cut shows nowhere");
        }
    }
}

/// If the attacker also rebuilds the right edge, no copy of the last partial tile exists. The audit then reports a
/// range.
#[test]
fn rebuilt_edges_hide_the_place_in_the_last_tile_only() {
    let whole = published(700, 700);
    let mut early = whole.clone();
    early.entries[300] = entry(300, "edited");
    early.rebuild_edge();
    assert_eq!(early.defect(), at(300, LogDefectCause::Changed));
    let mut late = whole.clone();
    late.entries[600] = entry(600, "edited");
    late.rebuild_edge();
    let range = LogDefect { first: 512, last: 699, cause: LogDefectCause::Unlocated };
    assert_eq!(late.defect(), Some(range));
    let mut both = early.clone();
    both.entries[600] = entry(600, "edited");
    both.rebuild_edge();
    assert_eq!(both.defect(), at(300, LogDefectCause::Changed));
    // Here later entries filled the tile, so the artifact store has an unchanged copy of it.
    let mut grown = published(700, 800);
    grown.entries[600] = entry(600, "edited");
    grown.rebuild_edge();
    assert_eq!(grown.defect(), at(600, LogDefectCause::Changed));
}

/// Without tiles and right edge, the checkpoint shows only that something changed.
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
    assert_eq!(log.defect(), at(20, LogDefectCause::Changed));
    log.entries[3].body = None;
    assert_eq!(log.defect(), at(3, LogDefectCause::Missing));
    // A database that was restored from an old dump, to which other entries were appended.
    let mut restored = published(700, 700);
    restored.entries.truncate(400);
    restored.entries.extend((400..800).map(|index| entry(index, &format!("other entry {index}"))));
    assert_eq!(restored.defect(), at(400, LogDefectCause::Changed));
}

#[test]
fn changed_tiles_and_later_entries_are_told_apart() {
    let mut log = published(700, 750);
    let coordinate = TileCoordinate { level: 0, index: 1 };
    let mut hashes = log.tiles[&coordinate].hashes().to_vec();
    hashes[4] = TreeHash::of_empty_tree();
    log.tiles.insert(coordinate, FullTile::from_hashes(coordinate, hashes).unwrap());
    assert_eq!(log.defect(), at(260, LogDefectCause::Tile));
    assert_eq!(log.audit(None), at(260, LogDefectCause::Tile));
    let mut later = published(700, 750);
    later.entries[720].leaf_hash = None;
    assert_eq!(later.defect(), at(720, LogDefectCause::Bytes));
    // Neither the checkpoint nor a full tile covers this entry.
    later.entries[720] = entry(720, "edited");
    assert_eq!(later.defect(), None);
}

#[test]
fn forged_checkpoints_are_refused() {
    let log = published(700, 700);
    let forged = Checkpoint { root: TreeHash::of_empty_tree(), ..log.checkpoint.clone() };
    assert_eq!(log.audit(Some(&forged)).unwrap().cause, LogDefectCause::Unlocated);
    let longer = Checkpoint { size: 701, ..log.checkpoint.clone() };
    assert_eq!(log.audit(Some(&longer)), at(700, LogDefectCause::Truncated));
}
