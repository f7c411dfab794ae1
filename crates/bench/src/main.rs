//! `fairway-bench`: measures Fairway against a baseline in one run on one machine.
//!
//! The baseline is a bare actix-web service with the same database driver and pool settings. Results are
//! meaningful as a share of the baseline, because other load on the machine affects both.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program prints to its standard streams")]

mod background_task_cost;
mod baseline_service;
mod benchmark_run;
mod child_process;
mod closed_loop_clients;
mod code_mode;
mod cold_start;
mod connection;
mod cost_meter;
mod environment;
mod fill_assets;
mod fill_history;
mod fixtures;
mod known_misses;
mod large_corpus;
mod list_pagination;
mod notifications;
mod overload;
mod paired_comparison;
mod proofs;
mod provider_benchmark;
mod queued_runs;
mod report;
mod scenario;
mod stale_permission_check;
mod statement_count;
mod stub_provider;
mod stub_webhook_receiver;
mod thresholds;
mod timing_oracle;
mod upgrade_under_load;
mod verified_tokens;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use known_misses::BenchmarkOutcome;

/// Measure Fairway against its baseline, and print Markdown; fails on errors and on unexpected misses of targets
#[derive(Parser)]
#[command(name = "fairway-bench", subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    plan: Option<Plan>,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve the baseline; the benchmark starts this itself
    #[command(hide = true)]
    Floor(baseline_service::Arguments),
    /// Serve a stub model provider; the benchmark starts this itself
    #[command(hide = true)]
    Provider(stub_provider::Arguments),
    /// Serve a stub receiver of webhooks; the benchmark starts this itself
    #[command(hide = true)]
    Receiver(stub_webhook_receiver::Arguments),
    /// Upgrade from one server executable to another under load, with both on one database
    Upgrade(upgrade_under_load::Arguments),
}

/// The measurement plan.
#[derive(Args)]
pub(crate) struct Plan {
    /// The server executable to measure, a release build
    #[arg(long, env = "FAIRWAY_BENCH_SERVER")]
    server: PathBuf,
    /// Seconds for each scenario and number of clients; its baselines take half of it, before and after
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Numbers of closed-loop clients, each with its own connection
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    clients: Vec<usize>,
    /// Only scenarios whose name contains this text
    #[arg(long)]
    only: Option<String>,
    /// Store this many runs first, spread over a year, and compare with a small database in alternating rounds
    #[arg(long, value_name = "RUNS", num_args = 0..=1, default_missing_value = fill_history::DEFAULT_RUNS)]
    fill: Option<u64>,
    /// The number of document chunks to search; the target holds for a million
    #[arg(long, default_value_t = large_corpus::CHUNKS)]
    pieces: u64,
    /// The Python interpreter of a LiteLLM installation; without it, that comparison is skipped
    #[arg(long, env = "FAIRWAY_BENCH_GATEWAY_PYTHON")]
    gateway: Option<PathBuf>,
    /// A PostgreSQL setting as `name=value`, for experiments; may be repeated
    #[arg(long)]
    postgres: Vec<String>,
    /// Write all results to this file as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Plan {
    /// The measuring time of a scenario, limited to between 0.1 s and one hour.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.1, 3_600.0))
    }

    /// Whether a scenario or another benchmark with this name is selected.
    pub(crate) fn selects(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let result = match (line.verb, line.plan) {
        (Some(Verb::Floor(arguments)), _) => baseline_service::serve(&arguments),
        (Some(Verb::Provider(arguments)), _) => stub_provider::serve(&arguments),
        (Some(Verb::Receiver(arguments)), _) => stub_webhook_receiver::serve(&arguments),
        (Some(Verb::Upgrade(arguments)), _) => upgrade_under_load(&arguments),
        (None, Some(plan)) => match measure(&plan) {
            Ok(outcome) => return finish(&outcome),
            Err(error) => Err(error),
        },
        (None, None) => Err(anyhow::anyhow!("nothing to measure: pass the server executable with --server")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairway-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints known and unexpected misses of targets. The exit code reports failure if a miss is unexpected.
fn finish(outcome: &BenchmarkOutcome) -> ExitCode {
    for note in &outcome.notes {
        println!("{note}");
    }
    for failure in &outcome.failures {
        eprintln!("fairway-bench: missed target: {failure}");
    }
    if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(plan: &Plan) -> Result<BenchmarkOutcome> {
    let run_directory = environment::RunDirectory::new()?;
    // Starts PostgreSQL outside the runtime: the start blocks, and the processes must outlive the runtime.
    let postgres = environment::Postgres::start(&run_directory, &plan.postgres)?;
    let report = run_until_stopped(benchmark_run::run_benchmark(plan, &run_directory, &postgres))?;
    print!("{}", report.markdown());
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(report.outcome())
}

fn upgrade_under_load(arguments: &upgrade_under_load::Arguments) -> Result<()> {
    let run_directory = environment::RunDirectory::new()?;
    let postgres = environment::Postgres::start(&run_directory, &[])?;
    println!("{}", run_until_stopped(upgrade_under_load::run(arguments, &run_directory, &postgres))?);
    Ok(())
}

/// Runs a measurement on this thread until it ends or the process receives a stop signal.
fn run_until_stopped<T>(measurement: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::select! {
            result = measurement => result,
            signal = child_process::wait_for_stop_signal() => Err(signal.map_or_else(Into::into, |name| anyhow::anyhow!("{name}"))),
        }
    })
}
