//! What a command answers, as a table for people, or as JSON or YAML for programs.

use crate::{
    failure::Failure,
    text::{plain, plain_lines},
};
use comfy_table::{ContentArrangement, Table};
use serde_json::Value;
use std::io::{self, IsTerminal as _, Write as _};

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
            (Format::Table, Value::String(text)) => say(&plain_lines(text)),
            (Format::Table | Format::Json, _) => {
                say(&serde_json::to_string_pretty(value).map_err(|error| Failure::Unfit(error.to_string()))?)
            }
            (Format::Yaml, _) => {
                let text = serde_yaml::to_string(value).map_err(|error| Failure::Unfit(error.to_string()))?;
                say(text.trim_end())
            }
        }
    }
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

fn write_table(table: &Table) -> Result<(), Failure> {
    for line in table.lines() {
        say(line.trim())?;
    }
    Ok(())
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

/// Writes lines of the answer on standard output.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|_| Failure::Unheard)
}

/// Tells on standard error what happens meanwhile. Whether anybody listens does not matter.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain_lines(text));
}

/// Whether a person sits in front of standard error.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}
