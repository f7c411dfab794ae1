//! The command line of `fairway-server`.

#![expect(clippy::print_stdout, reason = "a command line writes its results to standard output")]

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use fairway_api::{
    compose::EnabledBackgroundTasks,
    config::Settings,
    issuer_check, openapi, provider_check, seed, serve,
    serve::ResolvedDatabase,
    telemetry::Telemetry,
    transparency_log_audit::{self, AuditScope},
    version_verification,
};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The settings file that is read without `--config`.
const DEFAULT_SETTINGS_FILE: &str = "fairway.toml";

/// A request makes many small allocations, which jemalloc serves faster than the system allocator. Its background
/// threads return freed memory while the server is idle. The memory limit measures resident memory, so freed memory
/// must not stay resident. `.cargo/config.toml` has the settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Control plane for AI workloads.
#[derive(Parser)]
#[command(version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Args)]
struct CommonArgs {
    /// Settings file; by default `fairway.toml` in the working directory, if it exists.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API and execute queued runs until SIGTERM.
    Serve {
        /// Do not execute queued runs; separate workers execute them.
        #[arg(long)]
        no_worker: bool,
        /// Do not project facts to notifications or deliver them; another server does.
        #[arg(long)]
        no_notifications: bool,
        /// Do not build the transparency log or sign checkpoints; another server does.
        #[arg(long)]
        no_transparency_log: bool,
    },
    /// Execute queued runs until SIGTERM. Any number of workers can run next to the servers.
    Worker,
    /// Advance automatic rollouts until SIGTERM. Any number of controllers can run next to the servers.
    RolloutPilot,
    /// Apply all pending database migrations and exit.
    Migrate,
    /// Seed the demo: one workload with an active release in `dev`. Repeated calls change nothing.
    Seed,
    /// Compare the row, checksum and artifact of every version; print each difference, and fail if there is one.
    VerifyArtifacts,
    /// Inspect the audit logs.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Print the OpenAPI document.
    Openapi,
    /// Run one script from standard input in the sandbox. The server starts this command itself.
    #[command(hide = true)]
    Sandbox {
        /// Language of the script.
        language: String,
        /// Limits, separated by colons: wall time and CPU time in milliseconds, memory and output in bytes.
        limits: String,
    },
    /// Inspect the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Inspect the provider accounts.
    #[command(subcommand)]
    Providers(ProvidersCommand),
}

#[derive(Subcommand)]
enum ProvidersCommand {
    /// Send one cheap request to each account, and print one sentence about each response or failure; fail if one
    /// failed.
    Test {
        /// The account; by default all configured ones.
        account: Option<String>,
        /// The model to call; by default the account's `test_model`.
        #[arg(long, requires = "account")]
        model: Option<String>,
    },
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Compare every entry of the logs with the newest checkpoint outside the database; print the first bad index of
    /// each log, and fail if there is one.
    Verify(AuditArguments),
}

#[derive(Args)]
struct AuditArguments {
    /// The tenant; by default all tenants.
    #[arg(long, value_name = "ID")]
    tenant: Option<uuid::Uuid>,
    /// A file with a checkpoint to use instead of the newest one in the archive.
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// A further public key of the log, such as a retired key; repeatable.
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print all settings without secrets, and one sentence for each problem; fail if there is one.
    Check,
}

fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    if let Command::Sandbox { language, limits } = &command_line.command {
        return fairway_sandbox::run_child(language, limits);
    }
    match run(&command_line) {
        Ok(code) => code,
        Err(error) => {
            // One line with the error and its causes.
            let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("fairway-server: {}\n", causes.join(": ")),
            );
            ExitCode::FAILURE
        }
    }
}

