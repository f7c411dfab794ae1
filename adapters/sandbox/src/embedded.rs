//! The embedded gateway: one child process per script. Children are started in advance, because a start takes longer
//! than most scripts.

use crate::{
    child::NO_SCRIPT_EXIT_CODE,
    confine::ConfinementFailure,
    ipc::{MAX_RESPONSE, Request, Response, limits},
};
use async_trait::async_trait;
use fairway_domain::execution::script::{
    AbandonedScriptFate, GatewayFailure, Language, MAX_CONCURRENT_PER_TENANT, MAX_DURATION, PreparedGateway,
    ScriptFailure, ScriptGateway, ScriptLimits, ScriptRequest, ScriptResult,
};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use std::{
    num::NonZero,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    thread::available_parallelism,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// The running program, even if its file was replaced.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The subcommand that makes the program a child.
const SUBCOMMAND: &str = "sandbox";
/// The allocator settings of the child. The allocator starts no thread, because the system call filter kills a process
/// that does. It unmaps freed memory, because the memory limit counts mapped memory. The child's environment has no
/// other variable.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false,retain:false,narenas:1");

/// Concurrent children per processor.
const CHILDREN_PER_PROCESSOR: usize = 2;

/// Runs scripts in children of this program: at most two per processor, at least four in total, for all tenants.
/// Further scripts wait up to the maximum run time, and are refused without a free slot. Clones share the slots.
#[derive(Clone, Debug)]
pub struct EmbeddedGateway {
    program: PathBuf,
    slots: Arc<Semaphore>,
}

/// Maximum number of concurrent children for a number of processors: at least the limit of one tenant.
fn max_children(processors: usize) -> usize {
    processors.saturating_mul(CHILDREN_PER_PROCESSOR).max(MAX_CONCURRENT_PER_TENANT)
}

impl EmbeddedGateway {
    /// A gateway with children of the running program.
    #[must_use]
    pub fn new() -> Self {
        Self::with_program(PathBuf::from(THIS_PROGRAM))
    }

    /// A gateway with children of another compatible program.
    #[must_use]
    pub fn with_program(program: PathBuf) -> Self {
        let places = max_children(available_parallelism().map_or(1, NonZero::get));
        Self { program, slots: Arc::new(Semaphore::new(places)) }
    }

    /// Acquires a slot for a child, in the order of requests.
    async fn acquire_slot(&self) -> Result<OwnedSemaphorePermit, GatewayFailure> {
        match timeout(MAX_DURATION, Arc::clone(&self.slots).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Ok(Err(_)) => Err(GatewayFailure::Unreachable),
            Err(_) => {
                tracing::warn!(
                    timeout_s = MAX_DURATION.as_secs(),
                    "no sandbox slot became free in time; refusing the script"
                );
                Err(GatewayFailure::Unreachable)
            }
        }
    }

    fn start(
        &self,
        language: Language,
        limits: &ScriptLimits,
        permit: OwnedSemaphorePermit,
    ) -> Result<RunningChild, GatewayFailure> {
        let child = Command::new(&self.program)
            .args([SUBCOMMAND, language.as_str(), &limits::to_argument(limits)])
            .env_clear()
            .env(ALLOCATOR.0, ALLOCATOR.1)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                tracing::error!(%error, "failed to start a sandbox; refusing the script");
                GatewayFailure::Unreachable
            })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(RunningChild { child, group, _permit: permit })
    }
}

impl Default for EmbeddedGateway {
    fn default() -> Self {
        Self::new()
    }
}

impl ScriptGateway for EmbeddedGateway {
    fn name(&self) -> &'static str {
        "embedded"
    }

    /// Dropping the future kills the child.
    fn abandoned_script_fate(&self) -> AbandonedScriptFate {
        AbandonedScriptFate::Terminates
    }

    /// Starts a child if a slot is free; otherwise the script waits for a slot when it arrives.
    fn prepare(&self, language: Language, limits: ScriptLimits) -> Box<dyn PreparedGateway> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok();
        let early = permit.map(|permit| self.start(language, &limits, permit));
        Box::new(PreparedChild { gateway: self.clone(), language, limits, child: early })
    }
}

