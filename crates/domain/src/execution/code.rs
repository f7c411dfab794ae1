//! Code mode: a script that an agent wrote, run once where it can reach nothing and nobody.
//!
//! A script is handed over at most once. Whoever runs it says how it came out; where no whole answer comes, nobody knows
//! whether it ran, and the run says so until a person settles it.

mod forbidden;
mod sandbox;

pub use forbidden::is_forbidden;
pub use sandbox::{MalformedProfile, SandboxProfile, SandboxRefusal, ScriptLimits};

use super::{
    Outcome, RunError, RunRef, Status, StepRecord,
    run::{Closed, Cut, Ended, Outside},
};
use crate::{
    asset::ports::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::EvidenceArtifact,
    id::ExecutionId,
    policy::{Obligation, PolicyDecision},
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, time::Duration};

/// Longest time of a script.
pub const LONGEST: Duration = Duration::from_secs(5);
/// Memory of a script's engine, in bytes.
pub const MEMORY: usize = 64 << 20;
/// Most bytes that a script may give: what it says and its result, as JSON, together.
pub const MOST_OUTPUT: usize = 64 << 10;
/// Scripts of one tenant that one process runs at the same time.
pub const MOST_AT_ONCE: usize = 4;
/// The step of a run that is a script.
const STEP: &str = "code";

/// A language of scripts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Language {
    /// Starlark: the result is the global `result`.
    Starlark,
    /// JavaScript: the result is the last expression.
    JavaScript,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::Starlark, Self::JavaScript];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starlark => "starlark",
            Self::JavaScript => "javascript",
        }
    }

    /// The language of that spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.as_str() == text)
    }
}

/// A script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// What it is written in.
    pub language: Language,
    /// What it says.
    pub code: String,
}

impl Script {
    /// The inputs of its run: what policies may look at, and what is kept.
    #[must_use]
    pub fn inputs(&self) -> Map<String, Value> {
        Map::from_iter([("language".to_owned(), json!(self.language.as_str())), ("code".to_owned(), json!(self.code))])
    }
}

/// A script to run.
#[derive(Clone, Copy, Debug)]
pub struct CodeRequest<'s> {
    /// The run that it is.
    pub execution_id: ExecutionId,
    /// The script.
    pub script: &'s Script,
    /// What it may use.
    pub limits: ScriptLimits,
}

/// How a script came out.
#[derive(Clone, PartialEq, Debug)]
pub struct CodeResult {
    /// Its result, or why it has none.
    pub result: Result<Value, ScriptFailure>,
    /// What it said.
    pub stdout: String,
}

/// Why a script has no result. None of it says anything of the script's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// It cannot be read, or went wrong.
    #[error("the script ended with an error")]
    Error,
    /// It took too long.
    #[error("the script took longer than it may")]
    TimedOut,
    /// It took too much memory, or went too deep.
    #[error("the script took more memory than it may")]
    Memory,
    /// It gave too much.
    #[error("the script gave more than it may")]
    TooMuchOutput,
    /// Its result is nothing that JSON knows.
    #[error("the result of the script is no JSON")]
    NoJson,
    /// It was stopped because it reached for something that no script may reach.
    #[error("the script was stopped by its sandbox")]
    Stopped,
}

impl ScriptFailure {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Error, Self::TimedOut, Self::Memory, Self::TooMuchOutput, Self::NoJson, Self::Stopped];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Error => "script_error",
            Self::TimedOut => "script_timeout",
            Self::Memory => "script_memory",
            Self::TooMuchOutput => "script_output_too_long",
            Self::NoJson => "script_result_not_json",
            Self::Stopped => "script_stopped",
        }
    }

    /// The failure of that code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.code() == code)
    }
}

/// Why nobody said how a script came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GatewayFailure {
    /// Nobody took it: it did not run.
    #[error("the runtime gateway takes no scripts")]
    Unreachable,
    /// It was handed over and the answer was lost, or none that can be read. Whether it ran is not known.
    #[error("whether the script ran is not known: its gateway gave no answer that can be read")]
    Lost,
    /// It was handed over and no whole answer came in time. Whether it ran is not known.
    #[error("whether the script ran is not known: its gateway gave no answer in time")]
    TimedOut,
}

impl GatewayFailure {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Unreachable, Self::Lost, Self::TimedOut];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unreachable => "gateway_unreachable",
            Self::Lost => "gateway_error",
            Self::TimedOut => "gateway_timeout",
        }
    }

    /// The failure of that code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.code() == code)
    }

    const fn end(self) -> (Status, Outcome) {
        match self {
            Self::Unreachable => (Status::Failed, Outcome::Failure),
            Self::Lost | Self::TimedOut => (Status::Unknown, Outcome::Unknown),
        }
    }
}

/// Runs scripts.
pub trait CodeGateway: Send + Sync {
    /// What it is called in evidence.
    fn name(&self) -> &'static str;
    /// What becomes of a script that was handed over and is given up on before its end.
    fn when_given_up(&self) -> GivenUp;
    /// Makes ready for one script of this language within these limits, and waits for nothing. Nobody is handed anything yet,
    /// and whoever drops what comes leaves nothing behind.
    fn prepare(&self, language: Language, limits: ScriptLimits) -> Box<dyn PreparedGateway>;
}

