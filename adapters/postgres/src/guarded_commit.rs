//! Statements with named input, and the guarded commit.
//!
//! Values enter a statement once, in the CTE `input`, whose columns have names; the SQL uses the names. The builder
//! numbers the parameters, so no SQL text of this crate does. One form serves one row and many: the columns of many rows
//! are arrays, which `input` unnests. Rows that belong to those of `input`, such as the steps of runs, enter the same way
//! in CTEs of their own. A value that the planner must know, such as a limit, is a parameter: the SQL names it in braces.
//!
//! A [`Guarded`] commit ends in `fairway_commit`, which raises unless the guard held, and writes the fact and the
//! idempotency key. A [`GuardedBatch`] writes the facts of the rows whose guard held. Nothing else writes a fact.

use crate::{
    param::{Param, ParamValue, SqlValue},
    store_error,
};
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
use uuid::Uuid;

/// How many rows a row set has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// One; its columns are values.
    One,
    /// Any number; its columns are arrays of equal length.
    Many,
}

/// A column of a row set, or a parameter.
struct Column<'v> {
    name: &'static str,
    sql_type: &'static str,
    value: ParamValue<'v>,
}

/// Rows that enter a statement as a CTE.
struct RowSet<'v> {
    name: &'static str,
    shape: Shape,
    columns: Vec<Column<'v>>,
}

impl RowSet<'_> {
    /// Appends the definition. `number` is the number of the first parameter.
    fn write_cte(&self, sql: &mut String, number: usize) {
        let Self { name: table, shape, columns } = self;
        let mut separator = if number == 1 { "WITH " } else { ", " };
        // PostgreSQL would otherwise evaluate `input` again for each reference.
        let materialized = if *table == INPUT { "MATERIALIZED " } else { "" };
        let opening = if *shape == Shape::Many { "* FROM unnest(" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(sql, "{separator}{table} AS {materialized}(SELECT {opening}");
        separator = "";
        for (number, Column { name, sql_type, .. }) in (number..).zip(columns) {
            let _ = match shape {
                Shape::One => write!(sql, "{separator}${number}::{sql_type} AS {name}"),
                Shape::Many => write!(sql, "{separator}${number}::{sql_type}"),
            };
            separator = ", ";
        }
        if *shape == Shape::Many {
            let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
            let _ = write!(sql, ") AS {table} ({})", names.join(", "));
        }
        sql.push(')');
    }
}

/// The name of the first row set.
const INPUT: &str = "input";

/// The values of a statement: row sets, of which the first is `input`, and parameters.
pub(crate) struct Input<'v> {
    row_sets: Vec<RowSet<'v>>,
    params: Vec<Column<'v>>,
}

impl<'v> Input<'v> {
    /// One row; its first column is `tenant_id`.
    pub(crate) fn new(scope: TenantScope) -> Self {
        Self::one().with("tenant_id", scope.tenant().uuid())
    }

    /// One row without a tenant, for statements of background tasks over all tenants.
    pub(crate) fn one() -> Self {
        Self::of(INPUT, Shape::One)
    }

    /// Many rows.
    pub(crate) fn many() -> Self {
        Self::of(INPUT, Shape::Many)
    }

    /// Parameters without rows.
    pub(crate) const fn without_rows() -> Self {
        Self { row_sets: Vec::new(), params: Vec::new() }
    }

    /// Parameters without rows; the first is `tenant_id`.
    pub(crate) fn of_params(scope: TenantScope) -> Self {
        Self::without_rows().with_param("tenant_id", scope.tenant().uuid())
    }

    fn of(name: &'static str, shape: Shape) -> Self {
        Self { row_sets: vec![RowSet { name, shape, columns: Vec::with_capacity(32) }], params: Vec::new() }
    }

    /// Begins another row set of many rows, to which the next columns belong.
    #[must_use]
    pub(crate) fn with_rows(mut self, name: &'static str) -> Self {
        self.row_sets.push(RowSet { name, shape: Shape::Many, columns: Vec::with_capacity(12) });
        self
    }

