//! Command output: a table for people, JSON or YAML for programs.

use crate::{
    failure::Failure,
    text::{escape_json, is_printable, sanitize, sanitize_lines},
};
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;
use std::{
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

/// The output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Tables for people
    Table,
    /// JSON for programs, as the server sent it
    Json,
    /// The same as YAML
    Yaml,
}

/// A table column: its heading, and the JSON pointer to its value.
pub(crate) type Column = (&'static str, &'static str);

/// The destination and format of a command's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
}

impl Output {
    pub(crate) const fn new(format: Format) -> Self {
        Self { format }
    }

    pub(crate) const fn is_for_people(self) -> bool {
        matches!(self.format, Format::Table)
    }

    /// Prints a list, one row for each item.
    pub(crate) fn list(self, items: &[Value], columns: &[Column]) -> Result<(), Failure> {
        if !self.is_for_people() {
            return self.value(&Value::Array(items.to_vec()));
        }
        if items.is_empty() {
            return print("no items");
        }
        let mut table = table();
        table.set_header(columns.iter().map(|(head, _)| *head));
        for item in items {
            table.add_row(columns.iter().map(|(_, pointer)| cell(item.pointer(pointer))));
        }
        write_table(&table)
    }

    /// Prints an object, one row for each member.
    pub(crate) fn one(self, item: &Value) -> Result<(), Failure> {
        let Value::Object(members) = item else { return self.value(item) };
        if !self.is_for_people() {
            return self.value(item);
        }
        let mut table = table();
        for (name, value) in members {
            table.add_row([sanitize(name), cell(Some(value))]);
        }
        write_table(&table)
    }

    /// Prints a value. The table format prints a string without quotes.
    pub(crate) fn value(self, value: &Value) -> Result<(), Failure> {
        match (self.format, value) {
            (Format::Table, Value::String(text)) => print(text),
            (Format::Table | Format::Json, _) => print(&to_terminal_json(value)?),
            (Format::Yaml, _) => {
                let text = serde_yaml::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
                // JSON is valid YAML, and can escape every control character where the YAML writer cannot.
                if is_printable(&text) { print(text.trim_end()) } else { print(&to_terminal_json(value)?) }
            }
        }
    }
}

/// Serializes a value to JSON, and escapes characters that a terminal would interpret.
fn to_terminal_json(value: &Value) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(escape_json(&text))
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn write_table(table: &Table) -> Result<(), Failure> {
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    print(&lines.join("\n"))
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => sanitize(text),
        Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            sanitize(&value.to_string())
        }
    }
}

/// Whether the reader closed standard output.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Prints lines on standard output, without characters that a terminal would interpret.
///
/// # Errors
/// Those of [`write`].
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&format!("{}\n", sanitize_lines(text)))
}

/// Writes text to standard output unchanged. After the reader has closed standard output, the function discards the
/// text, and the command still completes with its usual exit code.
///
/// # Errors
/// When the text cannot be written, for example on a full disk.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    if !is_stdout_open() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    ignore_closed_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Converts the result of a write to standard output. A broken pipe is not an error.
pub(crate) fn ignore_closed_pipe(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => {
            STDOUT_CLOSED.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.map_err(|cause| Failure::Io { path: "standard output".into(), cause }),
    }
}

/// Whether the reader may still read standard output.
pub(crate) fn is_stdout_open() -> bool {
    !STDOUT_CLOSED.load(Ordering::Relaxed)
}

/// Prints progress on standard error. Ignores write errors.
pub(crate) fn eprint(text: &str) {
    let _ = writeln!(io::stderr(), "{}", sanitize_lines(text));
}

/// Whether standard error is a terminal.
pub(crate) fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}
