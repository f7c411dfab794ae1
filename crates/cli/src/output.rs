//! Prints the output of commands: tables for people, JSON or YAML for programs.

mod record;
mod relative_time;
mod table;

use crate::{
    failure::Failure,
    terminal_text::{escape_json, is_printable, sanitize_lines},
};
use serde_json::{Value, json};
use std::{
    env,
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
    /// YAML with the values of the JSON format
    Yaml,
}

/// A table column: its heading, and the JSON pointer to its value.
pub(crate) type Column = (&'static str, &'static str);

/// Prints a command's output in the selected format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: Format,
}

/// Whether messages on standard error are JSON.
static HAS_JSON_MESSAGES: AtomicBool = AtomicBool::new(false);

/// Selects the form of messages on standard error: text with the table format, else one line of JSON for each message.
pub(crate) fn set_message_format(format: Format) {
    HAS_JSON_MESSAGES.store(format != Format::Table, Ordering::Relaxed);
}

impl Output {
    /// Creates the output, and sets the format of messages on standard error.
    pub(crate) fn new(format: Format) -> Self {
        set_message_format(format);
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
        write_lines(&table::render(items, columns))
    }

    /// Prints an object: one row for each scalar, and one table for each list of objects.
    pub(crate) fn record(self, item: &Value) -> Result<(), Failure> {
        let Value::Object(members) = item else { return self.value(item) };
        if !self.is_for_people() {
            return self.value(item);
        }
        write_lines(&record::render(members))
    }

    /// Prints the result of a change, and on standard error the command that usually follows.
    pub(crate) fn change_result(self, item: &Value, next: &str) -> Result<(), Failure> {
        self.record(item)?;
        self.hint(next);
        Ok(())
    }

    /// Prints the next command on standard error, unless the output is for programs.
    pub(crate) fn hint(self, next: &str) {
        if self.is_for_people() {
            eprint(&format!("next: {next}"));
        }
    }

    /// Prints a value. The table format prints a string without quotes.
    pub(crate) fn value(self, value: &Value) -> Result<(), Failure> {
        match (self.format, value) {
            (Format::Table, Value::String(text)) => print(text),
            (Format::Table | Format::Json, _) => print(&to_terminal_json(value)?),
            (Format::Yaml, _) => {
                let text = serde_yaml::to_string(value).map_err(|error| Failure::Failed(error.to_string()))?;
                // If the YAML contains control characters, prints JSON instead: JSON is valid YAML, and its writer can
                // escape every control character.
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

/// Writes rendered lines unchanged. Their texts are sanitized already, and they may contain this program's styles.
fn write_lines(lines: &[String]) -> Result<(), Failure> {
    write(&format!("{}\n", lines.join("\n")))
}

/// Whether standard output is a terminal.
pub(crate) fn is_stdout_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output is a terminal with colours, and NO_COLOR (<https://no-color.org>) is not set.
fn has_colors() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    is_stdout_terminal() && !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|kind| kind != "dumb")
}

/// Whether the reader has closed standard output.
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Prints lines on standard output, without characters that a terminal would interpret.
///
/// # Errors
/// When [`write`] fails.
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

/// Prints a progress message on standard error, as `{"message": …}` for programs. Ignores write errors.
pub(crate) fn eprint(text: &str) {
    end_stderr_line();
    if HAS_JSON_MESSAGES.load(Ordering::Relaxed) {
        eprint_json(&json!({ "message": sanitize_lines(text) }));
    } else {
        let _ = writeln!(io::stderr(), "{}", sanitize_lines(text));
    }
}

/// Whether the last text on standard error ended without a line feed.
static IS_STDERR_WITHIN_LINE: AtomicBool = AtomicBool::new(false);

/// Ends an unfinished line of standard error.
pub(crate) fn end_stderr_line() {
    if IS_STDERR_WITHIN_LINE.swap(false, Ordering::Relaxed) {
        let _ = writeln!(io::stderr());
    }
}

/// Writes text to standard error unchanged. The text may be a part of a line. Ignores write errors.
pub(crate) fn ewrite(text: &str) {
    IS_STDERR_WITHIN_LINE.store(!text.ends_with('\n'), Ordering::Relaxed);
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints the failure of the command on standard error: text for people, one line of JSON for programs.
pub(crate) fn eprint_failure(failure: &Failure) {
    end_stderr_line();
    if HAS_JSON_MESSAGES.load(Ordering::Relaxed) {
        return eprint_json(&failure.to_json());
    }
    let _ = writeln!(
        io::stderr(),
        "{}",
        sanitize_lines(&match failure {
            // No prefix: each line begins with the file name, so that editors can jump to the finding.
            Failure::Files(_) => failure.to_string(),
            Failure::Refused(_)
            | Failure::WithNextStep { .. }
            | Failure::Unreachable { .. }
            | Failure::NotFairway { .. }
            | Failure::Usage(_)
            | Failure::Unknown { .. }
            | Failure::Failed(_)
            | Failure::StillRunning { .. }
            | Failure::WatchTimedOut
            | Failure::OutOfSync
            | Failure::Io { .. }
            | Failure::OutputClosed => format!("fairway: {failure}"),
        })
    );
}

fn eprint_json(value: &Value) {
    let _ = writeln!(io::stderr(), "{}", escape_json(&value.to_string()));
}

/// Whether standard error is a terminal.
pub(crate) fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}