    /// Adds a column: a value of one row.
    #[must_use]
    pub(crate) fn with<T: SqlValue + 'v>(self, name: &'static str, value: T) -> Self {
        self.column(name, T::TYPE, ParamValue::new(value))
    }

    /// Adds a column: a list in one row, or one value for each of many rows.
    #[must_use]
    pub(crate) fn with_all<T: SqlValue + 'v>(self, name: &'static str, values: Vec<T>) -> Self {
        self.column(name, T::ARRAY, ParamValue::array(values))
    }

    /// Adds a column: a list that may be absent, in one row.
    #[must_use]
    pub(crate) fn with_list<T: SqlValue + 'v>(self, name: &'static str, values: Option<Vec<T>>) -> Self {
        self.column(name, T::ARRAY, ParamValue::optional_array(values))
    }

    /// Adds a parameter. The SQL refers to it as `{name}`.
    #[must_use]
    pub(crate) fn with_param<T: SqlValue + 'v>(mut self, name: &'static str, value: T) -> Self {
        self.params.push(Column { name, sql_type: T::TYPE, value: ParamValue::new(value) });
        self
    }

    /// Adds a parameter that is a list.
    #[must_use]
    pub(crate) fn with_list_param<T: SqlValue + 'v>(mut self, name: &'static str, values: Vec<T>) -> Self {
        self.params.push(Column { name, sql_type: T::ARRAY, value: ParamValue::array(values) });
        self
    }

    fn column(mut self, name: &'static str, sql_type: &'static str, value: ParamValue<'v>) -> Self {
        let column = Column { name, sql_type, value };
        match self.row_sets.last_mut() {
            Some(rows) => rows.columns.push(column),
            None => self.params.push(column),
        }
        self
    }

    fn columns(&self) -> impl Iterator<Item = &Column<'v>> {
        self.row_sets.iter().flat_map(|rows| &rows.columns).chain(&self.params)
    }

    /// The parameters, in the order of their numbers.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.columns().map(|column| column.value.param()).collect()
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns().map(|column| column.name)
    }

    /// The definitions of the row sets.
    fn ctes(&self) -> String {
        let mut sql = String::new();
        let mut number = 1_usize;
        for rows in &self.row_sets {
            rows.write_cte(&mut sql, number);
            number = number.saturating_add(rows.columns.len());
        }
        sql
    }

    /// Replaces the names of parameters in braces by their numbers.
    fn number_params(&self, mut sql: String) -> String {
        let first = self.row_sets.iter().map(|rows| rows.columns.len()).fold(1, usize::saturating_add);
        for (number, Column { name, sql_type, .. }) in (first..).zip(&self.params) {
            sql = sql.replace(&format!("{{{name}}}"), &format!("${number}::{sql_type}"));
        }
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

/// The facts of many rows, one vector for each column. A row may have none.
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
        self.push_optional(scope, Some(fact));
    }

    pub(crate) fn push_optional(&mut self, scope: TenantScope, fact: Option<&Fact>) {
        let body = fact.map(|fact| fact.canonical_bytes(scope.tenant()));
        self.ids.push(fact.map(|fact| fact.fact_id.uuid()));
        self.workspaces.push(fact.and_then(|fact| fact.workspace_id).map(WorkspaceId::uuid));
        self.kinds.push(fact.map(|fact| fact.kind.as_str()));
        self.leaf_hashes.push(body.as_deref().map(|body| leaf_hash(body).to_vec()));
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
    Made(fn() -> String),
}

impl fmt::Display for Sql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Parts(parts) => parts.iter().try_for_each(|part| out.write_str(part)),
            Self::Made(make) => out.write_str(&make()),
        }
    }
}

/// The text of a statement: made at its first use from the names of its input, and constant from then on.
#[derive(Debug)]
struct StatementText(OnceLock<NamedText>);

#[derive(Debug)]
struct NamedText {
    names: Vec<&'static str>,
    sql: String,
    /// Whether the input has all parameters that the SQL names in braces.
    is_complete: bool,
}

/// Whether the SQL names a parameter in braces.
fn names_parameter(sql: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    sql.split('{').skip(1).any(|rest| rest.split_once('}').is_some_and(|(name, _)| is_name(name)))
}

