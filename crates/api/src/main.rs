//! `fairway-server`.

#![expect(clippy::print_stdout, reason = "a command line answers on standard output")]

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use fairway_api::{
    compose::Works, config::Settings, document, seed, serve, serve::DatabaseAddress, telemetry::Telemetry,
};
use std::{path::PathBuf, process::ExitCode};

/// jemalloc serves many small allocations faster than the system's allocator, and its own threads return freed memory while
/// the server is idle. The memory limit measures resident memory, so freed memory must not stay. `.cargo/config.toml` has its
/// settings.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Governs AI workloads.
#[derive(Parser)]
#[command(version, about)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Settings file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API until SIGTERM, and work on runs that wait in line.
    Serve {
        /// Leave runs that wait in line to workers of their own.
        #[arg(long)]
        no_worker: bool,
    },
    /// Work on runs that wait in line, until SIGTERM. Any number of these may run beside the servers.
    Worker,
    /// Go on with rollouts that advance by themselves, until SIGTERM. Any number of these may run beside the servers.
    RolloutPilot,
    /// Bring the database up to date and end.
    Migrate,
    /// Seed the demo: one workload with an active release in `dev`. A second time nothing is changed.
    Seed,
    /// Compare every version's row, checksum and artifact; print what differs, and fail if anything does.
    VerifyArtifacts,
    /// Print the OpenAPI document.
    Openapi,
    /// Run the one script that comes on the standard input, confined. The server starts this itself.
    #[command(hide = true)]
    Sandbox {
        /// What the script is written in.
        language: String,
        /// What it may use: wall and processor time in milliseconds, memory and output in bytes, with colons between.
        limits: String,
    },
    /// About the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Read all settings, say what is wrong with them, or show them with secrets left out.
    Check,
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    if let Command::Sandbox { language, limits } = &line.command {
        return fairway_sandbox::serve(language, limits);
    }
    match run(&line) {
        Ok(code) => code,
        Err(error) => {
            // One line: what failed, and because of what.
            let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("fairway-server: {}\n", causes.join(": ")),
            );
            ExitCode::FAILURE
        }
    }
}

fn run(line: &CommandLine) -> anyhow::Result<ExitCode> {
    // One provider of cryptography for everything that speaks TLS; a second call would only be told so.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match &line.command {
        // Done before anything else.
        Command::Sandbox { .. } => {}
        Command::Openapi => {
            print!("{}", document::as_json()?);
        }
        Command::Config(ConfigCommand::Check) => {
            let settings = settings(line)?;
            for shown in settings.describe() {
                println!("{} = {} ({})", shown.key, shown.value, shown.origin);
            }
            for account in &settings.providers {
                println!("[[providers]] {account} (file)");
            }
        }
        Command::Serve { no_worker } => {
            let settings = settings(line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let works = if *no_worker { Works::No } else { Works::Yes };
            let served = runtime()?.block_on(serve::serve(&settings, works));
            telemetry.shutdown();
            served?;
        }
        Command::Worker => {
            let settings = settings(line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let worked = runtime()?.block_on(serve::work(&settings));
            telemetry.shutdown();
            worked?;
        }
        Command::RolloutPilot => {
            let settings = settings(line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let piloted = runtime()?.block_on(serve::pilot_rollouts(&settings));
            telemetry.shutdown();
            piloted?;
        }
        Command::Seed => {
            let settings = settings(line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let seeded = runtime()?.block_on(seed::seed(&settings));
            telemetry.shutdown();
            print!("{}", seeded?);
        }
        Command::VerifyArtifacts => return verify_artifacts(&settings(line)?),
        Command::Migrate => {
            let settings = settings(line)?;
            let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
            let migrated = runtime()?.block_on(async {
                let database = DatabaseAddress::open(&settings).await?;
                let migrated = fairway_postgres::migrate(&database.owner_url).await;
                database.close().await?;
                anyhow::Ok(migrated?)
            });
            telemetry.shutdown();
            migrated?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line a version with something wrong, and a last one with how many were compared.
fn verify_artifacts(settings: &Settings) -> anyhow::Result<ExitCode> {
    let telemetry = Telemetry::start(&settings.log, settings.export_traces)?;
    let verified = runtime()?.block_on(serve::verify_artifacts(settings));
    telemetry.shutdown();
    let verified = verified?;
    for (version, wrong) in &verified.wrong {
        let wrong: Vec<&str> = wrong.iter().map(|one| one.as_str()).collect();
        println!("tenant {} version {}: {}", version.tenant_id, version.asset_version_id, wrong.join("; "));
    }
    println!("{} versions compared, {} with something wrong", verified.versions, verified.wrong.len());
    Ok(if verified.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn settings(line: &CommandLine) -> anyhow::Result<Settings> {
    let file = line
        .common
        .config
        .as_ref()
        .map(|path| std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display())))
        .transpose()?;
    Ok(Settings::load(file.as_deref(), std::env::vars_os())?)
}
