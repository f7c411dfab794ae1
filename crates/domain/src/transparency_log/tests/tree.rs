use crate::{
    audit::leaf_hash,
    transparency_log::{
        ConsistencyClaim, FullTile, InclusionClaim, ProofPlan, TileCoordinate, TileRequest, TreeEdge, TreeHash,
        node_hash,
    },
};
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash, mem_backed_tree::MemoryBackedTree};
use proptest::prelude::*;
use sha2::Sha256;
use std::collections::HashMap;

/// A tree with its full tiles, which the artifact store would contain.
#[derive(Default)]
struct Log {
    edge: TreeEdge,
    tiles: HashMap<TileCoordinate, FullTile>,
}

impl Log {
    fn of(leaves: &[TreeHash]) -> Self {
        let mut log = Self::default();
        for leaf in leaves {
            for tile in log.edge.append(*leaf) {
                assert!(log.tiles.insert(tile.coordinate, tile).is_none(), "a tile is filled once");
            }
        }
        log
    }

    fn hashes(&self, plan: &ProofPlan) -> Vec<TreeHash> {
        let read_tile =
            |tile: TileCoordinate| self.tiles.get(&tile).map(FullTile::hashes).or_else(|| self.edge.tile(tile));
        assert!(plan.tiles().into_iter().all(|tile| read_tile(tile).is_some()), "every tile of the plan exists");
        plan.hashes(&read_tile).unwrap()
    }
}

/// The root hash by the recursive definition of RFC 6962, which is slow but simple.
fn naive_root(leaves: &[TreeHash]) -> TreeHash {
    match leaves {
        [] => TreeHash::of_empty_tree(),
        [leaf] => *leaf,
        leaves => {
            let mut split = 1;
            while 2 * split < leaves.len() {
                split *= 2;
            }
            node_hash(naive_root(&leaves[..split]), naive_root(&leaves[split..]))
        }
    }
}

fn numbered_leaves(count: u64) -> Vec<TreeHash> {
    (0..count).map(|number| TreeHash::new(leaf_hash(&number.to_be_bytes()))).collect()
}

fn hash(hex: &str) -> TreeHash {
    TreeHash::from_hex(hex).unwrap()
}

