//! Definition of the command line.

use crate::{
    access_request, asset, audit,
    command_context::CommandContext,
    completions_and_manpages, connection, document, environment, erasure, evidence, execution,
    failure::Failure,
    flow, init, login, logout, missing_permission, notification,
    output::{self, Format},
    policy, prompt, release, review, role, run, share_link, sync, unknown_tenant, usage, use_case, verify, whoami,
    workload,
};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum as _};
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
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

/// The environment variable with the server's address.
pub(crate) const SERVER_VARIABLE: &str = "FAIRWAY_CLI_SERVER";

/// The heading of the options of every command, in help texts and manual pages.
const COMMON_HEADING: &str = "Common options";

/// Options of every command.
#[derive(Args, Clone, Default)]
pub(crate) struct GlobalOptions {
    /// The server's address; else the profile's, else http://127.0.0.1:8080
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "URL", env = SERVER_VARIABLE)]
    pub(crate) server: Option<String>,
    /// An access token; prefer FAIRWAY_CLI_TOKEN or `fairway login`, because other users can see command lines
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "TOKEN", env = "FAIRWAY_CLI_TOKEN",
        hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The profile from the configuration file
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "NAME", env = "FAIRWAY_CLI_PROFILE")]
    pub(crate) profile: Option<String>,
    /// The actor, such as user:ada, when the server trusts the header (local mode)
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "ACTOR", env = "FAIRWAY_CLI_ACTOR")]
    pub(crate) actor: Option<String>,
    /// The tenant, for callers that belong to several
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "TENANT", env = "FAIRWAY_CLI_TENANT")]
    pub(crate) tenant: Option<String>,
    /// The workspace, by slug or id; else the only one, else `default`
    #[arg(long, global = true, help_heading = COMMON_HEADING, value_name = "WORKSPACE", env = "FAIRWAY_CLI_WORKSPACE")]
    pub(crate) workspace: Option<String>,
    /// The output format
    #[arg(long, short, global = true, help_heading = COMMON_HEADING, value_enum)]
    pub(crate) output: Option<Format>,
}

#[derive(Subcommand)]
enum Command {
    /// Sign in, and store the server's address and the token in a profile
    Login(login::Arguments),
    /// Sign out, and delete the tokens of a profile
    Logout(logout::Arguments),
    /// Show your identity at the server, with your roles and permissions
    Whoami(whoami::Arguments),
    /// Write the files of a new workload to a directory
    Init(init::Arguments),
    /// Create, list, show, change, suspend and resume workloads
    #[command(subcommand, alias = "workload")]
    Workloads(workload::Command),
    /// Run a workload and wait for its answer
    Run(run::Arguments),
    /// Manage assets and their versions, and check content without a server
    #[command(subcommand, alias = "asset")]
    Assets(asset::Command),
    /// Manage flows, the steps of runs, and check them without a server
    #[command(subcommand, alias = "flow")]
    Flows(flow::Command),
    /// Manage releases, the versions that a workload runs with, or release a directory
    #[command(alias = "release")]
    Releases(release::Arguments),
    /// List, show, explain, await and cancel executions
    #[command(subcommand, alias = "execution")]
    Executions(execution::Command),
    /// Show totals of ended runs: failures, tokens, cost and durations
    Usage(usage::Arguments),
    /// List and answer the runs that await a human review
    #[command(subcommand, alias = "review")]
    Reviews(review::Command),
    /// Show the evidence for an answer
    #[command(subcommand)]
    Evidence(evidence::Command),
    /// Verify an evidence bundle without a server
    Verify(verify::Arguments),
    /// List and upload the documents of knowledge bases
    #[command(subcommand, alias = "document")]
    Documents(document::Command),
    /// Create, list and revoke share links
    #[command(subcommand, alias = "share-link")]
    ShareLinks(share_link::Command),
    /// Generate, create, refine, publish and archive use cases
    #[command(subcommand, alias = "use-case")]
    UseCases(use_case::Command),
    /// Manage connections to external systems, and check their endpoints
    #[command(subcommand, alias = "connection")]
    Connections(connection::Command),
    /// List, grant and deny requests for access to connections
    #[command(subcommand, alias = "access-request")]
    AccessRequests(access_request::Command),
    /// Read your inbox, set preferences, and manage destinations
    #[command(subcommand, alias = "notification")]
    Notifications(notification::Command),
    /// Show and change the settings of environments
    #[command(subcommand, alias = "environment", alias = "envs", alias = "env")]
    Environments(environment::Command),
    /// List the built-in roles
    #[command(subcommand, alias = "role")]
    Roles(role::RoleCommand),
    /// List, create and delete role bindings
    #[command(subcommand, alias = "role-binding")]
    RoleBindings(role::BindingCommand),
    /// Read the audit log
    #[command(subcommand)]
    Audit(audit::Command),
    /// List, request, approve and refuse erasures of a person's texts
    #[command(subcommand, alias = "erasure")]
    Erasures(erasure::Command),
    /// Synchronize a server with a directory of manifests
    #[command(subcommand)]
    Sync(sync::Command),
    /// Test and try policies without a server
    #[command(subcommand, alias = "policies")]
    Policy(policy::Command),
    /// Render a prompt without a server
    #[command(subcommand, alias = "prompts")]
    Prompt(prompt::Command),
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
        // An empty variable counts as unset, because CI systems set the variable of a missing secret to an empty value.
        let mut command = Self::command().mut_args(|argument| {
            let is_empty = argument.get_env().and_then(env::var_os).is_some_and(|value| value.is_empty());
            if is_empty { argument.env(None::<&str>) } else { argument }
        });
        let matches = command.try_get_matches_from_mut(env::args_os())?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }
}

