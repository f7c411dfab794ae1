//! Code mode: the script of an agent runs once in a sandbox without network access.
//!
//! Fairway hands a script to its runtime gateway at most once, and the gateway reports the result. If no complete
//! response arrives and the script may still run, the outcome of the run is unknown until a person resolves it.

mod forbidden_request_fields;
mod sandbox_profile;

pub use forbidden_request_fields::is_forbidden_request_field;
pub use sandbox_profile::{MalformedProfile, SandboxProfile, SandboxRefusal, ScriptLimits};

use super::{
    ExecutionOutcome, RunError, RunRef, Status, StepRecord,
    run::{FinishedRun, Interruption, RunEnd},
};
use crate::{
    asset::artifact_store::ArtifactPath,
    audit::{Fact, FactKind, Stamp},
    evidence::EvidenceArtifact,
    id::{ArtifactId, ExecutionId},
    policy::{Obligation, PolicyDecision},
    time::Timestamp,
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, time::Duration};

/// The maximum time that a script may run.
pub const MAX_DURATION: Duration = Duration::from_secs(5);
/// The memory limit of the interpreter that executes a script, in bytes.
pub const MAX_MEMORY_BYTES: usize = 64 << 20;
/// The maximum total size of a script's standard output and its result as JSON, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// The maximum number of scripts that one process runs at the same time for one tenant.
pub const MAX_CONCURRENT_PER_TENANT_AND_PROCESS: usize = 4;
/// The identifier and the type of the only step with which a script run is recorded.
const STEP_NAME: &str = "code";

/// A language in which agents can write scripts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Language {
    /// Starlark. The result is the value of the global variable `result`.
    Starlark,
    /// JavaScript. The result is the value of the last expression.
    JavaScript,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::Starlark, Self::JavaScript];

    /// The wire form, such as `starlark`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starlark => "starlark",
            Self::JavaScript => "javascript",
        }
    }

    /// Parses the wire form; `None` for an unknown text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.as_str() == text)
    }
}

/// The script that an agent submits in code mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    /// The language of the script.
    pub language: Language,
    /// The source text of the script.
    pub code: String,
}

impl Script {
    /// The script as the inputs of its run, which policies read and the store keeps.
    #[must_use]
    pub fn inputs(&self) -> Map<String, Value> {
        Map::from_iter([("language".to_owned(), json!(self.language.as_str())), ("code".to_owned(), json!(self.code))])
    }
}

/// A request to the runtime gateway to run a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'s> {
    /// The run that executes the script.
    pub execution_id: ExecutionId,
    /// The script to run.
    pub script: &'s Script,
    /// The resource limits of the script.
    pub limits: ScriptLimits,
}

/// The result of a script that ran until its end or its failure.
#[derive(Clone, PartialEq, Debug)]
pub struct ScriptResult {
    /// The value that the script returned, or the reason why it failed.
    pub result: Result<Value, ScriptFailure>,
    /// The captured standard output.
    pub stdout: String,
}

/// The failure of a script. No message contains text of the script.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// The script has a syntax error or raised a runtime error.
    #[error("the script ended with an error")]
    Error,
    /// The script exceeded its time limit.
    #[error("the script exceeded its time limit")]
    TimedOut,
    /// The script exceeded its memory limit or its recursion limit.
    #[error("the script exceeded its memory limit")]
    Memory,
    /// The script exceeded the size limit of its output.
    #[error("the script exceeded its output limit")]
    TooMuchOutput,
    /// The result of the script cannot be written as JSON.
    #[error("the result of the script is not JSON")]
    ResultNotJson,
    /// The sandbox stopped the script because it attempted a forbidden operation.
    #[error("the script was stopped by its sandbox")]
    Stopped,
}

impl ScriptFailure {
    /// Every failure.
    pub const ALL: [Self; 6] =
        [Self::Error, Self::TimedOut, Self::Memory, Self::TooMuchOutput, Self::ResultNotJson, Self::Stopped];

    /// The stable code of the failure.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Error => "script_error",
            Self::TimedOut => "script_timeout",
            Self::Memory => "script_memory",
            Self::TooMuchOutput => "script_output_too_long",
            Self::ResultNotJson => "script_result_not_json",
            Self::Stopped => "script_stopped",
        }
    }

    /// Parses the stable code of a failure.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.code() == code)
    }
}

