//! The hashes of the Merkle tree, and the verification of proofs (RFC 6962 section 2.1, RFC 9162 section 2.1).

use sha2::{Digest, Sha256};
use std::fmt;

/// A hash in a Merkle tree: of a leaf, of an inner node, or of the root. Its text form is hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeHash([u8; Self::BYTES]);

impl TreeHash {
    /// The length of a hash, in bytes.
    pub const BYTES: usize = 32;

    /// Creates a hash from its bytes.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The root hash of the empty tree: SHA-256 of the empty string.
    #[must_use]
    pub fn of_empty_tree() -> Self {
        Self(Sha256::digest([]).into())
    }

    /// Creates a hash from a slice; `None` unless the slice has 32 bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// Parses 64 lower-case hexadecimal digits; `None` for any other text.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::BYTES {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; Self::BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let &[high, low] = pair else { return None };
            *byte = 16 * digit(high)? + digit(low)?;
        }
        Some(Self(bytes))
    }

    /// The 32 bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Display for TreeHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The hash of an inner node: SHA-256 over the byte 1 and the hashes of its two children.
#[must_use]
pub fn node_hash(left: TreeHash, right: TreeHash) -> TreeHash {
    let mut hasher = Sha256::new();
    hasher.update([1_u8]);
    hasher.update(left.0);
    hasher.update(right.0);
    TreeHash(hasher.finalize().into())
}

/// The root hash over complete subtrees, given from left to right with decreasing sizes; `None` without subtrees.
pub(super) fn fold_subtrees(subtrees: impl DoubleEndedIterator<Item = TreeHash>) -> Option<TreeHash> {
    subtrees.rev().reduce(|right, left| node_hash(left, right))
}

/// The claim that a leaf is a part of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InclusionClaim {
    /// The index of the leaf, from 0.
    pub index: u64,
    /// The hash of the leaf that the tree should contain.
    pub leaf: TreeHash,
    /// The number of leaves of the tree.
    pub tree_size: u64,
    /// The root hash that the tree should have.
    pub root: TreeHash,
}

impl InclusionClaim {
    /// Whether the proof shows that the claim is true (RFC 9162, 2.1.3.2).
    #[must_use]
    pub fn is_proved_by(&self, proof: &[TreeHash]) -> bool {
        self.root_from(proof) == Some(self.root)
    }

    /// The root hash that follows from the leaf and the proof; `None` if the length of the proof does not match the
    /// index and the tree size.
    #[must_use]
    pub fn root_from(&self, proof: &[TreeHash]) -> Option<TreeHash> {
        if self.index >= self.tree_size {
            return None;
        }
        let (mut node, mut last, mut hash) = (self.index, self.tree_size - 1, self.leaf);
        for sibling in proof {
            if last == 0 {
                return None;
            }
            if node & 1 == 1 || node == last {
                hash = node_hash(*sibling, hash);
                // A node without a right sibling moves up unchanged to the next level.
                while node & 1 == 0 && node != 0 {
                    node >>= 1;
                    last >>= 1;
                }
            } else {
                hash = node_hash(hash, *sibling);
            }
            node >>= 1;
            last >>= 1;
        }
        (last == 0).then_some(hash)
    }
}

/// The claim that a tree is a prefix of a later tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsistencyClaim {
    /// The number of leaves of the earlier tree.
    pub from_size: u64,
    /// The root hash of the earlier tree.
    pub from_root: TreeHash,
    /// The number of leaves of the later tree.
    pub to_size: u64,
    /// The root hash of the later tree.
    pub to_root: TreeHash,
}

impl ConsistencyClaim {
    /// Whether the proof shows that the claim is true (RFC 9162, 2.1.4.2). The empty tree is a prefix of every tree.
    #[must_use]
    pub fn is_proved_by(&self, proof: &[TreeHash]) -> bool {
        let Self { from_size, from_root, to_size, to_root } = *self;
        if from_size == 0 {
            return proof.is_empty() && from_root == TreeHash::of_empty_tree() && (to_size > 0 || to_root == from_root);
        }
        if from_size >= to_size {
            return from_size == to_size && proof.is_empty() && from_root == to_root;
        }
        // If the earlier tree is a complete subtree of the later tree, the proof omits the earlier root hash.
        let first = from_size.is_power_of_two().then_some(from_root);
        let mut hashes = first.into_iter().chain(proof.iter().copied());
        let Some(first) = hashes.next() else { return false };
        let (mut node, mut last) = (from_size - 1, to_size - 1);
        while node & 1 == 1 {
            node >>= 1;
            last >>= 1;
        }
        let (mut from_hash, mut to_hash) = (first, first);
        for sibling in hashes {
            if last == 0 {
                return false;
            }
            if node & 1 == 1 || node == last {
                from_hash = node_hash(sibling, from_hash);
                to_hash = node_hash(sibling, to_hash);
                while node & 1 == 0 && node != 0 {
                    node >>= 1;
                    last >>= 1;
                }
            } else {
                to_hash = node_hash(to_hash, sibling);
            }
            node >>= 1;
            last >>= 1;
        }
        last == 0 && from_hash == from_root && to_hash == to_root
    }
}
