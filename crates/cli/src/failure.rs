//! Failures of commands and their exit codes.

use crate::{
    http_client::StatusCode,
    terminal_text::{sanitize, shorten},
};
use serde_json::{Map, Value, json};
use std::{fmt, io, path::PathBuf, process::ExitCode};

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server refused the request.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The server did not respond, or its response is not one that Fairway sends.
    #[error("{server} cannot be reached: {cause}")]
    Unreachable {
        /// The server's address.
        server: String,
        /// The system's error text.
        cause: String,
    },
    /// A proxy or another server responded with a status that a retry does not change.
    #[error("{server} cannot be reached: the response {status} is not from a Fairway server")]
    NotFairway {
        /// The server's address.
        server: String,
        /// The status of the response.
        status: StatusCode,
    },
    /// The command line is invalid.
    #[error("{0}")]
    Usage(String),
    /// No resource has the name that the caller gave.
    #[error("{message}{}", candidate_hint(.candidates))]
    Unknown {
        /// The message, which may repeat the given name.
        message: String,
        /// Resources with similar names, or all resources that match.
        candidates: Vec<Candidate>,
    },
    /// Another failure, with the command to try next.
    #[error("{failure}\nnext: {next}")]
    WithNextStep {
        failure: Box<Self>,
        /// The command to try next.
        next: String,
    },
    /// Files contain these errors.
    #[error("{}", join_lines(.0))]
    Files(Vec<Finding>),
    /// The command failed, and has already printed the details on standard output.
    #[error("{0}")]
    Failed(String),
    /// The wait for a run timed out or was interrupted, and the run continues.
    #[error("run {execution_id} is still running; `fairway executions wait {execution_id}` resumes waiting")]
    StillRunning {
        /// The execution id of the run.
        execution_id: String,
    },
    /// The watch timed out before the release settled.
    #[error("the wait timed out before the release settled")]
    WatchTimedOut,
    /// A directory and a server differ (`sync status`).
    #[error("the directory and the server differ")]
    OutOfSync,
    /// A local file could not be read or written.
    #[error("{path}: {cause}", path = .path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The reader of standard output closed it while a watch was active.
    #[error("standard output was closed before the release settled")]
    OutputClosed,
}

