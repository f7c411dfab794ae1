//! Evidence bundles: the evidence, contents and facts of a run or a release, in a signed file.

use crate::{
    Failure, RunRefusal, Stores,
    access::{Operation, authorize},
    execution::ExecutionReader,
    release::Releases,
    transparency_log::TransparencyLogs,
};
use fairway_domain::{
    access::Caller,
    asset::ports::VersionStore,
    evidence::{
        RunEvidence, StoredEvidenceArtifact,
        bundle::{
            BundledEvidenceArtifact, BundledRelease, BundledVersion, ExecutionPredicate, ExecutionStatement,
            MAX_TOTAL_CONTENT_BYTES, ProvenFact, has_run_records_digest, last_outcome,
            slsa_release_summary::{LoggedReleaseState, ReleaseLocation, ReleaseStatement, ReleaseSummaryEvidence},
        },
        lineage::{LineageFilter, MAX_LINEAGE_ITEMS},
        run_records::RunRecords,
    },
    execution::{ExecutionOutcome, ports::ExecutionReadStore},
    id::{ArtifactId, AssetVersionId, ErasureId, ExecutionId, ReleaseId, WorkloadId},
    release::{Release, StateName, ports::ReleaseStore},
    tenant::TenantScope,
    transparency_log::{LoggedFact, TreeStore},
    use_case::ports::UseCaseStore,
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, sync::Arc};
use uuid::Uuid;

/// Kinds of the facts that the bundle of a run contains.
const KINDS: &[&str] = &[
    "erasure.approved",
    "erasure.completed",
    "erasure.requested",
    "execution.code_accepted",
    "execution.denied",
    "execution.ended",
    "execution.review_asked",
    "execution.reviewed",
    "execution.settled",
    "release.reviewed",
    "release.transitioned",
    ORIGIN_KIND,
];
/// Kinds of the facts from which a release summary derives the state of the release.
const RELEASE_KINDS: &[&str] =
    &["release.created", "release.reviewed", "release.rolled_back", "release.transitioned", ORIGIN_KIND];
/// Kind of the fact about the use case from which a workload was created.
const ORIGIN_KIND: &str = "use_case.published";
/// Maximum number of facts in a bundle. It suffices, because the number of verdicts is limited and a release has few
/// transitions.
const MAX_FACTS: u32 = 500;

/// Maximum number of lineage rows that a bundle reads: the limit of a run, and the row that marks a truncated lineage.
const MAX_LINEAGE_ROWS: u32 = 1_001;
const _: () = assert!(MAX_LINEAGE_ROWS as usize == MAX_LINEAGE_ITEMS + 1, "a bundle holds the whole lineage");

/// Creates signed evidence bundles of runs, and signed summaries of releases.
#[derive(Clone)]
pub struct EvidenceBundles {
    releases: Arc<Releases>,
    execution_reader: Arc<ExecutionReader>,
    transparency_logs: Arc<TransparencyLogs>,
    tree_store: Arc<dyn TreeStore>,
    execution_store: Arc<dyn ExecutionReadStore>,
    release_store: Arc<dyn ReleaseStore>,
    version_store: Arc<dyn VersionStore>,
    use_case_store: Arc<dyn UseCaseStore>,
}

/// The evidence of an ended run without personal texts. The calling layer renders it as JSON for
/// [`EvidenceBundles::sign_bundle`].
#[derive(Clone, Debug)]
pub struct BundleEvidence {
    scope: TenantScope,
    /// The evidence records from which the JSON is rendered.
    pub record: RunEvidence,
}

impl EvidenceBundles {
    pub(crate) fn new(
        stores: &Stores,
        releases: &Arc<Releases>,
        execution_reader: &Arc<ExecutionReader>,
        transparency_logs: &Arc<TransparencyLogs>,
    ) -> Self {
        Self {
            releases: Arc::clone(releases),
            execution_reader: Arc::clone(execution_reader),
            transparency_logs: Arc::clone(transparency_logs),
            tree_store: Arc::clone(&stores.log_trees),
            execution_store: Arc::clone(&stores.executions),
            release_store: Arc::clone(&stores.releases),
            version_store: Arc::clone(&stores.versions),
            use_case_store: Arc::clone(&stores.use_cases),
        }
    }
}

impl EvidenceBundles {
    /// Returns the evidence that the bundle of a run contains.
    ///
    /// # Errors
    /// When the caller may not see the run or the contents of its versions, or the run has not ended.
    pub async fn read_bundle_evidence(&self, caller: &Caller, id: ExecutionId) -> Result<BundleEvidence, Failure> {
        let mut record = self.execution_reader.read_evidence(caller, id).await?;
        let position = self.execution_reader.position_of_run(caller, &record.execution).await?;
        let scope = authorize::authorize(caller, Operation::ReadEvidenceBundle, &position)?;
        if record.execution.outcome.is_none() {
            return Err(RunRefusal::NotEnded.into());
        }
        // A bundle leaves the installation, and an erasure cannot reach it there. The evidence therefore omits texts of
        // people.
        record.notes.clear();
        record.retrievals.iter_mut().for_each(|retrieval| retrieval.query = None);
        record.notes_withheld = true;
        Ok(BundleEvidence { scope, record })
    }

