//! The embedded gateway: one child for each script. It is started before it may be handed one, because starting takes longer
//! than most scripts do.

use crate::{
    child::UNASKED,
    confine::Unconfined,
    wire::{Answer, MOST_ANSWER, Order, limits},
};
use async_trait::async_trait;
use fairway_domain::execution::code::{
    CodeGateway, CodeRequest, CodeResult, GatewayFailure, GivenUp, LONGEST, Language, MOST_AT_ONCE, PreparedGateway,
    ScriptFailure, ScriptLimits,
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

/// The program that runs, also where its file was replaced meanwhile: the kernel keeps it.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// What the program is told, so that it is a child.
const SUBCOMMAND: &str = "sandbox";
/// Settings of the child's allocator. It starts no thread, because the filter of system calls ends a process that does. It
/// unmaps freed memory, because the limit of memory counts what is mapped. The child's environment holds nothing else.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "background_thread:false,retain:false,narenas:1");

/// Children at once for each processor.
const FOR_EACH_PROCESSOR: usize = 2;

/// Runs scripts in children of this program: two at once for each processor, and four at least, whoever's they are. Further
/// ones wait as long as one script may take, and run nothing where no place comes free. Clones share the places.
#[derive(Clone, Debug)]
pub struct Embedded {
    program: PathBuf,
    places: Arc<Semaphore>,
}

/// Children at once on a machine of so many processors: as many as one tenant may have, at least.
fn most_at_once(processors: usize) -> usize {
    processors.saturating_mul(FOR_EACH_PROCESSOR).max(MOST_AT_ONCE)
}

impl Embedded {
    /// Children of the program that runs.
    #[must_use]
    pub fn new() -> Self {
        Self::of(PathBuf::from(THIS_PROGRAM))
    }

    /// Children of another program that serves like this one.
    #[must_use]
    pub fn of(program: PathBuf) -> Self {
        let places = most_at_once(available_parallelism().map_or(1, NonZero::get));
        Self { program, places: Arc::new(Semaphore::new(places)) }
    }

    /// A place for one more child, in the order in which they were asked for.
    async fn place(&self) -> Result<OwnedSemaphorePermit, GatewayFailure> {
        match timeout(LONGEST, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            // Nobody closes it.
            Ok(Err(_)) => Err(GatewayFailure::Unreachable),
            Err(_) => {
                tracing::warn!("no place for a sandbox came free in time");
                Err(GatewayFailure::Unreachable)
            }
        }
    }

    fn start(
        &self,
        language: Language,
        limits: &ScriptLimits,
        place: OwnedSemaphorePermit,
    ) -> Result<Started, GatewayFailure> {
        let child = Command::new(&self.program)
            .args([SUBCOMMAND, language.as_str(), &limits::written(limits)])
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
                tracing::error!(%error, "no sandbox can be started");
                GatewayFailure::Unreachable
            })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Started { child, group, _place: place })
    }
}

impl Default for Embedded {
    fn default() -> Self {
        Self::new()
    }
}

impl CodeGateway for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    /// Its child goes with whoever waits for it.
    fn when_given_up(&self) -> GivenUp {
        GivenUp::Ends
    }

    /// Starts a child where a place is free. Where none is, the script waits for one when it comes.
    fn prepare(&self, language: Language, limits: ScriptLimits) -> Box<dyn PreparedGateway> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        let early = place.map(|place| self.start(language, &limits, place));
        Box::new(Prepared { of: self.clone(), language, limits, early })
    }
}

/// A child that waits for its script, or where there was no place, nobody yet.
struct Prepared {
    of: Embedded,
    language: Language,
    limits: ScriptLimits,
    early: Option<Result<Started, GatewayFailure>>,
}

