// Verifies an evidence bundle. The result depends only on the file and on the trusted inputs from other sources.
import { bytesOfBase64, textOf } from "./bytes.mjs";
import { checkExecution, subjectsOf } from "./execution.mjs";
import { canonical, hasExactly, isCount, isListOf, isMapOf, isObject, isOneOf, isText, isTextOrNull, isUuid, readJson } from "./json.mjs";
import { checkOtherCheckpoint } from "./log.mjs";
import { CHAIN, checkRelease, releaseSubjects } from "./release.mjs";
import { Report } from "./report.mjs";
import { isSealedBy } from "./signature.mjs";

export { readLogKeys, readWitnessKeys } from "./signature.mjs";

/** The maximum length of a bundle, in bytes. */
export const MAX_BUNDLE_BYTES = 64 << 20;
const PAYLOAD_TYPE = "application/vnd.in-toto+json";
const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";

const isEnvelope = hasExactly({
  payload: isText,
  payloadType: isText,
  signatures: isListOf(hasExactly({ keyid: isText, sig: isText })),
});
const isVersion = hasExactly({ role: isText, asset_version_id: isUuid, checksum: isText, content: isTextOrNull });
const isRelease = hasExactly({ digest_text: isText, bindings: isListOf(isVersion), references: isListOf(isVersion) });
const isFacts = isListOf(hasExactly({ index: isCount, body: isText, proof: isListOf(isText) }));
const isStatementOf = (isPredicate) =>
  hasExactly({
    _type: isText,
    predicateType: isText,
    subject: isListOf(hasExactly({ name: isText, digest: isMapOf(isText) })),
    predicate: isPredicate,
  });
const isExecutionStatement = isStatementOf(
  hasExactly({
    tenant_id: isUuid,
    evidence: isObject,
    records: isListOf(isText),
    documents: isListOf(hasExactly({ artifact_id: isUuid, body: isTextOrNull })),
    release: isRelease,
    facts: isFacts,
    checkpoint: isText,
  }),
);
const isReleaseStatement = isStatementOf(
  hasExactly({
    verifier: hasExactly({ id: isText }),
    timeVerified: isText,
    resourceUri: isText,
    policy: hasExactly({ uri: isText }),
    verificationResult: isOneOf("PASSED", "FAILED"),
    verifiedLevels: isListOf(isText),
    [CHAIN]: hasExactly({ tenant_id: isUuid, release_id: isUuid, release: isRelease, facts: isFacts, checkpoint: isText }),
  }),
);

/** The kinds of statements, each with its predicate type and its checks. */
const KINDS = [
  { kind: "release", type: "https://slsa.dev/verification_summary/v1", isStatement: isReleaseStatement, subjects: releaseSubjects, check: checkRelease },
  { kind: "execution", type: "https://fairway.invalid/evidence/execution/v1", isStatement: isExecutionStatement, subjects: subjectsOf, check: checkExecution },
];

/** Parses the envelope of a file in canonical form, with or without a final line feed; null for any other file. */
function readEnvelope(file) {
  const bytes = file.at(-1) === 0x0a ? file.subarray(0, -1) : file;
  const text = bytes.length > MAX_BUNDLE_BYTES ? null : textOf(bytes);
  if (text === null) return null;
  const body = readJson(text);
  if (!isEnvelope(body) || canonical(body) !== text) return null;
  const payload = bytesOfBase64(body.payload);
  const signatures = body.signatures.map(({ keyid, sig }) => ({ keyid, sig: bytesOfBase64(sig) }));
  const isDecoded = payload && signatures.every(({ sig }) => sig);
  return isDecoded ? { payload, payloadType: body.payloadType, signatures } : null;
}

const namesOf = (subjects) =>
  subjects.flatMap(({ name, digest }) => Object.keys(digest).sort().map((algorithm) => `${name} ${digest[algorithm]}`)).join(", ");

/**
 * Verifies a bundle. The second parameter has the keys of the log, and optionally keys of witnesses, a second
 * checkpoint and a consistency proof. All of them must come from another source than the bundle. Without a key no
 * bundle passes.
 */
export function verifyBundle(file, { keys, witnesses = [], otherCheckpoint = "", consistencyProof = "" }) {
  const report = new Report();
  const given = { keys, witnesses, otherCheckpoint, consistencyProof };
  report.require("key from outside the bundle", "", "at least one", String(keys.length), keys.length > 0);
  const envelope = readEnvelope(file);
  report.compare("form of the file", "", "a canonical envelope", envelope ? "a canonical envelope" : "another file");
  if (!envelope) return report;
  const isSigned = keys.some((key) => isSealedBy(envelope, key));
  const signers = envelope.signatures.map(({ keyid }) => keyid).join(", ");
  report.require(
    "signature of the envelope",
    "",
    `a valid signature by ${keys.map(({ label }) => label).join(" or ")}`,
    `${isSigned ? "valid" : "none that is valid"} by ${signers}`,
    isSigned,
  );
  report.compare("payload type", "", PAYLOAD_TYPE, envelope.payloadType);
  const checkpoint = checkPayload(report, envelope.payload, given);
  if (otherCheckpoint.trim() !== "") checkOtherCheckpoint(report, checkpoint, given);
  return report;
}

/** Checks the statement in the payload, and returns the statement's checkpoint. */
function checkPayload(report, payload, given) {
  const text = textOf(payload);
  const statement = text === null ? undefined : readJson(text);
  const kind = KINDS.find(({ isStatement }) => isStatement(statement));
  report.kind = kind?.kind ?? "execution";
  const isCanonical = kind !== undefined && canonical(statement) === text;
  report.compare("form of the statement", "", "a canonical statement", isCanonical ? "a canonical statement" : "another payload");
  if (!kind) return null;
  report.compare("statement type", "", STATEMENT_TYPE, statement._type);
  report.compare("predicate type", "", kind.type, statement.predicateType);
  const subjects = kind.subjects(statement.predicate);
  const isNamed = subjects.length > 0 && canonical(subjects) === canonical(statement.subject);
  report.require("subject", "", namesOf(subjects), namesOf(statement.subject), isNamed);
  return kind.check(report, statement.predicate, given);
}
