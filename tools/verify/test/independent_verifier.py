"""Verifies evidence bundles with the official libraries of in-toto and DSSE, independently of the other two verifiers.

Standard input: a JSON list of objects with `path` (a bundle) and `keys` (public keys of the log as signed notes encode them).
Output: a JSON list with the names of the failed checks for each bundle. An empty list means that the bundle is valid.
"""

import base64
import hashlib
import json
import re
import sys
import uuid

import in_toto_attestation.v1.statement_pb2 as statement_pb2
import rfc8785
from blake3 import blake3
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature, SSlibKey

EXECUTION = "https://fairway.invalid/evidence/execution/v1"
SUMMARY = "https://slsa.dev/verification_summary/v1"
CHAIN = "https://fairway.invalid/evidence/release/v1"
VERIFIER = "https://fairway.invalid/verifiers/release/v1"
ENDS = {"execution.ended", "execution.denied", "execution.reviewed", "execution.settled"}
REVIEW_REQUEST = "execution.review_asked"
# The states that a release can reach only after enough approvals.
APPROVED_STATES = {"approved", "active"}
NAMED_BY_END = ["outcome", "error_code", "input_digest", "output_digest", "release_id", "workload_id", "environment"]
MAX_DEPTH = 127
ABSENT = object()


class Refused(Exception):
    """A check failed that all later checks depend on."""


def refuse_constant(name):
    raise ValueError(name)


def check_depth(value, depth=1):
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if members is None:
        return
    if depth > MAX_DEPTH:
        raise ValueError("deep nesting")
    for item in members:
        check_depth(item, depth + 1)


def read(data: bytes):
    """Parses a JSON text within the depth limit."""
    value = json.loads(data.decode("utf-8"), parse_constant=refuse_constant)
    check_depth(value)
    return value


def read_canonical(data: bytes):
    """Parses a JSON text; raises unless the text is canonical (RFC 8785)."""
    value = read(data)
    if rfc8785.dumps(value) != data:
        raise ValueError("not canonical")
    return value


def string_at(value, *path):
    """The string at a path of member names; the empty string if the path does not lead to a string."""
    for name in path:
        value = value.get(name, ABSENT) if isinstance(value, dict) else ABSENT
    return value if isinstance(value, str) else ""


def list_member(value: dict, name: str) -> list:
    """The member of an object that is a list; an empty list if the member is missing or has another type."""
    member = value.get(name)
    return member if isinstance(member, list) else []


def retrieval_of(value):
    count = value.get("retrieved_chunk_count") if isinstance(value, dict) else 0
    return count if type(count) is int else 0, string_at(value, "knowledge_base_asset_id")


def has_exactly(value, *names):
    if not isinstance(value, dict) or set(value) != set(names):
        raise ValueError("other members")


def checksum_of(text: str) -> str:
    return "blake3:" + blake3(text.encode()).hexdigest()


def key_of(text: str):
    """Parses an encoded public key of a log into its name and the key."""
    name, key_id, encoded = text.split("+", 2)
    raw = base64.b64decode(encoded, validate=True)
    if hashlib.sha256(f"{name}\n".encode() + raw).digest()[:4].hex() != key_id or raw[0] != 1:
        raise ValueError("another key id or type")
    return name, SSlibKey(f"{name}+{key_id}", "ed25519", "ed25519", {"public": raw[1:].hex()})


def is_valid(key, signature: bytes, message: bytes) -> bool:
    try:
        key.verify_signature(Signature(key.keyid, signature.hex()), message)
    except Exception:
        return False
    return True


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def root_by(index: int, size: int, leaf: bytes, proof: list) -> bytes:
    """The root of the tree by an audit path (RFC 6962, 2.1.1). The last hash of the path is a child of the root."""
    if size == 1:
        if proof:
            raise ValueError("the proof is too long")
        return leaf
    left_size = 1 << (size - 1).bit_length() - 1
    *lower_hashes, sibling = proof
    if index < left_size:
        return node(root_by(index, left_size, leaf, lower_hashes), sibling)
    return node(sibling, root_by(index - left_size, size - left_size, leaf, lower_hashes))


def decode(text: str) -> bytes:
    """Decodes base64; raises unless the text is the canonical encoding."""
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("another spelling of base64")
    return raw


