//! Migrates an empty database and prints `src/schema.rs`: one `diesel::table!` for each table, without partitions. The
//! argument is the database's URL. `cargo xtask schema` writes the file, and `cargo xtask check` compares it.

#![expect(clippy::print_stdout, reason = "the program prints a file")]

use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;

/// The columns of all tables in order, with the position of each in the primary key. Tables of the migration tool and
/// partitions are left out.
const COLUMNS: &str = "
    SELECT relname::text AS table_name, attname::text AS column_name, atttypid::regtype::text AS sql_type, attnotnull,
        array_position((SELECT conkey FROM pg_constraint WHERE conrelid = class.oid AND contype = 'p'), attnum) AS key_position
    FROM pg_class AS class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    JOIN pg_attribute ON attrelid = class.oid AND attnum > 0 AND NOT attisdropped
    WHERE nspname = 'public' AND relkind IN ('r', 'p') AND NOT relispartition
        AND relname NOT LIKE '%schema_history' AND relname NOT LIKE '\\_\\_diesel%'
    ORDER BY relname, attnum";

const HEAD: &str = "\
//! The tables, as the migrations make them. Written by `cargo xtask schema`; do not edit.
//!
//! Columns of types that diesel does not know (`tsvector`, `vector`) are left out.
";

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).context("expected the URL of an empty database")?;
    fairway_postgres::migrate(&url).await?;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    let driver = tokio::spawn(connection);
    let rows = client.query(COLUMNS, &[]).await?;
    let mut tables: Vec<Table> = Vec::new();
    for row in &rows {
        let name: String = row.try_get("table_name")?;
        if tables.last().is_none_or(|table| table.name != name) {
            tables.push(Table { name, columns: Vec::new(), key: Vec::new() });
        }
        if let Some(table) = tables.last_mut() {
            table.push(row)?;
        }
    }
    drop(client);
    driver.await??;
    print!("{HEAD}");
    for table in tables {
        print!("\n{}", table.into_rust()?);
    }
    Ok(())
}

struct Table {
    name: String,
    /// The columns, as lines.
    columns: Vec<String>,
    /// The columns of the primary key, with their positions.
    key: Vec<(i32, String)>,
}

impl Table {
    fn push(&mut self, row: &tokio_postgres::Row) -> Result<()> {
        let (name, sql_type): (String, String) = (row.try_get("column_name")?, row.try_get("sql_type")?);
        if let Some(position) = row.try_get::<_, Option<i32>>("key_position")? {
            self.key.push((position, name.clone()));
        }
        let diesel_type = match sql_type.as_str() {
            "boolean" => "Bool",
            "smallint" => "SmallInt",
            "integer" => "Integer",
            "bigint" => "BigInt",
            "real" => "Float",
            "double precision" => "Double",
            "text" => "Text",
            "bytea" => "Bytea",
            "uuid" => "Uuid",
            "jsonb" => "Jsonb",
            "interval" => "Interval",
            "timestamp with time zone" => "Timestamptz",
            "text[]" => "Array<Text>",
            "uuid[]" => "Array<Uuid>",
            "bytea[]" => "Array<Bytea>",
            "tsvector" | "vector" => return Ok(()),
            unknown => {
                bail!("column `{name}` of `{}` has the type `{unknown}`, which this program does not map", self.name)
            }
        };
        let diesel_type =
            if row.try_get("attnotnull")? { diesel_type.to_owned() } else { format!("Nullable<{diesel_type}>") };
        self.columns.push(match name.as_str() {
            "ref" | "type" => format!("#[sql_name = \"{name}\"]\n        {name}_ -> {diesel_type}"),
            name => format!("{name} -> {diesel_type}"),
        });
        Ok(())
    }

    fn into_rust(mut self) -> Result<String> {
        self.key.sort();
        let key: Vec<String> = self.key.into_iter().map(|(_, name)| name).collect();
        let mut text = format!("diesel::table! {{\n    {} ({}) {{\n", self.name, key.join(", "));
        for column in self.columns {
            writeln!(text, "        {column},")?;
        }
        text.push_str("    }\n}\n");
        Ok(text)
    }
}
