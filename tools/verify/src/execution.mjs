// Verifies statements about runs.
import { checksumOf } from "./bytes.mjs";
import { canonical, listAt, member, textAt } from "./json.mjs";
import { checkCheckpoint, checkFacts } from "./log.mjs";
import { checkRecords } from "./records.mjs";
import { checkHead, checkVersions } from "./versions.mjs";

/** The kinds of facts that end a run. */
const ENDS = ["execution.ended", "execution.denied", "execution.reviewed", "execution.settled"];
/** The states that a release can reach only after enough approvals. */
const APPROVED_STATES = ["approved", "active"];
/** The members of the evidence that the fact of a run's end repeats, as far as they exist. */
const NAMED_BY_END = ["outcome", "error_code", "input_digest", "output_digest", "release_id", "workload_id", "environment"];

const shown = (value) => (typeof value === "string" ? value : canonical(value ?? null));

/** The in-toto subjects that a statement about this run must have. */
export function subjectsOf({ evidence }) {
  const run = member(evidence, "execution");
  const id = member(run, "execution_id");
  const subject = (part) => {
    const digest = textAt(run, `${part}_digest`);
    const isKnown = typeof id === "string" && digest.startsWith("blake3:");
    return isKnown ? [{ digest: { saltedBlake3: digest.slice("blake3:".length) }, name: `executions/${id}/${part}` }] : [];
  };
  return [...subject("output"), ...subject("input")];
}

/** Checks a statement about a run, and returns its checkpoint. */
export function checkExecution(report, predicate, given) {
  const checkpoint = checkCheckpoint(report, predicate, given);
  const facts = checkFacts(report, predicate, checkpoint);
  const end = checkEnd(report, predicate.evidence, facts);
  checkErasure(report, predicate.evidence, facts);
  checkRecords(report, predicate, facts, ENDS);
  const digest = checksumOf(predicate.release.digest_text);
  const own = checkApproved(report, digest, facts, end);
  checkHead(report, predicate.release.digest_text, textAt(end?.content, "detail", "workload_id"), textAt(end?.content, "detail", "environment"));
  checkApprovals(report, predicate.evidence, own, digest);
  checkVersions(report, predicate.release);
  checkListedBindings(report, predicate);
  return checkpoint;
}

/** Compares the evidence with the fact of the run's end, and returns that fact. */
function checkEnd(report, evidence, facts) {
  const run = member(evidence, "execution");
  const execution = shown(member(run, "execution_id"));
  const isEnd = ({ content }) =>
    textAt(content, "subject", "kind") === "execution" &&
    textAt(content, "subject", "id") === execution &&
    ENDS.includes(textAt(content, "kind"));
  const end = facts.findLast(isEnd);
  report.require("end of the run in the log", execution, "a proven fact", end?.part ?? "none", end !== undefined);
  if (!end) return undefined;
  for (const name of NAMED_BY_END) {
    const named = member(member(end.content, "detail"), name);
    const stated = member(run, name);
    if (named !== undefined) report.compare("evidence of the run", name, shown(named), shown(stated));
    else if (name === "output_digest" && (stated ?? null) !== null) report.skip("evidence of the run", name, shown(stated));
  }
  return end;
}

/** If the evidence states an erasure, checks that the log contains its approval for the submitter of the run. */
function checkErasure(report, evidence, facts) {
  const run = member(evidence, "execution");
  const isErased = ["erased_at", "erasure_id"].some((name) => (member(run, name) ?? null) !== null);
  if (!isErased) return;
  const id = textAt(run, "erasure_id");
  const isApproval = ({ content }) =>
    textAt(content, "kind") === "erasure.approved" &&
    textAt(content, "subject", "kind") === "erasure" &&
    textAt(content, "subject", "id") === id;
  const fact = facts.find(isApproval)?.content;
  const actual = fact ? `approved for ${textAt(fact, "detail", "erased_actor")}` : "none";
  report.compare("erasure in the log", id, `approved for ${textAt(run, "submitted_by")}`, actual);
}

/**
 * Checks that the release was approved with this bindings digest before the run ended. Returns the
 * facts about the release.
 */
function checkApproved(report, digest, facts, end) {
  const release = textAt(end?.content, "detail", "release_id");
  const own = facts.filter(
    ({ content }) => textAt(content, "subject", "kind") === "release" && textAt(content, "subject", "id") === release,
  );
  // The filter is needed, because facts about submissions, rejections and later transitions contain a digest too.
  const isApproval = ({ index, content }) =>
    textAt(content, "kind") === "release.transitioned" && APPROVED_STATES.includes(textAt(content, "detail", "to")) && index < end.index;
  const approval = end && own.findLast(isApproval);
  const logged = approval ? textAt(approval.content, "detail", "bindings_digest") : "none";
  report.compare("approved bindings in the log", release, digest, logged);
  return own;
}

function checkApprovals(report, evidence, own, digest) {
  for (const approval of listAt(evidence, "approvals")) {
    const id = textAt(approval, "approval_id");
    const expected = `approved by ${textAt(approval, "approved_by")} at ${textAt(approval, "approved_at")} of ${digest}`;
    const fact = own.find(({ content }) => textAt(content, "detail", "approval_id") === id)?.content;
    const detail = member(fact, "detail");
    const actual = fact
      ? `${textAt(detail, "outcome")} by ${textAt(fact, "actor")} at ${textAt(fact, "occurred_at")} of ${textAt(detail, "bindings_digest")}`
      : "none";
    report.compare("approval in the log", id, expected, actual);
  }
}

/** Checks that the evidence lists exactly the bindings of the release. */
function checkListedBindings(report, { evidence, release }) {
  const listed = listAt(evidence, "bindings");
  report.compare("number of bindings in the evidence", "", String(release.bindings.length), String(listed.length));
  for (const { role, asset_version_id } of release.bindings) {
    const isListed = listed.some((one) => member(one, "asset_version_id") === asset_version_id && member(one, "role") === role);
    report.compare("binding in the evidence", role, "listed", isListed ? "listed" : "missing");
  }
}
