//! Evidence as a graph: the items of a run's evidence are nodes, and their relationships are edges. Source:
//! specification, evidence graph.

use super::{
    ChainApproval, ChainRelease, ChainVersion, ChainWorkload, EvidenceArtifactRow, GovernanceChain, ImposedObligation,
    RecordedDecision, RetrievalRow, RunEvidence,
};
use crate::id::AssetVersionId;
use std::collections::{BTreeMap, BTreeSet};

/// A node of the graph: the run, or one item of its evidence.
#[derive(Clone, PartialEq, Debug)]
pub enum Node<'r> {
    /// The run itself, with its evidence.
    Execution(&'r RunEvidence),
    /// The release of the run.
    Release(&'r ChainRelease),
    /// The workload of the run.
    Workload(&'r ChainWorkload),
    /// A version that the release binds in a role.
    Binding(&'r ChainVersion),
    /// An asset that the release binds or that a bound content references.
    Asset(UsedAsset<'r>),
    /// A policy decision of the run.
    PolicyDecision(&'r RecordedDecision),
    /// An obligation that a policy decision imposed on the run.
    Obligation(&'r ImposedObligation),
    /// A knowledge base query of the run.
    RetrievalEvent(&'r RetrievalRow),
    /// An evidence artifact of the run.
    EvidenceArtifact(&'r EvidenceArtifactRow),
    /// An approval of the release.
    Approval(&'r ChainApproval),
}

/// An asset that a run used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedAsset<'r> {
    /// The slug of the asset, which is unique in its tenant.
    pub slug: &'r str,
    /// The kind of the asset, such as `prompt_template`.
    pub kind: &'r str,
    /// Every version of the asset that the run used through a binding or a reference, oldest first.
    pub versions: BTreeSet<AssetVersionId>,
}

impl Node<'_> {
    /// The name of the node's type in the API, such as `execution`.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Execution(_) => "execution",
            Self::Release(_) => "release",
            Self::Workload(_) => "workload",
            Self::Binding(_) => "binding",
            Self::Asset(_) => "asset",
            Self::PolicyDecision(_) => "policy_decision",
            Self::Obligation(_) => "obligation",
            Self::RetrievalEvent(_) => "retrieval_event",
            Self::EvidenceArtifact(_) => "evidence_artifact",
            Self::Approval(_) => "approval",
        }
    }

    /// The identifier of the node: its type and a key that is unique within the type.
    #[must_use]
    pub fn id(&self) -> String {
        let name = self.type_name();
        match self {
            Self::Execution(record) => format!("{name}:{}", record.execution.execution_id),
            Self::Release(release) => format!("{name}:{}", release.release_id),
            Self::Workload(workload) => format!("{name}:{}", workload.workload_id),
            Self::Binding(binding) => format!("{name}:{}:{}", binding.role, binding.asset_version_id),
            Self::Asset(asset) => format!("{name}:{}", asset.slug),
            Self::PolicyDecision(decision) => format!("{name}:{}", decision.decision_id),
            Self::Obligation(obligation) => format!("{name}:{}", obligation.name),
            Self::RetrievalEvent(retrieval) => format!("{name}:{}", retrieval.artifact_id),
            Self::EvidenceArtifact(artifact) => format!("{name}:{}", artifact.artifact_id),
            Self::Approval(approval) => format!("{name}:{}", approval.approval_id),
        }
    }
}

/// The relationship of a source node to a target node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relationship {
    /// From a run to its release.
    ExecutedUnder,
    /// From a release to its workload.
    BelongsTo,
    /// From a release to an asset that it binds or references.
    Binds,
    /// From a run to one of its policy decisions.
    GovernedBy,
    /// From a policy decision to an obligation that it imposes.
    Requires,
    /// From a run to a knowledge base query.
    Retrieved,
    /// From a run to an evidence artifact.
    Produced,
    /// From a release to an approval.
    ApprovedBy,
}

impl Relationship {
    /// The wire form, such as `executed_under`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ExecutedUnder => "executed_under",
            Self::BelongsTo => "belongs_to",
            Self::Binds => "binds",
            Self::GovernedBy => "governed_by",
            Self::Requires => "requires",
            Self::Retrieved => "retrieved",
            Self::Produced => "produced",
            Self::ApprovedBy => "approved_by",
        }
    }
}

/// An edge of the graph: a directed relationship between two nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The identifier of the source node.
    pub source: String,
    /// The identifier of the target node.
    pub target: String,
    /// The relationship of the source to the target.
    pub relationship: Relationship,
}

/// The evidence graph of a run. INVARIANT: each edge connects two existing nodes, and node identifiers are unique.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph<'r> {
    /// All nodes; the run is the first one.
    pub nodes: Vec<Node<'r>>,
    /// All edges between the nodes.
    pub edges: Vec<Edge>,
}