impl Prepared {
    async fn started(self, language: Language, limits: &ScriptLimits) -> Result<Started, GatewayFailure> {
        let fits = self.language == language && self.limits == *limits;
        let early = self.early.filter(|_| fits).transpose()?;
        if let Some(mut started) = early
            && let Ok(None) = started.child.try_wait()
        {
            return Ok(started);
        }
        // Nobody came, or one that has ended meanwhile and was handed nothing.
        self.of.start(language, limits, self.of.place().await?)
    }
}

#[async_trait]
impl PreparedGateway for Prepared {
    async fn run(self: Box<Self>, request: CodeRequest<'_>) -> Result<CodeResult, GatewayFailure> {
        let order = serde_json::to_vec(&Order::of(request.script)).map_err(|_| GatewayFailure::Unreachable)?;
        let mut started = self.started(request.script.language, &request.limits).await?;
        match timeout(request.limits.wall, started.talk(&order)).await {
            Ok(Ok(Heard { answer, status })) => heard(&answer, status, request.limits.output),
            Ok(Err(error)) => {
                tracing::error!(%error, "a sandbox cannot be heard");
                Err(GatewayFailure::Lost)
            }
            Err(_) => Ok(failed(ScriptFailure::TimedOut)),
        }
    }
}

/// A child, which does not outlive this.
struct Started {
    child: Child,
    group: Option<Pid>,
    /// Its place among the children of this process.
    _place: OwnedSemaphorePermit,
}

struct Heard {
    answer: Vec<u8>,
    status: ExitStatus,
}

impl Started {
    /// Hands the script over, takes what is said, and waits for the end.
    async fn talk(&mut self, order: &[u8]) -> std::io::Result<Heard> {
        let (stdin, stdout) = (self.child.stdin.take(), self.child.stdout.take());
        if let Some(mut stdin) = stdin {
            // A child that ends before it has read all says by its end why.
            let _unread = stdin.write_all(order).await;
        }
        let mut answer = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MOST_ANSWER as u64 + 1).read_to_end(&mut answer).await?;
        }
        if answer.len() > MOST_ANSWER {
            self.kill();
        }
        Ok(Heard { answer, status: self.child.wait().await? })
    }

    fn kill(&self) {
        if let Some(group) = self.group {
            // Nobody of that name: it has ended by itself.
            let _gone = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Once the child was waited for, its group may be somebody else's.
        if self.child.id().is_some() {
            self.kill();
        }
    }
}

/// What a child's last words and its end come to. One that ended by itself answered; whatever else ended it says why.
fn heard(answer: &[u8], status: ExitStatus, output: usize) -> Result<CodeResult, GatewayFailure> {
    if answer.len() > MOST_ANSWER {
        return Ok(failed(ScriptFailure::TooMuchOutput));
    }
    if status.success() {
        return Answer::read(answer, output);
    }
    if status.code() == Some(i32::from(UNASKED)) {
        tracing::error!("a sandbox was handed nothing for so long that it has ended");
        return Err(GatewayFailure::Unreachable);
    }
    if let Some(unconfined) = status.code().and_then(Unconfined::of_exit_code) {
        tracing::error!(cause = unconfined.cause(), "a sandbox cannot be confined, so it runs nothing");
        return Err(GatewayFailure::Unreachable);
    }
    let signal = status.signal().and_then(|signal| Signal::try_from(signal).ok());
    tracing::info!(%status, "a sandbox was ended");
    Ok(failed(match signal {
        // Without memory a program gives up, and beyond its stack it is stopped.
        Some(Signal::SIGABRT | Signal::SIGSEGV | Signal::SIGBUS) => ScriptFailure::Memory,
        Some(Signal::SIGXCPU | Signal::SIGALRM | Signal::SIGKILL) => ScriptFailure::TimedOut,
        Some(_) | None => ScriptFailure::Stopped,
    }))
}

const fn failed(failure: ScriptFailure) -> CodeResult {
    CodeResult { result: Err(failure), stdout: String::new() }
}

#[cfg(test)]
mod tests;
