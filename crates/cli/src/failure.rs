//! Why a command did not do what it was asked, and the exit code that says so.

use crate::{
    server::StatusCode,
    text::{brief, plain},
};
use serde_json::Value;
use std::{fmt, io, path::PathBuf, process::ExitCode};

/// Why a command ends without having done its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// There was no answer, or none of Fairway.
    #[error("{server} cannot be reached: {cause}")]
    Unreachable {
        /// The address.
        server: String,
        /// What happened, in the words of the system.
        cause: String,
    },
    /// Something in front of the server, or another server, said what a further try will not change.
    #[error("{server} cannot be reached: what answers there with {status} does not speak as Fairway does")]
    Foreign {
        /// The address.
        server: String,
        /// What it said.
        status: StatusCode,
    },
    /// The command cannot be meant like this.
    #[error("{0}")]
    Usage(String),
    /// Something is wrong with files; each was told already or is told here.
    #[error("{}", lines(.0))]
    Files(Vec<Finding>),
    /// The work was looked at and is not as it should be; all there is to say was said on standard output.
    #[error("{0}")]
    Unfit(String),
    /// A run goes on although nobody waits for it any more.
    #[error("run {execution_id} goes on; `fairway executions wait {execution_id}` takes up the wait")]
    StillRunning {
        /// The run.
        execution_id: String,
    },
    /// What was watched goes on.
    #[error("the time is over, and the release is not settled")]
    Unsettled,
    /// A directory and a server differ, which was to be found out.
    #[error("the directory and the server differ")]
    Differs,
    /// What should have been written or read here could not be.
    #[error("{path}: {cause}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Nobody reads any more what is told of something that goes on.
    #[error("nobody reads any more, and the release is not settled")]
    Unheard,
}

impl Failure {
    /// The exit code: 1 refused or failed, 2 usage, 3 unreachable, 5 still running (contract: command line).
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Refused(_) | Self::Files(_) | Self::Unfit(_) | Self::Io { .. } => 1,
            Self::Usage(_) | Self::Differs => 2,
            Self::Unreachable { .. } | Self::Foreign { .. } => 3,
            Self::StillRunning { .. } | Self::Unsettled | Self::Unheard => 5,
        })
    }

    /// Whether the server said no for this reason.
    pub(crate) fn is_refusal(&self, code: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.code == code)
    }

    /// That something cannot be seen just now, which says nothing against it: nobody answers, or whoever does is too busy,
    /// starts just now, or stands in front of a server that does not answer.
    ///
    /// # Errors
    /// What will be the same in a moment. Of something in front of the server that is a refusal like one of the server: it can be
    /// reached, and says no.
    pub(crate) fn passing(self, server: &str) -> Result<Self, Self> {
        match self {
            Self::Refused(refusal) if is_passing(refusal.status) => {
                Ok(Self::Unreachable { server: server.to_owned(), cause: refusal.to_string() })
            }
            unseen @ Self::Unreachable { .. } => Ok(unseen),
            foreign @ Self::Foreign { status, .. } => {
                Err(Self::Refused(Box::new(Refusal::bare(status.as_u16(), foreign.to_string()))))
            }
            settled @ (Self::Refused(_)
            | Self::Usage(_)
            | Self::Files(_)
            | Self::Unfit(_)
            | Self::StillRunning { .. }
            | Self::Unsettled
            | Self::Differs
            | Self::Io { .. }
            | Self::Unheard) => Err(settled),
        }
    }

    /// Something is wrong with one file.
    pub(crate) fn file(finding: Finding) -> Self {
        Self::Files(vec![finding])
    }
}

/// Whether who answers so is too busy, or stands in front of a server that is away.
pub(crate) const fn is_passing(status: u16) -> bool {
    status == 429 || status >= 500
}

fn lines(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A refusal in the server's words.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The status of the answer.
    pub(crate) status: u16,
    /// The stable code, such as `not_found`.
    pub(crate) code: String,
    /// The same for people.
    pub(crate) message: String,
    /// By which the operator of the server finds the request.
    pub(crate) request_id: Option<String>,
    /// Whatever else the server said of it.
    pub(crate) detail: Value,
}

