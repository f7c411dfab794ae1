// Verifies the parts of a bundle that come from the audit log: the checkpoint, its cosignatures, and facts with proofs.
import { hashOfHex, hex, leafHash, utf8 } from "./bytes.mjs";
import { readJson, textAt } from "./json.mjs";
import { isConsistent, rootByInclusion } from "./proof.mjs";
import { cosignedAt, haveEqualRoots, isSignedBy, readCheckpoint, readNote } from "./signature.mjs";

const SIGNATURE = "a valid signature by a given key";

/** Checks the checkpoint of a bundle, and returns the parsed checkpoint; null if it cannot be parsed. */
export function checkCheckpoint(report, log, { keys, witnesses }) {
  const note = readNote(log.checkpoint);
  const signer = note && keys.find((key) => isSignedBy(note, key));
  report.require("signature of the checkpoint", "", SIGNATURE, signer ? "valid" : "none that is valid", Boolean(signer));
  const checkpoint = note && readCheckpoint(note.text);
  const origin = checkpoint?.origin ?? "";
  report.compare("origin of the log", "", signer?.name ?? "the name of a given key", origin);
  report.compare("tenant of the log", "", log.tenant_id, origin.slice(origin.lastIndexOf("/") + 1));
  for (const witness of witnesses) {
    const moment = note ? cosignedAt(note, witness) : null;
    const actual = moment === null ? "none that is valid" : `valid, ${moment} s after 1970`;
    report.require("cosignature of the checkpoint", witness.name, "a valid cosignature", actual, moment !== null);
  }
  report.isWitnessed = witnesses.length > 0;
  const isKnown = (line) => [...keys, ...witnesses].some((key) => key.name === line.name && key.id === line.id);
  for (const line of note?.signatures.filter((one) => !isKnown(one)) ?? []) {
    report.skip("signature by another key", `${line.name}+${line.id}`, "a public key from outside", "no such key was given");
  }
  return checkpoint;
}

/** Checks that the checkpoint covers each fact, and returns the facts that passed all checks. */
export function checkFacts(report, log, checkpoint) {
  const held = [];
  let previous = -1;
  for (const { index, body, proof } of log.facts) {
    const fact = { index, body, content: readJson(body), part: "" };
    fact.part = `${textAt(fact.content, "kind")} at index ${index}`;
    const order = previous < index ? "in order" : "repeated or out of order";
    previous = index;
    let holds = report.compare("order of the facts", fact.part, "in order", order);
    holds = report.compare("tenant of the fact", fact.part, log.tenant_id, textAt(fact.content, "tenant_id")) && holds;
    const hashes = proof.map(hashOfHex);
    const isReadable = checkpoint && !hashes.includes(null);
    const root = isReadable ? rootByInclusion(BigInt(index), checkpoint.size, leafHash(utf8(body)), hashes) : null;
    const actual = root ? hex(root) : "no root: the proof does not fit";
    const expected = checkpoint ? hex(checkpoint.root) : "";
    holds = report.compare("inclusion of the fact in the log", fact.part, expected, actual) && holds;
    if (holds) held.push(fact);
  }
  return held;
}

/**
 * Compares the checkpoint of a bundle with a checkpoint from another source. Different sizes need a consistency proof.
 */
export function checkOtherCheckpoint(report, checkpoint, { keys, otherCheckpoint, consistencyProof }) {
  const note = readNote(otherCheckpoint);
  const other = note && readCheckpoint(note.text);
  const isSigned = note !== null && keys.some((key) => isSignedBy(note, key));
  report.require("signature of the second checkpoint", "", SIGNATURE, isSigned ? "valid" : "none that is valid", isSigned);
  report.compare("origin of the second checkpoint", "", checkpoint?.origin ?? "", other?.origin ?? "no checkpoint");
  if (!checkpoint || !other) return;
  if (checkpoint.size === other.size) {
    report.compare("root of the second checkpoint", `${other.size} facts`, hex(checkpoint.root), hex(other.root));
    report.hasOneHistory = haveEqualRoots(checkpoint, other);
    return;
  }
  const [earlier, later] = checkpoint.size < other.size ? [checkpoint, other] : [other, checkpoint];
  const part = `${earlier.size} to ${later.size} facts`;
  const name = "consistency with the second checkpoint";
  if (consistencyProof.trim() === "") {
    report.skip(name, part, "a proof", `not included: \`fairway audit consistency ${earlier.size} ${later.size}\` has it`);
    return;
  }
  const listed = readJson(consistencyProof)?.proof;
  const hashes = Array.isArray(listed) ? listed.map((hash) => hashOfHex(String(hash))) : [null];
  const holds = !hashes.includes(null) && isConsistent(earlier, later, hashes);
  report.require(name, part, "a proof that the log only grew", holds ? "a proof that the log only grew" : "no such proof", holds);
  report.hasOneHistory = holds;
}
