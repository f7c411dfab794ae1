//! The facts of a batch of ended runs.

use crate::database::Param;
use fairway_domain::{
    audit::{Fact, leaf_hash},
    id::WorkspaceId,
    tenant::TenantScope,
};
use uuid::Uuid;

/// Placeholders `$1` to `$6`: the facts of a batch, one array for each column. [`FactColumns::with`] binds them.
macro_rules! fact_placeholders {
    () => {
        "$1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[]"
    };
}
pub(super) use fact_placeholders;

/// Inserts the facts of the rows whose guard held. Produces two CTEs; the argument names the CTE that returns those
/// rows.
macro_rules! insert_facts {
    ($held:literal) => {
        concat!(
            "told AS (
                INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
                SELECT tenant_id, fact_id, fact_workspace, fact_kind, fact_body, leaf_hash FROM ",
            $held,
            "),
             waiting AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM ",
            $held,
            ")"
        )
    };
}
pub(super) use insert_facts;

/// The column names of [`fact_placeholders`].
macro_rules! fact_column_names {
    () => {
        "tenant_id, fact_id, fact_workspace, fact_kind, fact_body, leaf_hash"
    };
}
pub(super) use fact_column_names;

/// The facts of a batch, one vector for each column.
#[derive(Default)]
pub(super) struct FactColumns {
    tenants: Vec<Uuid>,
    ids: Vec<Uuid>,
    workspaces: Vec<Option<Uuid>>,
    kinds: Vec<&'static str>,
    bodies: Vec<Vec<u8>>,
    leaves: Vec<Vec<u8>>,
}

impl FactColumns {
    pub(super) fn push(&mut self, scope: TenantScope, fact: &Fact) {
        let body = fact.canonical_bytes(scope.tenant());
        self.tenants.push(scope.tenant().uuid());
        self.ids.push(fact.fact_id.uuid());
        self.workspaces.push(fact.workspace_id.map(WorkspaceId::uuid));
        self.kinds.push(fact.kind.as_str());
        self.leaves.push(leaf_hash(&body).to_vec());
        self.bodies.push(body);
    }

    /// The values of [`fact_placeholders`], followed by the statement's own.
    pub(super) fn with<'a>(&'a self, own: &[Param<'a>]) -> Vec<Param<'a>> {
        let mut all: Vec<Param<'a>> =
            vec![&self.tenants, &self.ids, &self.workspaces, &self.kinds, &self.bodies, &self.leaves];
        all.extend_from_slice(own);
        all
    }
}
