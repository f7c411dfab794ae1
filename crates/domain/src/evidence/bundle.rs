//! Evidence bundles: signed files from which a verifier checks the governance chain of a run or a release offline.
//!
//! A bundle is a DSSE envelope around an in-toto statement. The statement about a run contains the run's evidence and
//! records, and the canonical bytes of the versions that the run used. It also contains the facts about the run and its
//! release, their inclusion proofs, and a checkpoint of the audit log. Digests in the statement connect the run's
//! answer, policy decisions and documents with the approved bytes and the checkpoint. The statement about a release is
//! a verification summary (see [`slsa_release_summary`]).

mod envelope;
mod report;
pub mod slsa_release_summary;
mod verification;

pub use envelope::{Envelope, EnvelopeSignature};
pub use report::{BundleCheck, BundleKind, BundleReport, CheckVerdict};
pub use verification::{SecondCheckpoint, TrustedInputs, has_run_records_digest, last_outcome, verify_bundle};

use crate::id::{ArtifactId, AssetVersionId, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The payload type of in-toto statements in DSSE envelopes.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
/// The type identifier that every in-toto statement has.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The predicate type of statements about runs.
pub const EXECUTION_PREDICATE_TYPE: &str = "https://fairway.invalid/evidence/execution/v1";
/// The maximum size of a bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;
/// The maximum total size of the contents in a bundle, in bytes. A bundle includes only the checksums of versions and
/// documents beyond it.
pub const MAX_TOTAL_CONTENT_BYTES: usize = 16 << 20;
/// The name of the digest algorithm for the input and the answer of a run: BLAKE3 over a salt and the bytes. An erasure
/// also deletes the salt, so the digest reveals nothing about the erased bytes.
pub const SALTED_DIGEST_NAME: &str = "saltedBlake3";

/// An in-toto statement, whose predicate has the type `P`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Statement<P> {
    /// The type of the statement: [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub statement_type: String,
    /// The things about which the statement is made, each with its digest.
    pub subject: Vec<StatementSubject>,
    /// The URI that identifies the type of the predicate.
    pub predicate_type: String,
    /// The content of the statement about its subjects.
    pub predicate: P,
}

/// A statement about a run. Its subjects are the input of the run and, if it exists, its answer.
pub type ExecutionStatement = Statement<ExecutionPredicate>;

/// One thing about which a statement is made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementSubject {
    /// The name of the subject: `executions/<id>/output`, `executions/<id>/input` or `releases/<id>`.
    pub name: String,
    /// The digest of the subject in hexadecimal, by the name of the digest algorithm.
    pub digest: BTreeMap<String, String>,
}

/// The content of a statement about a run: its evidence, and the proofs for that evidence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionPredicate {
    /// The tenant to which the run belongs.
    pub tenant_id: TenantId,
    /// The evidence of the run without free texts, in the sections of the API's evidence response.
    pub evidence: Map<String, Value>,
    /// The records of the run, and of decisions of people about it, as canonical JSON. The facts about the run contain
    /// the digests of these texts.
    pub records: Vec<String>,
    /// The evidence artifacts that the records list.
    pub documents: Vec<BundledEvidenceArtifact>,
    /// The release that the run executed.
    pub release: BundledRelease,
    /// The facts about the run and its release, ordered by their index in the audit log.
    pub facts: Vec<ProvenFact>,
    /// The checkpoint of the audit log as a signed note. The inclusion proofs of the facts lead to its root.
    pub checkpoint: String,
}

/// The release in a bundle, with the versions that it uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledRelease {
    /// The text of workload, environment, lane, bindings and references, whose BLAKE3 digest reviewers approve.
    pub digest_text: String,
    /// The versions that the release binds.
    pub bindings: Vec<BundledVersion>,
    /// The versions that the bound contents reference.
    pub references: Vec<BundledVersion>,
}

/// An asset version in a bundle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledVersion {
    /// The role of a binding, or the asset kind of a referenced version.
    pub role: String,
    /// The identifier of the version.
    pub asset_version_id: AssetVersionId,
    /// The checksum of the canonical bytes: `blake3:` and 64 hexadecimal digits.
    pub checksum: String,
    /// The canonical bytes; null if the bundle would exceed [`MAX_TOTAL_CONTENT_BYTES`] with them.
    pub content: Option<String>,
}

/// An evidence artifact in a bundle: codes, counts and digests. The artifact of a query contains the digests of the
/// retrieved texts and the index revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledEvidenceArtifact {
    /// The identifier of the evidence artifact.
    pub artifact_id: ArtifactId,
    /// The stored body; null if the bundle would exceed [`MAX_TOTAL_CONTENT_BYTES`] with it.
    pub body: Option<String>,
}

/// A fact, with the proof that the audit log contains it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenFact {
    /// The index of the fact in the audit log.
    pub index: u64,
    /// The canonical JSON of the fact, as the log stores it.
    pub body: String,
    /// The inclusion proof in hexadecimal: the hashes with which a verifier computes the root of the checkpoint from
    /// the fact.
    pub proof: Vec<String>,
}

impl Statement<ExecutionPredicate> {
    /// Builds the statement about a run, with the input and output of the run as subjects.
    #[must_use]
    pub fn about_run(predicate: ExecutionPredicate) -> Self {
        let subject = subjects_of(&predicate.evidence);
        Self {
            statement_type: STATEMENT_TYPE.to_owned(),
            subject,
            predicate_type: EXECUTION_PREDICATE_TYPE.to_owned(),
            predicate,
        }
    }
}

impl<P: Serialize> Statement<P> {
    /// The payload of the bundle's envelope, as canonical JSON.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        // A statement contains only strings, integers and maps with string keys, which always have a canonical form.
        serde_json_canonicalizer::to_vec(self).unwrap_or_default()
    }
}

/// The subjects of a statement about a run: the digests of its input and its answer, from the evidence.
fn subjects_of(evidence: &Map<String, Value>) -> Vec<StatementSubject> {
    let member = |name: &str| evidence.get("execution").and_then(|run| run.get(name)).and_then(Value::as_str);
    let subject = |(part, digest): (&str, Option<&str>)| {
        Some(StatementSubject {
            name: format!("executions/{}/{part}", member("execution_id")?),
            digest: BTreeMap::from([(SALTED_DIGEST_NAME.to_owned(), digest?.strip_prefix("blake3:")?.to_owned())]),
        })
    };
    [("output", member("output_digest")), ("input", member("input_digest"))].into_iter().filter_map(subject).collect()
}

#[cfg(test)]
mod tests;
