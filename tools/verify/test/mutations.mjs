// Creates changed variants of a bundle. Each has a name, a file, keys, and the expected verdict: `refused`, `holds`,
// or `either`. `either` applies to changes that the log cannot reveal; there the verifiers must only agree.
import { Log } from "./test_log.mjs";

const POSITIONS = 12;
const clone = (value) => structuredClone(value);
const text = (bytes) => Buffer.from(bytes).toString("utf8");

/**
 * Paths of values that the log does not prove: a server with a changed database could sign other values. The reports
 * of the verifiers list them as not proven.
 */
const UNPROVEN = [
  /^predicate\.evidence\.(references|release|workload)\b/,
  /^predicate\.evidence\.policy_decision\.(evaluated_at|failed_rules\b.*)$/,
  // An empty list and a missing list are equivalent.
  /^predicate\.evidence\.(obligations|retrieval_events)$/,
  /^predicate\.evidence\.obligations\.\d+\.fulfilled_at$/,
  /^predicate\.evidence\.evidence_artifacts\.\d+\.(created_at|storage_ref)$/,
  /^predicate\.evidence\.retrieval_events\.\d+\.(query_text|query_text_withheld|retrieved_at)$/,
  /^predicate\.evidence\.execution\.(delegated_by|finished_at|lane|started_at|status|submitted_by)$/,
  /^predicate\.evidence\.approvals(\.\d+(\.(note|note_withheld))?)?$/,
  /^predicate\.evidence\.bindings\.\d+\.asset_slug$/,
  // A missing code and null are equivalent.
  /^predicate\.evidence\.execution\.error_code$/,
  // A statement without one of its facts, or with a version whose content is null, can still be true.
  /^predicate\.facts(\.\d+)?$/,
  /^predicate\.https:\/\/fairway\.invalid\/evidence\/release\/v1\.facts(\.\d+)?$/,
  /\.release\.(bindings|references)\.\d+\.(content)$/,
  // The middle of the URI is the operator's location of the settings, which the log does not contain.
  /^predicate\.policy\.uri$/,
];

const isUnproven = (path) => UNPROVEN.some((pattern) => pattern.test(path));

