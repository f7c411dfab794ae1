// Verifies the records of a run. Facts in the log contain the digests of the records, and the
// evidence shows their content.
import { checksumOf } from "./bytes.mjs";
import { canonical, hasExactly, isCount, isListOf, isText, isUuid, listAt, member, readJson, textAt } from "./json.mjs";

const RETRIEVAL_EVENT = "retrieval_event";
/** The outcomes of policy decisions, from the mildest to the strictest. */
const STRICTNESS = ["allow", "allow_with_obligations", "deny"];

const isChecksum = (value) => isText(value) && /^blake3:[0-9a-f]{64}$/.test(value);
const isRecords = hasExactly({
  artifacts: isListOf(hasExactly({ artifact_id: isUuid, artifact_kind: isText, digest: isChecksum })),
  decisions: isListOf(
    hasExactly({ decision_id: isUuid, obligations: isListOf(isText), outcome: isText, reason_code: isText, rules: isListOf(isText) }),
  ),
  lineage: isListOf(
    hasExactly({
      action_class: isText,
      digest: isText,
      influence_role: isText,
      lineage_id: isUuid,
      origin: isText,
      ref: isText,
      size_bytes: isCount,
    }),
  ),
});

/**
 * The kind of the fact that requests a review of a run's output. The run's process stops there, and a person ends
 * the run.
 */
const REVIEW_REQUEST = "execution.review_asked";

/**
 * Compares the records with the facts about the run, and the evidence with the records. `ends` are kinds of facts
 * that end runs.
 */
export function checkRecords(report, { evidence, records: texts, documents }, facts, ends) {
  const execution = textAt(evidence, "execution", "execution_id");
  const isOfRun = (content) => textAt(content, "subject", "kind") === "execution" && textAt(content, "subject", "id") === execution;
  const closing = facts.filter(({ content }) => isOfRun(content) && [REVIEW_REQUEST, ...ends].includes(textAt(content, "kind")));
  checkEarlierFact(report, closing);
  const digestOf = (fact) => textAt(fact?.content, "detail", "evidence_digest");
  const named = closing.map((fact) => ({ part: fact.part, digest: digestOf(fact) })).filter(({ digest }) => digest !== "");
  report.compare("number of records", "", String(named.length), String(texts.length));
  const digests = texts.map(checksumOf);
  for (const { part, digest } of named) {
    report.compare("records that a fact names", part, digest, digests.includes(digest) ? digest : "none");
  }
  const records = { artifacts: [], decisions: [] };
  texts.forEach((text, index) => {
    const digest = digests[index];
    const isNamed = named.some((one) => one.digest === digest);
    report.compare("records of the run in the log", "", digest, isNamed ? digest : "none");
    const value = readJson(text);
    const isRead = isRecords(value) && canonical(value) === text;
    report.compare("form of the records", digest, "canonical records", isRead ? "canonical records" : "another text");
    if (!isRead) return;
    records.artifacts.push(...value.artifacts);
    records.decisions.push(...value.decisions);
  });
  report.hasNamedRecords = digestOf(closing[0]) !== "";
  if (report.hasNamedRecords) {
    checkDecisions(report, evidence, records);
    checkArtifacts(report, evidence, records);
  } else {
    // The process that executed the run stopped before it stored any record, so the log contains no digest.
    report.skip("records of the run in the log", "", "a fact that names them");
  }
  checkDocuments(report, evidence, records, documents);
}

/**
 * If a person ended the run, requires the earlier fact about the run's process, which contains the
 * digest of the records.
 */
function checkEarlierFact(report, closing) {
  const end = closing.at(-1);
  const kind = textAt(end?.content, "kind");
  const wasAsked = member(member(end?.content, "detail"), "review_asked") === true;
  const later = { "execution.reviewed": REVIEW_REQUEST, "execution.settled": "execution.ended" }[kind];
  const needed = later ?? (wasAsked ? REVIEW_REQUEST : undefined);
  if (needed === undefined) return;
  const found = closing.slice(0, -1).find(({ content }) => textAt(content, "kind") === needed);
  report.require("fact before the end of the run", needed, "a proven fact", found?.part ?? "none", found !== undefined);
}

const decisionText = (decision) => {
  const rules = listAt(decision, "rules").filter(isText).join(", ");
  return `${textAt(decision, "decision_id")}: ${textAt(decision, "outcome")} ${textAt(decision, "reason_code")} by ${rules}`;
};

/** Checks that the evidence shows the run's strictest policy decision, and every obligation that a decision imposed. */
function checkDecisions(report, evidence, { decisions }) {
  const rank = ({ outcome }) => STRICTNESS.indexOf(outcome);
  const strictest = decisions.reduce((found, one) => (found && rank(found) > rank(one) ? found : one), undefined);
  const recorded = strictest ? decisionText(strictest) : "none";
  report.compare("policy decision in the records", "", recorded, decisionText(member(evidence, "policy_decision")));
  const imposed = [...new Set(decisions.flatMap(({ obligations }) => obligations))].sort();
  const shown = listAt(evidence, "obligations").map((obligation) => textAt(obligation, "obligation_name"));
  report.compare("number of obligations", "", String(imposed.length), String(shown.length));
  for (const name of imposed) {
    report.compare("obligation in the evidence", name, "shown", shown.includes(name) ? "shown" : "missing");
  }
}

/** Checks that the evidence shows every document in the records, including the documents of retrievals. */
function checkArtifacts(report, evidence, { artifacts }) {
  const shown = listAt(evidence, "evidence_artifacts");
  report.compare("number of documents", "", String(artifacts.length), String(shown.length));
  for (const { artifact_id: id, artifact_kind: kind } of artifacts) {
    const artifact = shown.find((one) => textAt(one, "artifact_id") === id);
    report.compare("document in the evidence", id, kind, textAt(artifact, "artifact_kind"));
  }
  const recorded = artifacts.filter(({ artifact_kind }) => artifact_kind === RETRIEVAL_EVENT).length;
  report.compare("number of retrievals", "", String(recorded), String(listAt(evidence, "retrieval_events").length));
}

/** Checks the bundle's documents against the digests in the records. */
function checkDocuments(report, evidence, { artifacts }, documents) {
  report.compare("number of included documents", "", String(artifacts.length), String(documents.length));
  for (const { artifact_id: id, artifact_kind: kind, digest } of artifacts) {
    const document = documents.find(({ artifact_id }) => artifact_id === id);
    if (!document) report.compare("text of the document", id, digest, "none");
    else if (document.body === null) report.skip("text of the document", id, digest);
    else if (report.compare("text of the document", id, digest, checksumOf(document.body)) && kind === RETRIEVAL_EVENT) {
      const shown = listAt(evidence, "retrieval_events").find((one) => textAt(one, "retrieval_event_id") === id);
      const stated = shown ? retrievalText(shown) : "none";
      report.compare("retrieval in its document", id, retrievalText(readJson(document.body)), stated);
    }
  }
}

function retrievalText(retrieval) {
  const count = member(retrieval, "retrieved_chunk_count");
  return `${isCount(count) ? count : 0} texts of ${textAt(retrieval, "knowledge_base_asset_id")}`;
}
