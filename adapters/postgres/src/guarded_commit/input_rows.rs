//! Input rows: the rows that a statement receives as a CTE.

use crate::param::ParamValue;
use std::fmt::Write as _;

/// The number of input rows, which determines the text of their CTE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowCount {
    /// One row, whose columns are single values.
    One,
    /// Any number of rows, whose columns are arrays of equal length.
    Many,
    /// One row of a CTE that may have many. Its columns are single values.
    OneOfMany,
}

/// A column of input rows, or a parameter.
pub(super) struct Column<'v> {
    pub(super) name: &'static str,
    pub(super) sql_type: &'static str,
    pub(super) value: ParamValue<'v>,
}

/// Rows that a statement receives as a CTE.
pub(super) struct InputRows<'v> {
    pub(super) name: &'static str,
    pub(super) count: RowCount,
    pub(super) columns: Vec<Column<'v>>,
}

impl InputRows<'_> {
    /// Appends the definition of the CTE. `number` is the number of its first parameter.
    pub(super) fn write_cte(&self, sql: &mut String, number: usize) {
        let Self { name: table, count, columns } = self;
        let has_arrays = *count == RowCount::Many;
        let mut separator = if number == 1 { "WITH " } else { ", " };
        // Errors are ignored, because writing to a string cannot fail.
        let _ = write!(sql, "{separator}{table} AS (SELECT {}", if has_arrays { "* FROM unnest(" } else { "" });
        separator = "";
        for (number, Column { name, sql_type, .. }) in (number..).zip(columns) {
            let _ = write!(sql, "{separator}${number}::{sql_type}");
            if !has_arrays {
                let _ = write!(sql, " AS {name}");
            }
            separator = ", ";
        }
        if has_arrays {
            let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
            let _ = write!(sql, ") AS {table} ({})", names.join(", "));
        }
        sql.push(')');
    }
}
