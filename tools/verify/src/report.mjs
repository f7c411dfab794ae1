// The report of a verification. The names of checks and the sentences equal those of `fairway verify`.

const PROVEN = {
  execution: [
    "the holder of the given key stated this evidence",
    "the run's end, with the digests of its input and output, is in the audit log at the given index",
    "the log says that the release of the run was approved with these bindings before the run ended",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
  ],
  release: [
    "the holder of the given key stated this result",
    "the result follows from the facts about the release in the audit log, up to the checkpoint",
    "the bytes of the included versions are those that the approved digest names",
    "the facts are part of the log that the checkpoint signs",
  ],
};
const ONE_HISTORY = "the log of the bundle and the log of the second checkpoint have one history";
const WITNESSED = "the given witnesses saw this checkpoint, and no other history of the log";
const RECORDS_NAMED =
  "the policy decisions, the evidence documents and the digests of all that the steps read are those that the log names";
const RECORDS_NOT_NAMED =
  "policy decisions, obligations, retrievals and documents beyond the signature: no fact of the run names them";
const NOT_PROVEN = {
  execution: [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "the text of inputs and outputs: their digests are salted, and the salts are not included",
    "who submitted the run, on behalf of whom, its lane and its status: the signature alone covers them",
    "that no fact about the run was left out, or followed the checkpoint",
    "fulfilments of obligations, rules without a result, and times besides those of the facts: the signature alone covers them",
    "that the policy decides the same again: this page evaluates no policy, and the inputs of the decision are included as digests alone",
    "that the people behind the named actors acted themselves",
  ],
  release: [
    "that the log has one history for everybody: compare the checkpoint with one from another source",
    "that no fact about the release was left out, or followed the checkpoint: fetch a new summary before a deployment",
    "that the release holds a lane now: another release may have replaced it",
    "that the people behind the named actors acted themselves",
  ],
};

export class Report {
  kind = "execution";
  checks = [];
  hasOneHistory = false;
  isWitnessed = false;
  hasNamedRecords = false;

  /** Adds a check of a condition, and returns whether it holds. */
  require(name, part, expected, actual, holds) {
    this.checks.push({ name, part, expected, actual, verdict: holds ? "passed" : "failed" });
    return holds;
  }

  /** Adds a check that passes if both sides are equal. */
  compare(name, part, expected, actual) {
    return this.require(name, part, expected, actual, expected === actual);
  }

  /** Adds a check as not performed, because the bundle or the other inputs lack the required data. */
  skip(name, part, expected, actual = "not included") {
    this.checks.push({ name, part, expected, actual, verdict: "not_included" });
  }

  get failed() {
    return this.checks.filter((check) => check.verdict === "failed");
  }

  get hasPassed() {
    return this.checks.length > 0 && this.failed.length === 0;
  }

  /** The sentences about what the bundle proves; none if a check failed. */
  get proven() {
    if (!this.hasPassed) return [];
    const further = [
      [this.hasNamedRecords, RECORDS_NAMED],
      [this.hasOneHistory, ONE_HISTORY],
      [this.isWitnessed, WITNESSED],
    ];
    return [...PROVEN[this.kind], ...further.filter(([holds]) => holds).map(([, sentence]) => sentence)];
  }

  get notProven() {
    const lacksRecords = this.kind === "execution" && !this.hasNamedRecords;
    return [...NOT_PROVEN[this.kind], ...(lacksRecords ? [RECORDS_NOT_NAMED] : [])];
  }
}
