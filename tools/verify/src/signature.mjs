// Reads Ed25519 keys, signed notes (C2SP `signed-note`, `tlog-cosignature`) and checkpoints (C2SP `tlog-checkpoint`).
import { Point, hashes, verify } from "@noble/ed25519";
import { sha512 } from "@noble/hashes/sha2.js";
import { areEqual, bytesOfBase64, concat, hex, sha256, utf8 } from "./bytes.mjs";

hashes.sha512 = sha512;

/** Signature types: the first byte of an encoded key. */
const ED25519 = 1;
const COSIGNATURE = 4;
const MAX_NOTE_BYTES = 64 << 10;
const MAX_SIGNATURES = 64;

const isKeyName = (name) => name !== "" && utf8(name).length <= 255 && !/[+\p{White_Space}]/u.test(name);
const idOf = (name, encodedKey) => sha256(concat(utf8(`${name}\n`), encodedKey)).slice(0, 4);

/**
 * Whether a signature is valid. Points that are not torsion-free are refused, because verifiers
 * disagree on such signatures.
 */
function isValid(signature, message, publicKey) {
  if (signature.length !== 64) return false;
  try {
    const point = Point.fromBytes(signature.subarray(0, 32));
    return !point.isSmallOrder() && point.isTorsionFree() && verify(signature, message, publicKey, { zip215: false });
  } catch {
    return false;
  }
}

function isPublicKey(bytes) {
  try {
    const point = Point.fromBytes(bytes);
    return !point.isSmallOrder() && point.isTorsionFree();
  } catch {
    return false;
  }
}

/** Parses a named public key `<name>+<key id>+<base64>`. The message of a thrown error is a sentence for the user. */
function readKey(text, type, kind) {
  const [name, id, ...rest] = text.split("+");
  const encoded = rest.length > 0 ? bytesOfBase64(rest.join("+")) : null;
  if (!encoded) throw new Error(`${kind} has the form <name>+<key id in hex>+<base64>`);
  const publicKey = encoded.slice(1);
  if (encoded[0] !== type || publicKey.length !== 32 || !isKeyName(name) || !isPublicKey(publicKey)) {
    throw new Error(`${kind} must be an Ed25519 public key of type ${type}`);
  }
  if (hex(idOf(name, encoded)) !== id) throw new Error(`the key id of ${kind} does not belong to its name and key`);
  return { name, id, publicKey, label: `${name}+${id}` };
}

const readLines = (text, type, kind) =>
  text.split("\n").map((line) => line.trim()).filter((line) => line !== "").map((line) => readKey(line, type, kind));

/** Parses public keys of a log, one on each line. */
export const readLogKeys = (text) => readLines(text, ED25519, "a public key of the log");

/** Parses public keys of witnesses, one on each line. */
export const readWitnessKeys = (text) => readLines(text, COSIGNATURE, "a public key of a witness");

const isNoteText = (text) => text.endsWith("\n") && !/\p{Cc}/u.test(text.replaceAll("\n", ""));

/** Splits a signed note into its text and its signature lines; null if the note is malformed. */
export function readNote(note) {
  const at = note.lastIndexOf("\n\n");
  const text = note.slice(0, at + 1);
  const lines = note.slice(at + 2);
  if (at < 0 || utf8(note).length > MAX_NOTE_BYTES || !lines.endsWith("\n") || !isNoteText(text)) return null;
  const signatures = lines.slice(0, -1).split("\n").map((line) => {
    const [name, encoded, ...others] = line.startsWith("\u2014 ") ? line.slice(2).split(" ") : [];
    const bytes = encoded === undefined || others.length > 0 ? null : bytesOfBase64(encoded);
    return bytes && bytes.length > 4 && isKeyName(name) ? { name, id: hex(bytes.slice(0, 4)), signature: bytes.slice(4) } : null;
  });
  return signatures.includes(null) || signatures.length > MAX_SIGNATURES ? null : { text, signatures };
}

const linesOf = (note, key) => note.signatures.filter((line) => line.name === key.name && line.id === key.id);

/** Whether a note has a valid signature by this key, and no invalid signature that names this key. */
export function isSignedBy(note, key) {
  const own = linesOf(note, key);
  return own.length > 0 && own.every((line) => isValid(line.signature, utf8(note.text), key.publicKey));
}

/**
 * The time of a witness's cosignature in seconds since 1970; null if it is missing, or if a
 * signature of its key is invalid.
 */
export function cosignedAt(note, witness) {
  const moments = linesOf(note, witness).map(({ signature }) => {
    if (signature.length !== 72) return null;
    const moment = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0);
    const message = utf8(`cosignature/v1\ntime ${moment}\n${note.text}`);
    return isValid(signature.slice(8), message, witness.publicKey) ? moment : null;
  });
  return moments.length === 0 || moments.includes(null) ? null : moments[0];
}

/** Whether a DSSE envelope has a valid signature by this key, and no invalid signature that names this key. */
export function isSealedBy(envelope, key) {
  const type = utf8(envelope.payloadType);
  const head = utf8(`DSSEv1 ${type.length} ${envelope.payloadType} ${envelope.payload.length} `);
  const own = envelope.signatures.filter((signature) => signature.keyid === key.label);
  return own.length > 0 && own.every((signature) => isValid(signature.sig, concat(head, envelope.payload), key.publicKey));
}

/** Parses the text of a note as a checkpoint (origin, size and root); null if the text is malformed. */
export function readCheckpoint(text) {
  const [origin, size, encoded, ...extensions] = text.slice(0, -1).split("\n");
  const root = bytesOfBase64(encoded ?? "");
  const hasForm = origin !== "" && /^(0|[1-9][0-9]{0,19})$/.test(size ?? "") && !extensions.includes("");
  if (!hasForm || root?.length !== 32 || BigInt(size) >= 1n << 64n) return null;
  return { origin, size: BigInt(size), root };
}

export const haveEqualRoots = (left, right) => areEqual(left.root, right.root);