impl Failure {
    /// The exit code: 1 refused or failed, 2 usage error or out of sync, 3 unreachable, 5 the run or the watched
    /// release continues. Scripts rely on the codes.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_status())
    }

    const fn exit_status(&self) -> u8 {
        match self {
            Self::WithNextStep { failure, .. } => failure.exit_status(),
            Self::Refused(_) | Self::Unknown { .. } | Self::Files(_) | Self::Failed(_) | Self::Io { .. } => 1,
            Self::Usage(_) | Self::OutOfSync => 2,
            Self::Unreachable { .. } | Self::NotFairway { .. } => 3,
            Self::StillRunning { .. } | Self::WatchTimedOut | Self::OutputClosed => 5,
        }
    }

    /// The failure as JSON, in the form of the server's error responses, with the exit code.
    pub(crate) fn to_json(&self) -> Value {
        let mut detail = match self {
            Self::WithNextStep { failure, next } => {
                let mut failure_json = failure.to_json();
                if let Some(detail) = failure_json.get_mut("detail").and_then(Value::as_object_mut) {
                    detail.insert("next_command".to_owned(), json!(next));
                }
                return failure_json;
            }
            Self::Refused(refusal) => refusal.detail.as_object().cloned().unwrap_or_default(),
            Self::Files(findings) => Map::from_iter([("findings".to_owned(), json!(findings))]),
            Self::Unknown { candidates, .. } => Map::from_iter([("candidates".to_owned(), json!(candidates))]),
            Self::StillRunning { execution_id } => Map::from_iter([("execution_id".to_owned(), json!(execution_id))]),
            Self::NotFairway { status, .. } => Map::from_iter([("status".to_owned(), json!(status.as_u16()))]),
            Self::Unreachable { .. }
            | Self::Usage(_)
            | Self::Failed(_)
            | Self::WatchTimedOut
            | Self::OutOfSync
            | Self::Io { .. }
            | Self::OutputClosed => Map::new(),
        };
        let (code, message) = match self {
            Self::WithNextStep { failure, .. } => ("failed", failure.to_string()),
            Self::Refused(refusal) => (refusal.code.as_str(), refusal.message.clone()),
            Self::Unknown { message, .. } => ("not_found", message.clone()),
            Self::Files(_) => ("invalid_files", self.to_string()),
            Self::Unreachable { .. } | Self::NotFairway { .. } => ("unreachable", self.to_string()),
            Self::Usage(_) => ("usage", self.to_string()),
            Self::Failed(_) => ("failed", self.to_string()),
            Self::StillRunning { .. } => ("still_running", self.to_string()),
            Self::WatchTimedOut => ("timeout", self.to_string()),
            Self::OutOfSync => ("out_of_sync", self.to_string()),
            Self::Io { .. } => ("io_error", self.to_string()),
            Self::OutputClosed => ("output_closed", self.to_string()),
        };
        detail.insert("error".to_owned(), json!(code));
        detail.insert("message".to_owned(), json!(message));
        let request_id = if let Self::Refused(refusal) = self { refusal.request_id.clone() } else { None };
        json!({ "detail": detail, "request_id": request_id, "exit_code": self.exit_status() })
    }

    /// Whether the server refused the request with this code.
    pub(crate) fn is_refusal(&self, code: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }

    /// Whether the server found no resource with a name that the caller gave.
    pub(crate) fn is_missing_resource(&self) -> bool {
        if let Self::WithNextStep { failure, .. } = self {
            return failure.is_missing_resource();
        }
        matches!(self, Self::Unknown { .. }) || self.is_refusal("not_found")
    }

    /// Applies `change` to a refusal with this code. Returns other failures unchanged.
    pub(crate) fn map_refusal(self, code: &str, change: impl FnOnce(Box<Refusal>) -> Self) -> Self {
        if !self.is_refusal(code) {
            return self;
        }
        let Self::Refused(refusal) = self else { return self };
        change(refusal)
    }

    /// Whether a retry can succeed: the server did not respond, or it is overloaded or starting.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
            || matches!(self, Self::Refused(refusal) if is_transient_status(refusal.status))
    }

    /// Converts a transient failure to [`Failure::Unreachable`]. A failure is transient if no response arrived, or if
    /// the status of the response is 429 or 5xx.
    ///
    /// # Errors
    /// Any other failure, because a retry does not change it. [`Failure::NotFairway`] becomes [`Failure::Refused`],
    /// because a proxy or another server responded.
    pub(crate) fn into_unreachable(self, server: &str) -> Result<Self, Self> {
        match self {
            Self::Refused(refusal) if is_transient_status(refusal.status) => {
                Ok(Self::Unreachable { server: server.to_owned(), cause: refusal.to_string() })
            }
            unreachable @ Self::Unreachable { .. } => Ok(unreachable),
            not_fairway @ Self::NotFairway { status, .. } => {
                Err(Self::Refused(Box::new(Refusal::without_body(status.as_u16(), not_fairway.to_string()))))
            }
            persistent @ (Self::Refused(_)
            | Self::WithNextStep { .. }
            | Self::Usage(_)
            | Self::Unknown { .. }
            | Self::Files(_)
            | Self::Failed(_)
            | Self::StillRunning { .. }
            | Self::WatchTimedOut
            | Self::OutOfSync
            | Self::Io { .. }
            | Self::OutputClosed) => Err(persistent),
        }
    }

    /// Adds the command to try next.
    pub(crate) fn with_next(self, next: String) -> Self {
        Self::WithNextStep { failure: Box::new(self), next }
    }

    /// A failure with one finding.
    pub(crate) fn from_finding(finding: Finding) -> Self {
        Self::Files(vec![finding])
    }
}

/// Whether a retry can succeed after this HTTP status: 429 or a server error.
pub(crate) const fn is_transient_status(status: u16) -> bool {
    status == 429 || status >= 500
}

/// Formats the candidates as the end of an error message.
pub(crate) fn candidate_hint(candidates: &[Candidate]) -> String {
    match candidates {
        [] => String::new(),
        [candidate] => format!("; did you mean {}?", candidate.describe()),
        several => {
            let lines: Vec<String> = several.iter().map(|candidate| format!("\n  {}", candidate.describe())).collect();
            format!("; did you mean one of these?{}", lines.concat())
        }
    }
}

fn join_lines(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A resource that the caller may have meant.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub(crate) struct Candidate {
    /// The name to use instead.
    pub(crate) name: String,
    /// A note for people that distinguishes the candidate from the other candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl Candidate {
    /// A candidate without a note.
    pub(crate) fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), note: None }
    }

    fn describe(&self) -> String {
        let note = self.note.as_deref().map(|note| format!(" ({})", sanitize(note))).unwrap_or_default();
        format!("`{}`{note}", sanitize(&self.name))
    }
}

/// A refusal as the server reported it.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The status of the response.
    pub(crate) status: u16,
    /// The stable error code, such as `not_found`.
    pub(crate) code: String,
    /// The message for people.
    pub(crate) message: String,
    /// The request id, by which the server's operator finds the request in the logs.
    pub(crate) request_id: Option<String>,
    /// Further details from the response.
    pub(crate) detail: Value,
}

impl Refusal {
    /// A refusal with a status and no body.
    fn without_body(status: u16, message: String) -> Self {
        Self { status, code: format!("http_{status}"), message, request_id: None, detail: Value::Null }
    }

