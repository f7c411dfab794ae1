//! The facts of a batch of decisions, as columns of the statement's input.

use super::Input;
use fairway_domain::{
    audit::{Fact, leaf_hash},
    id::WorkspaceId,
    tenant::TenantScope,
};
use uuid::Uuid;

/// The facts of many rows, one vector for each column. A row may have no fact.
#[derive(Default)]
pub(crate) struct FactColumns {
    ids: Vec<Option<Uuid>>,
    workspaces: Vec<Option<Uuid>>,
    kinds: Vec<Option<&'static str>>,
    bodies: Vec<Option<Vec<u8>>>,
    leaf_hashes: Vec<Option<Vec<u8>>>,
}

impl FactColumns {
    pub(crate) fn push(&mut self, scope: TenantScope, fact: &Fact) {
        self.push_fact_or_nulls(scope, Some(fact));
    }

    pub(crate) fn push_fact_or_nulls(&mut self, scope: TenantScope, fact: Option<&Fact>) {
        let body = fact.map(|fact| fact.canonical_bytes(scope.tenant()));
        self.ids.push(fact.map(|fact| fact.fact_id.uuid()));
        self.workspaces.push(fact.and_then(|fact| fact.workspace_id).map(WorkspaceId::uuid));
        self.kinds.push(fact.map(|fact| fact.kind.as_str()));
        self.leaf_hashes.push(body.as_deref().map(|body| leaf_hash(body).to_vec()));
        self.bodies.push(body);
    }

    /// Adds the fact columns that a [`GuardedBatchCommit`](super::GuardedBatchCommit) reads.
    pub(crate) fn add_to_input<'v>(self, input: Input<'v>) -> Input<'v> {
        input
            .with_column("fact_id", self.ids)
            .with_column("fact_workspace_id", self.workspaces)
            .with_column("fact_kind", self.kinds)
            .with_column("fact_body", self.bodies)
            .with_column("fact_leaf_hash", self.leaf_hashes)
    }
}