/// What becomes of a script whose gateway nobody listens to any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// It ends with that.
    Ends,
    /// It may go on, and nobody knows how it comes out.
    MayGoOn,
}

impl GivenUp {
    /// What came of a script whose run has no time left.
    #[must_use]
    pub const fn overdue(self) -> Came {
        match self {
            Self::Ends => Came::Cut(Cut::Overdue),
            Self::MayGoOn => Came::Answered(Err(GatewayFailure::TimedOut)),
        }
    }
}

/// A gateway that is ready for one script, and for no second one.
#[async_trait]
pub trait PreparedGateway: Send {
    /// Hands the script over, once. The script's time begins here, however long ago the gateway was made ready.
    async fn run(self: Box<Self>, request: CodeRequest<'_>) -> Result<CodeResult, GatewayFailure>;
}

/// What became of a script that was handed over, or was about to be.
#[derive(Clone, PartialEq, Debug)]
pub enum Came {
    /// Its gateway said something, or should have.
    Answered(Result<CodeResult, GatewayFailure>),
    /// Its run was stopped meanwhile, and nobody waits for an answer any more.
    Cut(Cut),
}

/// A script whose time is over.
#[derive(Clone, Debug)]
pub struct RanScript<'s> {
    /// What was asked for.
    pub request: CodeRequest<'s>,
    /// Who was asked.
    pub gateway: &'static str,
    /// What came of it.
    pub came: Came,
    /// When it was handed over.
    pub began: Timestamp,
    /// When it was over.
    pub over: Timestamp,
}

impl RanScript<'_> {
    /// The end of its run, with what that owes under the decision that let it in.
    #[must_use]
    pub fn close(self, decision: PolicyDecision, outside: Outside<'_>) -> Closed {
        let Self { request: CodeRequest { execution_id, script, limits }, gateway, came, began, over } = self;
        let said = |stdout: String| {
            Map::from_iter([
                ("language".to_owned(), json!(script.language.as_str())),
                ("stdout".to_owned(), json!(stdout)),
            ])
        };
        let (status, outcome, error, output) = match came {
            Came::Answered(Ok(CodeResult { result: Ok(result), stdout })) => {
                (Status::Completed, Outcome::Success, None, Some((result, said(stdout))))
            }
            Came::Answered(Ok(CodeResult { result: Err(failure), stdout })) => {
                let error = RunError::new(failure.code(), &failure.to_string());
                // What a run that failed printed is nobody's to look at, so where somebody has to it is not told.
                let reviewed = decision.obligations.contains(&Obligation::HumanReview);
                let output = (!reviewed).then(|| (Value::Null, said(stdout)));
                (Status::Failed, Outcome::Failure, Some(error), output)
            }
            Came::Answered(Err(failure)) => {
                let (status, outcome) = failure.end();
                (status, outcome, Some(RunError::new(failure.code(), &failure.to_string())), None)
            }
            Came::Cut(cut) => {
                let (status, outcome, code, message) = cut.told();
                (status, outcome, Some(RunError::new(code, message)), None)
            }
        };
        let failed = error.as_ref().map(|error| error.code.clone());
        let micros = over.micros().saturating_sub(began.micros());
        let duration = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
        let artifact_id = outside.ids.fresh().into();
        let artifact = EvidenceArtifact {
            artifact_id,
            kind: "code_run",
            storage_ref: ArtifactPath::of_evidence(execution_id, artifact_id, "code-run.json"),
            body: Map::from_iter([
                ("language".to_owned(), json!(script.language.as_str())),
                ("code_bytes".to_owned(), json!(script.code.len())),
                ("gateway".to_owned(), json!(gateway)),
                ("limits".to_owned(), limits.as_json()),
                ("outcome".to_owned(), json!(outcome.as_str())),
                ("error_code".to_owned(), json!(failed)),
            ]),
            payload: None,
            created_at: over,
        };
        let given = output.as_ref().map(|(result, said)| json!({ "result": result, "said": said }));
        let value_bytes = given.as_ref().map_or(0, |given| given.to_string().len());
        let transcript = match decision.obligations.contains(&Obligation::RecordTranscript) {
            true => vec![json!({ "code": script.code, "language": script.language.as_str(), "gave": given })],
            false => Vec::new(),
        };
        Closed {
            events: Vec::new(),
            execution_id,
            value_bytes,
            owed: decision.obligations.clone(),
            transcript,
            citable: BTreeSet::new(),
            ended: Ended {
                status,
                outcome,
                error,
                output,
                steps: vec![StepRecord { step_id: STEP.to_owned(), step_type: STEP, failure: failed, duration }],
                decisions: Vec::new(),
                artifacts: vec![artifact],
                lineage: Vec::new(),
                fulfilled: Vec::new(),
                turn: None,
                decision,
            },
        }
    }
}

impl RunRef<'_> {
    /// The fact that a script was let in. It is stored before anybody is handed the script.
    #[must_use]
    pub fn code_accepted(&self, language: Language, stamp: &Stamp) -> Fact {
        self.fact(FactKind::CodeAccepted, json!({ "language": language.as_str() }), stamp)
    }
}

#[cfg(test)]
mod tests;