/// A child that waits for its script; `None` if no slot was free.
struct PreparedChild {
    gateway: EmbeddedGateway,
    language: Language,
    limits: ScriptLimits,
    child: Option<Result<RunningChild, GatewayFailure>>,
}

impl PreparedChild {
    async fn into_child(self, language: Language, limits: &ScriptLimits) -> Result<RunningChild, GatewayFailure> {
        let fits = self.language == language && self.limits == *limits;
        let early = self.child.filter(|_| fits).transpose()?;
        if let Some(mut started) = early
            && let Ok(None) = started.child.try_wait()
        {
            return Ok(started);
        }
        // No child was started, or it has ended without a script.
        self.gateway.start(language, limits, self.gateway.acquire_slot().await?)
    }
}

#[async_trait]
impl PreparedGateway for PreparedChild {
    async fn run(self: Box<Self>, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure> {
        let order = serde_json::to_vec(&Request::of(request.script)).map_err(|_| GatewayFailure::Unreachable)?;
        let mut started = self.into_child(request.script.language, &request.limits).await?;
        match timeout(request.limits.wall_time, started.exchange(&order)).await {
            Ok(Ok(ChildExit { answer, status })) => evaluate_exit(&answer, status, request.limits.output_bytes),
            Ok(Err(error)) => {
                tracing::error!(
                    execution_id = %request.execution_id,
                    %error,
                    "failed to communicate with a sandbox; the outcome of the script is unknown"
                );
                Err(GatewayFailure::Lost)
            }
            Err(_) => Ok(failed(ScriptFailure::TimedOut)),
        }
    }
}

/// A child process; dropping this kills it.
struct RunningChild {
    child: Child,
    group: Option<Pid>,
    /// Its slot.
    _permit: OwnedSemaphorePermit,
}

struct ChildExit {
    answer: Vec<u8>,
    status: ExitStatus,
}

impl RunningChild {
    /// Sends the script, reads the response, and waits for the exit.
    async fn exchange(&mut self, order: &[u8]) -> std::io::Result<ChildExit> {
        let (stdin, stdout) = (self.child.stdin.take(), self.child.stdout.take());
        if let Some(mut stdin) = stdin {
            // The exit code tells why a child ended before it read everything.
            let _unread = stdin.write_all(order).await;
        }
        let mut answer = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_RESPONSE as u64 + 1).read_to_end(&mut answer).await?;
        }
        if answer.len() > MAX_RESPONSE {
            self.kill();
        }
        Ok(ChildExit { answer, status: self.child.wait().await? })
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // A missing group means that the child has ended.
            let _gone = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        // After the child was waited for, its group id may be reused.
        if self.child.id().is_some() {
            self.kill();
        }
    }
}

/// Evaluates the response and exit status of a child. A successful exit has a response; any other status tells the
/// reason.
fn evaluate_exit(answer: &[u8], status: ExitStatus, output: usize) -> Result<ScriptResult, GatewayFailure> {
    if answer.len() > MAX_RESPONSE {
        return Ok(failed(ScriptFailure::TooMuchOutput));
    }
    if status.success() {
        return Response::read(answer, output);
    }
    if status.code() == Some(i32::from(NO_SCRIPT_EXIT_CODE)) {
        tracing::warn!("a sandbox exited because no script arrived in time; refusing the script");
        return Err(GatewayFailure::Unreachable);
    }
    if let Some(unconfined) = status.code().and_then(ConfinementFailure::of_exit_code) {
        tracing::error!(cause = unconfined.cause(), "a sandbox could not be confined; refusing the script");
        return Err(GatewayFailure::Unreachable);
    }
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    tracing::info!(%status, "a sandbox was killed or exited with an error; failing the script");
    Ok(failed(match signal {
        // A program aborts without memory, and is killed beyond its stack.
        Some(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS) => ScriptFailure::Memory,
        Some(Signal::SIGXCPU | Signal::SIGALRM | Signal::SIGKILL) => ScriptFailure::TimedOut,
        Some(_) | None => ScriptFailure::Stopped,
    }))
}

const fn failed(failure: ScriptFailure) -> ScriptResult {
    ScriptResult { result: Err(failure), stdout: String::new() }
}

#[cfg(test)]
mod tests;