    /// Returns the signed bundle of a run, with the JSON that the caller rendered from its evidence.
    ///
    /// # Errors
    /// When no checkpoint covers the run's facts yet, or a store or the signer fails.
    pub async fn sign_bundle(&self, bundle: BundleEvidence, evidence: Map<String, Value>) -> Result<String, Failure> {
        let BundleEvidence { scope, record } = bundle;
        let run = &record.execution;
        let release = self.release_store.find(scope, run.release_id).await?;
        let release = release.ok_or(Failure::Inconsistent("the release of a run is missing"))?.release;
        let mut subjects = vec![run.execution_id.uuid(), run.release_id.uuid()];
        subjects.extend(self.origin(scope, release.workload_id).await?);
        subjects.extend(record.erasure.map(|erasure| erasure.erasure_id.uuid()));
        let facts = self.tree_store.facts_about(scope, &subjects, KINDS, MAX_FACTS).await?;
        // The last facts may have no index yet, because the sequencer assigns it after the commit.
        let logged_outcome = last_outcome(facts.iter().map(|fact| fact.body.as_slice()), run.execution_id);
        if logged_outcome.as_deref() != run.outcome.map(ExecutionOutcome::as_str) {
            return Err(Failure::NotYetInCheckpoint);
        }
        if record.erasure.is_some_and(|erasure| !approves(&facts, erasure.erasure_id)) {
            return Err(Failure::NotYetInCheckpoint);
        }
        let has_run_digest = has_run_records_digest(facts.iter().map(|fact| fact.body.as_slice()), run.execution_id);
        let (records, documents) = self.records(scope, &record, has_run_digest).await?;
        let (facts, checkpoint) = self.prove(scope, facts).await?;
        let mut remaining_bytes = MAX_TOTAL_CONTENT_BYTES;
        let statement = ExecutionStatement::about_run(ExecutionPredicate {
            tenant_id: scope.tenant(),
            evidence,
            records: records.iter().map(RunRecords::to_text).collect(),
            release: self.bundled_release(scope, &release, &mut remaining_bytes).await?,
            documents: bundled_documents(documents, &mut remaining_bytes),
            facts,
            checkpoint,
        });
        self.transparency_logs.sign_payload(scope, statement.to_payload()).await
    }

    /// Returns the signed summary of a release.
    ///
    /// # Errors
    /// In these cases: the caller may not see the release or the contents of its versions; no checkpoint covers its
    /// facts yet; a store or the signer fails.
    pub async fn sign_release_summary(&self, caller: &Caller, id: ReleaseId) -> Result<String, Failure> {
        let operation = Operation::ReadReleaseBundle;
        let (scope, _, release_with_deployment) = self.releases.authorize_release(caller, operation, id).await?;
        let release = release_with_deployment.release;
        let mut subjects = vec![id.uuid()];
        subjects.extend(self.origin(scope, release.workload_id).await?);
        let facts = self.tree_store.facts_about(scope, &subjects, RELEASE_KINDS, MAX_FACTS).await?;
        // The last facts may have no index yet, because the sequencer assigns it after the commit.
        let history = LoggedReleaseState::from_facts(facts.iter().map(|fact| fact.body.as_slice()), id);
        if !leads_to(&history, release.state.name()) {
            return Err(Failure::NotYetInCheckpoint);
        }
        let (facts, checkpoint) = self.prove(scope, facts).await?;
        let evidence = ReleaseSummaryEvidence {
            tenant_id: scope.tenant(),
            release_id: id,
            release: self.bundled_release(scope, &release, &mut { MAX_TOTAL_CONTENT_BYTES }).await?,
            facts,
            checkpoint,
        };
        let location = ReleaseLocation { workspace_id: release.workspace_id, environment: &release.environment };
        let statement = ReleaseStatement::from_evidence(evidence, location);
        self.transparency_logs.sign_payload(scope, statement.to_payload()).await
    }

    /// Returns the records of a run in the canonical form over which facts contain a digest, and the evidence documents
    /// among these records.
    async fn records(
        &self,
        scope: TenantScope,
        record: &RunEvidence,
        has_run_digest: bool,
    ) -> Result<(Vec<RunRecords>, Vec<StoredEvidenceArtifact>), Failure> {
        let (store, id) = (&self.execution_store, record.execution.execution_id);
        let mut documents = store.evidence_documents(scope, id).await?;
        // A resolution of an unknown outcome may have stored another document since the evidence was read. Such a
        // document is left out.
        let recorded_ids: BTreeSet<ArtifactId> = record.artifacts.iter().map(|artifact| artifact.artifact_id).collect();
        documents.retain(|document| recorded_ids.contains(&document.artifact_id));
        let lineage = store.lineage(scope, id, LineageFilter::default(), MAX_LINEAGE_ROWS, 0).await?;
        let lineage = lineage.map(|page| page.items).unwrap_or_default();
        let records = RunRecords::group_stored_by_fact(has_run_digest, &record.decisions, &documents, &lineage);
        let digested_ids: BTreeSet<ArtifactId> =
            records.iter().flat_map(|part| &part.artifacts).map(|entry| entry.artifact_id).collect();
        documents.retain(|document| digested_ids.contains(&document.artifact_id));
        Ok((records, documents))
    }