/// Compares with the entries, roots and proofs of the Certificate Transparency test suite.
#[test]
fn matches_published_vectors_of_certificate_transparency() {
    let entries: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];
    let roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    .map(hash);
    let leaves: Vec<TreeHash> = entries.iter().map(|entry| TreeHash::new(leaf_hash(entry))).collect();
    for (size, root) in (1..).zip(roots) {
        assert_eq!(Log::of(&leaves[..size]).edge.root(), root, "{size}");
    }
    let log = Log::of(&leaves);
    let first = [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]
    .map(hash);
    assert_eq!(log.hashes(&ProofPlan::inclusion(0, 8).unwrap()), first);
    assert_eq!(log.hashes(&ProofPlan::consistency(1, 8).unwrap()), first);
    let six_to_eight = [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    .map(hash);
    assert_eq!(log.hashes(&ProofPlan::consistency(6, 8).unwrap()), six_to_eight);
    let two_to_five = [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ]
    .map(hash);
    assert_eq!(Log::of(&leaves[..5]).hashes(&ProofPlan::consistency(2, 5).unwrap()), two_to_five);
    assert_eq!(
        TreeEdge::default().root().to_string(),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
}

/// The proofs for every leaf and every prefix of small trees verify, both here and in a third-party implementation.
#[test]
fn proofs_of_small_trees_verify_here_and_in_a_foreign_implementation() {
    let entries: Vec<Vec<u8>> = (0_u64..40).map(|number| number.to_be_bytes().to_vec()).collect();
    let leaves = numbered_leaves(40);
    let mut reference_tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    let roots: Vec<TreeHash> = (0..=leaves.len()).map(|size| naive_root(&leaves[..size])).collect();
    for size in 1..=leaves.len() {
        reference_tree.push(entries[size - 1].clone());
        let log = Log::of(&leaves[..size]);
        let (tree_size, root) = (u64::try_from(size).unwrap(), roots[size]);
        assert_eq!(log.edge.root(), root);
        let reference_root: RootHash<Sha256> = reference_tree.root();
        assert_eq!(reference_root.as_bytes().as_slice(), root.as_bytes());
        for index in 0..size {
            let proof = log.hashes(&ProofPlan::inclusion(index as u64, tree_size).unwrap());
            let claim = InclusionClaim { index: index as u64, leaf: leaves[index], tree_size, root };
            assert!(claim.is_proved_by(&proof), "{index} of {size}");
            let bytes: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
            let reference_proof = InclusionProof::<Sha256>::from_bytes(bytes);
            reference_root.verify_inclusion(&entries[index], index as u64, &reference_proof).unwrap();
        }
        for (old_size, old_root) in roots.iter().enumerate().take(size).skip(1) {
            let proof = log.hashes(&ProofPlan::consistency(old_size as u64, tree_size).unwrap());
            let claim = ConsistencyClaim {
                from_size: old_size as u64,
                from_root: *old_root,
                to_size: tree_size,
                to_root: root,
            };
            assert!(claim.is_proved_by(&proof), "{old_size} to {size}");
            let bytes: Vec<u8> = proof.iter().flat_map(|hash| *hash.as_bytes()).collect();
            let from_root = RootHash::<Sha256>::new((*old_root.as_bytes()).into(), old_size as u64);
            reference_root
                .verify_consistency(&from_root, &ConsistencyProof::<Sha256>::try_from_bytes(bytes).unwrap())
                .unwrap();
        }
    }
}

#[test]
fn empty_and_equal_trees_have_empty_consistency_proofs() {
    let leaves = numbered_leaves(3);
    let (empty, root) = (TreeHash::of_empty_tree(), naive_root(&leaves));
    let claim = |from_size, from_root, to_size, to_root| ConsistencyClaim { from_size, from_root, to_size, to_root };
    assert!(claim(0, empty, 3, root).is_proved_by(&[]));
    assert!(claim(3, root, 3, root).is_proved_by(&[]));
    assert!(claim(0, empty, 0, empty).is_proved_by(&[]));
    assert!(!claim(0, root, 3, root).is_proved_by(&[]));
    assert!(!claim(0, empty, 0, root).is_proved_by(&[]));
    assert!(!claim(0, empty, 3, root).is_proved_by(&[empty]));
    assert!(!claim(3, empty, 3, root).is_proved_by(&[]));
    assert!(!claim(4, root, 3, root).is_proved_by(&[]));
    assert!(!claim(2, empty, 3, root).is_proved_by(&[]));
    assert_eq!(ProofPlan::consistency(4, 3), None);
    assert_eq!(ProofPlan::inclusion(3, 3), None);
    assert_eq!(ProofPlan::inclusion(0, 0), None);
}

/// Tests selected sizes near full tiles on two levels. The naive model is too slow for every size.
#[test]
fn proofs_across_tiles_of_several_levels_verify() {
    let leaves = numbered_leaves(66_000);
    let log = Log::of(&leaves);
    assert_eq!(log.edge.root(), naive_root(&leaves));
    assert_eq!(log.tiles.len(), 257 + 1, "257 tiles of level 0 and one of level 1");
    let sizes = [1_u64, 2, 255, 256, 257, 511, 512, 513, 4_096, 65_535, 65_536, 65_537, 65_792, 66_000];
    let root_at = |size: u64| naive_root(&leaves[..usize::try_from(size).unwrap()]);
    let roots: Vec<(u64, TreeHash)> = sizes.iter().map(|size| (*size, root_at(*size))).collect();
    for (tree_size, root) in &roots {
        assert_eq!(log.hashes(&ProofPlan::root(*tree_size)), [*root], "{tree_size}");
        for index in sizes.iter().map(|size| size - 1).filter(|index| index < tree_size) {
            let proof = log.hashes(&ProofPlan::inclusion(index, *tree_size).unwrap());
            let leaf = leaves[usize::try_from(index).unwrap()];
            let claim = InclusionClaim { index, leaf, tree_size: *tree_size, root: *root };
            assert!(claim.is_proved_by(&proof), "{index} of {tree_size}");
        }
        for (from_size, from_root) in roots.iter().filter(|(from, _)| from < tree_size) {
            let proof = log.hashes(&ProofPlan::consistency(*from_size, *tree_size).unwrap());
            let claim =
                ConsistencyClaim { from_size: *from_size, from_root: *from_root, to_size: *tree_size, to_root: *root };
            assert!(claim.is_proved_by(&proof), "{from_size} to {tree_size}");
        }
    }
    let restored = TreeEdge::restore(66_000, &log.edge.to_bytes()).unwrap();
    assert_eq!(restored, log.edge);
    assert_eq!(TreeEdge::restore(65_999, &log.edge.to_bytes()), None);
    let mut shortened = log.edge.to_bytes();
    shortened[0].pop();
    assert_eq!(TreeEdge::restore(66_000, &shortened), None);
}

#[test]
fn names_tiles_as_tlog_tiles_does() {
    for (level, index, width, path) in [
        (0, 0, 256, "0/000"),
        (0, 1_234_067, 256, "0/x001/x234/067"),
        (1, 999, 5, "1/999.p/5"),
        (3, 1_000, 255, "3/x001/000.p/255"),
    ] {
        let request = TileRequest { coordinate: TileCoordinate { level, index }, width };
        assert_eq!(request.path(), path);
        let (level, index) = path.split_once('/').unwrap();
        assert_eq!(TileRequest::parse(level, index), Ok(request));
    }
    for (level, index) in [
        ("00", "000"),
        ("8", "000"),
        ("-1", "000"),
        ("", "000"),
        ("0", "0"),
        ("0", "0000"),
        ("0", "x000/000"),
        ("0", "001/000"),
        ("0", "x001"),
        ("0", "x001/x000"),
        ("0", "000.p/0"),
        ("0", "000.p/256"),
        ("0", "000.p/05"),
        ("0", "000.p/"),
        ("0", "000.P/5"),
        ("0", "../000"),
        ("0", "x018/x446/x744/x073/x709/x551/616"),
        ("0", "x999/x999/x999/x999/x999/x999/x999/999"),
    ] {
        assert!(TileRequest::parse(level, index).is_err(), "{level}/{index}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A proof does not verify after one of its hashes was changed, removed or added. It does not verify either for
    /// another index, size, leaf or root.
    #[test]
    fn altered_inclusion_proofs_are_refused(
        (size, index) in (1_u64..700).prop_flat_map(|size| (Just(size), 0..size)),
        position in any::<prop::sample::Index>(),
        bit in 0_usize..256,
        other_index in 0_u64..700,
    ) {
        let leaves = numbered_leaves(size);
        let log = Log::of(&leaves);
        let proof = log.hashes(&ProofPlan::inclusion(index, size).unwrap());
        let leaf = leaves[usize::try_from(index).unwrap()];
        let claim = InclusionClaim { index, leaf, tree_size: size, root: log.edge.root() };
        prop_assert!(claim.is_proved_by(&proof));
        let flip = |hash: TreeHash| {
            let mut bytes = *hash.as_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            TreeHash::new(bytes)
        };
        let is_proved = |claim: InclusionClaim| claim.is_proved_by(&proof);
        prop_assert!(!is_proved(InclusionClaim { leaf: flip(leaf), ..claim }), "another leaf");
        prop_assert!(!is_proved(InclusionClaim { root: flip(claim.root), ..claim }), "another root");
        if other_index != index {
            prop_assert!(!is_proved(InclusionClaim { index: other_index, ..claim }), "another index");
        }
        let mut longer = proof.clone();
        longer.push(leaf);
        prop_assert!(!claim.is_proved_by(&longer));
        if !proof.is_empty() {
            let hash_index = position.index(proof.len());
            let mut changed = proof.clone();
            changed[hash_index] = flip(changed[hash_index]);
            prop_assert!(!claim.is_proved_by(&changed));
            let mut shorter = proof.clone();
            shorter.remove(hash_index);
            prop_assert!(!claim.is_proved_by(&shorter));
        }
    }

    /// A tree in which an earlier leaf was changed, removed, inserted or swapped is not consistent with the earlier
    /// tree.
    #[test]
    fn rewritten_histories_are_inconsistent(
        (new_size, old_size) in (3_u64..600).prop_flat_map(|new_size| (Just(new_size), 2..new_size)),
        position in any::<prop::sample::Index>(),
        mutation in 0_u8..4,
    ) {
        let leaves = numbered_leaves(new_size);
        let old_log = Log::of(&leaves[..usize::try_from(old_size).unwrap()]);
        let leaf_index = position.index(usize::try_from(old_size - 1).unwrap());
        let mut forged = leaves.clone();
        match mutation {
            0 => forged[leaf_index] = TreeHash::new(leaf_hash(b"forged")),
            1 => { forged.remove(leaf_index); forged.push(TreeHash::new(leaf_hash(b"new"))); }
            2 => { forged.insert(leaf_index, TreeHash::new(leaf_hash(b"inserted"))); forged.pop(); }
            _ => forged.swap(leaf_index, leaf_index + 1),
        }
        let plan = ProofPlan::consistency(old_size, new_size).unwrap();
        for (history, expected) in [(&leaves, true), (&forged, false)] {
            let new_log = Log::of(history);
            let claim = ConsistencyClaim {
                from_size: old_size, from_root: old_log.edge.root(), to_size: new_size, to_root: new_log.edge.root(),
            };
            prop_assert_eq!(claim.is_proved_by(&new_log.hashes(&plan)), expected);
        }
    }
}
