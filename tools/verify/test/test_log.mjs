// A transparency log that tests build and sign: Merkle trees of facts, proofs, checkpoints and envelopes.

const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const base64 = (bytes) => Buffer.from(bytes).toString("base64");

/** The largest power of two that is less than `count`, which must be at least two. */
const split = (count) => 2 ** Math.floor(Math.log2(count - 1));

export class Log {
  /** `lib` has the functions of the page's modules, `seed` is the private key, `name` is the origin of the log. */
  constructor(lib, seed, name) {
    Object.assign(this, { lib, seed, name });
    const encoded = lib.concat(Uint8Array.of(1), lib.getPublicKey(seed));
    this.id = lib.sha256(lib.concat(lib.utf8(`${name}\n`), encoded)).slice(0, 4);
    this.label = `${name}+${lib.hex(this.id)}`;
    this.key = `${this.label}+${base64(encoded)}`;
  }

  root(leaves) {
    if (leaves.length === 1) return leaves[0];
    const leftSize = split(leaves.length);
    return this.lib.nodeHash(this.root(leaves.slice(0, leftSize)), this.root(leaves.slice(leftSize)));
  }

  /** The inclusion proof of a leaf (RFC 6962, 2.1.1). */
  inclusion(index, leaves) {
    if (leaves.length === 1) return [];
    const leftSize = split(leaves.length);
    return index < leftSize
      ? [...this.inclusion(index, leaves.slice(0, leftSize)), this.root(leaves.slice(leftSize))]
      : [...this.inclusion(index - leftSize, leaves.slice(leftSize)), this.root(leaves.slice(0, leftSize))];
  }

  /** The consistency proof between the tree of the first `size` leaves and the tree of all leaves (RFC 6962, 2.1.2). */
  consistency(size, leaves, isWhole = true) {
    if (size === leaves.length) return isWhole ? [] : [this.root(leaves)];
    const leftSize = split(leaves.length);
    return size <= leftSize
      ? [...this.consistency(size, leaves.slice(0, leftSize), isWhole), this.root(leaves.slice(leftSize))]
      : [...this.consistency(size - leftSize, leaves.slice(leftSize), false), this.root(leaves.slice(0, leftSize))];
  }

  signature(text) {
    return `\u2014 ${this.name} ${base64(this.lib.concat(this.id, this.lib.sign(this.lib.utf8(text), this.seed)))}\n`;
  }

  note(text) {
    return `${text}\n${this.signature(text)}`;
  }

  checkpoint(size, root) {
    return this.note(`${this.name}\n${size}\n${base64(root)}\n`);
  }

  /**
   * Builds a log of these facts in this order. Returns the facts at `indexes` with their proofs, and the checkpoint.
   */
  prove(bodies, indexes) {
    const leaves = bodies.map((body) => this.lib.leafHash(this.lib.utf8(body)));
    const proofOf = (index) => this.inclusion(index, leaves).map(this.lib.hex);
    const facts = indexes.map((index) => ({ index, body: bodies[index], proof: proofOf(index) }));
    return { facts, checkpoint: this.checkpoint(leaves.length, this.root(leaves)), leaves };
  }

  sign(payload, type) {
    const head = this.lib.utf8(`DSSEv1 ${this.lib.utf8(type).length} ${type} ${payload.length} `);
    return { keyid: this.label, sig: base64(this.lib.sign(this.lib.concat(head, payload), this.seed)) };
  }

  /** Signs a payload (a value, a string or bytes), and returns the file of the envelope. */
  seal(content, { type = PAYLOAD_TYPE, others = [] } = {}) {
    const text = typeof content === "string" ? content : this.lib.canonical(content);
    const payload = content instanceof Uint8Array ? content : this.lib.utf8(text);
    const signatures = [this, ...others].map((log) => log.sign(payload, type));
    return this.lib.utf8(this.lib.canonical({ payload: base64(payload), payloadType: type, signatures }));
  }
}
