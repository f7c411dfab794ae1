//! Statements with named input, and guarded commits.
//!
//! Values enter a statement through the CTE `input`. Its columns have names, which the SQL uses, and the builder
//! numbers the parameters. The same SQL works for one row and for many: for many rows, each column is an array that
//! `input` unnests. A batch of one row has the text for one row, because PostgreSQL executes it in less time. Rows
//! that belong to the rows of `input`, such as the steps of runs, enter through further CTEs in the same way. A value
//! that the planner must know, such as a limit, is a parameter, which the SQL names in braces.
//!
//! A [`GuardedCommit`] ends in a call of the SQL function `fairway_commit`. It raises an error if the guard does
//! not hold; otherwise it writes the fact and the idempotency key. A [`GuardedBatchCommit`] writes the facts of the
//! rows whose guard holds. Only these two write facts.

mod fact_columns;
mod input_rows;

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
use std::{fmt, sync::OnceLock};

pub(crate) use fact_columns::FactColumns;
use input_rows::{Column, InputRows, RowCount};

/// The values of a statement: the rows of its input CTEs, and parameters. The first CTE is `input`.
pub(crate) struct Input<'v> {
    rows: Vec<InputRows<'v>>,
    params: Vec<Column<'v>>,
}

impl<'v> Input<'v> {
    /// Starts an input of one row, whose first column is `tenant_id`.
    pub(crate) fn new(scope: TenantScope) -> Self {
        Self::one().with("tenant_id", scope.tenant().uuid())
    }

    /// Starts an input of one row without a tenant, for statements of background tasks over all tenants.
    pub(crate) fn one() -> Self {
        Self::of(RowCount::One)
    }

    /// Starts an input of many rows.
    pub(crate) fn many() -> Self {
        Self::of(RowCount::Many)
    }

    /// Starts an input that has parameters but no rows.
    pub(crate) const fn without_rows() -> Self {
        Self { rows: Vec::new(), params: Vec::new() }
    }

    /// Starts an input that has parameters but no rows. The first parameter is `tenant_id`.
    pub(crate) fn of_params(scope: TenantScope) -> Self {
        Self::without_rows().with_param("tenant_id", scope.tenant().uuid())
    }

    fn of(count: RowCount) -> Self {
        Self { rows: vec![InputRows { name: "input", count, columns: Vec::with_capacity(32) }], params: Vec::new() }
    }

    /// Starts another CTE of many rows. Columns that are added later belong to it.
    #[must_use]
    pub(crate) fn with_rows(mut self, name: &'static str) -> Self {
        self.rows.push(InputRows { name, count: RowCount::Many, columns: Vec::with_capacity(12) });
        self
    }

