// Compares `fairway verify` and the page on second checkpoints, consistency proofs and cosignatures of witnesses.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Log } from "./test_log.mjs";

const failedOf = ({ failed }) => failed.map(({ name }) => name).join();

/** The report of `fairway verify` on a file, with the same keys, witnesses, checkpoint and proof as the page. */
function runCommand({ command, folder }, file, { keys, witnesses = [], otherCheckpoint = "", consistencyProof = "" }) {
  const writeInput = (name, content) => {
    const path = join(folder, name);
    writeFileSync(path, content);
    return path;
  };
  const args = ["verify", writeInput("outside.json", file), "--output", "json"];
  keys.forEach((key) => args.push("--key", key));
  witnesses.forEach((witness) => args.push("--witness", witness));
  if (otherCheckpoint !== "") args.push("--checkpoint", writeInput("checkpoint.txt", otherCheckpoint));
  if (consistencyProof !== "") args.push("--consistency-proof", writeInput("proof.json", consistencyProof));
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: "utf8", maxBuffer: 1 << 26 });
  if (status !== 0 && status !== 1) throw new Error(`fairway verify exits with ${status}: ${stderr}`);
  return JSON.parse(stdout);
}

/**
 * Verifies a file with the page's code and with `fairway verify`, compares the reports, and returns the page's report.
 */
function verifyBoth(lib, file, inputs, { run, expect, label }) {
  const page = lib.verifyBundle(file, {
    ...inputs,
    keys: lib.readLogKeys(inputs.keys.join("\n")),
    witnesses: lib.readWitnessKeys((inputs.witnesses ?? []).join("\n")),
  });
  const command = runCommand(run, file, inputs);
  // Ignores the check of `fairway verify` for a minimum number of cosignatures. The page has no such check, because it
  // requires a cosignature of each given witness.
  const failedChecks = command.checks.filter(({ verdict, name }) => verdict === "failed" && name !== "number of cosignatures");
  const byCommand = failedChecks.map(({ name }) => name).join();
  expect(byCommand === failedOf(page), `${label}: fairway names ${byCommand}, the page ${failedOf(page)}`);
  expect(command.proven.join() === page.proven.join(), `${label}: fairway says ${command.proven.join("; ")}, the page ${page.proven.join("; ")}`);
  return page;
}

/** A witness that cosigns notes (C2SP `tlog-cosignature`). */
function witnessOf(lib, seed, name) {
  const encoded = lib.concat(Uint8Array.of(4), lib.getPublicKey(seed));
  const id = lib.sha256(lib.concat(lib.utf8(`${name}\n`), encoded)).slice(0, 4);
  const cosign = (text, seconds, claimedSeconds = seconds) => {
    const time = Buffer.alloc(8);
    time.writeBigUInt64BE(BigInt(claimedSeconds));
    const signature = lib.sign(lib.utf8(`cosignature/v1\ntime ${seconds}\n${text}`), seed);
    return `\u2014 ${name} ${Buffer.from(lib.concat(id, time, signature)).toString("base64")}\n`;
  };
  return { key: `${name}+${lib.hex(id)}+${Buffer.from(encoded).toString("base64")}`, cosign };
}

