//! Statements with named input, and the guarded commit.
//!
//! Values enter a statement once, in the CTE `input`, whose columns have names; the SQL uses the names. The builder
//! numbers the parameters, so no SQL text of this crate does. One form serves one row and many: the columns of many rows
//! are arrays, which `input` unnests.
//!
//! A [`Guarded`] commit ends in `fairway_commit`, which raises unless the guard held, and writes the fact and the
//! idempotency key. A [`GuardedBatch`] writes the facts of the rows whose guard held. Nothing else writes a fact.

use crate::{database::Param, store_error};
use fairway_domain::{
    audit::{Fact, leaf_hash},
    id::WorkspaceId,
    idempotency::KeyedOutcome,
    store::StoreError,
    tenant::TenantScope,
};
use std::{
    fmt::{self, Write as _},
    sync::OnceLock,
};
use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// A value that PostgreSQL stores, with the SQL type of its column in `input`.
pub(crate) trait SqlValue: ToSql + Sync + Send {
    /// The SQL type.
    const TYPE: &'static str;
    /// The SQL type of an array of these values.
    const ARRAY: &'static str;
}

macro_rules! sql_values {
    ($($type:ty => $name:literal),* $(,)?) => {$(
        impl SqlValue for $type {
            const TYPE: &'static str = $name;
            const ARRAY: &'static str = concat!($name, "[]");
        }
    )*};
}

sql_values! {
    bool => "boolean",
    i16 => "smallint",
    i32 => "integer",
    i64 => "bigint",
    f32 => "real",
    f64 => "double precision",
    &str => "text",
    String => "text",
    &String => "text",
    Uuid => "uuid",
    OffsetDateTime => "timestamptz",
    &[u8] => "bytea",
    Vec<u8> => "bytea",
    &Vec<u8> => "bytea",
    serde_json::Value => "jsonb",
    &serde_json::Value => "jsonb",
}

impl<T: SqlValue> SqlValue for Option<T> {
    const TYPE: &'static str = T::TYPE;
    const ARRAY: &'static str = T::ARRAY;
}

/// How many rows `input` has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One; its columns are values.
    One,
    /// Any number; its columns are arrays of equal length.
    Many,
}

/// A column of `input`.
struct Column<'v> {
    name: &'static str,
    sql_type: &'static str,
    value: Box<dyn ToSql + Sync + Send + 'v>,
}

/// The values of a statement, as the columns of the CTE `input`.
pub(crate) struct Input<'v> {
    shape: Shape,
    columns: Vec<Column<'v>>,
}

impl<'v> Input<'v> {
    /// One row; its first column is `tenant_id`.
    pub(crate) fn new(scope: TenantScope) -> Self {
        Self::one().with("tenant_id", scope.tenant().uuid())
    }

    /// One row without a tenant, for statements of background tasks over all tenants.
    pub(crate) fn one() -> Self {
        Self { shape: Shape::One, columns: Vec::with_capacity(32) }
    }

    /// Many rows.
    pub(crate) fn many() -> Self {
        Self { shape: Shape::Many, columns: Vec::with_capacity(32) }
    }

    /// Adds a column: a value of one row.
    #[must_use]
    pub(crate) fn with<T: SqlValue + 'v>(self, name: &'static str, value: T) -> Self {
        self.column(name, T::TYPE, Box::new(value))
    }

    /// Adds a column: a list in one row, or one value for each of many rows.
    #[must_use]
    pub(crate) fn with_all<T: SqlValue + 'v>(self, name: &'static str, values: Vec<T>) -> Self {
        self.column(name, T::ARRAY, Box::new(values))
    }

    /// Adds a column: a list that may be absent, in one row.
    #[must_use]
    pub(crate) fn with_list<T: SqlValue + 'v>(self, name: &'static str, values: Option<Vec<T>>) -> Self {
        self.column(name, T::ARRAY, Box::new(values))
    }

    fn column(mut self, name: &'static str, sql_type: &'static str, value: Box<dyn ToSql + Sync + Send + 'v>) -> Self {
        self.columns.push(Column { name, sql_type, value });
        self
    }

    /// The parameters, in the order of the columns.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.columns.iter().map(|column| &*column.value as Param<'_>).collect()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().map(|column| column.name)
    }

    /// The definition of `input`.
    fn cte(&self) -> String {
        let mut sql = String::from("WITH input AS MATERIALIZED (SELECT ");
        if self.shape == Shape::Many {
            sql.push_str("* FROM unnest(");
        }
        for (index, Column { name, sql_type, .. }) in self.columns.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let number = index.saturating_add(1);
            // Writing to a string cannot fail.
            let _ = match self.shape {
                Shape::One => write!(sql, "{separator}${number}::{sql_type} AS {name}"),
                Shape::Many => write!(sql, "{separator}${number}::{sql_type}"),
            };
        }
        if self.shape == Shape::Many {
            let names: Vec<&str> = self.names().collect();
            let _ = write!(sql, ") AS input ({})", names.join(", "));
        }
        sql.push(')');
        sql
    }

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

/// SQL that a statement is made of.
#[derive(Clone, Copy, Debug)]
enum Sql {
    Text(&'static str),
    Parts(&'static [&'static str]),
}

impl fmt::Display for Sql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Parts(parts) => parts.iter().try_for_each(|part| out.write_str(part)),
        }
    }
}

