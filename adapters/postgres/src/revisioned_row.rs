//! The SQL of decisions that create a row or replace one of its revisions.
//!
//! Settings have a default value until somebody first changes them, and a request to bind a principal creates or changes
//! its binding. One decision therefore either creates the row or replaces it. Both cases have the same statement.

/// A table whose rows have a revision, and the columns that a decision writes. The columns of `input` have the same
/// names.
pub(crate) struct RevisionedRow {
    pub(crate) table: &'static str,
    /// The primary key.
    pub(crate) key: &'static [&'static str],
    /// Columns that keep their first values. A row with other values is another row, which was created after the row of
    /// the decision was deleted.
    pub(crate) fixed: &'static [&'static str],
    /// Columns that each decision replaces, with `revision`.
    pub(crate) replaced: &'static [&'static str],
}

impl RevisionedRow {
    /// Formats the CTE `stored`, which has one row if the row was written. If the input's `expected_revision` is null,
    /// the row must not exist. Otherwise the row must have this revision.
    ///
    /// The CTE `locked_row` locks the row before `stored` writes it. Without the lock, a row that is deleted meanwhile
    /// would be created again.
    pub(crate) fn ctes(&self) -> String {
        let Self { table, key, fixed, replaced } = self;
        let columns = [*key, *fixed, *replaced].concat().join(", ");
        let identity = [*key, *fixed].concat().join(", ");
        let assignments: Vec<String> = replaced.iter().map(|column| format!("{column} = excluded.{column}")).collect();
        format!(
            "locked_row AS MATERIALIZED (
                SELECT FROM input JOIN {table} AS existing USING ({identity})
                WHERE existing.revision = expected_revision
                FOR NO KEY UPDATE OF existing
             ),
             stored AS (
                INSERT INTO {table} AS existing ({columns})
                SELECT {columns} FROM input WHERE expected_revision IS NULL OR EXISTS (SELECT FROM locked_row)
                ON CONFLICT ({key}) DO UPDATE SET {assignments}
                WHERE existing.revision = (SELECT expected_revision FROM input)
                RETURNING existing.tenant_id
             )",
            key = key.join(", "),
            assignments = assignments.join(", "),
        )
    }
}

/// The guard of a commit with [`RevisionedRow::ctes`]: the row was written.
pub(crate) const ROW_STORED: &str = "(SELECT count(*) = 1 FROM stored)";
