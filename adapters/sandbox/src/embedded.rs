//! The embedded gateway: one child process per script. Children are started before their script arrives, because
//! starting a child takes longer than most scripts.

use crate::{
    child::NO_SCRIPT_EXIT_CODE,
    confine::ConfinementFailure,
    ipc::{MAX_RESPONSE_BYTES, Request, Response, limits},
};
use async_trait::async_trait;
use fairway_domain::execution::script::{
    GatewayFailure, InterruptedScriptBehaviour, Language, MAX_CONCURRENT_PER_TENANT_AND_PROCESS, MAX_DURATION,
    PreparedGateway, ScriptFailure, ScriptGateway, ScriptLimits, ScriptRequest, ScriptResult,
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

/// The executable of the running server, even if its file was replaced since the start.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The subcommand with which the program runs as a sandbox child.
const SUBCOMMAND: &str = "sandbox";
/// The allocator settings of the child, which are its only environment variable. The allocator starts no thread,
/// because the system call filter kills a process that starts one. The allocator unmaps freed memory, because the
/// memory limit counts mapped memory.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false,retain:false,narenas:1");

/// Maximum concurrent children per processor.
const CHILDREN_PER_PROCESSOR: usize = 2;

/// Runs each script in a child process of this program. Each child occupies a slot, and all tenants share the slots.
/// The number of slots is two for each processor, but at least [`MAX_CONCURRENT_PER_TENANT_AND_PROCESS`]. A script that
/// finds no free slot waits for at most [`MAX_DURATION`] and is then refused. Clones of the gateway share the slots.
#[derive(Clone, Debug)]
pub struct EmbeddedGateway {
    program: PathBuf,
    slots: Arc<Semaphore>,
}

/// Maximum number of concurrent children on a machine with this number of processors.
fn max_children(processors: usize) -> usize {
    processors.saturating_mul(CHILDREN_PER_PROCESSOR).max(MAX_CONCURRENT_PER_TENANT_AND_PROCESS)
}

impl EmbeddedGateway {
    /// Creates a gateway whose children run this program.
    #[must_use]
    pub fn new() -> Self {
        Self::with_program(PathBuf::from(THIS_PROGRAM))
    }

    /// Creates a gateway whose children run another program that has the same subcommand.
    #[must_use]
    pub fn with_program(program: PathBuf) -> Self {
        let slots = max_children(available_parallelism().map_or(1, NonZero::get));
        Self { program, slots: Arc::new(Semaphore::new(slots)) }
    }

    /// Acquires a slot for a child, in order of arrival.
    async fn acquire_slot(&self) -> Result<OwnedSemaphorePermit, GatewayFailure> {
        match timeout(MAX_DURATION, Arc::clone(&self.slots).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            // This cannot occur, because the semaphore is never closed.
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
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "failed to start a sandbox; refusing the script"
                );
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

    /// A script whose caller drops the future terminates, because the drop kills its child.
    fn interrupted_script_behaviour(&self) -> InterruptedScriptBehaviour {
        InterruptedScriptBehaviour::Terminates
    }

    /// Starts a child if a slot is free. Otherwise the script waits for a slot when it arrives.
    fn prepare(&self, language: Language, limits: ScriptLimits) -> Box<dyn PreparedGateway> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok();
        let child = permit.map(|permit| self.start(language, &limits, permit));
        Box::new(PreparedChild { gateway: self.clone(), language, limits, child })
    }
}

/// A gateway whose child was started before the script arrived. `child` is `None` if no slot was free.
struct PreparedChild {
    gateway: EmbeddedGateway,
    language: Language,
    limits: ScriptLimits,
    child: Option<Result<RunningChild, GatewayFailure>>,
}

impl PreparedChild {
    async fn into_child(self, language: Language, limits: &ScriptLimits) -> Result<RunningChild, GatewayFailure> {
        let is_suitable = self.language == language && self.limits == *limits;
        let child = self.child.filter(|_| is_suitable).transpose()?;
        if let Some(mut running_child) = child
            && let Ok(None) = running_child.child.try_wait()
        {
            return Ok(running_child);
        }
        // No suitable child was started, or the child has ended before a script arrived.
        self.gateway.start(language, limits, self.gateway.acquire_slot().await?)
    }
}

#[async_trait]
impl PreparedGateway for PreparedChild {
    async fn run(self: Box<Self>, request: ScriptRequest<'_>) -> Result<ScriptResult, GatewayFailure> {
        let input = serde_json::to_vec(&Request::of(request.script)).map_err(|_| GatewayFailure::Unreachable)?;
        let mut running_child = self.into_child(request.script.language, &request.limits).await?;
        match timeout(request.limits.wall_time, running_child.exchange(&input)).await {
            Ok(Ok(ChildExit { response, status })) => evaluate_exit(&response, status, request.limits.output_bytes),
            Ok(Err(error)) => {
                tracing::error!(
                    execution_id = %request.execution_id,
                    error = &error as &dyn std::error::Error,
                    "failed to communicate with a sandbox; ending the run as unknown"
                );
                Err(GatewayFailure::Lost)
            }
            Err(_) => Ok(failed(ScriptFailure::TimedOut)),
        }
    }
}

/// A running child process. Dropping this value kills the process.
struct RunningChild {
    child: Child,
    group: Option<Pid>,
    /// The slot of the child, released when this value is dropped.
    _permit: OwnedSemaphorePermit,
}

struct ChildExit {
    response: Vec<u8>,
    status: ExitStatus,
}

impl RunningChild {
    /// Sends the script, reads the response, and waits until the child exits.
    async fn exchange(&mut self, input: &[u8]) -> std::io::Result<ChildExit> {
        let (stdin, stdout) = (self.child.stdin.take(), self.child.stdout.take());
        if let Some(mut stdin) = stdin {
            // A write error is ignored: the exit code shows why the child ended before it had read the whole
            // script.
            let _ignored = stdin.write_all(input).await;
        }
        let mut response = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_RESPONSE_BYTES as u64 + 1).read_to_end(&mut response).await?;
        }
        if response.len() > MAX_RESPONSE_BYTES {
            self.kill();
        }
        Ok(ChildExit { response, status: self.child.wait().await? })
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // An error means that the process group no longer exists, so the child has ended.
            let _ignored = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for RunningChild {
    fn drop(&mut self) {
        // The child is killed only while its exit status has not been collected: afterwards the kernel may reuse
        // its group id.
        if self.child.id().is_some() {
            self.kill();
        }
    }
}

/// Converts the response and exit status of a child to a result. The response is read only if the exit was
/// successful; otherwise the exit status gives the reason.
fn evaluate_exit(response: &[u8], status: ExitStatus, max_output_bytes: usize) -> Result<ScriptResult, GatewayFailure> {
    if response.len() > MAX_RESPONSE_BYTES {
        return Ok(failed(ScriptFailure::TooMuchOutput));
    }
    if status.success() {
        return Response::read(response, max_output_bytes);
    }
    if status.code() == Some(i32::from(NO_SCRIPT_EXIT_CODE)) {
        tracing::warn!("the script arrived after its sandbox had stopped waiting for it; refusing the script");
        return Err(GatewayFailure::Unreachable);
    }
    if let Some(failure) = status.code().and_then(ConfinementFailure::of_exit_code) {
        tracing::error!(cause = failure.cause(), "a sandbox could not be confined; refusing the script");
        return Err(GatewayFailure::Unreachable);
    }
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    tracing::info!(%status, "a sandbox was killed or exited with an error; failing the script");
    Ok(failed(match signal {
        // The program aborts when memory is exhausted, and receives a fault signal when its stack overflows.
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
