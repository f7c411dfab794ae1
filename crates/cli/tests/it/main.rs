//! Tests of the built command line, which runs as a child process. Tests that need a server start a real one.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise, helpers included"
)]

mod all_commands;
mod check;
mod demo;
mod documented_error_codes;
mod dynamic_completion;
mod exit_codes;
mod guide;
mod help_and_manpages;
mod hostile_server;
mod init;
mod names_and_references;
mod policy;
mod profiles;
mod resource_commands;
mod run_submission_retries;
mod sample_resources;
mod server_parity;
mod sign_in;
mod sync;
mod terminal_tables;
mod verify_offline;
mod wait;
mod wait_during_server_loss;

use fairway_testkit::TestApp;
use serde_json::Value;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// A terminal with its own home directory, and an optional server and actor.
struct Terminal {
    home: TempDir,
    server: Option<String>,
    actor: Option<String>,
}

/// The exit code and the output of a command.
struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

impl Terminal {
    fn connected(app: &TestApp) -> Self {
        Self { server: Some(format!("http://{}", app.address())), ..Self::offline() }
    }

    fn offline() -> Self {
        Self { home: tempfile::tempdir().unwrap(), server: None, actor: None }
    }

    fn acting_as(mut self, actor: &str) -> Self {
        self.actor = Some(actor.to_owned());
        self
    }

    fn config(&self) -> PathBuf {
        self.home.path().join("fairway/config.toml")
    }

    /// Builds a command whose environment contains no settings of the machine.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairway"));
        command.args(args).env_clear().env("HOME", self.home.path()).env("XDG_CONFIG_HOME", self.home.path());
        command.current_dir(root()).stdin(Stdio::null());
        command.envs(self.server.iter().map(|server| ("FAIRWAY_CLI_SERVER", server)));
        command.envs(self.actor.iter().map(|actor| ("FAIRWAY_CLI_ACTOR", actor)));
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().unwrap())
    }

    /// Runs a command that must succeed, and returns its standard output.
    fn run_ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{args:?}: {}{}", output.out, output.err);
        output.out
    }

    /// Like [`Self::run_ok`], but parses the output as JSON.
    fn run_json(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = args.iter().copied().chain(["--output", "json"]).collect();
        serde_json::from_str(&self.run_ok(&args)).unwrap()
    }
}

impl Terminal {
    /// Runs a command that must succeed. Returns its standard output and its CPU time in seconds. CPU time depends
    /// less on the machine's load than elapsed time.
    fn run_timed(&self, args: &[&str]) -> (String, f64) {
        let fairway = self.command(args);
        let mut shell = Command::new("bash");
        shell
            .args(["-c", "TIMEFORMAT='%U %S'; time \"$0\" \"$@\""])
            .arg(fairway.get_program())
            .args(fairway.get_args());
        shell.env_clear().envs(fairway.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = CommandOutput::of(shell.current_dir(root()).stdin(Stdio::null()).output().unwrap());
        assert_eq!(output.code, 0, "{args:?}: {}{}", output.out, output.err);
        let times = output.err.lines().next_back().unwrap();
        (output.out, times.split(' ').map(|time| time.parse::<f64>().unwrap()).sum())
    }
}

impl CommandOutput {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The root directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Creates a directory with these files.
fn make_directory(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn path_text<T: AsRef<OsStr> + ?Sized>(path: &T) -> &str {
    path.as_ref().to_str().unwrap()
}