    /// Returns the use case from which a workload was created.
    async fn origin(&self, scope: TenantScope, workload: WorkloadId) -> Result<Option<Uuid>, Failure> {
        Ok(self.use_case_store.find_by_workload(scope, workload).await?.map(|origin| origin.use_case_id.uuid()))
    }

    /// Returns the facts with their inclusion proofs. A fact without an index is not covered by a checkpoint.
    async fn prove(&self, scope: TenantScope, facts: Vec<LoggedFact>) -> Result<(Vec<ProvenFact>, String), Failure> {
        let (proofs, checkpoint) = self.transparency_logs.prove_facts(scope, &facts).await?;
        let proven = facts.into_iter().zip(proofs).map(|(fact, proof)| {
            let body = String::from_utf8(fact.body);
            Ok(ProvenFact {
                index: fact.index,
                body: body.map_err(|_| Failure::Inconsistent("a stored fact is not text"))?,
                proof: proof.iter().map(ToString::to_string).collect(),
            })
        });
        Ok((proven.collect::<Result<_, Failure>>()?, checkpoint))
    }

    async fn bundled_release(
        &self,
        scope: TenantScope,
        release: &Release,
        remaining_bytes: &mut usize,
    ) -> Result<BundledRelease, Failure> {
        let mut bindings = Vec::new();
        for binding in &release.bindings {
            bindings.push(BundledVersion {
                role: binding.role.as_str().to_owned(),
                asset_version_id: binding.asset_version_id,
                checksum: binding.checksum.as_str().to_owned(),
                content: self.content(scope, binding.asset_version_id, remaining_bytes).await?,
            });
        }
        let (mut references, mut included_ids) = (Vec::new(), BTreeSet::new());
        for reference in &release.references {
            if included_ids.insert(reference.asset_version_id) {
                references.push(BundledVersion {
                    role: reference.kind.as_str().to_owned(),
                    asset_version_id: reference.asset_version_id,
                    checksum: reference.checksum.as_str().to_owned(),
                    content: self.content(scope, reference.asset_version_id, remaining_bytes).await?,
                });
            }
        }
        Ok(BundledRelease { digest_text: release.bindings_digest_input(), bindings, references })
    }

    /// Returns the canonical bytes of an asset version; `None` if they would exceed the size limit of the bundle.
    async fn content(
        &self,
        scope: TenantScope,
        id: AssetVersionId,
        remaining_bytes: &mut usize,
    ) -> Result<Option<String>, Failure> {
        let stored = self.version_store.find_version(scope, id).await?;
        let (_, version) = stored.ok_or(Failure::Inconsistent("a version of a release is missing"))?;
        Ok(remaining_bytes.checked_sub(version.canonical.len()).map(|remaining| {
            *remaining_bytes = remaining;
            version.canonical
        }))
    }
}

/// Returns the evidence documents. The text of a document is included while the size limit of the bundle permits.
fn bundled_documents(
    documents: Vec<StoredEvidenceArtifact>,
    remaining_bytes: &mut usize,
) -> Vec<BundledEvidenceArtifact> {
    let to_bundled = |StoredEvidenceArtifact { artifact_id, body, .. }: StoredEvidenceArtifact| {
        let remaining = remaining_bytes.checked_sub(body.len());
        *remaining_bytes = remaining.unwrap_or(*remaining_bytes);
        BundledEvidenceArtifact { artifact_id, body: remaining.map(|_| body) }
    };
    documents.into_iter().map(to_bundled).collect()
}

/// Whether the facts contain the approval of this erasure.
fn approves(facts: &[LoggedFact], erasure: ErasureId) -> bool {
    facts.iter().any(|fact| {
        let body: Value = serde_json::from_slice(&fact.body).unwrap_or_default();
        let text = |pointer| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        text("/kind") == "erasure.approved" && text("/subject/id") == erasure.to_string()
    })
}

/// Whether the facts lead to the stored state. Other releases can change the state without a fact about this release:
/// their activation supersedes it, and their rollback returns lanes to it. This function therefore treats `Active` and
/// `Superseded` as equal.
fn leads_to(history: &LoggedReleaseState, stored_state: StateName) -> bool {
    let logged_state = history.state.as_str();
    match stored_state {
        StateName::Active | StateName::Superseded => {
            [StateName::Active.as_str(), StateName::Superseded.as_str()].contains(&logged_state)
        }
        StateName::Draft | StateName::ReviewReady | StateName::Approved | StateName::Retired => {
            logged_state == stored_state.as_str()
        }
    }
}