    /// Adds a column with a single value, for a CTE of one row.
    #[must_use]
    pub(crate) fn with<T: SqlValue + 'v>(self, name: &'static str, value: T) -> Self {
        self.column(name, T::TYPE, ParamValue::new(value))
    }

    /// Adds a column to a CTE of many rows. Each row has one of the values.
    #[must_use]
    pub(crate) fn with_column<T: SqlValue + 'v>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        debug_assert!(!self.has_row_count(RowCount::One), "{name} is a column of a CTE of one row");
        let mut values = values.into_iter();
        // The first column decides whether the CTE has one row.
        if let [input] = self.rows.as_mut_slice()
            && input.columns.is_empty()
            && values.size_hint() == (1, Some(1))
        {
            input.count = RowCount::OneOfMany;
        }
        if self.has_row_count(RowCount::OneOfMany)
            && let Some(value) = values.next()
        {
            debug_assert!(values.next().is_none(), "{name} has several values in a CTE of one row");
            return self.with(name, value);
        }
        self.column(name, T::ARRAY, ParamValue::array(values.collect()))
    }

    /// Adds a column whose value is a list, for a CTE of one row.
    #[must_use]
    pub(crate) fn with_list<T: SqlValue + 'v>(self, name: &'static str, values: Vec<T>) -> Self {
        debug_assert!(self.has_row_count(RowCount::One), "{name} is a list in a CTE of many rows");
        self.column(name, T::ARRAY, ParamValue::array(values))
    }

    /// Whether the last CTE has this number of rows.
    fn has_row_count(&self, count: RowCount) -> bool {
        self.rows.last().is_some_and(|rows| rows.count == count)
    }

    /// Adds a parameter. The SQL refers to it as `{name}`.
    #[must_use]
    pub(crate) fn with_param<T: SqlValue + 'v>(mut self, name: &'static str, value: T) -> Self {
        self.push_param(name, T::TYPE, ParamValue::new(value));
        self
    }

    /// Adds a parameter that is a list.
    #[must_use]
    pub(crate) fn with_list_param<T: SqlValue + 'v>(mut self, name: &'static str, values: Vec<T>) -> Self {
        self.push_param(name, T::ARRAY, ParamValue::array(values));
        self
    }

    /// Adds a parameter and returns how the SQL refers to it, for statements whose conditions depend on a filter.
    pub(crate) fn bind<T: SqlValue + 'v>(&mut self, name: &'static str, value: T) -> String {
        self.push_param(name, T::TYPE, ParamValue::new(value));
        format!("{{{name}}}")
    }

    /// Like [`Self::bind`], for a list.
    pub(crate) fn bind_list<T: SqlValue + 'v>(&mut self, name: &'static str, values: Vec<T>) -> String {
        self.push_param(name, T::ARRAY, ParamValue::array(values));
        format!("{{{name}}}")
    }

    fn push_param(&mut self, name: &'static str, sql_type: &'static str, value: ParamValue<'v>) {
        debug_assert!(self.params.iter().all(|other| other.name != name), "two parameters have the name {name}");
        self.params.push(Column { name, sql_type, value });
    }

    fn column(mut self, name: &'static str, sql_type: &'static str, value: ParamValue<'v>) -> Self {
        let column = Column { name, sql_type, value };
        match self.rows.last_mut() {
            Some(rows) => rows.columns.push(column),
            None => self.params.push(column),
        }
        self
    }

    fn columns(&self) -> impl Iterator<Item = &Column<'v>> {
        self.rows.iter().flat_map(|rows| &rows.columns).chain(&self.params)
    }

    /// The parameters, in the order of their numbers.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        self.columns().map(|column| column.value.param()).collect()
    }

    fn parameters(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.columns().map(|column| (column.name, column.sql_type))
    }

    /// The definitions of all input CTEs.
    fn ctes(&self) -> String {
        let mut sql = String::new();
        let mut number = 1_usize;
        for rows in &self.rows {
            rows.write_cte(&mut sql, number);
            number = number.saturating_add(rows.columns.len());
        }
        sql
    }

    /// Replaces each parameter name in braces by the parameter's number.
    fn number_params(&self, mut sql: String) -> String {
        let first = self.rows.iter().map(|rows| rows.columns.len()).fold(1, usize::saturating_add);
        for (number, Column { name, sql_type, .. }) in (first..).zip(&self.params) {
            sql = sql.replace(&format!("{{{name}}}"), &format!("${number}::{sql_type}"));
        }
        sql
    }

    /// Replaces the parameter names in a statement that is built at run time, because its conditions depend on a
    /// filter.
    ///
    /// # Errors
    /// When the SQL names a parameter that the input does not have.
    pub(crate) fn number_names(&self, sql: String) -> Result<String, StoreError> {
        let sql = self.number_params(sql);
        if names_parameter(&sql) { Err(store_error::inconsistent(UNBOUND.into())) } else { Ok(sql) }
    }

    /// Adds the columns that a [`GuardedCommit`] reads: those of the fact and of the idempotency key.
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
            // The conversion cannot fail: HTTP statuses have three digits.
            .with("key_status", key.and_then(|keyed| i16::try_from(keyed.outcome.status).ok()))
            .with("key_resource", key.map(|keyed| keyed.outcome.resource))
    }
}

/// The source of a statement's SQL text.
#[derive(Clone, Copy, Debug)]
enum Sql {
    Text(&'static str),
    Parts(&'static [&'static str]),
    Formatted(fn() -> String),
}

impl fmt::Display for Sql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => out.write_str(text),
            Self::Parts(parts) => parts.iter().try_for_each(|part| out.write_str(part)),
            Self::Formatted(format) => out.write_str(&format()),
        }
    }
}