    /// Parses the body of an error response.
    pub(crate) fn from_body(status: u16, body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            status,
            code: text("/detail/error").unwrap_or_else(|| format!("http_{status}")),
            message: text("/detail/message").unwrap_or_else(|| "the response gives no reason".to_owned()),
            request_id: text("/request_id"),
            detail: body.get("detail").cloned().unwrap_or_default(),
        }
    }
}

/// Names of lists in the details of a refusal, with the member that locates each item. The message shows each item
/// on a line.
const DETAIL_LISTS: [(&str, &str); 5] = [
    ("fields", "path"),
    ("errors", "line"),
    ("missing", ""),
    ("problems", "path"),
    ("blocking_releases", "release_id"),
];

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", sanitize(&self.code), sanitize(&self.message))?;
        if let Some(id) = &self.request_id {
            write!(out, " (request {})", sanitize(id))?;
        }
        for (list, locator) in DETAIL_LISTS {
            for item in self.detail.get(list).and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| match item.get(name) {
                    Some(Value::String(text)) => Some(sanitize(text)),
                    Some(Value::Number(number)) => Some(number.to_string()),
                    Some(_) | None => None,
                };
                let mut parts: Vec<String> =
                    [locator, "column", "code", "state", "message"].into_iter().filter_map(text).collect();
                if parts.is_empty() {
                    parts.push(sanitize(&item.to_string()));
                }
                write!(out, "\n  {}", parts.join(": "))?;
            }
        }
        if let Some(environments) = self.detail.get("active_environments").and_then(Value::as_array) {
            let names: Vec<String> = environments.iter().filter_map(Value::as_str).map(sanitize).collect();
            let names = if names.is_empty() { "no environment".to_owned() } else { names.join(", ") };
            write!(out, "\n  active in: {names}")?;
        }
        for name in ["reason_code", "execution_id", "permission", "setting", "current_state", "offset"] {
            if let Some(value) = self.detail.get(name) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                write!(out, "\n  {name}: {}", sanitize(&value))?;
            }
        }
        let number = |name: &str| self.detail.get(name).and_then(Value::as_u64);
        if let (Some(approvals), Some(required)) = (number("approvals"), number("min_approvals")) {
            write!(out, "\n  approvals: {approvals} of {required}; approvals of earlier bindings do not count")?;
        }
        if let Some(connections) = self.detail.get("connections").and_then(Value::as_array) {
            let names: Vec<String> = connections.iter().filter_map(Value::as_str).map(sanitize).collect();
            write!(out, "\n  connections: {}", names.join(", "))?;
        }
        if let Some(states) = self.detail.get("valid_transitions") {
            write!(out, "\n  valid_transitions: {}", sanitize(&states.to_string()))?;
        }
        Ok(())
    }
}

/// The line and column of a character in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Line number, from 1.
    pub(crate) line: u32,
    /// Column number in characters, from 1.
    pub(crate) column: u32,
}

impl Position {
    /// The first character of a text.
    pub(crate) const START: Self = Self { line: 1, column: 1 };
}

/// One error in a file, with the position that an editor or a pipeline can jump to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub(crate) struct Finding {
    /// The path of the file, as the caller gave it or as the search of a directory found it.
    pub(crate) file: String,
    /// Line number, from 1; absent when the finding concerns the whole file.
    pub(crate) line: Option<u32>,
    /// Column number in characters, from 1.
    pub(crate) column: Option<u32>,
    /// A stable error code.
    pub(crate) code: String,
    /// The message for people; never repeats file content.
    pub(crate) message: String,
    /// The path in the content as the server reports it: `content.rules[0].condition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// For a finding about a token of a prompt: the byte offset of the token in the prompt's text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u32>,
}

impl Finding {
    /// A finding about a whole file.
    pub(crate) fn whole(file: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        let (file, code, message) = (file.into(), code.into(), shorten(&message.into()).into_owned());
        Self { file, line: None, column: None, code, message, path: None, offset: None }
    }

    pub(crate) fn at(mut self, position: Option<Position>) -> Self {
        (self.line, self.column) = position.map(|position| (position.line, position.column)).unzip();
        self
    }

    /// Sets the offset of a token in a prompt.
    pub(crate) fn with_offset(mut self, offset: Option<usize>) -> Self {
        self.offset = offset.and_then(|offset| u32::try_from(offset).ok());
        self
    }

    /// Sets the path in the content.
    pub(crate) fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(shorten(&path.into()).into_owned());
        self
    }
}

impl fmt::Display for Finding {
    /// Writes exactly one line, even when the file name contains line breaks.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line.unwrap_or(1), self.column.unwrap_or(1));
        write!(out, "{}:{line}:{column}: {}: {}", sanitize(&self.file), self.code, sanitize(&self.message))?;
        if let Some(offset) = self.offset {
            write!(out, ", at byte {offset} of the prompt")?;
        }
        match &self.path {
            Some(path) if !path.is_empty() => write!(out, " ({})", sanitize(path)),
            Some(_) | None => Ok(()),
        }
    }
}
