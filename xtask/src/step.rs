//! Runs the steps of a longer command, and reports their durations and failures.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The completed steps and their results.
#[derive(Default)]
pub(crate) struct Steps {
    results: Vec<(&'static str, f64, Option<String>)>,
}

impl Steps {
    /// Runs a step. A failure does not stop later steps, so that one run reports all failures.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        println!("== {name}");
        let start = Instant::now();
        let failure = work().err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            eprintln!("xtask: {name}: {failure}");
        }
        self.results.push((name, start.elapsed().as_secs_f64(), failure));
    }

    /// Prints all steps with their durations, then all failures. Returns success if all steps passed.
    pub(crate) fn finish(self) -> ExitCode {
        println!();
        for (name, seconds, failure) in &self.results {
            println!("{seconds:7.1} s  {}  {name}", if failure.is_none() { "ok    " } else { "FAILED" });
        }
        let mut code = ExitCode::SUCCESS;
        for (name, _, failure) in &self.results {
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
    let command_line = command_text(&command);
    let status = command.status().with_context(|| format!("starting `{command_line}`"))?;
    if !status.success() {
        bail!("`{command_line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command, waits for its end, and returns its standard output.
pub(crate) fn run_for_output(mut command: Command) -> Result<String> {
    let command_line = command_text(&command);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("starting `{command_line}`"))?;
    if !output.status.success() {
        bail!("`{command_line}` failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{command_line}` printed something that is not text"))
}

fn command_text(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
