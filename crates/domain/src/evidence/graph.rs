//! Evidence as a graph: the same record, with who stands behind whom (spec: Evidence graph).

use super::{
    ArtifactRow, Chain, ChainApproval, ChainBinding, ChainRelease, ChainWorkload, DecisionRow, EvidenceRecord,
    OwedObligation, RetrievalRow,
};
use crate::id::AssetVersionId;
use std::collections::{BTreeMap, BTreeSet};

/// One thing that stands behind a run, or the run itself.
#[derive(Clone, PartialEq, Debug)]
pub enum Node<'r> {
    /// The run.
    Execution(&'r EvidenceRecord),
    /// The release that it ran under.
    Release(&'r ChainRelease),
    /// The workload that ran.
    Workload(&'r ChainWorkload),
    /// A version that the release binds in a role.
    Binding(&'r ChainBinding),
    /// The asset that such a version is of, or one that a bound content refers to.
    Asset(BoundAsset<'r>),
    /// A decision that was taken for the run.
    PolicyDecision(&'r DecisionRow),
    /// Something that a decision imposed.
    Obligation(&'r OwedObligation),
    /// Something that the run looked up in a knowledge base.
    RetrievalEvent(&'r RetrievalRow),
    /// A document that the run left.
    EvidenceArtifact(&'r ArtifactRow),
    /// A verdict on the release.
    Approval(&'r ChainApproval),
}

/// An asset that a run went by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundAsset<'r> {
    /// Its slug, unique in a tenant.
    pub slug: &'r str,
    /// Its kind.
    pub kind: &'r str,
    /// Every version of it that the run went by, bound or referred to, the oldest first.
    pub versions: BTreeSet<AssetVersionId>,
}

impl Node<'_> {
    /// The spelling of its type.
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

    /// Its name in the graph: its type, and what tells it from others of that type.
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

/// How one thing stands to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relationship {
    /// A run and its release.
    ExecutedUnder,
    /// A release and its workload.
    BelongsTo,
    /// A release and an asset.
    Binds,
    /// A run and a decision.
    GovernedBy,
    /// A decision and what it imposes.
    Requires,
    /// A run and what it looked up.
    Retrieved,
    /// A run and a document.
    Produced,
    /// A release and a verdict.
    ApprovedBy,
}

impl Relationship {
    /// The spelling on the wire.
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

/// That one node stands to another in a way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The id of the first.
    pub source: String,
    /// The id of the second.
    pub target: String,
    /// How the first stands to the second.
    pub relationship: Relationship,
}

/// Nodes and edges. INVARIANT: both ends of every edge are nodes, and no two nodes have one id.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph<'r> {
    /// The things.
    pub nodes: Vec<Node<'r>>,
    /// How they stand to each other.
    pub edges: Vec<Edge>,
}

impl<'r> Graph<'r> {
    /// The graph of a record, and of what its run owed.
    #[must_use]
    pub fn of(record: &'r EvidenceRecord, owed: &'r [OwedObligation]) -> Self {
        let (run, release) = (Node::Execution(record), Node::Release(&record.chain.release));
        let workload = Node::Workload(&record.chain.workload);
        let mut graph = Self { nodes: vec![run.clone(), release.clone(), workload.clone()], edges: Vec::new() };
        graph.join(&run, &release, Relationship::ExecutedUnder);
        graph.join(&release, &workload, Relationship::BelongsTo);
        // An asset may be bound in more than one role and referred to in more than one version, and is still one: it
        // stands where it is named first.
        let mut assets = assets(&record.chain);
        for binding in &record.chain.bindings {
            graph.nodes.push(Node::Binding(binding));
            if let Some(asset) = assets.remove(binding.asset_slug.as_str()) {
                graph.add(&release, Node::Asset(asset), Relationship::Binds);
            }
        }
        // What the bound contents refer to is settled with them, and bound as they are.
        for reference in &record.chain.references {
            if let Some(asset) = assets.remove(reference.asset_slug.as_str()) {
                graph.add(&release, Node::Asset(asset), Relationship::Binds);
            }
        }
        for decision in &record.decisions {
            graph.add(&run, Node::PolicyDecision(decision), Relationship::GovernedBy);
        }
        for obligation in owed {
            graph.nodes.push(Node::Obligation(obligation));
            let imposed_by = |decision: &&DecisionRow| obligation.decisions.contains(&decision.decision_id);
            for decision in record.decisions.iter().filter(imposed_by) {
                graph.join(&Node::PolicyDecision(decision), &Node::Obligation(obligation), Relationship::Requires);
            }
        }
        for retrieval in &record.retrievals {
            graph.add(&run, Node::RetrievalEvent(retrieval), Relationship::Retrieved);
        }
        for artifact in &record.artifacts {
            graph.add(&run, Node::EvidenceArtifact(artifact), Relationship::Produced);
        }
        for approval in &record.chain.approvals {
            graph.add(&release, Node::Approval(approval), Relationship::ApprovedBy);
        }
        graph
    }

    fn add(&mut self, from: &Node<'r>, to: Node<'r>, relationship: Relationship) {
        self.join(from, &to, relationship);
        self.nodes.push(to);
    }

    fn join(&mut self, from: &Node<'r>, to: &Node<'r>, relationship: Relationship) {
        self.edges.push(Edge { source: from.id(), target: to.id(), relationship });
    }
}

/// The assets of a chain by their slugs.
fn assets(chain: &Chain) -> BTreeMap<&str, BoundAsset<'_>> {
    let mut assets = BTreeMap::new();
    for named in chain.bindings.iter().chain(&chain.references) {
        let (slug, kind) = (named.asset_slug.as_str(), named.role.as_str());
        let asset = assets.entry(slug).or_insert_with(|| BoundAsset { slug, kind, versions: BTreeSet::new() });
        asset.versions.insert(named.asset_version_id);
    }
    assets
}
