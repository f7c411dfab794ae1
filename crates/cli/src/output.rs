//! What a command answers, as a table for people, or as JSON or YAML for programs.

use crate::{
    failure::Failure,
    text::{escaped, is_plain, plain, plain_lines},
};
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;
use std::{
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

/// How answers are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people
    Table,
    /// For programs, as the server answered
    Json,
    /// The same as YAML
    Yaml,
}

/// A column of a table: its head, and the JSON pointer to what stands in it.
pub(crate) type Column = (&'static str, &'static str);

/// Where answers are written, and how.
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

    /// A list: a row an item.
    pub(crate) fn list(self, items: &[Value], columns: &[Column]) -> Result<(), Failure> {
        if !self.is_for_people() {
            return self.value(&Value::Array(items.to_vec()));
        }
        if items.is_empty() {
            return say("nothing there");
        }
        let mut table = table();
        table.set_header(columns.iter().map(|(head, _)| *head));
        for item in items {
            table.add_row(columns.iter().map(|(_, pointer)| cell(item.pointer(pointer))));
        }
        write_table(&table)
    }

    /// One thing: a row a member.
    pub(crate) fn one(self, item: &Value) -> Result<(), Failure> {
        let Value::Object(members) = item else { return self.value(item) };
        if !self.is_for_people() {
            return self.value(item);
        }
        let mut table = table();
        for (name, value) in members {
            table.add_row([plain(name), cell(Some(value))]);
        }
        write_table(&table)
    }

    /// A value as it is. For people, a text stands for itself.
    pub(crate) fn value(self, value: &Value) -> Result<(), Failure> {
        match (self.format, value) {
            (Format::Table, Value::String(text)) => say(text),
            (Format::Table | Format::Json, _) => say(&json(value)?),
            (Format::Yaml, _) => {
                let text = serde_yaml::to_string(value).map_err(|error| Failure::Unfit(error.to_string()))?;
                // JSON is YAML, and can spell every letter by its number where YAML's own forms cannot.
                if is_plain(&text) { say(text.trim_end()) } else { say(&json(value)?) }
            }
        }
    }
}

/// The value as JSON that a terminal shows as it is: letters that it would obey are spelled by their number.
fn json(value: &Value) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Unfit(error.to_string()))?;
    Ok(escaped(&text))
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn write_table(table: &Table) -> Result<(), Failure> {
    let lines: Vec<String> = table.lines().map(|line| line.trim().to_owned()).collect();
    say(&lines.join("\n"))
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            plain(&value.to_string())
        }
    }
}

/// Whether the reader of standard output has left.
static LEFT: AtomicBool = AtomicBool::new(false);

/// Writes lines of the answer on standard output, and nothing that a terminal would obey.
///
/// # Errors
/// As [`write`].
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    write(&format!("{}\n", plain_lines(text)))
}

/// Writes on standard output as it is. A reader that left has seen what it wanted to: nothing more is written, and the
/// command does the rest of its work and ends as it would have ended.
///
/// # Errors
/// When it cannot be written, such as on a full disk.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    if !is_heard() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    heard(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// What writing on standard output came to.
pub(crate) fn heard(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => {
            LEFT.store(true, Ordering::Relaxed);
            Ok(())
        }
        written => written.map_err(|cause| Failure::Io { path: "standard output".into(), cause }),
    }
}

/// Whether anybody may still read what is written on standard output.
pub(crate) fn is_heard() -> bool {
    !LEFT.load(Ordering::Relaxed)
}

/// Tells on standard error what happens meanwhile. Whether anybody listens does not matter.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain_lines(text));
}

/// Whether a person sits in front of standard error.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}
