//! The last part of every guarded commit: fact, idempotency key, and the result of the guard.

use crate::database::Param;
use fairway_domain::{
    audit::{Fact, leaf_hash},
    id::WorkspaceId,
    idempotency::KeyedOutcome,
    tenant::TenantScope,
};
use uuid::Uuid;

/// The arguments of `fairway_commit` after the guard's result, as SQL placeholders `$1` to `$12`. A statement's own
/// values follow from `$13`.
///
/// | placeholder | value |
/// |---|---|
/// | `$1` | tenant |
/// | `$2` to `$6` | fact: id, workspace, kind, canonical bytes, leaf hash |
/// | `$7` to `$12` | key: caller, route, key, body digest, status, resource; null without one |
macro_rules! commit_tail {
    () => {
        "$1::uuid, $2::uuid, $3::uuid, $4::text, $5::bytea, $6::bytea, \
         $7::text, $8::text, $9::text, $10::bytea, $11::smallint, $12::uuid"
    };
}
pub(crate) use commit_tail;

/// The values of [`commit_tail`], alive while the statement runs.
pub(crate) struct CommitParams {
    tenant: Uuid,
    fact_id: Uuid,
    workspace: Option<Uuid>,
    kind: &'static str,
    body: Vec<u8>,
    leaf_hash: Vec<u8>,
    caller: Option<String>,
    route: Option<String>,
    key: Option<String>,
    digest: Option<Vec<u8>>,
    status: Option<i16>,
    resource: Option<Uuid>,
}

impl CommitParams {
    pub(crate) fn new(scope: TenantScope, fact: &Fact, key: Option<&KeyedOutcome>) -> Self {
        let body = fact.canonical_bytes(scope.tenant());
        let leaf_hash = leaf_hash(&body).to_vec();
        Self {
            tenant: scope.tenant().uuid(),
            fact_id: fact.fact_id.uuid(),
            workspace: fact.workspace_id.map(WorkspaceId::uuid),
            kind: fact.kind.as_str(),
            body,
            leaf_hash,
            caller: key.map(|keyed| keyed.key.caller.to_string()),
            route: key.map(|keyed| keyed.key.route.clone()),
            key: key.map(|keyed| keyed.key.key.clone()),
            digest: key.map(|keyed| keyed.key.body_digest.to_vec()),
            // HTTP statuses have three digits, so they fit into `i16`.
            status: key.and_then(|keyed| i16::try_from(keyed.outcome.status).ok()),
            resource: key.map(|keyed| keyed.outcome.resource),
        }
    }

    /// The values of [`commit_tail`], followed by the statement's own.
    pub(crate) fn with<'a>(&'a self, own: &[Param<'a>]) -> Vec<Param<'a>> {
        let mut all: Vec<Param<'a>> = vec![
            &self.tenant,
            &self.fact_id,
            &self.workspace,
            &self.kind,
            &self.body,
            &self.leaf_hash,
            &self.caller,
            &self.route,
            &self.key,
            &self.digest,
            &self.status,
            &self.resource,
        ];
        all.extend_from_slice(own);
        all
    }
}

/// Placeholders `$1` to `$6`: the facts of a batch, one array for each column. [`FactColumns::with`] binds them.
macro_rules! fact_placeholders {
    () => {
        "$1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[]"
    };
}
pub(crate) use fact_placeholders;

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
pub(crate) use insert_facts;

/// The column names of [`fact_placeholders`].
macro_rules! fact_column_names {
    () => {
        "tenant_id, fact_id, fact_workspace, fact_kind, fact_body, leaf_hash"
    };
}
pub(crate) use fact_column_names;

/// The facts of a batch, one vector for each column.
#[derive(Default)]
pub(crate) struct FactColumns {
    tenants: Vec<Uuid>,
    ids: Vec<Uuid>,
    workspaces: Vec<Option<Uuid>>,
    kinds: Vec<&'static str>,
    bodies: Vec<Vec<u8>>,
    leaves: Vec<Vec<u8>>,
}

impl FactColumns {
    pub(crate) fn push(&mut self, scope: TenantScope, fact: &Fact) {
        let body = fact.canonical_bytes(scope.tenant());
        self.tenants.push(scope.tenant().uuid());
        self.ids.push(fact.fact_id.uuid());
        self.workspaces.push(fact.workspace_id.map(WorkspaceId::uuid));
        self.kinds.push(fact.kind.as_str());
        self.leaves.push(leaf_hash(&body).to_vec());
        self.bodies.push(body);
    }

    /// The values of [`fact_placeholders`], followed by the statement's own.
    pub(crate) fn with<'a>(&'a self, own: &[Param<'a>]) -> Vec<Param<'a>> {
        let mut all: Vec<Param<'a>> =
            vec![&self.tenants, &self.ids, &self.workspaces, &self.kinds, &self.bodies, &self.leaves];
        all.extend_from_slice(own);
        all
    }
}
