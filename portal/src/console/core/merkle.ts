import type { Schemas } from "./types";

const bytesOf = (hex: string): Uint8Array => Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const hexOf = (bytes: Uint8Array): string => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

async function parent(left: Uint8Array, right: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", Uint8Array.from([1, ...left, ...right])));
}

/** Whether a proof shows that an entry is part of the log (RFC 6962, 2.1.1). */
export async function isIncluded(leafHash: string, proof: Schemas["InclusionProof"]): Promise<boolean> {
  let [nodeIndex, lastIndex] = [proof.index, proof.tree_size - 1];
  let hash = bytesOf(leafHash);
  for (const step of proof.proof) {
    if (lastIndex === 0) return false;
    const sibling = bytesOf(step);
    if (nodeIndex % 2 === 1 || nodeIndex === lastIndex) {
      hash = await parent(sibling, hash);
      while (nodeIndex % 2 === 0 && nodeIndex !== 0) [nodeIndex, lastIndex] = [Math.floor(nodeIndex / 2), Math.floor(lastIndex / 2)];
    } else {
      hash = await parent(hash, sibling);
    }
    [nodeIndex, lastIndex] = [Math.floor(nodeIndex / 2), Math.floor(lastIndex / 2)];
  }
  return lastIndex === 0 && hexOf(hash) === proof.root_hash;
}
