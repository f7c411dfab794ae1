//! The child: makes its engine ready, gives everything up, reads one script, runs it, says how it came out, and ends.

use crate::{
    confine::{ConfineError, give_up, shut},
    javascript, starlark,
    wire::{Answer, Order, bounded, limits},
};
use fairway_domain::execution::code::{CodeResult, Language, ScriptFailure, ScriptLimits};
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

/// What the child ends with where what it read is no script.
const UNREAD: u8 = 65;
/// What the child ends with where nobody handed it anything: it has read nothing.
pub(crate) const UNASKED: u8 = 66;

/// How long the child waits for its script. Whoever started it knows after a few seconds whether there will be one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the one script of this language that comes on the standard input within these limits, and says on the standard output
/// how it came out.
#[must_use]
pub fn serve(language: &str, limited: &str) -> ExitCode {
    let (Some(language), Some(limits)) = (Language::parse(language), limits::read(limited)) else {
        return ExitCode::from(UNREAD);
    };
    // What the engine wants to know of the machine it asks once, and later nobody answers.
    let engine = Engine::of(language, &limits);
    // Memory that is asked for later counts against the script.
    let mut order = Vec::with_capacity(64 << 10);
    if let Err(error) = give_up() {
        return unconfined(&error);
    }
    // The time of the script begins when there is one, and nothing of it is read before everything is shut.
    match awaits(io::stdin().as_fd(), PATIENCE) {
        Ok(Awaited::Came) => {}
        Ok(Awaited::Nothing) => return ExitCode::from(UNASKED),
        Err(_) => return ExitCode::from(UNREAD),
    }
    if let Err(error) = shut(&limits) {
        return unconfined(&error);
    }
    if io::stdin().read_to_end(&mut order).is_err() {
        return ExitCode::from(UNREAD);
    }
    let Ok(Order { code }) = serde_json::from_slice::<Order>(&order) else { return ExitCode::from(UNREAD) };
    drop(order);
    let Ok(answer) = serde_json::to_vec(&Answer::of(run(engine, code, &limits))) else { return ExitCode::FAILURE };
    let mut out = io::stdout().lock();
    match out.write_all(&answer).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The end of a child that cannot be confined. The server hears the code; whoever starts the child by hand reads the words.
fn unconfined(error: &ConfineError) -> ExitCode {
    let _unread = writeln!(io::stderr(), "{error}");
    ExitCode::from(error.unconfined().exit_code())
}

/// What came of waiting.
#[derive(PartialEq, Eq, Debug)]
enum Awaited {
    /// Something can be read, or the end of it.
    Came,
    /// There was nothing in time.
    Nothing,
}

/// Waits until there is something to read, and reads nothing of it.
fn awaits(input: BorrowedFd<'_>, patience: Duration) -> nix::Result<Awaited> {
    let patience = PollTimeout::try_from(patience).map_err(|_| Errno::EINVAL)?;
    let came = poll(&mut [PollFd::new(input, PollFlags::POLLIN)], patience)?;
    Ok(if came > 0 { Awaited::Came } else { Awaited::Nothing })
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

fn run(engine: Engine, code: String, limits: &ScriptLimits) -> CodeResult {
    let nothing = |failure| CodeResult { result: Err(failure), stdout: String::new() };
    // Nobody looks at an engine that panicked.
    let came = panic::catch_unwind(AssertUnwindSafe(|| match engine {
        Engine::Starlark(engine) => engine.run(code, limits.output),
        Engine::JavaScript(Ok(engine)) => engine.run(&code),
        Engine::JavaScript(Err(failure)) => nothing(failure),
    }));
    bounded(came.unwrap_or_else(|panicked| nothing(gave_up(&*panicked))), limits.output)
}

/// What engines say when they panic because a value has no room: none of it comes from the script.
const NO_ROOM: [&str; 3] = ["memory", "capacity", "AlignedSize must not exceed"];

/// Why an engine gave up.
fn gave_up(panicked: &(dyn Any + Send)) -> ScriptFailure {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let words = text.or_else(|| panicked.downcast_ref::<&str>().copied()).unwrap_or_default();
    if NO_ROOM.iter().any(|said| words.contains(said)) { ScriptFailure::Memory } else { ScriptFailure::Error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_let_go_by_words_by_the_end_and_by_time() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(awaits(reader.as_fd(), Duration::from_millis(1)), Ok(Awaited::Nothing));
        writer.write_all(b"{").unwrap();
        assert_eq!(awaits(reader.as_fd(), PATIENCE), Ok(Awaited::Came));
        let (reader, writer) = io::pipe().unwrap();
        drop(writer);
        assert_eq!(awaits(reader.as_fd(), PATIENCE), Ok(Awaited::Came), "the next look finds that nobody is there");
    }
}
