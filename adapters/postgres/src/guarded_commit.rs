//! Guarded commits: statements that write a decision under a guard.
//!
//! A [`Guarded`] commit ends in `fairway_commit`, which raises unless the guard held, and writes the fact and the
//! idempotency key. A [`GuardedBatch`] writes the facts of the rows whose guard held. Nothing else writes a fact.
//!
//! PostgreSQL executes a CTE that changes rows even if nothing reads it. It executes a CTE that only locks rows
//! (`SELECT … FOR SHARE`) only if a change or the guard reads it.

use crate::query::{Input, Sql, StatementText};
use fairway_domain::{
    audit::{Fact, leaf_hash},
    id::WorkspaceId,
    idempotency::KeyedOutcome,
    store::StoreError,
    tenant::TenantScope,
};
use uuid::Uuid;

impl Input<'_> {
    /// Adds the columns that [`Guarded`] reads: the fact and the idempotency key.
    fn with_commit(self, scope: TenantScope, fact: &Fact, key: Option<&KeyedOutcome>) -> Self {
        let body = fact.canonical_bytes(scope.tenant());
        self.with("fact_id", fact.fact_id.uuid())
            .with("fact_workspace_id", fact.workspace_id.map(WorkspaceId::uuid))
            .with("fact_kind", fact.kind.as_str())
            .with("fact_leaf_hash", leaf_hash(&body).to_vec())
            .with("fact_body", body)
            .with("key_caller", key.map(|keyed| keyed.key.caller.to_string()))
            .with("key_route", key.map(|keyed| keyed.key.route.clone()))
            .with("key_name", key.map(|keyed| keyed.key.key.clone()))
            .with("key_digest", key.map(|keyed| keyed.key.body_digest.to_vec()))
            // HTTP statuses have three digits, so they fit into `i16`.
            .with("key_status", key.and_then(|keyed| i16::try_from(keyed.outcome.status).ok()))
            .with("key_resource", key.map(|keyed| keyed.outcome.resource))
    }
}

/// The facts of many rows, one vector for each column.
#[derive(Default)]
pub(crate) struct FactColumns {
    ids: Vec<Uuid>,
    workspaces: Vec<Option<Uuid>>,
    kinds: Vec<&'static str>,
    bodies: Vec<Vec<u8>>,
    leaf_hashes: Vec<Vec<u8>>,
}

impl FactColumns {
    pub(crate) fn push(&mut self, scope: TenantScope, fact: &Fact) {
        let body = fact.canonical_bytes(scope.tenant());
        self.ids.push(fact.fact_id.uuid());
        self.workspaces.push(fact.workspace_id.map(WorkspaceId::uuid));
        self.kinds.push(fact.kind.as_str());
        self.leaf_hashes.push(leaf_hash(&body).to_vec());
        self.bodies.push(body);
    }

    /// Adds the columns that [`GuardedBatch`] reads.
    pub(crate) fn into_input<'v>(self, input: Input<'v>) -> Input<'v> {
        input
            .with_all("fact_id", self.ids)
            .with_all("fact_workspace_id", self.workspaces)
            .with_all("fact_kind", self.kinds)
            .with_all("fact_body", self.bodies)
            .with_all("fact_leaf_hash", self.leaf_hashes)
    }
}

/// A commit of one decision: changes, the guard under which they stay, its fact and its idempotency key. All or nothing
/// is written.
#[derive(Debug)]
pub(crate) struct Guarded {
    changes: Sql,
    guard: &'static str,
    results: &'static str,
    condition: &'static str,
    text: StatementText,
}

impl Guarded {
    /// `changes` are CTEs that read `input`; `guard` is a condition on their results, under which the changes stay.
    pub(crate) const fn new(changes: &'static str, guard: &'static str) -> Self {
        Self::returning(changes, guard, "")
    }

    /// Like [`Self::new`], with columns in the result: scalar expressions with names, separated by commas.
    pub(crate) const fn returning(changes: &'static str, guard: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Text(changes), guard, results, condition: "", text: StatementText::new() }
    }

    /// Like [`Self::returning`], with changes of parts that several statements share.
    pub(crate) const fn of_parts(changes: &'static [&'static str], guard: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Parts(changes), guard, results, condition: "", text: StatementText::new() }
    }

    /// A commit that is skipped without an error unless `condition` holds. A lost guard is an error.
    pub(crate) const fn when(condition: &'static str, changes: &'static str, guard: &'static str) -> Self {
        Self { changes: Sql::Text(changes), guard, results: "", condition, text: StatementText::new() }
    }

    /// The input with the fact and the key of the decision, and the text for it.
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn prepare<'v>(
        &self,
        scope: TenantScope,
        fact: &Fact,
        key: Option<&KeyedOutcome>,
        input: Input<'v>,
    ) -> Result<(&str, Input<'v>), StoreError> {
        let input = input.with_commit(scope, fact, key);
        let text = self.text.get(&input, || {
            let Self { changes, guard, results, condition, .. } = self;
            let changes = match changes {
                Sql::Text("") => String::new(),
                changes @ (Sql::Text(_) | Sql::Parts(_)) => format!(", {changes}"),
            };
            let results = if results.is_empty() { String::new() } else { format!(", {results}") };
            let condition = if condition.is_empty() { String::new() } else { format!(" WHERE {condition}") };
            format!(
                "{changes} SELECT fairway_commit({guard}, tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, \
                 fact_leaf_hash, key_caller, key_route, key_name, key_digest, key_status, key_resource){results} FROM input{condition}"
            )
        })?;
        Ok((text, input))
    }
}