/// The error of a statement whose input has other names than its SQL.
const UNBOUND: &str = "a statement and its input have different names";

/// The text of a statement. It is built at the first use, from the names of the input's columns and parameters, and
/// then never changes. A statement of many rows has a second text for one row.
#[derive(Debug)]
struct StatementText {
    text: OnceLock<NamedText>,
    one_of_many: OnceLock<NamedText>,
}

#[derive(Debug)]
struct NamedText {
    /// The name and the SQL type of each parameter, in order.
    parameters: Vec<(&'static str, &'static str)>,
    sql: String,
    /// Whether the input has all parameters that the SQL names in braces.
    is_complete: bool,
}

/// Whether the SQL still names a parameter in braces.
fn names_parameter(sql: &str) -> bool {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    sql.split('{').skip(1).any(|rest| rest.split_once('}').is_some_and(|(name, _)| is_name(name)))
}

impl StatementText {
    const fn new() -> Self {
        Self { text: OnceLock::new(), one_of_many: OnceLock::new() }
    }

    fn get(&self, input: &Input<'_>, body: impl FnOnce() -> String) -> Result<&str, StoreError> {
        let is_one_of_many = input.rows.first().is_some_and(|rows| rows.count == RowCount::OneOfMany);
        let text = if is_one_of_many { &self.one_of_many } else { &self.text };
        let NamedText { parameters, sql, is_complete } = text.get_or_init(|| {
            let sql = input.number_params(format!("{}{}", input.ctes(), body()));
            NamedText { parameters: input.parameters().collect(), is_complete: !names_parameter(&sql), sql }
        });
        // For an input with other names, the text would bind values to the wrong columns.
        if *is_complete && parameters.iter().copied().eq(input.parameters()) {
            Ok(sql)
        } else {
            Err(store_error::inconsistent(UNBOUND.into()))
        }
    }
}

/// Keywords that begin a plain statement. Any other text begins with a CTE.
const STATEMENTS: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// A statement that writes no fact: a read, or a write whose condition is part of its SQL.
///
/// Its SQL is a statement that reads `input`, optionally preceded by CTEs. If the input has only parameters, no CTE
/// is added before the SQL.
#[derive(Debug)]
pub(crate) struct Query {
    sql: Sql,
    text: StatementText,
}

impl Query {
    pub(crate) const fn new(sql: &'static str) -> Self {
        Self { sql: Sql::Text(sql), text: StatementText::new() }
    }

    /// Creates a statement from parts that several statements share, such as lists of columns.
    pub(crate) const fn of_parts(parts: &'static [&'static str]) -> Self {
        Self { sql: Sql::Parts(parts), text: StatementText::new() }
    }

    /// Creates a statement whose SQL a function formats once.
    pub(crate) const fn from_fn(format_sql: fn() -> String) -> Self {
        Self { sql: Sql::Formatted(format_sql), text: StatementText::new() }
    }

    /// The text of the statement for an input.
    ///
    /// # Errors
    /// When the names of the input differ from those of the input with which the text was built.
    pub(crate) fn text(&self, input: &Input<'_>) -> Result<&str, StoreError> {
        self.text.get(input, || {
            let sql = self.sql.to_string();
            let is_statement = STATEMENTS.iter().any(|keyword| sql.trim_start().starts_with(keyword));
            let separator = if is_statement { " " } else { ", " };
            if input.rows.is_empty() { sql } else { format!("{separator}{sql}") }
        })
    }
}

/// The commit of one decision. It consists of changes, a guard (the condition under which they are committed), a
/// fact and an idempotency key. Either everything is written or nothing.
///
/// PostgreSQL always runs a CTE that changes rows. It runs a CTE that only locks rows if a change or the guard
/// refers to it.
#[derive(Debug)]
pub(crate) struct GuardedCommit {
    changes: Sql,
    guard: &'static str,
    results: &'static str,
    condition: &'static str,
    text: StatementText,
}