/// The reason why a runtime gateway reported no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GatewayFailure {
    /// The gateway did not accept the script. The script did not run.
    #[error("the runtime gateway did not accept the script")]
    Unreachable,
    /// The connection was lost after the hand-over, or the response is malformed. Whether the script ran is unknown.
    #[error("the script may have run: its gateway's response was lost or unreadable")]
    Lost,
    /// No complete response arrived in time after the hand-over. Whether the script ran is unknown.
    #[error("the script may have run: its gateway did not respond in time")]
    TimedOut,
}

impl GatewayFailure {
    /// Every failure.
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

    /// Parses the stable code of a failure.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.code() == code)
    }

    const fn status_and_outcome(self) -> (Status, ExecutionOutcome) {
        match self {
            Self::Unreachable => (Status::Failed, ExecutionOutcome::Failure),
            Self::Lost | Self::TimedOut => (Status::Unknown, ExecutionOutcome::Unknown),
        }
    }
}

/// The port of a runtime gateway, which runs scripts.
pub trait ScriptGateway: Send + Sync {
    /// The name of the gateway, which evidence records.
    fn name(&self) -> &'static str;
    /// Whether a script terminates when Fairway interrupts its run after the hand-over.
    fn interrupted_script_behaviour(&self) -> InterruptedScriptBehaviour;
    /// Prepares a sandbox for this language and these limits without blocking, before a script is handed over. Dropping
    /// the returned gateway releases its resources.
    fn prepare(&self, language: Language, limits: ScriptLimits) -> Box<dyn PreparedGateway>;
}

/// Whether a script terminates when Fairway interrupts its run after the hand-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterruptedScriptBehaviour {
    /// The script terminates together with the interrupted run.
    Terminates,
    /// The script may continue to run, and its result is unknown.
    MayContinue,
}

impl InterruptedScriptBehaviour {
    /// The outcome of a script whose run exceeds its deadline.
    #[must_use]
    pub const fn timeout_outcome(self) -> ScriptOutcome {
        match self {
            Self::Terminates => ScriptOutcome::Interrupted(Interruption::DeadlineExceeded),
            Self::MayContinue => ScriptOutcome::Returned(Err(GatewayFailure::TimedOut)),
        }
    }
}

/// A gateway whose sandbox is ready for one script.
#[async_trait]
pub trait PreparedGateway: Send {
    /// Hands over the script and waits for its result. The script's time limit starts at the hand-over.
    async fn run(self: Box<Self>, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure>;
}

/// The outcome of a script from the view of its run.
#[derive(Clone, PartialEq, Debug)]
pub enum ScriptOutcome {
    /// The gateway returned a result, or failed to report one.
    Returned(Result<ScriptResult, GatewayFailure>),
    /// The run was interrupted and no longer waits for the gateway.
    Interrupted(Interruption),
}

/// A script that ended or was interrupted, before its run is finished.
#[derive(Clone, Debug)]
pub struct ScriptRun<'s> {
    /// The request that the gateway received.
    pub request: ScriptRequest<'s>,
    /// The name of the gateway, which evidence records.
    pub gateway: &'static str,
    /// The result of the script, or the reason why none arrived.
    pub outcome: ScriptOutcome,
    /// The time at which the script was handed over.
    pub started_at: Timestamp,
    /// The time at which the script finished or was interrupted.
    pub finished_at: Timestamp,
}