/// A commit of many decisions, each with its own guard: the rows whose guard held are written with their facts, the
/// others are not.
#[derive(Debug)]
pub(crate) struct GuardedBatch {
    changes: &'static str,
    passed_cte: &'static str,
    result: &'static str,
    text: StatementText,
}

impl GuardedBatch {
    /// `changes` are CTEs that read `input`; `passed_cte` names the one that returns `tenant_id` and the fact's columns of
    /// the rows whose guard held; `result` is the final `SELECT`.
    pub(crate) const fn new(changes: &'static str, passed_cte: &'static str, result: &'static str) -> Self {
        Self { changes, passed_cte, result, text: StatementText::new() }
    }

    /// The text for an input with [`FactColumns`].
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let Self { changes, passed_cte, result, .. } = self;
            format!(
                ", {changes}, recorded_fact AS (
                    INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
                    SELECT tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash FROM {passed_cte}),
                 pending_fact AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM {passed_cte})
                 {result}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_domain::{
        access::ActorRef,
        audit::{FactKind, Stamp, Subject},
        time::Timestamp,
    };

    fn scope() -> TenantScope {
        TenantScope::for_background_task(Uuid::from_u128(7).into())
    }

    fn on_one_line(sql: &str) -> String {
        sql.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn fact() -> Fact {
        let stamp = Stamp {
            fact_id: Uuid::nil().into(),
            at: Timestamp::parse("2026-01-01T00:00:00Z").unwrap(),
            actor: ActorRef::local(),
            request_id: Uuid::nil().into(),
        };
        let subject = Subject { kind: "thing", id: Uuid::nil() };
        Fact::new(FactKind::AssetMoved, subject, None, &stamp, serde_json::json!({}))
    }

    #[test]
    fn ends_every_commit_in_fairway_commit() {
        static CHANGE: Guarded = Guarded::returning(
            "changed AS (UPDATE thing SET name = input.name FROM input RETURNING 1)",
            "(SELECT count(*) = 1 FROM changed)",
            "(SELECT 7) AS answer",
        );
        static ONCE: Guarded = Guarded::when("NOT EXISTS (SELECT FROM fact)", "", "true");
        let named = Input::new(scope()).with("name", "a");
        let (sql, input) = CHANGE.prepare(scope(), &fact(), None, named).unwrap();
        insta::assert_snapshot!(on_one_line(sql), @"WITH input AS MATERIALIZED (SELECT $1::uuid AS tenant_id, $2::text AS name, $3::uuid AS fact_id, $4::uuid AS fact_workspace_id, $5::text AS fact_kind, $6::bytea AS fact_leaf_hash, $7::bytea AS fact_body, $8::text AS key_caller, $9::text AS key_route, $10::text AS key_name, $11::bytea AS key_digest, $12::smallint AS key_status, $13::uuid AS key_resource), changed AS (UPDATE thing SET name = input.name FROM input RETURNING 1) SELECT fairway_commit((SELECT count(*) = 1 FROM changed), tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash, key_caller, key_route, key_name, key_digest, key_status, key_resource), (SELECT 7) AS answer FROM input");
        assert_eq!(input.params().len(), 13);
        let (sql, _) = ONCE.prepare(scope(), &fact(), None, Input::new(scope())).unwrap();
        insta::assert_snapshot!(on_one_line(sql), @"WITH input AS MATERIALIZED (SELECT $1::uuid AS tenant_id, $2::uuid AS fact_id, $3::uuid AS fact_workspace_id, $4::text AS fact_kind, $5::bytea AS fact_leaf_hash, $6::bytea AS fact_body, $7::text AS key_caller, $8::text AS key_route, $9::text AS key_name, $10::bytea AS key_digest, $11::smallint AS key_status, $12::uuid AS key_resource) SELECT fairway_commit(true, tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash, key_caller, key_route, key_name, key_digest, key_status, key_resource) FROM input WHERE NOT EXISTS (SELECT FROM fact)");
    }

    #[test]
    fn writes_the_facts_of_held_rows_only() {
        static CHANGE: GuardedBatch =
            GuardedBatch::new("held AS (SELECT * FROM input)", "held", "SELECT fact_id FROM held");
        let mut facts = FactColumns::default();
        facts.push(scope(), &fact());
        let input = facts.into_input(Input::many().with_all("tenant_id", vec![Uuid::nil()]));
        insta::assert_snapshot!(on_one_line(CHANGE.text(&input).unwrap()), @"WITH input AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[]) AS input (tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash)), held AS (SELECT * FROM input), recorded_fact AS ( INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash) SELECT tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash FROM held), pending_fact AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM held) SELECT fact_id FROM held");
    }
}