impl GuardedCommit {
    /// Creates a commit. `changes` are CTEs that read `input`. `guard` is a condition on their results, for example
    /// that one row was changed.
    pub(crate) const fn new(changes: &'static str, guard: &'static str) -> Self {
        Self::returning(changes, guard, "")
    }

    /// Like [`Self::new`], with result columns. `results` are named scalar expressions, separated by commas.
    pub(crate) const fn returning(changes: &'static str, guard: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Text(changes), guard, results, condition: "", text: StatementText::new() }
    }

    /// Like [`Self::returning`], with changes that consist of parts that several statements share.
    pub(crate) const fn of_parts(changes: &'static [&'static str], guard: &'static str, results: &'static str) -> Self {
        Self { changes: Sql::Parts(changes), guard, results, condition: "", text: StatementText::new() }
    }

    /// Like [`Self::new`], with changes that a function formats once.
    pub(crate) const fn from_fn(format_changes: fn() -> String, guard: &'static str) -> Self {
        Self { changes: Sql::Formatted(format_changes), guard, results: "", condition: "", text: StatementText::new() }
    }

    /// Creates a commit that does nothing and succeeds if `condition` does not hold.
    pub(crate) const fn when(condition: &'static str, changes: &'static str, guard: &'static str) -> Self {
        Self { changes: Sql::Text(changes), guard, results: "", condition, text: StatementText::new() }
    }

    /// Adds the decision's fact and key to the input. Returns the statement's text and the input.
    ///
    /// # Errors
    /// When the names of the input differ from those of the input with which the text was built.
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
                changes @ (Sql::Text(_) | Sql::Parts(_) | Sql::Formatted(_)) => format!(", {changes}"),
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

/// Formats the CTE `claimed`, which claims the idempotency keys of the rows in the CTE `keyed_cte` for their
/// `execution_id`. It returns the identifiers whose key was claimed. Like the SQL function `fairway_claim_key`, it
/// claims an expired key again, and a reservation that has lapsed or belongs to the same identifier. Keys are claimed
/// in key order, so that concurrent batches do not deadlock.
pub(crate) fn claim_keys(keyed_cte: &str) -> String {
    format!(
        "claimed AS (
            INSERT INTO idempotency_key AS existing
                (tenant_id, caller, route, key, body_digest, status, resource, created_at)
            SELECT tenant_id, key_caller, key_route, key_name, key_digest, key_status, execution_id, fairway_now()
            FROM {keyed_cte} WHERE key_name IS NOT NULL ORDER BY tenant_id, key_caller, key_route, key_name
            ON CONFLICT (tenant_id, caller, route, key) DO UPDATE
            SET body_digest = excluded.body_digest, status = excluded.status, resource = excluded.resource,
                created_at = excluded.created_at, leased_until = NULL
            WHERE existing.created_at < fairway_now() - fairway_key_lifetime()
                OR existing.leased_until <= fairway_now()
                OR (existing.leased_until IS NOT NULL AND existing.resource = excluded.resource)
            RETURNING resource AS execution_id
         )"
    )
}

/// The commit of many decisions, each with its own guard. Decisions whose guard holds are written with their facts.
/// The others write nothing.
#[derive(Debug)]
pub(crate) struct GuardedBatchCommit {
    changes: Sql,
    passed_cte: &'static str,
    result: &'static str,
    text: StatementText,
}

impl GuardedBatchCommit {
    /// Creates a commit. `changes` are CTEs that read `input`. `passed_cte` is the name of the CTE that contains
    /// the rows whose guard held, with `tenant_id` and the fact columns. `result` is the final `SELECT`.
    pub(crate) const fn new(changes: &'static str, passed_cte: &'static str, result: &'static str) -> Self {
        Self { changes: Sql::Text(changes), passed_cte, result, text: StatementText::new() }
    }

    /// Like [`Self::new`], with changes that a function formats once.
    pub(crate) const fn from_fn(
        format_changes: fn() -> String,
        passed_cte: &'static str,
        result: &'static str,
    ) -> Self {
        Self { changes: Sql::Formatted(format_changes), passed_cte, result, text: StatementText::new() }
    }

    /// The text of the statement for an input that includes [`FactColumns`].
    ///
    /// # Errors
    /// When the names of the input differ from those of the input with which the text was built.
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