/// Reports invalid arguments as text with clap's exit code, or as JSON if the arguments request it.
pub(crate) fn report_misuse(error: clap::Error) -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().collect();
    let format = requested_format(&arguments);
    if format == Format::Table {
        error.exit();
    }
    output::set_message_format(format);
    Err(Failure::Usage(error.render().to_string().trim().trim_start_matches("error: ").to_owned()))
}

/// The output format that the arguments request. The other arguments may be invalid.
fn requested_format(arguments: &[String]) -> Format {
    let mut requested = None;
    for (index, argument) in arguments.iter().enumerate() {
        let next = || arguments.get(index + 1).map(String::as_str);
        let value = match argument.as_str() {
            "--" => break,
            "-o" | "--output" => next(),
            argument => argument.strip_prefix("--output=").or_else(|| argument.strip_prefix("-o")),
        };
        requested = value.and_then(|value| Format::from_str(value, false).ok()).or(requested);
    }
    requested.unwrap_or(Format::Table)
}

pub(crate) fn run(line: CommandLine) -> Result<(), Failure> {
    output::set_message_format(line.global.output.unwrap_or(Format::Table));
    let context = CommandContext::of(line.global);
    run_command(line.command, &context)
        .map_err(|failure| unknown_tenant::explain(missing_permission::explain(failure, &context), &context))
}

fn run_command(command: Command, context: &CommandContext) -> Result<(), Failure> {
    match command {
        Command::Login(arguments) => login::run(&arguments, context),
        Command::Logout(_) => logout::run(context),
        Command::Whoami(_) => whoami::run(context),
        Command::Init(arguments) => init::run(&arguments, context),
        Command::Workloads(command) => workload::run(&command, context),
        Command::Run(arguments) => run::run(&arguments, context),
        Command::Assets(command) => asset::run(&command, context),
        Command::Flows(command) => flow::run(&command, context),
        Command::Releases(arguments) => release::run(&arguments, context),
        Command::Executions(command) => execution::run(&command, context),
        Command::Usage(arguments) => usage::run(&arguments, context),
        Command::Reviews(command) => review::run(&command, context),
        Command::Evidence(command) => evidence::run(&command, context),
        Command::Verify(arguments) => verify::run(&arguments, context),
        Command::Documents(command) => document::run(&command, context),
        Command::ShareLinks(command) => share_link::run(&command, context),
        Command::UseCases(command) => use_case::run(&command, context),
        Command::Connections(command) => connection::run(&command, context),
        Command::AccessRequests(command) => access_request::run(&command, context),
        Command::Notifications(command) => notification::run(&command, context),
        Command::Environments(command) => environment::run(&command, context),
        Command::Roles(command) => role::run_roles(&command, context),
        Command::RoleBindings(command) => role::run_bindings(&command, context),
        Command::Audit(command) => audit::run(&command, context),
        Command::Erasures(command) => erasure::run(&command, context),
        Command::Sync(command) => sync::run(&command, context),
        Command::Policy(command) => policy::run(&command, context),
        Command::Prompt(command) => prompt::run(&command),
        Command::Completions(arguments) => completions_and_manpages::print_completion_script(&arguments),
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

    /// Collects each command without subcommands, with the text after its help.
    fn collect_commands(parent: &clap::Command, path: &str, found: &mut Vec<(String, String)>) {
        let mut is_leaf = true;
        for command in parent.get_subcommands().filter(|command| command.get_name() != "help") {
            is_leaf = false;
            collect_commands(command, &format!("{path} {}", command.get_name()), found);
        }
        if is_leaf {
            found.push((path.to_owned(), parent.get_after_help().map(ToString::to_string).unwrap_or_default()));
        }
    }

    /// Splits a command line like a shell, and stops at `|`, `>` or `&&`.
    fn split_shell_words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quoted = false;
        for character in line.chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => words.push(String::new()),
                character => words.last_mut().unwrap().push(character),
            }
        }
        words.into_iter().take_while(|word| !["|", ">", "&&"].contains(&word.as_str())).collect()
    }

    #[test]
    fn every_command_has_an_example_that_parses() {
        let mut found = Vec::new();
        collect_commands(&CommandLine::command(), "fairway", &mut found);
        assert!(found.len() > 40, "{found:?}");
        for (command, help) in found {
            let lines = help.lines().filter_map(|line| line.get(line.find("fairway ")?..));
            let examples: Vec<&str> = lines.filter(|line| line.starts_with(&command)).collect();
            assert!(!examples.is_empty(), "`{command}` has no example: {help}");
            for example in examples {
                let parsed = CommandLine::try_parse_from(split_shell_words(example));
                assert!(parsed.is_ok(), "{example}: {}", parsed.err().unwrap());
            }
        }
    }
}
