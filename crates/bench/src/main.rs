//! `fairway-bench`: measures Fairway beside its floor, in one run on one machine.
//!
//! The floor is a bare actix-web handler over the same driver and pool settings. Fairway's figures mean something only
//! as a share of it, because both suffer alike from whatever else the machine does.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its standard streams")]

mod accounting;
mod asking;
mod bar;
mod beside;
mod catalogue;
mod child;
mod code_mode;
mod cold_start;
mod connection;
mod existence;
mod floor;
mod furniture;
mod growth;
mod known_misses;
mod load;
mod meter;
mod million;
mod overload;
mod provider;
mod queued;
mod report;
mod revocation;
mod row;
mod run;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use known_misses::Outcome;

/// Measures Fairway beside its floor and prints Markdown. Fails on errors, and on missed targets that are not known.
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
    /// Serve the floor; the benchmark starts this itself
    #[command(hide = true)]
    Floor(floor::Arguments),
    /// Serve a provider that takes no time; the benchmark starts this itself
    #[command(hide = true)]
    Provider(provider::Arguments),
}

/// What to measure, and for how long.
#[derive(Args)]
pub(crate) struct Plan {
    /// The server program to measure, a release build
    #[arg(long, env = "FAIRWAY_BENCH_SERVER")]
    server: PathBuf,
    /// Seconds that each row is measured for at each number of clients; its floors take half of it, before and after
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Numbers of clients, each in a closed loop on a connection of its own
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    clients: Vec<usize>,
    /// Only rows whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Measure everything beside a year of runs, so many of them, and in turn with a young database
    #[arg(long, value_name = "RUNS", num_args = 0..=1, default_missing_value = growth::RUNS)]
    fill: Option<u64>,
    /// How many pieces of documents are looked through; the bar is about a million
    #[arg(long, default_value_t = million::PIECES)]
    pieces: u64,
    /// The Python that a gateway of models is installed for; without it, that is not measured
    #[arg(long, env = "FAIRWAY_BENCH_GATEWAY_PYTHON")]
    gateway: Option<PathBuf>,
    /// A setting of PostgreSQL beside its defaults, as `name=value`, for experiments; may be repeated
    #[arg(long)]
    postgres: Vec<String>,
    /// Write everything that was measured to this file, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Plan {
    /// How long a row is measured, kept between a tenth of a second and an hour.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.1, 3_600.0))
    }
}

fn main() -> ExitCode {
    let line = CommandLine::parse();
    let result = match (line.verb, line.plan) {
        (Some(Verb::Floor(arguments)), _) => floor::serve(&arguments),
        (Some(Verb::Provider(arguments)), _) => provider::serve(&arguments),
        (None, Some(plan)) => match measure(&plan) {
            Ok(outcome) => return finish(&outcome),
            Err(error) => Err(error),
        },
        (None, None) => Err(anyhow::anyhow!("nothing to measure: name the server program with --server")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fairway-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Tells what was missed; success where that was known.
fn finish(outcome: &Outcome) -> ExitCode {
    for note in &outcome.notes {
        println!("{note}");
    }
    for failure in &outcome.failures {
        eprintln!("fairway-bench: missed target: {failure}");
    }
    if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(plan: &Plan) -> Result<Outcome> {
    let home = stage::Home::new()?;
    // Started here and not inside the runtime: it blocks, and everything that it starts must end after the runtime.
    let postgres = stage::Postgres::start(&home, &plan.postgres)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = tokio::task::LocalSet::new();
    let report = tasks.block_on(&runtime, async {
        tokio::select! {
            report = run::everything(plan, &home, &postgres) => report,
            signal = child::asked_to_stop() => Err(signal.map_or_else(Into::into, |name| anyhow::anyhow!("{name}"))),
        }
    })?;
    print!("{}", report.markdown());
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(report.outcome())
}
