//! Evidence bundles: files with which a verifier checks the governance chain of a run or a release offline.
//!
//! A bundle is a DSSE envelope around an in-toto statement. The statement about a run contains the run's evidence and
//! records and the canonical bytes of the versions that it used. It also contains the facts about the run and its
//! release, their inclusion proofs, and a checkpoint of the audit log. Its digests connect the run's output, policy
//! decisions and documents with the approved bytes and the checkpoint. The statement about a release is a
//! verification summary (see [`slsa_release_summary`]).

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
/// The type of in-toto statements.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// The predicate type of statements about runs.
pub const EXECUTION_PREDICATE: &str = "https://fairway.invalid/evidence/execution/v1";
/// The maximum length of a bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;
/// The maximum length of all contents in a bundle, in bytes. Versions and documents beyond it are included as
/// checksums only.
pub const MAX_CONTENT_BYTES: usize = 16 << 20;
/// The name of the digest algorithm for the input and output of a run: BLAKE3 over a salt and the bytes. Erasure also
/// deletes the salt, so that the digest reveals nothing about erased bytes.
pub const SALTED_DIGEST_NAME: &str = "saltedBlake3";

/// An in-toto statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Statement<P> {
    /// The type of the statement: [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub statement_type: String,
    /// The subjects of the statement.
    pub subject: Vec<StatementSubject>,
    /// The type of the predicate.
    pub predicate_type: String,
    /// The content of the statement about the subjects.
    pub predicate: P,
}

/// A statement about a run. Its subjects are the run's input and, if there is one, its output.
pub type ExecutionStatement = Statement<ExecutionPredicate>;

/// A subject of a statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementSubject {
    /// `executions/<id>/output`, `executions/<id>/input` or `releases/<id>`.
    pub name: String,
    /// The hexadecimal digest, by the name of its algorithm.
    pub digest: BTreeMap<String, String>,
}

/// The content of a statement about a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutionPredicate {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The evidence of the run, in the sections of the API's evidence response, without free texts.
    pub evidence: Map<String, Value>,
    /// The serialized records of the run and of people's decisions on it. The facts about the run contain their
    /// digests.
    pub records: Vec<String>,
    /// The evidence documents that the records list.
    pub documents: Vec<BundledDocument>,
    /// The release that the run executed.
    pub release: BundledRelease,
    /// Facts about the run and its release, ordered by their index in the audit log.
    pub facts: Vec<ProvenFact>,
    /// The signed checkpoint (a signed note) to which the inclusion proofs of the facts lead.
    pub checkpoint: String,
}

/// A release in a bundle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledRelease {
    /// The text of workload, environment, lane, bindings and references. Reviewers approve its BLAKE3 digest.
    pub digest_text: String,
    /// The bound versions.
    pub bindings: Vec<BundledVersion>,
    /// The versions that bound contents reference.
    pub references: Vec<BundledVersion>,
}

/// A version in a bundle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledVersion {
    /// The role of a binding, or the kind of a referenced asset.
    pub role: String,
    /// The version.
    pub asset_version_id: AssetVersionId,
    /// `blake3:<hex>` of the canonical bytes.
    pub checksum: String,
    /// The canonical bytes; null if the bundle would exceed [`MAX_CONTENT_BYTES`].
    pub content: Option<String>,
}

/// An evidence document in a bundle: codes, counts and digests. For a retrieval it contains the digests of the
/// retrieved texts and the index revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledDocument {
    /// The identifier of the document.
    pub artifact_id: ArtifactId,
    /// The stored text; null if the bundle would exceed [`MAX_CONTENT_BYTES`].
    pub body: Option<String>,
}

/// A fact with the inclusion proof that it is part of the audit log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenFact {
    /// The index in the log.
    pub index: u64,
    /// The stored bytes: canonical JSON.
    pub body: String,
    /// The inclusion proof: the hashes from the leaf to the root of the checkpoint, in hexadecimal.
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
            predicate_type: EXECUTION_PREDICATE.to_owned(),
            predicate,
        }
    }
}

impl<P: Serialize> Statement<P> {
    /// The payload of the envelope: canonical JSON.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        // Strings, integers and maps with string keys always have a canonical form.
        serde_json_canonicalizer::to_vec(self).unwrap_or_default()
    }
}

/// The subjects of the statement about the run that the evidence describes.
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