class Verifier:
    """Verifies one bundle."""

    def __init__(self, keys):
        self.keys = [key_of(text) for text in keys]
        self.failed = []
        # The log index of each verified fact, by the `id()` of the fact's object.
        self.indexes = {}

    def check(self, name: str, holds: bool) -> bool:
        if not holds:
            self.failed.append(name)
        return holds

    def attempt(self, name: str, function):
        """Calls a function and returns its result. If it raises, the named check fails and the verification ends."""
        try:
            return function()
        except Exception as failure:
            self.failed.append(name)
            raise Refused from failure

    def verify(self, data: bytes):
        self.check("key from outside the bundle", bool(self.keys))
        envelope = self.attempt("form of the file", lambda: self.envelope(data.removesuffix(b"\n")))
        self.check("signature of the envelope", self.is_sealed(envelope))
        self.check("payload type", envelope.payload_type == "application/vnd.in-toto+json")
        statement = self.attempt("form of the statement", lambda: self.statement(envelope.payload))
        if CHAIN in statement["predicate"]:
            self.summary(statement)
        else:
            self.execution(statement)

    @staticmethod
    def envelope(data: bytes) -> Envelope:
        body = read_canonical(data)
        has_exactly(body, "payload", "payloadType", "signatures")
        decode(body["payload"])
        for signature in body["signatures"]:
            has_exactly(signature, "keyid", "sig")
            decode(signature["sig"])
        return Envelope.from_dict(body)

    def is_sealed(self, envelope: Envelope) -> bool:
        try:
            envelope.verify([key for _, key in self.keys], 1)
        except Exception:
            return False
        return True

    @staticmethod
    def statement(payload: bytes) -> dict:
        statement = read_canonical(payload)
        has_exactly(statement, "_type", "predicateType", "subject", "predicate")
        # The official library parses the statement, and checks its form and its subjects.
        parsed_statement = Statement.copy_from_pb(json_format.Parse(payload, statement_pb2.Statement()))
        parsed_statement.validate()
        predicate = statement["predicate"]
        chain = predicate
        if CHAIN in predicate:
            has_exactly(
                predicate,
                *["verifier", "timeVerified", "resourceUri", "policy", "verificationResult", "verifiedLevels", CHAIN],
            )
            has_exactly(predicate["verifier"], "id")
            has_exactly(predicate["policy"], "uri")
            chain = predicate[CHAIN]
            has_exactly(chain, "tenant_id", "release_id", "release", "facts", "checkpoint")
            if predicate["verificationResult"] not in ("PASSED", "FAILED"):
                raise ValueError("another result")
        else:
            has_exactly(chain, "tenant_id", "evidence", "records", "documents", "release", "facts", "checkpoint")
            if not all(isinstance(text, str) for text in chain["records"]):
                raise ValueError("another text")
            for document in chain["documents"]:
                has_exactly(document, "artifact_id", "body")
                if str(uuid.UUID(document["artifact_id"])) != document["artifact_id"]:
                    raise ValueError("another document")
                if not isinstance(document["body"], (str, type(None))):
                    raise ValueError("another body")
        has_exactly(chain["release"], "digest_text", "bindings", "references")
        for version in chain["release"]["bindings"] + chain["release"]["references"]:
            has_exactly(version, "role", "asset_version_id", "checksum", "content")
        for fact in chain["facts"]:
            has_exactly(fact, "index", "body", "proof")
            if type(fact["index"]) is not int or fact["index"] < 0:
                raise ValueError("another index")
        if str(uuid.UUID(chain["tenant_id"])) != chain["tenant_id"]:
            raise ValueError("another tenant")
        return statement

    def execution(self, statement: dict):
        predicate = statement["predicate"]
        self.check("predicate type", statement["predicateType"] == EXECUTION)
        evidence, release = predicate["evidence"], predicate["release"]
        run = evidence.get("execution")
        subjects = [
            {
                "name": f"executions/{string_at(run, 'execution_id')}/{part}",
                "digest": {"saltedBlake3": string_at(run, f"{part}_digest").removeprefix("blake3:")},
            }
            for part in ("output", "input")
            if string_at(run, f"{part}_digest").startswith("blake3:") and string_at(run, "execution_id")
        ]
        self.check("subject", bool(subjects) and subjects == statement["subject"])
        facts = self.facts(predicate)
        run_facts = [
            fact
            for fact in facts
            if string_at(fact, "subject", "kind") == "execution" and string_at(fact, "subject", "id") == string_at(run, "execution_id")
        ]
        end = next((fact for fact in reversed(run_facts) if string_at(fact, "kind") in ENDS), None)
        self.check("end of the run in the log", end is not None)
        detail = end["detail"] if end else {}
        for name in NAMED_BY_END:
            if name in detail:
                self.check("evidence of the run", detail[name] == run.get(name))
        self.erasure(run, facts)
        self.records(predicate, [fact for fact in run_facts if string_at(fact, "kind") in ENDS | {REVIEW_REQUEST}])
        digest = checksum_of(release["digest_text"])
        release_facts = [
            fact
            for fact in facts
            if string_at(fact, "subject", "kind") == "release" and string_at(fact, "subject", "id") == string_at(detail, "release_id")
        ]
        approvals = [fact for fact in release_facts if self.is_approval(fact, end)]
        logged = string_at(approvals[-1], "detail", "bindings_digest") if approvals else None
        self.check("approved bindings in the log", logged == digest)
        self.head(release["digest_text"], string_at(detail, "workload_id"), string_at(detail, "environment"))
        self.approvals(evidence.get("approvals"), release_facts, digest)
        self.versions(release)
        self.listed_bindings(evidence.get("bindings"), release)

    def is_approval(self, fact: dict, end) -> bool:
        """Whether this fact records the approval of a release, at a position before the end of the run."""
        is_transition = string_at(fact, "kind") == "release.transitioned" and string_at(fact, "detail", "to") in APPROVED_STATES
        return is_transition and end is not None and self.indexes[id(fact)] < self.indexes[id(end)]

    def erasure(self, run, facts: list):
        run = run if isinstance(run, dict) else {}
        if run.get("erased_at") is None and run.get("erasure_id") is None:
            return
        expected = ("erasure.approved", "erasure", string_at(run, "erasure_id"))
        kinds = [(string_at(fact, "kind"), string_at(fact, "subject", "kind"), string_at(fact, "subject", "id")) for fact in facts]
        fact = facts[kinds.index(expected)] if expected in kinds else None
        holds = fact is not None and string_at(fact, "detail", "erased_actor") == string_at(run, "submitted_by")
        self.check("erasure in the log", holds)

    def records(self, predicate: dict, end_facts: list):
        """Compares the records with the digests in the facts, and the evidence with the records."""
        self.earlier_fact(end_facts)
        evidence_digests = [string_at(fact, "detail", "evidence_digest") for fact in end_facts]
        evidence, texts = predicate["evidence"], predicate["records"]
        is_same = sorted(digest for digest in evidence_digests if digest) == sorted(checksum_of(text) for text in texts)
        self.check("records that a fact names", is_same)
        records = [self.attempt("form of the records", lambda text=text: read_canonical(text.encode())) for text in texts]
        artifacts = {entry["artifact_id"]: entry for part in records for entry in part["artifacts"]}
        if evidence_digests and evidence_digests[0]:
            self.decisions(evidence, [decision for part in records for decision in part["decisions"]])
            stated_artifacts = [(string_at(item, "artifact_id"), string_at(item, "artifact_kind")) for item in list_member(evidence, "evidence_artifacts")]
            recorded = [(entry["artifact_id"], entry["artifact_kind"]) for entry in artifacts.values()]
            self.check("document in the evidence", sorted(stated_artifacts) == sorted(recorded))
            retrievals = [item for item in artifacts.values() if item["artifact_kind"] == "retrieval_event"]
            self.check("number of retrievals", len(retrievals) == len(list_member(evidence, "retrieval_events")))
        documents = [document["artifact_id"] for document in predicate["documents"]]
        self.check("number of included documents", sorted(documents) == sorted(artifacts))
        retrieval_events = {string_at(item, "retrieval_event_id"): item for item in reversed(list_member(evidence, "retrieval_events"))}
        for document in predicate["documents"]:
            entry, body = artifacts.get(document["artifact_id"]), document["body"]
            if entry is None or body is None:
                continue
            self.check("text of the document", checksum_of(body) == entry["digest"])
            if entry["artifact_kind"] == "retrieval_event":
                retrieval = retrieval_events.get(entry["artifact_id"])
                is_stated = retrieval is not None and retrieval_of(retrieval) == retrieval_of(self.fact(body))
                self.check("retrieval in its document", is_stated)

    def earlier_fact(self, end_facts: list):
        """If a person ended the run, requires the earlier fact about the run's process."""
        kinds = [string_at(fact, "kind") for fact in end_facts]
        required_kind = {"execution.reviewed": REVIEW_REQUEST, "execution.settled": "execution.ended"}.get(kinds[-1] if kinds else "")
        if required_kind is None and end_facts and end_facts[-1].get("detail", {}).get("review_asked") is True:
            required_kind = REVIEW_REQUEST
        if required_kind is not None:
            self.check("fact before the end of the run", required_kind in kinds[:-1])

    def decisions(self, evidence: dict, decisions: list):
        ranks = ["allow", "allow_with_obligations", "deny"]

        def strictness(decision: dict):
            return ranks.index(decision["outcome"]), decision["decision_id"]

        decisive = max(decisions, key=strictness, default={})
        stated = evidence.get("policy_decision")
        members = ["decision_id", "outcome", "reason_code", "rules"]
        is_stated = isinstance(stated, dict) and [stated.get(name) for name in members] == [decisive.get(name) for name in members]
        self.check("policy decision in the records", is_stated)
        imposed_names = {name for decision in decisions for name in decision["obligations"]}
        stated_names = [string_at(obligation, "obligation_name") for obligation in list_member(evidence, "obligations")]
        self.check("obligation in the evidence", sorted(stated_names) == sorted(imposed_names))

    def approvals(self, approvals, release_facts: list, digest: str):
        for approval in approvals if isinstance(approvals, list) else []:
            fact = next((fact for fact in release_facts if string_at(fact, "detail", "approval_id") == string_at(approval, "approval_id")), None)
            stated = (string_at(approval, "approved_by"), string_at(approval, "approved_at"), "approved", digest)
            detail = fact["detail"] if fact else {}
            logged = (string_at(fact, "actor"), string_at(fact, "occurred_at"), string_at(detail, "outcome"), string_at(detail, "bindings_digest"))
            self.check("approval in the log", stated == logged)

    def listed_bindings(self, bindings, release: dict):
        bindings = bindings if isinstance(bindings, list) else []
        self.check("number of bindings in the evidence", len(bindings) == len(release["bindings"]))
        listed_versions = [(string_at(item, "role"), string_at(item, "asset_version_id")) for item in bindings]
        for version in release["bindings"]:
            self.check("binding in the evidence", (version["role"], version["asset_version_id"]) in listed_versions)

    def summary(self, statement: dict):
        predicate = statement["predicate"]
        chain = predicate[CHAIN]
        release, tenant = chain["release"], chain["tenant_id"]
        digest = checksum_of(release["digest_text"])
        self.check("predicate type", statement["predicateType"] == SUMMARY)
        subject = {"name": f"releases/{chain['release_id']}", "digest": {"blake3": digest.removeprefix("blake3:")}}
        self.check("subject", statement["subject"] == [subject])
        self.check("verifier", predicate["verifier"]["id"] == VERIFIER)
        self.check("resource", predicate["resourceUri"] == f"fairway:tenants/{tenant}/releases/{chain['release_id']}")
        facts = self.facts(chain)
        state, approved_digest, time, is_rolled_back = self.history(facts, chain["release_id"])
        is_approved = state in ("approved", "active") and approved_digest == digest and not is_rolled_back
        self.check("time of the result", predicate["timeVerified"] == time)
        self.check("result by the log", predicate["verificationResult"] == ("PASSED" if is_approved else "FAILED"))
        self.check("permission to deploy", predicate["verificationResult"] == "PASSED")
        level = "FAIRWAY_RELEASE_APPROVED" if is_approved else "FAILED"
        self.check("levels of the result", predicate["verifiedLevels"] == [level])
        release_facts = [fact for fact in facts if string_at(fact, "subject", "id") == chain["release_id"]]
        self.check("facts about the release", bool(release_facts))
        facts_with_environment = [fact for fact in facts if string_at(fact, "detail", "environment")]
        detail = facts_with_environment[-1]["detail"] if facts_with_environment else {}
        self.head(release["digest_text"], string_at(detail, "workload_id"), string_at(detail, "environment"))
        policy = predicate["policy"]["uri"]
        start, end = f"fairway:tenants/{tenant}/", f"/environments/{string_at(detail, 'environment')}/settings"
        self.check("policy of the summary", policy.startswith(start) and policy.endswith(end))
        self.versions(release)

    @staticmethod
    def history(facts: list, release_id: str):
        state = digest = time = ""
        is_rolled_back = False
        for fact in facts:
            kind, detail = string_at(fact, "kind"), fact.get("detail", {})
            if kind == "use_case.published" and string_at(detail, "release_id") == release_id and detail.get("made") is True:
                state, digest, time, is_rolled_back = "draft", "", string_at(fact, "occurred_at"), False
                continue
            if (string_at(fact, "subject", "kind"), string_at(fact, "subject", "id")) != ("release", release_id):
                continue
            time = string_at(fact, "occurred_at")
            if kind == "release.created":
                state = "draft"
            elif kind == "release.transitioned":
                state, digest, is_rolled_back = string_at(detail, "to"), string_at(detail, "bindings_digest"), False
            elif kind == "release.reviewed":
                state = string_at(detail, "state")
            elif kind == "release.rolled_back":
                state, is_rolled_back = string_at(detail, "to"), True
        return state, digest, time, is_rolled_back

    def facts(self, chain: dict) -> list:
        """Returns the facts whose inclusion in the checkpoint is proven."""
        origin, size, root = self.checkpoint(chain)
        self.check("tenant of the log", origin.rpartition("/")[2] == chain["tenant_id"])
        included_facts, previous = [], -1
        for entry in chain["facts"]:
            index, body = entry["index"], entry["body"]
            fact = self.fact(body)
            holds = self.check("order of the facts", previous < index)
            previous = index
            holds &= self.check("tenant of the fact", string_at(fact, "tenant_id") == chain["tenant_id"])
            holds &= self.check("inclusion of the fact in the log", self.is_included(entry, size, root))
            if holds:
                included_facts.append(fact)
                self.indexes[id(fact)] = index
        return included_facts

    @staticmethod
    def fact(body: str):
        """Parses the body of a fact; returns an empty object if the body is not a JSON object."""
        try:
            value = read(body.encode())
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @staticmethod
    def is_included(entry: dict, size: int, root: bytes) -> bool:
        if entry["index"] >= size or not all(re.fullmatch("[0-9a-f]{64}", text) for text in entry["proof"]):
            return False
        leaf = hashlib.sha256(b"\x00" + entry["body"].encode()).digest()
        try:
            return root_by(entry["index"], size, leaf, [bytes.fromhex(text) for text in entry["proof"]]) == root
        except ValueError:
            return False

    def checkpoint(self, chain: dict):
        """Checks that a given key signed the checkpoint, and returns its origin, size and root."""
        text, _, lines = chain["checkpoint"].rpartition("\n\n")
        text += "\n"
        is_note = lines.endswith("\n") and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
        signature_lines = [re.fullmatch("\u2014 ([^ +]+) ([^ ]+)", line) for line in lines.removesuffix("\n").split("\n")]
        name, signed_by = "signature of the checkpoint", None
        if self.check(name, is_note and all(signature_lines)):
            decoded = self.attempt(name, lambda: [(line[1], decode(line[2])) for line in signature_lines])
            for key_name, key in self.keys:
                key_id = bytes.fromhex(key.keyid[-8:])
                key_signatures = [raw[4:] for line, raw in decoded if line == key_name and raw[:4] == key_id]
                if key_signatures and all(is_valid(key, signature, text.encode()) for signature in key_signatures):
                    signed_by = signed_by or key_name
            self.check(name, signed_by is not None)
        read_lines = re.fullmatch("([^\n]+)\n(0|[1-9][0-9]*)\n([^\n]+)\n((?:[^\n]+\n)*)", text)
        if not read_lines:
            raise Refused
        origin, size, root = read_lines[1], int(read_lines[2]), self.attempt(name, lambda: decode(read_lines[3]))
        self.check("origin of the log", origin == signed_by)
        return origin, size, root

    def head(self, digest_text: str, workload: str, environment: str):
        lines = digest_text.split("\n") + ["", "", ""]
        self.check("form of the approved text", lines[0] == "fairway.release.v1")
        self.check("workload of the release", lines[1] == workload)
        self.check("environment of the release", lines[2] == environment)

    def versions(self, release: dict):
        lines = [line for line in release["digest_text"].split("\n")[4:] if line.count(" ") > 1]
        references = [line for line in lines if line.startswith("reference ")]
        self.check("number of bindings", len(lines) - len(references) == len(release["bindings"]))
        included = [f"{version['role']} {version['asset_version_id']} {version['checksum']}" for version in release["bindings"]]
        self.check("binding in the approved text", all(line in lines for line in included))
        self.check("bindings without a version", all(line in included for line in lines if line not in references))
        ends = tuple(f" {version['asset_version_id']} {version['checksum']}" for version in release["references"])
        for end in ends:
            self.check("reference in the approved text", any(line.endswith(end) for line in references))
        self.check("references without a version", all(line.endswith(ends) for line in references))
        for version in release["bindings"] + release["references"]:
            if version["content"] is not None:
                self.check("content of the version", checksum_of(version["content"]) == version["checksum"])


def verify(case: dict) -> list:
    with open(case["path"], "rb") as file:
        data = file.read()
    verifier = Verifier(case["keys"])
    try:
        verifier.verify(data)
    except Refused:
        verifier.failed = verifier.failed or ["form"]
    return verifier.failed


print(json.dumps([verify(case) for case in json.load(sys.stdin)]))
