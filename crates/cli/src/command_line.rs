//! Definition of the command line.

use crate::{
    asset, audit, completions_and_manpages, evidence, execution, failure::Failure, flow, login, output::Format, policy,
    prompt, release, run, session::Session, sync, usage, workload,
};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::env;

/// Operates a Fairway server from a shell: runs workloads, shows evidence, and synchronizes a directory of manifests
#[derive(Parser)]
#[command(name = "fairway", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage (`sync status`: differences), 3 the server \
    cannot be reached, 5 the run continues.\n\nExamples:\n  fairway login --server https://fairway.example.org\n  \
    fairway run ticket-classifier --env dev --input ticket='I was charged twice'\n  fairway policy test policies/\n  \
    fairway sync plan demo/"
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Args, Clone)]
pub(crate) struct Global {
    /// The server's address; else the profile's, else http://127.0.0.1:8080
    #[arg(long, global = true, value_name = "URL", env = "FAIRWAY_CLI_SERVER")]
    pub(crate) server: Option<String>,
    /// An access token; prefer FAIRWAY_CLI_TOKEN or `fairway login`, because other users can see command lines
    #[arg(long, global = true, value_name = "TOKEN", env = "FAIRWAY_CLI_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The profile from the configuration file
    #[arg(long, global = true, value_name = "NAME", env = "FAIRWAY_CLI_PROFILE")]
    pub(crate) profile: Option<String>,
    /// The actor, such as user:ada, when the server trusts the header (local mode)
    #[arg(long, global = true, value_name = "ACTOR", env = "FAIRWAY_CLI_ACTOR")]
    pub(crate) actor: Option<String>,
    /// The tenant, for callers that belong to several
    #[arg(long, global = true, value_name = "TENANT", env = "FAIRWAY_CLI_TENANT")]
    pub(crate) tenant: Option<String>,
    /// The workspace, by slug or id; else the only one, else `default`
    #[arg(long, global = true, value_name = "WORKSPACE", env = "FAIRWAY_CLI_WORKSPACE")]
    pub(crate) workspace: Option<String>,
    /// The output format
    #[arg(long, short, global = true, value_enum)]
    pub(crate) output: Option<Format>,
}

#[derive(Subcommand)]
enum Command {
    /// Store a server's address and a token in a profile
    Login(login::Arguments),
    /// List, show, suspend and resume workloads
    #[command(subcommand)]
    Workloads(workload::Command),
    /// Run a workload and wait for its answer
    Run(run::Arguments),
    /// Manage assets and their versions
    #[command(subcommand)]
    Assets(asset::Command),
    /// Manage flows, the steps of runs
    #[command(subcommand)]
    Flows(flow::Command),
    /// Manage releases, the versions that a workload runs with
    #[command(subcommand)]
    Releases(release::Command),
    /// List, show, explain, await and cancel executions
    #[command(subcommand)]
    Executions(execution::Command),
    /// Show totals of ended runs: failures, tokens, cost and durations
    Usage(usage::Arguments),
    /// Show the evidence for an answer
    #[command(subcommand)]
    Evidence(evidence::Command),
    /// Read the audit log
    #[command(subcommand)]
    Audit(audit::Command),
    /// Synchronize a server with a directory of manifests
    #[command(subcommand)]
    Sync(sync::Command),
    /// Check and test policies without a server
    #[command(subcommand)]
    Policy(policy::Command),
    /// Check a flow without a server
    #[command(subcommand)]
    Flow(flow::OfflineCommand),
    /// Render a prompt without a server
    #[command(subcommand)]
    Prompt(prompt::Command),
    /// Check content of any kind without a server
    #[command(subcommand)]
    Asset(asset::OfflineCommand),
    /// Print shell completions
    Completions(completions_and_manpages::CompletionArguments),
    /// Write manual pages to a directory
    Man(completions_and_manpages::ManualArguments),
}

impl CommandLine {
    /// Parses the process's arguments and environment.
    ///
    /// # Errors
    /// On invalid arguments, and on a request for help or the version.
    pub(crate) fn from_process() -> Result<Self, clap::Error> {
        // CI systems set the variable of a missing secret to an empty value. An empty variable counts as unset.
        let mut command = Self::command().mut_args(|argument| {
            let is_empty = argument.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
            if is_empty { argument.env(None::<&str>) } else { argument }
        });
        let matches = command.try_get_matches_from_mut(env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|misread| misread.format(&mut command))
    }
}

/// Runs the parsed command.
pub(crate) fn run(line: CommandLine) -> Result<(), Failure> {
    let session = Session::of(line.global);
    match line.command {
        Command::Login(arguments) => login::run(&arguments, &session),
        Command::Workloads(command) => workload::run(&command, &session),
        Command::Run(arguments) => run::run(&arguments, &session),
        Command::Assets(command) => asset::run(&command, &session),
        Command::Flows(command) => flow::run(&command, &session),
        Command::Releases(command) => release::run(&command, &session),
        Command::Executions(command) => execution::run(&command, &session),
        Command::Usage(arguments) => usage::run(&arguments, &session),
        Command::Evidence(command) => evidence::run(&command, &session),
        Command::Audit(command) => audit::run(&command, &session),
        Command::Sync(command) => sync::run(&command, &session),
        Command::Policy(command) => policy::run(&command, &session),
        Command::Flow(command) => flow::check(&command, &session),
        Command::Prompt(command) => prompt::run(&command),
        Command::Asset(command) => asset::check(&command, &session),
        Command::Completions(arguments) => completions_and_manpages::print_completions(&arguments),
        Command::Man(arguments) => completions_and_manpages::write_manual_pages(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_clap_definition() {
        CommandLine::command().debug_assert();
    }

    /// Collects each leaf command with the text after its help.
    fn collect_commands(of: &clap::Command, words: &str, found: &mut Vec<(String, String)>) {
        let mut is_one = true;
        for command in of.get_subcommands().filter(|command| command.get_name() != "help") {
            is_one = false;
            collect_commands(command, &format!("{words} {}", command.get_name()), found);
        }
        if is_one {
            found.push((words.to_owned(), of.get_after_help().map(ToString::to_string).unwrap_or_default()));
        }
    }

    /// Splits a command line like a shell, and stops at `|`, `>` or `&&`.
    fn split_shell_words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for letter in line.chars() {
            match letter {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                letter => words.last_mut().unwrap().push(letter),
            }
        }
        words.into_iter().take_while(|word| !["|", ">", "&&"].contains(&word.as_str())).collect()
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let mut found = Vec::new();
        collect_commands(&CommandLine::command(), "fairway", &mut found);
        assert!(found.len() > 40, "{found:?}");
        for (words, help) in found {
            let lines = help.lines().filter_map(|line| line.get(line.find("fairway ")?..));
            let examples: Vec<&str> = lines.filter(|line| line.starts_with(&words)).collect();
            assert!(!examples.is_empty(), "`{words}` has no example: {help}");
            for example in examples {
                let parsed = CommandLine::try_parse_from(split_shell_words(example));
                assert!(parsed.is_ok(), "{example}: {}", parsed.err().unwrap());
            }
        }
    }
}
