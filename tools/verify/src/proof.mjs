// Verifies proofs about Merkle trees by the recursive definitions of RFC 6962, sections 2.1.1 and 2.1.2.
import { areEqual, nodeHash, sha256 } from "./bytes.mjs";

/** The largest power of two that is less than `size`, which must be at least two. */
const split = (size) => 1n << BigInt((size - 1n).toString(2).length - 1);

/**
 * The root that follows from a leaf and its inclusion proof; null if the proof has a wrong length for index and size.
 */
export function rootByInclusion(index, size, leaf, proof) {
  if (index >= size) return null;
  const rest = [...proof];
  const climb = (at, width) => {
    if (width === 1n) return leaf;
    const left = split(width);
    const below = at < left ? climb(at, left) : climb(at - left, width - left);
    const sibling = rest.shift();
    if (!below || !sibling) return null;
    return at < left ? nodeHash(below, sibling) : nodeHash(sibling, below);
  };
  const root = climb(index, size);
  return rest.length === 0 ? root : null;
}

/** Whether a proof shows that the earlier tree is a prefix of the later tree. Trees are `{size, root}`. */
export function isConsistent(earlier, later, proof) {
  if (earlier.size > later.size) return false;
  if (earlier.size === later.size) return proof.length === 0 && areEqual(earlier.root, later.root);
  if (earlier.size === 0n) return proof.length === 0 && areEqual(earlier.root, sha256(new Uint8Array()));
  const rest = [...proof];
  // Returns the roots of the earlier and the later tree, each restricted to one node's subtree. The proof omits the
  // root of a subtree that is the whole earlier tree, because the verifier already has that root.
  const climb = (old, width, isWhole) => {
    if (old === width) {
      const known = isWhole ? earlier.root : rest.shift();
      return known ? [known, known] : null;
    }
    const left = split(width);
    const below = old <= left ? climb(old, left, isWhole) : climb(old - left, width - left, false);
    const sibling = rest.shift();
    if (!below || !sibling) return null;
    return old <= left ? [below[0], nodeHash(below[1], sibling)] : [nodeHash(sibling, below[0]), nodeHash(sibling, below[1])];
  };
  const roots = climb(earlier.size, later.size, true);
  return roots !== null && rest.length === 0 && areEqual(roots[0], earlier.root) && areEqual(roots[1], later.root);
}
