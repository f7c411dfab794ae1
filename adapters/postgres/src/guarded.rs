//! The end of every guarded commit: fact, idempotency key, and the guard's verdict.

use crate::database::Param;
use fairway_domain::{
    audit::{Fact, leaf_hash},
    idempotency::KeyedOutcome,
    tenant::TenantScope,
};
use uuid::Uuid;

/// The values that `fairway_commit` takes after its verdict, as SQL placeholders `$1` to `$12`. A statement's own
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

/// The values of the tail, kept alive while the statement runs.
pub(crate) struct Tail {
    tenant: Uuid,
    fact: Uuid,
    workspace: Option<Uuid>,
    kind: &'static str,
    body: Vec<u8>,
    leaf: Vec<u8>,
    caller: Option<String>,
    route: Option<String>,
    key: Option<String>,
    digest: Option<Vec<u8>>,
    status: Option<i16>,
    resource: Option<Uuid>,
}

impl Tail {
    pub(crate) fn new(scope: TenantScope, fact: &Fact, key: Option<&KeyedOutcome>) -> Self {
        let body = fact.canonical_bytes(scope.tenant());
        let leaf = leaf_hash(&body).to_vec();
        Self {
            tenant: scope.tenant().uuid(),
            fact: fact.fact_id.uuid(),
            workspace: fact.workspace_id.map(fairway_domain::id::WorkspaceId::uuid),
            kind: fact.kind.as_str(),
            body,
            leaf,
            caller: key.map(|keyed| keyed.key.caller.to_string()),
            route: key.map(|keyed| keyed.key.route.clone()),
            key: key.map(|keyed| keyed.key.key.clone()),
            digest: key.map(|keyed| keyed.key.body_digest.to_vec()),
            // Statuses are three digits, so they always fit.
            status: key.and_then(|keyed| i16::try_from(keyed.outcome.status).ok()),
            resource: key.map(|keyed| keyed.outcome.resource),
        }
    }

    /// The tail's values, followed by the statement's own.
    pub(crate) fn with<'a>(&'a self, own: &[Param<'a>]) -> Vec<Param<'a>> {
        let mut all: Vec<Param<'a>> = vec![
            &self.tenant,
            &self.fact,
            &self.workspace,
            &self.kind,
            &self.body,
            &self.leaf,
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
