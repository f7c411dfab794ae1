//! Runs the steps of a longer command, and reports their durations and failures.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The completed steps and their results.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, f64, Option<String>)>,
}

impl Steps {
    /// Runs a step. A failure does not stop later steps, so that one run reports all failures.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        println!("== {name}");
        let since = Instant::now();
        let failure = work().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            eprintln!("xtask: {name}: {failure}");
        }
        self.done.push((name, since.elapsed().as_secs_f64(), failure));
    }

    /// Prints all steps with their durations, then all failures. Returns success if all steps passed.
    pub(crate) fn finish(self) -> ExitCode {
        println!();
        for (name, seconds, failure) in &self.done {
            println!("{seconds:7.1} s  {}  {name}", if failure.is_none() { "ok    " } else { "FAILED" });
        }
        let mut code = ExitCode::SUCCESS;
        for (name, _, failure) in &self.done {
            if let Some(failure) = failure {
                println!("{name}: {failure}");
                code = ExitCode::FAILURE;
            }
        }
        code
    }
}

/// Runs a command and waits for its end. The error of a failed command contains the command line.
pub(crate) fn run_checked(mut command: Command) -> Result<()> {
    let shown = command_text(&command);
    let status = command.status().with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, waits for its end, and returns its standard output.
pub(crate) fn run_for_output(mut command: Command) -> Result<String> {
    let shown = command_text(&command);
    let output =
        command.stderr(std::process::Stdio::inherit()).output().with_context(|| format!("starting `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{shown}` printed something that is not text"))
}

fn command_text(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
