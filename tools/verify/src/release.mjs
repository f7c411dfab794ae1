// Verifies statements about releases, which are verification summaries (SLSA).
import { checksumOf } from "./bytes.mjs";
import { member, textAt } from "./json.mjs";
import { checkCheckpoint, checkFacts } from "./log.mjs";
import { checkHead, checkVersions } from "./versions.mjs";

/** The member of the predicate that contains the evidence for the result: release, facts and checkpoint. */
export const CHAIN = "https://fairway.invalid/evidence/release/v1";
const VERIFIER = "https://fairway.invalid/verifiers/release/v1";

/** The in-toto subject that a summary must have: the release with the digest that reviewers approve. */
export function releaseSubjects(predicate) {
  const { release, release_id } = predicate[CHAIN];
  const digest = checksumOf(release.digest_text).slice("blake3:".length);
  return [{ digest: { blake3: digest }, name: `releases/${release_id}` }];
}

/** The last state, time and digest of a release according to the proven facts. */
function historyOf(facts, release) {
  const history = { state: "", occurredAt: "", digest: "", isRolledBack: false };
  for (const { content } of facts) {
    const detail = member(content, "detail");
    const kind = textAt(content, "kind");
    const isOrigin =
      kind === "use_case.published" && textAt(detail, "release_id") === release && member(detail, "made") === true;
    if (isOrigin) {
      // The publication of a use case creates its release as a draft.
      Object.assign(history, { state: "draft", digest: "", isRolledBack: false, occurredAt: textAt(content, "occurred_at") });
      continue;
    }
    if (textAt(content, "subject", "kind") !== "release" || textAt(content, "subject", "id") !== release) continue;
    history.occurredAt = textAt(content, "occurred_at");
    if (kind === "release.created") history.state = "draft";
    if (kind === "release.reviewed") history.state = textAt(detail, "state");
    if (kind === "release.rolled_back") Object.assign(history, { state: textAt(detail, "to"), isRolledBack: true });
    if (kind === "release.transitioned") {
      Object.assign(history, { state: textAt(detail, "to"), digest: textAt(detail, "bindings_digest"), isRolledBack: false });
    }
  }
  return history;
}

/** Checks that the result of a summary follows from the proven facts. Returns the checkpoint of the summary. */
export function checkRelease(report, predicate, given) {
  const chain = predicate[CHAIN];
  report.compare("verifier", "", VERIFIER, predicate.verifier.id);
  report.compare("resource", "", `fairway:tenants/${chain.tenant_id}/releases/${chain.release_id}`, predicate.resourceUri);
  const checkpoint = checkCheckpoint(report, chain, given);
  const facts = checkFacts(report, chain, checkpoint);
  checkResult(report, predicate, facts);
  const isOwn = ({ content }) => textAt(content, "subject", "id") === chain.release_id;
  report.require("facts about the release", "", "at least one", String(facts.length), facts.some(isOwn));
  const created = facts.findLast(({ content }) => textAt(content, "detail", "environment") !== "")?.content;
  const environment = textAt(created, "detail", "environment");
  checkHead(report, chain.release.digest_text, textAt(created, "detail", "workload_id"), environment);
  const end = `/environments/${environment}/settings`;
  const policy = predicate.policy.uri;
  const isOfPlace = policy.startsWith(`fairway:tenants/${chain.tenant_id}/`) && policy.endsWith(end);
  report.require("policy of the summary", "", `the settings that end in ${end}`, policy, isOfPlace);
  checkVersions(report, chain.release);
  return checkpoint;
}

function checkResult(report, predicate, facts) {
  const { release, release_id } = predicate[CHAIN];
  const history = historyOf(facts, release_id);
  const isApproved = ["approved", "active"].includes(history.state) && history.digest === checksumOf(release.digest_text);
  const result = isApproved && !history.isRolledBack ? "PASSED" : "FAILED";
  report.compare("time of the result", "", history.occurredAt, predicate.timeVerified);
  report.compare("result by the log", "", result, predicate.verificationResult);
  report.compare("permission to deploy", "", "PASSED", predicate.verificationResult);
  const level = result === "PASSED" ? "FAIRWAY_RELEASE_APPROVED" : "FAILED";
  report.compare("levels of the result", "", level, predicate.verifiedLevels.join(", "));
}