impl ScriptRun<'_> {
    /// Ends the run with the obligations of the policy decision that admitted it.
    #[must_use]
    pub fn into_finished_run(self, decision: PolicyDecision, artifact_id: ArtifactId) -> FinishedRun {
        let Self {
            request: ScriptRequest { execution_id, script, limits },
            gateway,
            outcome: script_outcome,
            started_at,
            finished_at,
        } = self;
        let ScriptEnding { status, outcome, error, output } = ScriptEnding::of(script, script_outcome, &decision);
        let error_code = error.as_ref().map(|error| error.code.clone());
        let micros = finished_at.micros().saturating_sub(started_at.micros());
        let duration = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
        let artifact = EvidenceArtifact {
            artifact_id,
            kind: "code_run",
            storage_ref: ArtifactPath::of_database_evidence(execution_id, artifact_id, "code-run.json"),
            body: artifact_body(script, limits, gateway, outcome, error_code.as_deref()),
            payload: None,
            created_at: finished_at,
        };
        let output_json =
            output.as_ref().map(|(result, output_metadata)| json!({ "result": result, "said": output_metadata }));
        let value_bytes = output_json.as_ref().map_or(0, |output_json| output_json.to_string().len());
        let transcript = match decision.obligations.contains(&Obligation::RecordTranscript) {
            true => vec![json!({ "code": script.code, "language": script.language.as_str(), "gave": output_json })],
            false => Vec::new(),
        };
        FinishedRun {
            events: Vec::new(),
            execution_id,
            value_bytes,
            obligations: decision.obligations.clone(),
            transcript,
            citable_documents: BTreeSet::new(),
            run_outcome: RunEnd {
                status,
                outcome,
                error,
                output,
                steps: vec![StepRecord {
                    step_id: STEP_NAME.to_owned(),
                    step_type: STEP_NAME,
                    failure: error_code,
                    duration,
                }],
                decisions: Vec::new(),
                artifacts: vec![artifact],
                lineage: Vec::new(),
                fulfilled: Vec::new(),
                offered_turn: None,
                decision,
            },
        }
    }
}

/// The end of a run, as the outcome of its script determines it.
struct ScriptEnding {
    status: Status,
    outcome: ExecutionOutcome,
    error: Option<RunError>,
    /// The result of the script, and metadata such as its standard output.
    output: Option<(Value, Map<String, Value>)>,
}

impl ScriptEnding {
    fn of(script: &Script, script_outcome: ScriptOutcome, decision: &PolicyDecision) -> Self {
        let output_metadata = |stdout: String| {
            Map::from_iter([
                ("language".to_owned(), json!(script.language.as_str())),
                ("stdout".to_owned(), json!(stdout)),
            ])
        };
        match script_outcome {
            ScriptOutcome::Returned(Ok(ScriptResult { result: Ok(result), stdout })) => Self {
                status: Status::Completed,
                outcome: ExecutionOutcome::Success,
                error: None,
                output: Some((result, output_metadata(stdout))),
            },
            ScriptOutcome::Returned(Ok(ScriptResult { result: Err(failure), stdout })) => {
                let error = RunError::new(failure.code(), &failure.to_string());
                // A run that requires human review drops its output if it fails, because a reviewer must not see the
                // output of a failed run.
                let needs_review = decision.obligations.contains(&Obligation::HumanReview);
                let output = (!needs_review).then(|| (Value::Null, output_metadata(stdout)));
                Self { status: Status::Failed, outcome: ExecutionOutcome::Failure, error: Some(error), output }
            }
            ScriptOutcome::Returned(Err(failure)) => {
                let (status, outcome) = failure.status_and_outcome();
                Self { status, outcome, error: Some(RunError::new(failure.code(), &failure.to_string())), output: None }
            }
            ScriptOutcome::Interrupted(interruption) => {
                let (status, outcome, code, message) = interruption.ending();
                Self { status, outcome, error: Some(RunError::new(code, message)), output: None }
            }
        }
    }
}

/// The evidence of a script: its language and length, the gateway, the limits and the outcome.
fn artifact_body(
    script: &Script,
    limits: ScriptLimits,
    gateway: &str,
    outcome: ExecutionOutcome,
    error_code: Option<&str>,
) -> Map<String, Value> {
    Map::from_iter([
        ("language".to_owned(), json!(script.language.as_str())),
        ("code_bytes".to_owned(), json!(script.code.len())),
        ("gateway".to_owned(), json!(gateway)),
        ("limits".to_owned(), limits.as_json()),
        ("outcome".to_owned(), json!(outcome.as_str())),
        ("error_code".to_owned(), json!(error_code)),
    ])
}

impl RunRef<'_> {
    /// Builds the fact that a script was accepted. The store commits this fact before the hand-over of the script.
    #[must_use]
    pub fn code_accepted_fact(&self, language: Language, stamp: &Stamp) -> Fact {
        self.fact(FactKind::CodeAccepted, json!({ "language": language.as_str() }), stamp)
    }
}

#[cfg(test)]
mod tests;