/** Changes of the bytes of a file, without a new signature. */
function fileMutations(file) {
  const mutations = [];
  const add = (name, bytes) => Buffer.compare(bytes, file) !== 0 && mutations.push({ name: `file: ${name}`, file: bytes });
  for (let step = 0; step < POSITIONS; step += 1) {
    const position = Math.floor(((file.length - 2) * step) / (POSITIONS - 1));
    const edited = Buffer.from(file);
    edited[position] ^= 1;
    const next = [...file.subarray(position + 1)].findIndex((byte) => byte !== file[position]) + position + 1;
    const swapped = Buffer.from(file);
    [swapped[position], swapped[next]] = [file[next], file[position]];
    add(`edit of byte ${position}`, edited);
    add(`deletion of byte ${position}`, Buffer.concat([file.subarray(0, position), file.subarray(position + 1)]));
    add(`insertion at ${position}`, Buffer.concat([file.subarray(0, position), Buffer.from("A"), file.subarray(position)]));
    add(`swap of bytes ${position} and ${next}`, swapped);
    add(`cut at ${position}`, file.subarray(0, position));
  }
  const content = text(file);
  const spellings = {
    "a byte order mark": `\ufeff${content}`, "a space in front": ` ${content}`, "a second line feed": `${content}\n\n`,
    "a carriage return": `${content}\r\n`, "the file twice": content + content, "an unknown member": content.replace('"payload":', '"a":1,"payload":'),
    "a member twice": content.replace("{", '{"payload":"",'), "a space between members": content.replace(",", ", "),
    "no signature": content.replace(/"signatures":\[.*\]/, '"signatures":[]'), "an escaped letter": content.replace("payloadType", "payload\\u0054ype"),
    "spare bits of base64": content.replace(/"sig":"(.*?)[AQgw]==/, (_, start) => `"sig":"${start}R==`),
  };
  for (const [name, spelling] of Object.entries(spellings)) add(name, Buffer.from(spelling));
  return mutations;
}

/** Yields every member and item within a value, with its path and the path of its container. */
function* entriesOf(value, path = []) {
  if (typeof value !== "object" || value === null) return;
  for (const name of Object.keys(value)) {
    yield { holder: path, name, path: [...path, name].join("."), value: value[name] };
    yield* entriesOf(value[name], [...path, name]);
  }
}

const valueAt = (value, path) => path.reduce((current, name) => current[name], value);

function changed(value) {
  if (typeof value === "string") return value === "" ? "x" : value.slice(0, -1) + (value.endsWith("a") ? "b" : "a");
  if (typeof value === "number") return value + 1;
  return typeof value === "boolean" ? !value : "x";
}

/**
 * Changes of every member of a statement, with valid signatures as a server with a changed database would create them.
 */
function memberMutations(statement) {
  const mutations = [];
  for (const entry of entriesOf(statement)) {
    const add = (name, change) => {
      const changedStatement = clone(statement);
      change(valueAt(changedStatement, entry.holder), changedStatement);
      mutations.push({ name: `signed: ${name} of ${entry.path}`, statement: changedStatement, expected: isUnproven(entry.path) ? "either" : "refused" });
    };
    const isLeaf = typeof entry.value !== "object" || entry.value === null;
    if (isLeaf) add("edit", (holder) => (holder[entry.name] = changed(entry.value)));
    if (!Array.isArray(valueAt(statement, entry.holder))) add("deletion", (holder) => delete holder[entry.name]);
    else {
      add("deletion", (holder) => holder.splice(Number(entry.name), 1));
      add("repetition", (holder) => holder.push(clone(entry.value)));
      if (Number(entry.name) > 0) {
        add("replacement by another", (holder) => (holder[entry.name] = clone(holder[entry.name - 1])));
        add("swap", (holder) => ([holder[entry.name - 1], holder[entry.name]] = [holder[entry.name], holder[entry.name - 1]]));
      }
    }
    if (!isLeaf && !Array.isArray(entry.value)) add("insertion", (holder) => (holder[entry.name].zz = 1));
  }
  // In these lists the verifiers ignore order, repetition and additional members, because the reports list the proven
  // values from the log.
  const isList = ({ name }) =>
    /^signed: (repetition|swap) of .*\.(bindings|references|approvals)\.\d+$/.test(name) ||
    /^signed: swap of predicate\.(records|documents|evidence\.(evidence_artifacts|obligations|retrieval_events))\.\d+$/.test(name) || /^signed: insertion of predicate\.evidence\b/.test(name);
  return mutations.map((mutation) => (isList(mutation) ? { ...mutation, expected: "either" } : mutation));
}

/** Changes with forged checkpoints, other origins and proofs of other logs, all with valid envelope signatures. */
function logMutations(lib, statement, log) {
  const chainOf = ({ predicate }) => predicate[lib.CHAIN] ?? predicate;
  const { facts, checkpoint, tenant_id: tenant } = chainOf(statement);
  const note = checkpoint.slice(0, checkpoint.indexOf("\n\n") + 1);
  const { size, root } = lib.readCheckpoint(note);
  const otherTenant = { tenant: tenant.replace(/1$/, "2"), key: new Log(lib, Buffer.alloc(32, 9), log.name) };
  const foreign = new Log(lib, log.seed, log.name.replace(tenant, otherTenant.tenant));
  const bodies = facts.map(({ body }) => body);
  const otherBodies = bodies.map((body) => body.replaceAll(tenant, otherTenant.tenant));
  const indexes = bodies.map((_, index) => index);
  const mutations = [];
  const add = (name, change, expected = "refused") => {
    const changedStatement = clone(statement);
    change(chainOf(changedStatement), changedStatement);
    mutations.push({ name: `log: ${name}`, statement: changedStatement, expected });
  };
  const notes = {
    "forged root": log.checkpoint(size, lib.sha256(root)), "smaller size": log.checkpoint(facts.at(-1).index, root),
    "size without signature": checkpoint.replace(`\n${size}\n`, `\n${size + 1n}\n`), "checkpoint by another key": otherTenant.key.checkpoint(size, root),
    "other origin": foreign.checkpoint(size, root), "origin with a space": checkpoint.replace(log.name, `${log.name} `), "no checkpoint": "",
    "no signature line": note, "size with a zero in front": log.note(note.replace(`\n${size}\n`, `\n0${size}\n`)), "signature without its end": checkpoint.slice(0, -9),
    "empty extension line": log.note(`${note}\n`), "control character": log.note(`${note}\u0007\n`), "short root": log.checkpoint(size, root.slice(1)),
    "a second, false signature": `${checkpoint}${otherTenant.key.signature(note).replace(/ \S+\n$/, ` ${Buffer.concat([log.id, Buffer.alloc(64)]).toString("base64")}\n`)}`,
  };
  // Some inclusion proofs are valid for two tree sizes. Only a second checkpoint reveals that the
  // log signed both sizes.
  add("larger size", (chain) => (chain.checkpoint = log.checkpoint(size + 1n, root)), "either");
  for (const [name, forged] of Object.entries(notes)) add(name, (chain) => (chain.checkpoint = forged));
  const holds = { "a signature by another key too": `${checkpoint}${otherTenant.key.signature(note)}`, "an extension line": log.note(`${note}extension\n`) };
  for (const [name, validCheckpoint] of Object.entries(holds)) add(name, (chain) => (chain.checkpoint = validCheckpoint), "holds");
  add("facts and proofs of another tenant", (chain) => Object.assign(chain, foreign.prove(otherBodies, indexes), { leaves: undefined }) && delete chain.leaves);
  add("another tenant as a whole", (chain) => {
    Object.assign(chain, foreign.prove(otherBodies, indexes), { tenant_id: otherTenant.tenant });
    delete chain.leaves;
  });
  add("proofs of another tenant", (chain) => foreign.prove(otherBodies, indexes).facts.forEach(({ proof }, index) => (chain.facts[index].proof = proof)));
  add("a forked log by another key", (chain) => Object.assign(chain, otherTenant.key.prove(bodies, indexes)) && delete chain.leaves);
  add("a log that was cut", (chain) => (chain.checkpoint = log.prove(bodies.slice(0, -1), indexes.slice(0, -1)).checkpoint));
  add("proofs of each other", (chain) => ([chain.facts[0].proof, chain.facts[1].proof] = [facts[1].proof, facts[0].proof]));
  for (const [index, { proof }] of facts.entries()) {
    add(`proof ${index} without its first hash`, (chain) => chain.facts[index].proof.shift());
    add(`proof ${index} with one hash more`, (chain) => chain.facts[index].proof.push(proof[0]));
    add(`proof ${index} in capitals`, (chain) => (chain.facts[index].proof[0] = proof[0].replace(/[a-f]/, (digit) => digit.toUpperCase())));
    add(`proof ${index} in another order`, (chain) => chain.facts[index].proof.reverse());
    add(`fact ${index} edited`, (chain) => (chain.facts[index].body = bodies[index].replace("user:", "user:x")));
  }
  return mutations;
}

/** Signed envelopes and payloads of other forms. */
function envelopeMutations(lib, statement, log) {
  const payload = lib.canonical(statement);
  const otherLog = new Log(lib, Buffer.alloc(32, 9), log.name);
  const deep = clone(statement);
  (deep.predicate.evidence ?? deep.predicate).deep = JSON.parse("[".repeat(200) + "]".repeat(200));
  const envelopes = {
    "another payload type": log.seal(payload, { type: "application/json" }), "a space in the payload": log.seal(` ${payload}`),
    "a line feed behind the payload": log.seal(`${payload}\n`), "a payload that is no JSON": log.seal("fairway"), "a payload of null": log.seal("null"),
    "a payload that is no text": log.seal(Uint8Array.of(0x22, 0xff, 0x22)), "a member twice": log.seal(payload.replace("{", '{"_type":"",')),
    "half of a character": log.seal(payload.replace('"_type":"', '"_type":"\\ud800')), "a number beyond all numbers": log.seal(payload.replace(/"index":\d+/, '"index":1e999')),
    "a fraction as index": log.seal(payload.replace(/"index":(\d+)/, '"index":$1.5')), "an index as text": log.seal(payload.replace(/"index":(\d+)/, '"index":"$1"')),
    "deep nesting": log.seal(deep), "a signature by another key": otherLog.seal(payload),
  };
  const refused = Object.entries(envelopes).map(([name, file]) => ({ name: `envelope: ${name}`, file, expected: "refused" }));
  const accepted = { name: "envelope: signatures by two keys", file: log.seal(payload, { others: [otherLog] }), expected: "holds" };
  return [...refused, accepted];
}

function keyMutations(lib, file, log, tenant) {
  const otherLog = new Log(lib, Buffer.alloc(32, 9), log.name);
  const foreign = new Log(lib, log.seed, log.name.replace(tenant, tenant.replace(/1$/, "2")));
  const cases = [["no key", [], "refused"], ["another key", [otherLog.key], "refused"], ["the key of another tenant", [foreign.key], "refused"]];
  cases.push(["a further key", [otherLog.key, log.key], "holds"]);
  return cases.map(([name, keys, expected]) => ({ name: `key: ${name}`, file, keys, expected }));
}

/** All changes of a bundle whose log has this private key. */
export function mutationsOf(lib, file, seed) {
  const statement = JSON.parse(Buffer.from(JSON.parse(text(file)).payload, "base64"));
  const { checkpoint, tenant_id: tenant } = statement.predicate[lib.CHAIN] ?? statement.predicate;
  const log = new Log(lib, seed, checkpoint.split("\n")[0]);
  if (Buffer.compare(log.seal(statement), file) !== 0) throw new Error("the bundle was not signed by the key of the tests");
  const sealed = [...memberMutations(statement), ...logMutations(lib, statement, log)];
  const mutations = [
    { name: "unchanged", file, expected: "holds" },
    { name: "file: a final line feed", file: Buffer.concat([file, Buffer.from("\n")]), expected: "holds" },
    ...fileMutations(file),
    ...sealed.map(({ statement: signedStatement, ...mutation }) => ({ ...mutation, file: log.seal(signedStatement) })),
    ...envelopeMutations(lib, statement, log),
    ...keyMutations(lib, file, log, tenant),
  ];
  return { log, statement, cases: mutations.map((mutation) => ({ expected: "refused", keys: [log.key], ...mutation })) };
}
