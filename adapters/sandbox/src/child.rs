//! The sandbox child. It prepares its engine, confines itself, reads one script, runs the script, writes the
//! result, and exits.

use crate::{
    confine::{ConfineError, lock_down, prepare_confinement},
    ipc::{Request, Response, limits, validate_result},
    javascript, starlark,
};
use fairway_domain::execution::script::{Language, ScriptFailure, ScriptLimits, ScriptResult};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use std::{
    any::Any,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, BorrowedFd},
    panic::{self, AssertUnwindSafe},
    process::ExitCode,
    time::Duration,
};

/// Exit code if the input is not a valid script.
const INVALID_INPUT: u8 = 65;
/// Exit code if no script arrived in time, so that nothing ran.
pub(crate) const NO_SCRIPT_EXIT_CODE: u8 = 66;

/// How long the child waits for its script. The server decides within seconds whether it sends a script.
const INPUT_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads one script in this language from the standard input, runs it within these limits, and writes its result to
/// the standard output. `limits_argument` is the text that `limits::to_argument`
/// creates.
#[must_use]
pub fn run_child(language: &str, limits_argument: &str) -> ExitCode {
    let (Some(language), Some(limits)) = (Language::parse(language), limits::parse(limits_argument)) else {
        return ExitCode::from(INVALID_INPUT);
    };
    // The engine is created before the confinement, because its creation makes system calls that the filter blocks.
    let engine = Engine::of(language, &limits);
    // Allocated before the memory limit is set, so that the buffer does not count as memory of the script.
    let mut input = Vec::with_capacity(64 << 10);
    if let Err(error) = prepare_confinement() {
        return exit_unconfined(&error);
    }
    // The second phase starts when the script arrives, because it starts the script's time limit. The child reads
    // no byte before the confinement is complete.
    match wait_for_input(io::stdin().as_fd(), INPUT_TIMEOUT) {
        Ok(InputState::Ready) => {}
        Ok(InputState::TimedOut) => return ExitCode::from(NO_SCRIPT_EXIT_CODE),
        Err(_) => return ExitCode::from(INVALID_INPUT),
    }
    if let Err(error) = lock_down(&limits) {
        return exit_unconfined(&error);
    }
    if io::stdin().read_to_end(&mut input).is_err() {
        return ExitCode::from(INVALID_INPUT);
    }
    let Ok(Request { code }) = serde_json::from_slice::<Request>(&input) else { return ExitCode::from(INVALID_INPUT) };
    drop(input);
    let Ok(response) = serde_json::to_vec(&Response::of(run(engine, code, &limits))) else { return ExitCode::FAILURE };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(&response).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The exit of a child that cannot be confined. The exit code is for the server, and the text for a person who runs
/// the child manually.
fn exit_unconfined(error: &ConfineError) -> ExitCode {
    let _ignored = writeln!(io::stderr(), "{error}");
    ExitCode::from(error.failure().exit_code())
}

/// The result of waiting for input.
#[derive(PartialEq, Eq, Debug)]
enum InputState {
    /// Input is available, or the input has ended.
    Ready,
    /// No input arrived in time.
    TimedOut,
}

/// Waits until input is available. Reads nothing.
fn wait_for_input(input: BorrowedFd<'_>, timeout: Duration) -> nix::Result<InputState> {
    let timeout = PollTimeout::try_from(timeout).map_err(|_| Errno::EINVAL)?;
    let ready = poll(&mut [PollFd::new(input, PollFlags::POLLIN)], timeout)?;
    Ok(if ready > 0 { InputState::Ready } else { InputState::TimedOut })
}

/// An engine that is ready for a script.
enum Engine {
    Starlark(starlark::Engine),
    JavaScript(Result<javascript::Engine, ScriptFailure>),
}

impl Engine {
    fn of(language: Language, limits: &ScriptLimits) -> Self {
        match language {
            Language::Starlark => Self::Starlark(starlark::Engine::new()),
            Language::JavaScript => Self::JavaScript(javascript::Engine::new(limits)),
        }
    }
}

fn run(engine: Engine, code: String, limits: &ScriptLimits) -> ScriptResult {
    let without_output = |failure| ScriptResult { result: Err(failure), stdout: String::new() };
    // Unwind safety is asserted, because an engine is not used again after a panic.
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| match engine {
        Engine::Starlark(engine) => engine.run(code, limits.output_bytes),
        Engine::JavaScript(Ok(engine)) => engine.run(&code),
        Engine::JavaScript(Err(failure)) => without_output(failure),
    }));
    validate_result(
        outcome.unwrap_or_else(|panic_payload| without_output(panic_failure(&*panic_payload))),
        limits.output_bytes,
    )
}

/// Parts of the panic messages with which engines report exhausted memory. A script cannot cause a panic with these
/// words otherwise.
const MEMORY_PANICS: [&str; 3] = ["memory", "capacity", "AlignedSize must not exceed"];

/// Classifies the panic of an engine.
fn panic_failure(panic_payload: &(dyn Any + Send)) -> ScriptFailure {
    let text = panic_payload.downcast_ref::<String>().map(String::as_str);
    let message = text.or_else(|| panic_payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    if MEMORY_PANICS.iter().any(|part| message.contains(part)) { ScriptFailure::Memory } else { ScriptFailure::Error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_on_input_end_of_input_and_timeout() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(wait_for_input(reader.as_fd(), Duration::from_millis(1)), Ok(InputState::TimedOut));
        writer.write_all(b"{").unwrap();
        assert_eq!(wait_for_input(reader.as_fd(), INPUT_TIMEOUT), Ok(InputState::Ready));
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(
            wait_for_input(reader.as_fd(), INPUT_TIMEOUT),
            Ok(InputState::Ready),
            "the next read finds the end of input"
        );
    }
}
