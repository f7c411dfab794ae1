//! Evidence in graph form.

use super::{
    ApprovalSection, ArtifactSection, BindingSection, DecisionSection, ExecutionSection, ObligationSection,
    ReleaseSection, RetrievalSection, WorkloadSection,
};
use fairway_domain::evidence::{
    RunEvidence,
    graph::{Graph, Node, UsedAsset},
};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// The governance chain of a run as nodes and edges.
#[derive(Serialize, ToSchema)]
#[schema(as = GraphEvidence)]
pub(crate) struct GraphEvidenceView {
    /// Always `graph`.
    format: &'static str,
    nodes: Vec<NodeView>,
    edges: Vec<EdgeView>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EvidenceNode)]
struct NodeView {
    /// Identifier of the node in this graph.
    id: String,
    /// Type of the node: `execution`, `release`, `workload`, `binding`, `asset`, `policy_decision`, `obligation`,
    /// `retrieval_event`, `evidence_artifact` or `approval`.
    r#type: &'static str,
    /// The section of the flat form that the node corresponds to.
    data: NodeData,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EvidenceNodeData)]
#[serde(untagged)]
enum NodeData {
    Execution(Box<ExecutionSection>),
    Release(ReleaseSection),
    Workload(WorkloadSection),
    Binding(BindingSection),
    Asset(AssetSection),
    PolicyDecision(DecisionSection),
    Obligation(ObligationSection),
    RetrievalEvent(RetrievalSection),
    EvidenceArtifact(ArtifactSection),
    Approval(ApprovalSection),
}

/// An asset with a version that the release binds or references.
#[derive(Serialize, ToSchema)]
struct AssetSection {
    asset_slug: String,
    /// The kind of the asset, which is also the role of its binding.
    asset_kind: String,
    /// All versions that the run used, oldest first: versions of a `binding`, and versions that bound contents
    /// reference (`references` in the flat form).
    asset_version_ids: Vec<Uuid>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EvidenceEdge)]
struct EdgeView {
    source: String,
    target: String,
    /// `executed_under`, `belongs_to`, `binds`, `governed_by`, `requires`, `retrieved`, `produced` or `approved_by`.
    relationship: &'static str,
}

impl AssetSection {
    fn of(asset: &UsedAsset<'_>) -> Self {
        Self {
            asset_slug: asset.slug.to_owned(),
            asset_kind: asset.kind.to_owned(),
            asset_version_ids: asset.versions.iter().map(|version| version.uuid()).collect(),
        }
    }
}

impl GraphEvidenceView {
    pub(super) fn of(record: &RunEvidence) -> Self {
        let obligations = record.obligations();
        let graph = Graph::from_record(record, &obligations);
        let nodes = graph.nodes.iter().map(|node| NodeView {
            id: node.id(),
            r#type: node.type_name(),
            data: node_data(node, record),
        });
        let edges = graph.edges.iter().map(|edge| EdgeView {
            source: edge.source.clone(),
            target: edge.target.clone(),
            relationship: edge.relationship.as_str(),
        });
        Self { format: "graph", nodes: nodes.collect(), edges: edges.collect() }
    }
}

fn node_data(node: &Node<'_>, record: &RunEvidence) -> NodeData {
    match node {
        Node::Execution(record) => NodeData::Execution(Box::new(ExecutionSection::of(record))),
        Node::Release(release) => NodeData::Release(ReleaseSection::of(release)),
        Node::Workload(workload) => NodeData::Workload(WorkloadSection::of(workload)),
        Node::Binding(binding) => NodeData::Binding(BindingSection::of(binding)),
        Node::Asset(asset) => NodeData::Asset(AssetSection::of(asset)),
        Node::PolicyDecision(decision) => NodeData::PolicyDecision(DecisionSection::of(decision)),
        Node::Obligation(obligation) => NodeData::Obligation(ObligationSection::of(obligation)),
        Node::RetrievalEvent(retrieval) => NodeData::RetrievalEvent(RetrievalSection::of(retrieval, record)),
        Node::EvidenceArtifact(artifact) => NodeData::EvidenceArtifact(ArtifactSection::of(artifact)),
        Node::Approval(approval) => NodeData::Approval(ApprovalSection::of(approval, record)),
    }
}
