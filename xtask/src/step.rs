//! Steps of a longer command, with their durations.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The completed steps and their results.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, f64, bool)>,
}

impl Steps {
    /// Runs a step. A failure does not stop later steps, so that one run reports all failures.
    pub(crate) fn run(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) {
        println!("== {name}");
        let since = Instant::now();
        let passed = match work() {
            Ok(()) => true,
            Err(error) => {
                eprintln!("xtask: {name}: {error:#}");
                false
            }
        };
        self.done.push((name, since.elapsed().as_secs_f64(), passed));
    }

    /// Prints all steps with their durations; returns success if all passed.
    pub(crate) fn finish(self) -> ExitCode {
        println!();
        for (name, seconds, passed) in &self.done {
            println!("{seconds:7.1} s  {}  {name}", if *passed { "ok    " } else { "FAILED" });
        }
        if self.done.iter().all(|(_, _, passed)| *passed) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs a command to its end; a failure is an error with the command.
pub(crate) fn run_checked(mut command: Command) -> Result<()> {
    let shown = command_text(&command);
    let status = command.status().with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command to its end, and returns its standard output.
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
