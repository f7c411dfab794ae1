//! The child: gives everything up, reads one script, runs it, says how it came out, and ends.

use crate::{
    confine::confine,
    javascript, starlark,
    wire::{Answer, Order, bounded},
};
use fairway_domain::execution::code::{CodeResult, Language, Script, ScriptFailure};
use std::{
    any::Any,
    io::{self, Read as _, Write as _},
    panic,
    process::ExitCode,
};

/// What the child ends with where what it read is no script.
const UNREAD: u8 = 65;

/// Runs the one script that comes on the standard input, and says on the standard output how it came out.
#[must_use]
pub fn serve() -> ExitCode {
    // What the engine wants to know of the machine it asks once, and later nobody answers.
    starlark::make_ready();
    // Memory that is asked for later counts against the script.
    let mut order = Vec::with_capacity(64 << 10);
    if let Err(error) = confine() {
        // The server hears the code; whoever starts the child by hand reads the words.
        let _unread = writeln!(io::stderr(), "{error}");
        return ExitCode::from(error.unconfined().exit_code());
    }
    if io::stdin().read_to_end(&mut order).is_err() {
        return ExitCode::from(UNREAD);
    }
    let Some(script) = serde_json::from_slice::<Order>(&order).ok().and_then(Order::script) else {
        return ExitCode::from(UNREAD);
    };
    drop(order);
    let Ok(answer) = serde_json::to_vec(&Answer::of(run(script))) else { return ExitCode::FAILURE };
    let mut out = io::stdout().lock();
    match out.write_all(&answer).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(script: Script) -> CodeResult {
    let Script { language, code } = script;
    let came = panic::catch_unwind(|| match language {
        Language::Starlark => starlark::run(code),
        Language::JavaScript => javascript::run(&code),
    });
    bounded(came.unwrap_or_else(|panicked| CodeResult { result: Err(gave_up(&*panicked)), stdout: String::new() }))
}

/// What engines say when they panic because a value has no room: none of it comes from the script.
const NO_ROOM: [&str; 3] = ["memory", "capacity", "AlignedSize must not exceed"];

/// Why an engine gave up.
fn gave_up(panicked: &(dyn Any + Send)) -> ScriptFailure {
    let text = panicked.downcast_ref::<String>().map(String::as_str);
    let words = text.or_else(|| panicked.downcast_ref::<&str>().copied()).unwrap_or_default();
    if NO_ROOM.iter().any(|said| words.contains(said)) { ScriptFailure::Memory } else { ScriptFailure::Error }
}