impl<'r> Graph<'r> {
    /// Builds the graph of a run's evidence and obligations.
    #[must_use]
    pub fn from_record(record: &'r RunEvidence, obligations: &'r [ImposedObligation]) -> Self {
        let (run, release) = (Node::Execution(record), Node::Release(&record.chain.release));
        let workload = Node::Workload(&record.chain.workload);
        let mut graph = Self { nodes: vec![run.clone(), release.clone(), workload.clone()], edges: Vec::new() };
        graph.add_edge(&run, &release, Relationship::ExecutedUnder);
        graph.add_edge(&release, &workload, Relationship::BelongsTo);
        // An asset with several roles or several referenced versions is one node, at the position of its first
        // occurrence.
        let mut assets = assets(&record.chain);
        for binding in &record.chain.bindings {
            graph.nodes.push(Node::Binding(binding));
            if let Some(asset) = assets.remove(binding.asset_slug.as_str()) {
                graph.add_node(&release, Node::Asset(asset), Relationship::Binds);
            }
        }
        // A referenced asset counts as bound, because the release freezes its references together with its bindings.
        for reference in &record.chain.references {
            if let Some(asset) = assets.remove(reference.asset_slug.as_str()) {
                graph.add_node(&release, Node::Asset(asset), Relationship::Binds);
            }
        }
        for decision in &record.decisions {
            graph.add_node(&run, Node::PolicyDecision(decision), Relationship::GovernedBy);
        }
        for obligation in obligations {
            graph.nodes.push(Node::Obligation(obligation));
            let imposed_by = |decision: &&RecordedDecision| obligation.decisions.contains(&decision.decision_id);
            for decision in record.decisions.iter().filter(imposed_by) {
                graph.add_edge(&Node::PolicyDecision(decision), &Node::Obligation(obligation), Relationship::Requires);
            }
        }
        for retrieval in &record.retrievals {
            graph.add_node(&run, Node::RetrievalEvent(retrieval), Relationship::Retrieved);
        }
        for artifact in &record.artifacts {
            graph.add_node(&run, Node::EvidenceArtifact(artifact), Relationship::Produced);
        }
        for approval in &record.chain.approvals {
            graph.add_node(&release, Node::Approval(approval), Relationship::ApprovedBy);
        }
        graph
    }

    fn add_node(&mut self, source: &Node<'r>, target: Node<'r>, relationship: Relationship) {
        self.add_edge(source, &target, relationship);
        self.nodes.push(target);
    }

    fn add_edge(&mut self, source: &Node<'r>, target: &Node<'r>, relationship: Relationship) {
        self.edges.push(Edge { source: source.id(), target: target.id(), relationship });
    }
}

/// The bound and referenced assets of a governance chain, by slug.
fn assets(chain: &GovernanceChain) -> BTreeMap<&str, UsedAsset<'_>> {
    let mut assets = BTreeMap::new();
    for binding in chain.bindings.iter().chain(&chain.references) {
        let (slug, kind) = (binding.asset_slug.as_str(), binding.role.as_str());
        let asset = assets.entry(slug).or_insert_with(|| UsedAsset { slug, kind, versions: BTreeSet::new() });
        asset.versions.insert(binding.asset_version_id);
    }
    assets
}