/** Tests bundles against second checkpoints of the same log, of forks of the log, and of other logs. */
export function checkSecondCheckpoints(lib, { statement, log, kind, expect, run }) {
  const chain = statement.predicate[lib.CHAIN] ?? statement.predicate;
  const bodies = Array.from({ length: 300 }, (_, index) => `{"fact":${index}}`);
  // A new log that consists of 300 other facts, followed by the facts of the bundle.
  const allBodies = [...bodies, ...chain.facts.map(({ body }) => body)];
  const indexes = chain.facts.map((_, index) => bodies.length + index);
  const { facts, checkpoint, leaves } = log.prove(allBodies, indexes);
  const newStatement = structuredClone(statement);
  Object.assign(newStatement.predicate[lib.CHAIN] ?? newStatement.predicate, { facts, checkpoint });
  const label = (name) => `${kind}: second checkpoint: ${name}`;
  const verify = (name, inputs) => verifyBoth(lib, log.seal(newStatement), { keys: [log.key], ...inputs }, { run, expect, label: label(name) });
  const isRefused = (name, inputs, check) => {
    const failedNames = failedOf(verify(name, inputs));
    expect(failedNames.includes(check), `${label(name)}: ${failedNames || "nothing"} failed instead of ${check}`);
  };
  const holds = (name, inputs, hasOneHistory) => {
    const report = verify(name, inputs);
    expect(report.hasPassed && report.hasOneHistory === hasOneHistory, `${label(name)}: ${failedOf(report)}`);
  };
  const longer = [...leaves, ...bodies.slice(0, 77).map((body) => lib.leafHash(lib.utf8(`${body} later`)))];
  const checkpointAt = (size, from = longer) => log.checkpoint(size, log.root(from.slice(0, size)));
  const proof = (earlier, later) => JSON.stringify({ proof: log.consistency(earlier, longer.slice(0, later)).map(lib.hex) });
  holds("none", {}, false);
  holds("the same", { otherCheckpoint: checkpoint }, true);
  for (const size of [1, 2, 255, 256, 257, leaves.length - 1]) {
    holds(`of ${size} facts`, { otherCheckpoint: checkpointAt(size), consistencyProof: proof(size, leaves.length) }, true);
  }
  const later = { otherCheckpoint: checkpointAt(longer.length), consistencyProof: proof(leaves.length, longer.length) };
  holds("a later one", later, true);
  holds("a later one without a proof", { ...later, consistencyProof: "" }, false);
  const fork = log.prove([...allBodies.slice(0, -1), `${allBodies.at(-1)} `], indexes);
  isRefused("a fork of equal size", { otherCheckpoint: fork.checkpoint }, "root of the second checkpoint");
  const forked = [...fork.leaves, ...longer.slice(leaves.length)];
  const name = "consistency with the second checkpoint";
  isRefused("a longer fork", { ...later, otherCheckpoint: checkpointAt(longer.length, forked) }, name);
  isRefused("a shorter proof", { ...later, consistencyProof: JSON.stringify({ proof: JSON.parse(later.consistencyProof).proof.slice(1) }) }, name);
  isRefused("a longer proof", { ...later, consistencyProof: JSON.stringify({ proof: [...JSON.parse(later.consistencyProof).proof, "0".repeat(64)] }) }, name);
  for (const consistencyProof of ["{}", "[]", "x", '{"proof":[1]}', '{"proof":["00"]}']) isRefused(consistencyProof, { ...later, consistencyProof }, name);
  const otherKeyLog = new Log(lib, Buffer.alloc(32, 9), log.name);
  isRefused("by another key", { otherCheckpoint: otherKeyLog.checkpoint(leaves.length, log.root(leaves)) }, "signature of the second checkpoint");
  isRefused("no note", { otherCheckpoint: "x" }, "signature of the second checkpoint");
  const otherOriginLog = new Log(lib, log.seed, `${log.name}2`);
  const otherOrigin = { keys: [log.key, otherOriginLog.key], otherCheckpoint: otherOriginLog.checkpoint(leaves.length, log.root(leaves)) };
  isRefused("of another origin", otherOrigin, "origin of the second checkpoint");
  checkWitnesses(lib, { newStatement, log, checkpoint, label, expect, run });
}

function checkWitnesses(lib, { newStatement, log, checkpoint, label, expect, run }) {
  const text = checkpoint.slice(0, checkpoint.indexOf("\n\n") + 1);
  const [ann, ben] = [witnessOf(lib, Buffer.alloc(32, 3), "witness.example/ann"), witnessOf(lib, Buffer.alloc(32, 4), "witness.example/ben")];
  const verify = (name, lines, witnesses) => {
    const cosigned = structuredClone(newStatement);
    Object.assign(cosigned.predicate[lib.CHAIN] ?? cosigned.predicate, { checkpoint: checkpoint + lines.join("") });
    const inputs = { keys: [log.key], witnesses: witnesses.map(({ key }) => key) };
    return verifyBoth(lib, log.seal(cosigned), inputs, { run, expect, label: label(name) });
  };
  const cosignatures = [ann.cosign(text, 1_790_000_000), ben.cosign(text, 1_790_000_001)];
  for (const [name, lines, witnesses, passes] of [
    ["two witnesses", cosignatures, [ann, ben], true], ["one of two", cosignatures, [ann], true], ["a missing cosignature", [cosignatures[0]], [ann, ben], false],
    ["a cosignature of another moment", [ann.cosign(text, 1, 2)], [ann], false], ["a cosignature of another text", [ann.cosign(`${text}x\n`, 1)], [ann], false],
    ["a second, false cosignature", [...cosignatures, ann.cosign(text, 1, 2)], [ann], false],
  ]) {
    const report = verify(name, lines, witnesses);
    expect(report.hasPassed === passes && report.isWitnessed, `${label(name)}: ${failedOf(report)}`);
    expect(passes || failedOf(report) === "cosignature of the checkpoint", `${label(name)}: ${failedOf(report)}`);
  }
  expect(verify("no witness", cosignatures, []).checks.filter(({ verdict, name }) => verdict === "not_included" && name === "signature by another key").length === 2, label("unknown signatures are shown"));
}