fn run(command_line: &CommandLine) -> anyhow::Result<ExitCode> {
    // All TLS clients use one crypto provider. An error only means that a provider is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match &command_line.command {
        // `main` handles this command before it calls `run`.
        Command::Sandbox { .. } => {}
        Command::Openapi => {
            print!("{}", openapi::as_json()?);
        }
        Command::Config(ConfigCommand::Check) => return check_config(command_line),
        Command::Serve { no_worker, no_notifications, no_transparency_log } => {
            let settings = load_settings(command_line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let tasks = EnabledBackgroundTasks {
                executes_runs: !no_worker,
                sends_notifications: !no_notifications,
                builds_tree: !no_transparency_log,
                ..EnabledBackgroundTasks::default()
            };
            let outcome = runtime()?.block_on(serve::serve(&settings, tasks));
            telemetry.shutdown();
            outcome?;
        }
        Command::Worker => {
            let settings = load_settings(command_line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let outcome = runtime()?.block_on(serve::run_worker(&settings));
            telemetry.shutdown();
            outcome?;
        }
        Command::RolloutPilot => {
            let settings = load_settings(command_line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let outcome = runtime()?.block_on(serve::run_rollout_controller(&settings));
            telemetry.shutdown();
            outcome?;
        }
        Command::Seed => {
            let settings = load_settings(command_line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let outcome = runtime()?.block_on(seed::seed(&settings));
            telemetry.shutdown();
            print!("{}", outcome?);
        }
        Command::Providers(ProvidersCommand::Test { account, model }) => {
            return test_providers(&load_settings(command_line)?, account.as_deref(), model.as_deref());
        }
        Command::Audit(AuditCommand::Verify(arguments)) => {
            return verify_logs(&load_settings(command_line)?, arguments);
        }
        Command::VerifyArtifacts => return verify_version_artifacts(&load_settings(command_line)?),
        Command::Migrate => {
            let settings = load_settings(command_line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let outcome = runtime()?.block_on(async {
                let database = ResolvedDatabase::resolve_or_start(&settings).await?;
                let outcome = fairway_postgres::migrate(&database.owner_url).await;
                database.stop_managed_server().await?;
                anyhow::Ok(outcome?)
            });
            telemetry.shutdown();
            outcome?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each setting, account and issuer, and one sentence for each problem.
fn check_config(command_line: &CommandLine) -> anyhow::Result<ExitCode> {
    let file = read_settings_file(command_line.common.config.as_deref())?;
    let (settings, contradictions) = Settings::load_with_conflicts(file.as_deref(), std::env::vars_os())?;
    for setting in settings.describe() {
        println!("{} = {} ({})", setting.key, setting.value, setting.origin);
    }
    for account in &settings.providers {
        println!("[[providers]] {account} ({})", account.origin);
    }
    for issuer in &settings.issuers {
        println!("{} {issuer}", if issuer.path == "oidc" { "[oidc]" } else { "[[issuers]]" });
    }
    let mut problems: Vec<String> = contradictions.iter().map(ToString::to_string).collect();
    problems.extend(runtime()?.block_on(issuer_check::find_unusable_files_and_secrets(&settings))?);
    for problem in &problems {
        std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("fairway-server: {problem}\n"))?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints one line for each version with a defect, and a summary line with the number of compared versions.
fn verify_version_artifacts(settings: &Settings) -> anyhow::Result<ExitCode> {
    let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
    let verification = runtime()?.block_on(version_verification::verify_version_artifacts(settings));
    telemetry.shutdown();
    let verification = verification?;
    for (version, discrepancies) in &verification.discrepancies {
        let descriptions: Vec<&str> = discrepancies.iter().map(|discrepancy| discrepancy.description()).collect();
        println!("tenant {} version {}: {}", version.tenant_id, version.asset_version_id, descriptions.join("; "));
    }
    println!("{} versions compared, {} with something wrong", verification.versions, verification.discrepancies.len());
    Ok(if verification.discrepancies.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints one sentence for each log, and a summary line.
fn verify_logs(settings: &Settings, arguments: &AuditArguments) -> anyhow::Result<ExitCode> {
    let scope = AuditScope::read(arguments.tenant, arguments.checkpoint.as_deref(), &arguments.key)?;
    let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
    let logs = runtime()?.block_on(transparency_log_audit::audit_logs(settings, &scope));
    telemetry.shutdown();
    let logs = logs?;
    for log in &logs {
        println!("{}", transparency_log_audit::describe(log));
    }
    let failed = logs.iter().filter(|log| !log.has_passed()).count();
    println!("{} logs compared, {failed} with something wrong", logs.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints one sentence for each account.
fn test_providers(settings: &Settings, account: Option<&str>, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let report = runtime()?.block_on(provider_check::check_providers(settings, account, model))?;
    for sentence in &report.sentences {
        println!("{sentence}");
    }
    Ok(if report.has_failures { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn load_settings(command_line: &CommandLine) -> anyhow::Result<Settings> {
    Ok(Settings::load(read_settings_file(command_line.common.config.as_deref())?.as_deref(), std::env::vars_os())?)
}

/// The text of the named settings file, which must exist, or of the default one, which may be absent.
fn read_settings_file(explicit_path: Option<&Path>) -> anyhow::Result<Option<String>> {
    let path = explicit_path.unwrap_or(Path::new(DEFAULT_SETTINGS_FILE));
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if explicit_path.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}