/// The text of a statement: made at its first use from the names of its input, and constant from then on.
#[derive(Debug)]
struct StatementText(OnceLock<(Vec<&'static str>, String)>);

impl StatementText {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn get(&self, input: &Input<'_>, body: impl FnOnce() -> String) -> Result<&str, StoreError> {
        let (names, sql) = self.0.get_or_init(|| (input.names().collect(), format!("{}{}", input.cte(), body())));
        // A text with the columns of another input would bind values to wrong names.
        if names.iter().copied().eq(input.names()) {
            Ok(sql)
        } else {
            Err(store_error::broken("a statement has two forms of input".into()))
        }
    }
}

/// A statement without a guard: a read, or a write that no decision precedes.
///
/// Its SQL is a `SELECT` that reads `input`, or CTEs after `input` and a `SELECT`. A read with `ORDER BY … LIMIT` compares
/// with `(SELECT tenant_id FROM input)`, because a join with `input` would hide the order of an index.
#[derive(Debug)]
pub(crate) struct Query {
    sql: Sql,
    text: StatementText,
}

impl Query {
    pub(crate) const fn new(sql: &'static str) -> Self {
        Self { sql: Sql::Text(sql), text: StatementText::new() }
    }

    /// A statement of parts that several statements share, such as lists of columns.
    pub(crate) const fn of_parts(parts: &'static [&'static str]) -> Self {
        Self { sql: Sql::Parts(parts), text: StatementText::new() }
    }

    /// The text for an input.
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let sql = self.sql.to_string();
            let separator = if sql.trim_start().starts_with("SELECT") { " " } else { ", " };
            format!("{separator}{sql}")
        })
    }
}

/// A commit of one decision: changes, the condition under which they hold, its fact and its idempotency key. All or
/// nothing is written.
#[derive(Debug)]
pub(crate) struct Guarded {
    changes: Sql,
    held: &'static str,
    results: &'static str,
    condition: &'static str,
    text: StatementText,
}

impl Guarded {
    /// `changes` are CTEs that read `input`; `held` is a condition on their results.
    pub(crate) const fn new(changes: &'static str, held: &'static str) -> Self {
        Self::returning(changes, held, "")
    }

    /// Like [`Self::new`], with columns in the result: scalar expressions with names, separated by commas.
    pub(crate) const fn returning(changes: &'static str, held: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Text(changes), held, results, condition: "", text: StatementText::new() }
    }

    /// Like [`Self::returning`], with changes of parts that several statements share.
    pub(crate) const fn of_parts(changes: &'static [&'static str], held: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Parts(changes), held, results, condition: "", text: StatementText::new() }
    }

    /// A commit that does nothing, and is no error, unless `condition` holds.
    pub(crate) const fn when(condition: &'static str, changes: &'static str, held: &'static str) -> Self {
        Self { changes: Sql::Text(changes), held, results: "", condition, text: StatementText::new() }
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
            let Self { changes, held, results, condition, .. } = self;
            let changes = match changes {
                Sql::Text("") => String::new(),
                changes @ (Sql::Text(_) | Sql::Parts(_)) => format!(", {changes}"),
            };
            let results = if results.is_empty() { String::new() } else { format!(", {results}") };
            let condition = if condition.is_empty() { String::new() } else { format!(" WHERE {condition}") };
            format!(
                "{changes} SELECT fairway_commit({held}, tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, \
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
    held: &'static str,
    result: &'static str,
    text: StatementText,
}

impl GuardedBatch {
    /// `changes` are CTEs that read `input`; `held` names the one that returns `tenant_id` and the fact's columns of the
    /// rows whose guard held; `result` is the final `SELECT`.
    pub(crate) const fn new(changes: &'static str, held: &'static str, result: &'static str) -> Self {
        Self { changes, held, result, text: StatementText::new() }
    }

    /// The text for an input with [`FactColumns`].
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let Self { changes, held, result, .. } = self;
            format!(
                ", {changes}, recorded_fact AS (
                    INSERT INTO fact (tenant_id, fact_id, workspace_id, kind, body, leaf_hash)
                    SELECT tenant_id, fact_id, fact_workspace_id, fact_kind, fact_body, fact_leaf_hash FROM {held}),
                 pending_fact AS (INSERT INTO fact_pending (tenant_id, fact_id) SELECT tenant_id, fact_id FROM {held})
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

    #[test]
    fn numbers_the_columns_of_one_row() {
        static FIND: Query = Query::new("SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
        let input = Input::new(scope()).with("thing_id", Uuid::nil()).with("label", None::<&str>);
        insta::assert_snapshot!(FIND.text(&input).unwrap(), @"WITH input AS MATERIALIZED (SELECT $1::uuid AS tenant_id, $2::uuid AS thing_id, $3::text AS label) SELECT name FROM thing JOIN input USING (tenant_id, thing_id)");
        assert_eq!(input.params().len(), 3);
    }

    #[test]
    fn unnests_the_columns_of_many_rows() {
        static LOAD: Query =
            Query::new("found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
        let input = Input::many().with_all("thing_id", vec![Uuid::nil()]).with_all("label", vec![Some("a")]);
        insta::assert_snapshot!(LOAD.text(&input).unwrap(), @"WITH input AS MATERIALIZED (SELECT * FROM unnest($1::uuid[], $2::text[]) AS input (thing_id, label)), found AS (SELECT * FROM thing JOIN input USING (thing_id)) SELECT * FROM found");
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

    #[test]
    fn refuses_a_second_form_of_input() {
        static FIND: Query = Query::new("SELECT FROM input");
        let first = || Input::new(scope()).with("slug", "a").with("name", "b");
        assert!(FIND.text(&first()).is_ok() && FIND.text(&first()).is_ok());
        assert!(FIND.text(&Input::new(scope()).with("name", "b").with("slug", "a")).is_err());
        assert!(FIND.text(&Input::new(scope()).with("slug", "a")).is_err());
    }
}