impl Refusal {
    /// What says nothing but a status.
    fn bare(status: u16, message: String) -> Self {
        Self { status, code: format!("http_{status}"), message, request_id: None, detail: Value::Null }
    }

    /// Reads the body of an answer.
    pub(crate) fn of(status: u16, body: &Value) -> Self {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            status,
            code: text("/detail/error").unwrap_or_else(|| format!("http_{status}")),
            message: text("/detail/message").unwrap_or_else(|| "the answer does not say why".to_owned()),
            request_id: text("/request_id"),
            detail: body.get("detail").cloned().unwrap_or_default(),
        }
    }
}

/// What a refusal says beside its message, one line each.
const LISTS: [(&str, &str); 4] =
    [("fields", "path"), ("errors", "line"), ("missing", ""), ("blocking_releases", "release_id")];

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", plain(&self.code), plain(&self.message))?;
        if let Some(id) = &self.request_id {
            write!(out, " (request {})", plain(id))?;
        }
        for (list, place) in LISTS {
            for item in self.detail.get(list).and_then(Value::as_array).into_iter().flatten() {
                let text = |name: &str| match item.get(name) {
                    Some(Value::String(text)) => Some(plain(text)),
                    Some(Value::Number(number)) => Some(number.to_string()),
                    Some(_) | None => None,
                };
                let mut parts: Vec<String> =
                    [place, "column", "code", "state", "message"].into_iter().filter_map(text).collect();
                if parts.is_empty() {
                    parts.push(plain(&item.to_string()));
                }
                write!(out, "\n  {}", parts.join(": "))?;
            }
        }
        for name in ["reason_code", "execution_id", "permission", "current_state", "offset"] {
            if let Some(value) = self.detail.get(name) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                write!(out, "\n  {name}: {}", plain(&value))?;
            }
        }
        if let Some(states) = self.detail.get("valid_transitions") {
            write!(out, "\n  valid_transitions: {}", plain(&states.to_string()))?;
        }
        Ok(())
    }
}

/// One thing that is wrong with a file: what an editor or a pipeline can jump to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub(crate) struct Finding {
    /// The file, as it was named or found.
    pub(crate) file: String,
    /// From 1; none where the whole file is meant.
    pub(crate) line: Option<u32>,
    /// From 1, in characters.
    pub(crate) column: Option<u32>,
    /// A stable code.
    pub(crate) code: String,
    /// The same for people; never repeats what the file says.
    pub(crate) message: String,
    /// Where in the content, as the server says it: `content.rules[0].condition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// Of a token in a prompt: the byte of the prompt's text at which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u32>,
}

impl Finding {
    /// About a whole file.
    pub(crate) fn whole(file: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        let (file, code, message) = (file.into(), code.into(), brief(&message.into()).into_owned());
        Self { file, line: None, column: None, code, message, path: None, offset: None }
    }

    /// The same at a place.
    pub(crate) fn at(mut self, place: Option<(u32, u32)>) -> Self {
        (self.line, self.column) = place.unzip();
        self
    }

    /// The same about a token of a prompt.
    pub(crate) fn with_offset(mut self, offset: Option<usize>) -> Self {
        self.offset = offset.and_then(|offset| u32::try_from(offset).ok());
        self
    }

    /// The same with the path of the server.
    pub(crate) fn with_path(mut self, path: impl Into<String>) -> Self {
        self.path = Some(brief(&path.into()).into_owned());
        self
    }
}

impl fmt::Display for Finding {
    /// One line, however many the name of the file has.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = (self.line.unwrap_or(1), self.column.unwrap_or(1));
        write!(out, "{}:{line}:{column}: {}: {}", plain(&self.file), self.code, plain(&self.message))?;
        if let Some(offset) = self.offset {
            write!(out, ", at byte {offset} of the prompt")?;
        }
        match &self.path {
            Some(path) if !path.is_empty() => write!(out, " ({})", plain(path)),
            Some(_) | None => Ok(()),
        }
    }
}