impl StatementText {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn get(&self, input: &Input<'_>, body: impl FnOnce() -> String) -> Result<&str, StoreError> {
        let NamedText { names, sql, is_complete } = self.0.get_or_init(|| {
            let sql = input.number_params(format!("{}{}", input.ctes(), body()));
            NamedText { names: input.names().collect(), is_complete: !names_parameter(&sql), sql }
        });
        // A text with the columns of another input would bind values to wrong names.
        if *is_complete && names.iter().copied().eq(input.names()) {
            Ok(sql)
        } else {
            Err(store_error::broken("a statement and its input have different names".into()))
        }
    }
}

/// The first words of statements. All other texts begin with a CTE.
const STATEMENTS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// A statement without a guard: a read, or a write that no decision precedes.
///
/// Its SQL is a statement that reads `input`, or CTEs after `input` and a statement. A statement with parameters and
/// without rows is sent as it is.
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

    /// A statement that a function formats once.
    pub(crate) const fn made(make: fn() -> String) -> Self {
        Self { sql: Sql::Made(make), text: StatementText::new() }
    }

    /// The text for an input.
    ///
    /// # Errors
    /// When an earlier input had other columns.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let sql = self.sql.to_string();
            let is_statement = STATEMENTS.iter().any(|keyword| sql.trim_start().starts_with(keyword));
            let separator = if is_statement { " " } else { ", " };
            if input.row_sets.is_empty() { sql } else { format!("{separator}{sql}") }
        })
    }
}

/// A commit of one decision: changes, the condition under which they hold, its fact and its idempotency key. All or
/// nothing is written.
///
/// PostgreSQL always runs a CTE that changes rows. It runs a CTE that only locks rows if a change or the guard refers to it.
#[derive(Debug)]
pub(crate) struct Guarded {
    changes: Sql,
    guard: &'static str,
    results: &'static str,
    condition: &'static str,
    text: StatementText,
}

impl Guarded {
    /// `changes` are CTEs that read `input`; `guard` is a condition on their results, such as that a row changed.
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

    /// A commit that does nothing, and is no error, unless `condition` holds.
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
                changes @ (Sql::Text(_) | Sql::Parts(_) | Sql::Made(_)) => format!(", {changes}"),
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

/// The CTE `claimed`, which claims the idempotency keys of the rows in `current` for `execution_id`. It claims them in one
/// order, so that concurrent batches do not deadlock, and takes over an expired key. It returns the rows that have a key.
pub(crate) const CLAIM_KEYS: &str = "claimed AS (
        INSERT INTO idempotency_key AS known
            (tenant_id, caller, route, key, body_digest, status, resource, created_at)
        SELECT tenant_id, key_caller, key_route, key_name, key_digest, NULL, execution_id, fairway_now() FROM current
        WHERE key_name IS NOT NULL ORDER BY tenant_id, key_caller, key_route, key_name
        ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
        SET body_digest = excluded.body_digest, status = NULL, resource = excluded.resource,
            created_at = excluded.created_at
        WHERE known.created_at < fairway_now() - fairway_key_lifetime()
        RETURNING resource AS execution_id
     ),
     ";

/// A commit of many decisions, each with its own guard: the rows whose guard held are written with their facts, the
/// others are not.
#[derive(Debug)]
pub(crate) struct GuardedBatch {
    changes: Sql,
    passed_cte: &'static str,
    result: &'static str,
    text: StatementText,
}

impl GuardedBatch {
    /// `changes` are CTEs that read `input`; `passed_cte` names the one that returns `tenant_id` and the fact's columns of the
    /// rows whose guard held; `result` is the final `SELECT`.
    pub(crate) const fn new(changes: &'static str, passed_cte: &'static str, result: &'static str) -> Self {
        Self { changes: Sql::Text(changes), passed_cte, result, text: StatementText::new() }
    }

    /// Like [`Self::new`], with changes of parts that several statements share.
    pub(crate) const fn of_parts(
        changes: &'static [&'static str],
        passed_cte: &'static str,
        result: &'static str,
    ) -> Self {
        Self { changes: Sql::Parts(changes), passed_cte, result, text: StatementText::new() }
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
mod tests;
