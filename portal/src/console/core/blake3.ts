const IV = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19] as const;
const PERMUTATION = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8] as const;
const CHUNK_START = 1;
const CHUNK_END = 2;
const PARENT = 4;
const ROOT = 8;
const BLOCK = 64;
const CHUNK = 1_024;

/** The message words of a block. A short block is padded with zeros. */
function messageWords(block: Uint8Array): Uint32Array {
  const padded = new Uint8Array(BLOCK);
  padded.set(block);
  const view = new DataView(padded.buffer);
  return Uint32Array.from({ length: 16 }, (_, index) => view.getUint32(index * 4, true));
}

/** The compression function of BLAKE3. The counter fits in 32 bits, because texts are shorter than 4 TiB. */
function compress(chaining: Uint32Array, message: Uint32Array, counter: number, length: number, flags: number): Uint32Array {
  const state = new Uint32Array(16);
  state.set(chaining);
  state.set(IV.slice(0, 4), 8);
  state.set([counter, 0, length, flags], 12);
  const wordAt = (array: Uint32Array, index: number): number => array[index] ?? 0;
  const rotate = (value: number, bits: number): number => (value >>> bits) | (value << (32 - bits));
  const mix = (a: number, b: number, c: number, d: number, x: number, y: number) => {
    for (const [word, first, second] of [[x, 16, 12], [y, 8, 7]] as const) {
      state[a] = wordAt(state, a) + wordAt(state, b) + word;
      state[d] = rotate(wordAt(state, d) ^ wordAt(state, a), first);
      state[c] = wordAt(state, c) + wordAt(state, d);
      state[b] = rotate(wordAt(state, b) ^ wordAt(state, c), second);
    }
  };
  let block = message;
  for (let round = 0; round < 7; round += 1) {
    for (let lane = 0; lane < 4; lane += 1) mix(lane, lane + 4, lane + 8, lane + 12, wordAt(block, 2 * lane), wordAt(block, 2 * lane + 1));
    for (let lane = 0; lane < 4; lane += 1) {
      mix(lane, 4 + ((lane + 1) % 4), 8 + ((lane + 2) % 4), 12 + ((lane + 3) % 4), wordAt(block, 8 + 2 * lane), wordAt(block, 9 + 2 * lane));
    }
    const previousBlock = block;
    block = Uint32Array.from(PERMUTATION, (index) => wordAt(previousBlock, index));
  }
  return Uint32Array.from({ length: 8 }, (_, index) => wordAt(state, index) ^ wordAt(state, index + 8));
}

function hashChunk(chunk: Uint8Array, counter: number, extra: number): Uint32Array {
  let chaining = Uint32Array.from(IV);
  const blocks = Math.max(1, Math.ceil(chunk.length / BLOCK));
  for (let index = 0; index < blocks; index += 1) {
    const block = chunk.subarray(index * BLOCK, (index + 1) * BLOCK);
    const isLast = index === blocks - 1;
    const flags = (index === 0 ? CHUNK_START : 0) | (isLast ? CHUNK_END | extra : 0);
    chaining = Uint32Array.from(compress(chaining, messageWords(block), counter, block.length, flags));
  }
  return chaining;
}

function hashTree(bytes: Uint8Array, counter: number, extra: number): Uint32Array {
  if (bytes.length <= CHUNK) return hashChunk(bytes, counter, extra);
  // The number of chunks in the left subtree is the largest power of two that leaves at least one
  // byte for the right one.
  const chunks = 2 ** Math.floor(Math.log2(Math.ceil(bytes.length / CHUNK) - 1));
  const left = hashTree(bytes.subarray(0, chunks * CHUNK), counter, 0);
  const right = hashTree(bytes.subarray(chunks * CHUNK), counter + chunks, 0);
  return compress(Uint32Array.from(IV), Uint32Array.from([...left, ...right]), 0, BLOCK, PARENT | extra);
}

/** The BLAKE3 digest of a text in UTF-8, in the server's form `blake3:<hex>`. */
export function blake3(text: string): string {
  const result = hashTree(new TextEncoder().encode(text), 0, ROOT);
  const hex = [...result].map((word) => [0, 8, 16, 24].map((shift) => ((word >>> shift) & 0xff).toString(16).padStart(2, "0")).join(""));
  return `blake3:${hex.join("")}`;
}
