//! A benchmark run: starts all processes, measures every scenario between its baselines, and stops the processes.

mod benchmarks_with_own_server;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::sleep;

use crate::Plan;
use crate::background_task_cost::{Task, TaskCost};
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::{self, ClientScript, LoadDuration, LoadResult};
use crate::code_mode::{self, ScriptLatency};
use crate::cold_start::{self, ColdStart};
use crate::cost_meter::{Cost, CostMeter, resident_memory};
use crate::environment::start_processes::{
    start_baseline, start_gateway, start_provider_and_server, start_server, start_server_and_workers,
};
use crate::environment::{DATABASE, Postgres, RunDirectory, SMALL_DATABASE};
use crate::fill_history::{self, HistorySize, StoredRuns};
use crate::fixtures::{Fixtures, Workload};
use crate::large_corpus::{self, RetrievalLatency};
use crate::list_pagination::{self, PageFigures};
use crate::notifications::{self, NotificationResults};
use crate::overload::{self, OverloadResult};
use crate::paired_comparison::{PairedComparison, ROUNDS};
use crate::proofs::{self, ProofFigures};
use crate::provider_benchmark::{self, ProviderBenchmark};
use crate::queued_runs::{self, QueuedRuns};
use crate::report::{Machine, Report};
use crate::scenario::{BaselineOperation, KeyMode, Scenario, WorkloadSpread};
use crate::stale_permission_check::{self, OutdatedReads};
use crate::statement_count::{StatementCounter, StatementCounts};
use crate::thresholds::CLIENTS;
use crate::timing_oracle::{self, TimingComparison};
use crate::verified_tokens;

/// Warm-up before a measurement, for connections, prepared statements and caches.
const WARM_UP: Duration = Duration::from_millis(600);
/// Number of queued runs of each client that precede the measured ones as a warm-up.
const WARM_UP_RUNS: u64 = 20;
/// Queued runs of each client for each second of a scenario.
const QUEUED_RUNS_PER_SECOND: u64 = 60;
/// Duration of the run that counts statements for a scenario.
const COUNTING_DURATION: Duration = Duration::from_millis(1_500);
/// Counting uses a single client, because concurrent requests share statements.
const COUNTING_CLIENTS: usize = 1;
/// Duration of one measurement in an alternating comparison of two databases.
const INTERLEAVED_DURATION: Duration = Duration::from_millis(1_200);
/// Duration of the observation of the idle server.
const IDLE_DURATION: Duration = Duration::from_secs(3);

/// Names of the benchmarks outside the table of scenarios.
const PARTS: [&str; 13] = [
    timing_oracle::NAME,
    overload::NAME,
    queued_runs::NAME,
    code_mode::NAME,
    provider_benchmark::NAME,
    provider_benchmark::FIRST_PART_NAME,
    notifications::NAME,
    large_corpus::NAME,
    list_pagination::NAME,
    proofs::NAME,
    verified_tokens::NAME,
    Task::Notifications.name(),
    Task::TransparencyLog.name(),
];

/// One measurement under load.
pub(crate) struct Measurement {
    pub(crate) load: LoadResult,
    pub(crate) cost: Cost,
}

/// A scenario at one number of clients, with its baselines before and after.
pub(crate) struct ScenarioMeasurement {
    pub(crate) scenario: Scenario,
    pub(crate) clients: usize,
    pub(crate) fairway: Measurement,
    pub(crate) baselines: Vec<(BaselineOperation, Measurement)>,
}

/// Measurements of a server that receives no requests.
pub(crate) struct IdleMeasurement {
    /// The cost of the server and PostgreSQL while idle.
    pub(crate) cost: Cost,
    /// Resident memory after start, in bytes.
    pub(crate) memory: u64,
}

/// The results of all benchmarks in a run.
pub(crate) struct BenchmarkResults {
    pub(crate) machine: Machine,
    pub(crate) seconds: f64,
    pub(crate) cold_start: ColdStart,
    pub(crate) idle: IdleMeasurement,
    pub(crate) measured: Vec<ScenarioMeasurement>,
    /// Comparisons of the small and the large database; empty if no large history was stored.
    pub(crate) interleaved: Vec<PairedComparison>,
    pub(crate) accounts: Vec<(Scenario, Option<StatementCounts>)>,
    /// Whether changed permissions applied to the next request, if the active-release scenario was measured.
    pub(crate) stale_permission_check: Option<OutdatedReads>,
    /// Timing of reads of hidden resources; empty when not selected.
    pub(crate) timing_oracle: Vec<TimingComparison>,
    /// The results of the overload benchmark, one for each number of clients; empty if not selected.
    pub(crate) overload: Vec<OverloadResult>,
    /// Results of the benchmark of queued runs, if selected.
    pub(crate) queued: Option<QueuedRuns>,
    /// Latencies of scripts, if selected.
    pub(crate) code_mode: Option<ScriptLatency>,
    /// Results of runs with an HTTP model provider, if selected.
    pub(crate) provider: Option<ProviderBenchmark>,
    /// Results of the benchmark of notifications, if selected.
    pub(crate) notifications: Option<NotificationResults>,
    /// Reads with access tokens, compared with reads in local mode, if selected.
    pub(crate) verified_tokens: Option<PairedComparison>,
    /// Cost that background tasks add to runs; one result for each selected task.
    pub(crate) task_costs: Vec<TaskCost>,
    /// Latencies of document retrieval from a million chunks, if selected.
    pub(crate) retrieval: Option<RetrievalLatency>,
    /// Response times of list pages, if selected.
    pub(crate) pages: Option<PageFigures>,
    /// Response times of proofs from a log of ten million facts, if selected.
    pub(crate) proofs: Option<ProofFigures>,
    /// Resident memory of the server after all load, in bytes.
    pub(crate) memory_after: u64,
}

/// Starts all processes, measures, and stops the processes.
///
/// # Errors
/// When a process does not start, a response is unexpected, or a counter cannot be read.
pub(crate) async fn run_benchmark(plan: &Plan, run_directory: &RunDirectory, postgres: &Postgres) -> Result<Report> {
    let machine = Machine::current(postgres.major());
    let rows: Vec<Scenario> = Scenario::ALL.into_iter().filter(|row| plan.selects(row.name())).collect();
    if rows.is_empty() && !PARTS.iter().any(|name| plan.selects(name)) {
        bail!("no scenario has such a name");
    }
    let meter = CostMeter::open(&postgres.url(), postgres.process_id()).await?;
    let accounting = StatementCounter::open(meter.admin_client()).await?;
    postgres.create_databases(meter.admin_client()).await?;
    report_progress("cold starts");
    let cold_start = cold_start::measure(run_directory, postgres, &plan.server).await?;
    let baseline = start_baseline(run_directory, postgres).await?;
    let (server, _) = start_server(run_directory, postgres, DATABASE, &plan.server).await?;
    sleep(Duration::from_secs(1)).await;
    let memory = resident_memory(server.id())?;
    let idle = IdleMeasurement { cost: idle_cost(&meter, &server).await?, memory };
    report_progress("creating workloads and releases");
    let databases = postgres.databases(DATABASE).await?;
    let [fairway, _] = &databases;
    let catalogue_database = rows.iter().any(|row| row.needs_catalogue()).then_some(fairway);
    let fixtures = Fixtures::create(server.address, catalogue_database).await.with_context(|| server.log_tail())?;
    let small = match plan.fill {
        Some(_) => Some(SmallDatabase::start(run_directory, postgres, plan, &rows).await?),
        None => None,
    };
    let bench =
        Bench { plan, meter, databases, accounting, baseline, server, fixtures, small, run_directory, postgres };
    bench
        .run_all(
            &rows,
            BenchmarkResults {
                machine,
                seconds: plan.time().as_secs_f64(),
                cold_start,
                idle,
                measured: Vec::new(),
                interleaved: Vec::new(),
                accounts: Vec::new(),
                stale_permission_check: None,
                timing_oracle: Vec::new(),
                overload: Vec::new(),
                queued: None,
                code_mode: None,
                provider: None,
                notifications: None,
                verified_tokens: None,
                task_costs: Vec::new(),
                retrieval: None,
                pages: None,
                proofs: None,
                memory_after: 0,
            },
        )
        .await
}

struct Bench<'a> {
    plan: &'a Plan,
    meter: CostMeter,
    databases: [tokio_postgres::Client; 2],
    accounting: StatementCounter,
    baseline: ChildProcess,
    server: ChildProcess,
    fixtures: Fixtures,
    /// The small database and its server, for comparisons with the large database.
    small: Option<SmallDatabase>,
    run_directory: &'a RunDirectory,
    postgres: &'a Postgres,
}

/// A server with a small database.
struct SmallDatabase {
    server: ChildProcess,
    database: tokio_postgres::Client,
    fixtures: Fixtures,
}

impl SmallDatabase {
    async fn start(run_directory: &RunDirectory, postgres: &Postgres, plan: &Plan, rows: &[Scenario]) -> Result<Self> {
        let (server, _) = start_server(run_directory, postgres, SMALL_DATABASE, &plan.server).await?;
        report_progress("creating workloads and releases in the small database");
        let [database, _] = postgres.databases(SMALL_DATABASE).await?;
        let catalogue_database = rows.iter().any(|row| row.needs_catalogue()).then_some(&database);
        let fixtures = Fixtures::create(server.address, catalogue_database).await.with_context(|| server.log_tail())?;
        let mut small = SmallDatabase { server, database, fixtures };
        report_progress("storing the runs of the small database");
        fill_history::SMALL_HISTORY.store(&small.database).await?;
        small.fixtures.stored_runs = Some(StoredRuns::select(&small.database, None).await?);
        Ok(small)
    }
}

impl Bench<'_> {
    async fn run_all(mut self, rows: &[Scenario], mut results: BenchmarkResults) -> Result<Report> {
        if self.plan.fill.is_some() || rows.iter().any(|row| row.needs_runs()) {
            self.store_runs(fill_history::SMALL_HISTORY, None).await?;
        }
        if let Some(runs) = self.plan.fill {
            let address = self.server.address;
            self.store_runs(HistorySize::year(runs), Some(address)).await?;
        }
        if let Some(mut small) = self.small.take() {
            for row in rows {
                results.interleaved.extend(self.measure_interleaved(&small, *row).await?);
            }
            small.server.stop().await?;
        }
        for row in rows {
            let measured = self.measure_at_each_client_count(*row).await?;
            if measured.is_empty() {
                continue;
            }
            results.measured.extend(measured);
            let account =
                self.count_statements(*row).await.with_context(|| format!("counting statements of {}", row.name()))?;
            results.accounts.push((*row, account));
            if *row == Scenario::ActiveRelease {
                results.stale_permission_check =
                    Some(stale_permission_check::count_outdated_reads(self.server.address, &self.fixtures).await?);
            }
        }
        if self.plan.selects(timing_oracle::NAME) {
            report_progress("reads of hidden resources");
            results.timing_oracle = timing_oracle::measure(self.server.address, &self.fixtures).await?;
        }
        if self.plan.selects(code_mode::NAME) {
            report_progress("scripts");
            results.code_mode = Some(code_mode::measure(&self.server, &self.fixtures).await?);
        }
        if self.plan.selects(overload::NAME) {
            report_progress("five times the capacity");
            results.overload = overload::measure(self.server.address, self.server.id(), &self.fixtures).await?;
        }
        results.memory_after = resident_memory(self.server.id())?;
        let ended = self.server.stop().await?;
        if !ended.success() {
            bail!("the server exited with {ended}");
        }
        if self.plan.selects(queued_runs::NAME) {
            report_progress("queued runs");
            results.queued = Some(self.measure_queued().await?);
        }
        if [provider_benchmark::NAME, provider_benchmark::FIRST_PART_NAME].iter().any(|name| self.plan.selects(name)) {
            report_progress("runs with an HTTP model provider");
            results.provider = Some(self.measure_provider().await?);
        }
        if self.plan.selects(notifications::NAME) {
            report_progress("notifications");
            results.notifications = Some(self.measure_notifications().await?);
        }
        if self.plan.selects(verified_tokens::NAME) {
            report_progress("reads with verified tokens");
            results.verified_tokens = Some(self.measure_verified_tokens().await?);
        }
        results.task_costs = self.measure_background_tasks().await?;
        // Skipped by default, because storing the rows for these benchmarks takes minutes.
        if self.plan.only.is_some() || self.plan.fill.is_some() {
            self.measure_many_rows(&mut results).await?;
        }
        self.baseline.stop().await?;
        Ok(Report::of(results))
    }

    async fn measure_many_rows(&self, results: &mut BenchmarkResults) -> Result<()> {
        if self.plan.selects(large_corpus::NAME) {
            results.retrieval = Some(self.measure_retrieval().await?);
        }
        if self.plan.selects(list_pagination::NAME) {
            results.pages = Some(self.measure_pages().await?);
        }
        if self.plan.selects(proofs::NAME) {
            results.proofs = Some(self.measure_proofs().await?);
        }
        Ok(())
    }

    /// Measures queued runs. The main server must have stopped, because it would also claim them.
    async fn measure_queued(&self) -> Result<QueuedRuns> {
        let (mut server, mut workers) =
            start_server_and_workers(self.run_directory, self.postgres, &self.plan.server).await?;
        let row = Scenario::Execute { keys: KeyMode::Off, workloads: WorkloadSpread::One };
        let [fairway, _] = &self.databases;
        let half = self.plan.time() / 2;
        queued_runs::drain_rate(server.address, &self.fixtures, fairway, CLIENTS, WARM_UP_RUNS).await?;
        let before =
            self.measure_load(&self.baseline, BaselineOperation::Commit.client_scripts(CLIENTS)?, half).await?;
        let runs_per_client = QUEUED_RUNS_PER_SECOND.saturating_mul(self.plan.time().as_secs().max(1));
        let drained =
            queued_runs::drain_rate(server.address, &self.fixtures, fairway, CLIENTS, runs_per_client).await?;
        let after = self.measure_load(&self.baseline, BaselineOperation::Commit.client_scripts(CLIENTS)?, half).await?;
        let runs = self.measure_load(&server, row.client_scripts(&self.fixtures, CLIENTS)?, self.plan.time()).await?;
        let (queueing, follower_delay) = queued_runs::single_client_latencies(&server, &self.fixtures, fairway).await?;
        for process in workers.iter_mut().chain([&mut server]) {
            process.stop().await?;
        }
        Ok(QueuedRuns {
            drained,
            runs: (runs.rate(), runs.quantile(0.99)),
            baseline: f64::midpoint(before.rate(), after.rate()),
            queueing,
            follower_delay,
        })
    }

    /// Measures runs with an HTTP model provider. Uses a separate server, because the other scenarios run without
    /// a provider account.
    async fn measure_provider(&self) -> Result<ProviderBenchmark> {
        let (mut provider, mut server) =
            start_provider_and_server(self.run_directory, self.postgres, &self.plan.server).await?;
        let workload = self.fixtures.create_workload_with_account(server.address, "bench-asking").await?;
        let mut benchmark = ProviderBenchmark { rounds: Vec::new(), first_part: None };
        if self.plan.selects(provider_benchmark::FIRST_PART_NAME) {
            benchmark.first_part = Some(provider_benchmark::measure_first_part_latency(&server, &workload).await?);
        }
        if self.plan.selects(provider_benchmark::NAME) {
            benchmark.rounds = self.measure_provider_rounds(&server, &workload).await?;
        }
        server.stop().await?;
        provider.stop().await?;
        Ok(benchmark)
    }

    async fn measure_provider_rounds(
        &self,
        server: &ChildProcess,
        workload: &Workload,
    ) -> Result<Vec<provider_benchmark::ProviderRates>> {
        let mut gateway = match &self.plan.gateway {
            Some(python) => {
                report_progress("starting a gateway");
                let settings = provider_benchmark::gateway_settings();
                Some(start_gateway(self.run_directory, python, &settings, provider_benchmark::GATEWAY_WORKERS).await?)
            }
            None => None,
        };
        let local = self.fixtures.workloads.first().context("no workload was created")?;
        let scripts = |workload| provider_benchmark::workload_client_scripts(&self.fixtures, workload, CLIENTS);
        let time = self.plan.time() / 2;
        let mut rounds = Vec::new();
        for _ in 0..provider_benchmark::ROUNDS {
            let local_load = self.measure_load(server, scripts(local), time).await?;
            let openai_load = self.measure_load(server, scripts(workload), time).await?;
            let gateway_load = match &gateway {
                Some(gateway) => Some(
                    self.measure_load(&gateway.0, provider_benchmark::gateway_client_scripts(CLIENTS), time).await?,
                ),
                None => None,
            };
            rounds.push(provider_benchmark::ProviderRates::new(&local_load, &openai_load, gateway_load.as_ref()));
        }
        if let Some(gateway) = &mut gateway {
            gateway.0.stop().await?;
        }
        Ok(rounds)
    }

    /// Stores runs, and selects those that scenarios read.
    async fn store_runs(&mut self, size: HistorySize, deep_page_server: Option<SocketAddr>) -> Result<()> {
        report_progress(&format!("storing {} runs of {} days", size.runs, size.days));
        let [fairway, _] = &self.databases;
        size.store(fairway).await?;
        self.fixtures.stored_runs = Some(StoredRuns::select(fairway, deep_page_server).await?);
        Ok(())
    }

    /// Measures a scenario at each number of clients. Returns an empty list when the scenario's data is missing.
    async fn measure_at_each_client_count(&self, row: Scenario) -> Result<Vec<ScenarioMeasurement>> {
        let mut all = Vec::new();
        for clients in self.plan.clients.iter().filter(|_| row.is_available(&self.fixtures)) {
            report_progress(&format!("{}, {clients} clients", row.name()));
            let measured = self.measure_scenario(row, *clients).await;
            all.push(measured.with_context(|| format!("{}, {clients} clients", row.name()))?);
        }
        Ok(all)
    }

    /// Measures a scenario on the small and the large database in alternating rounds.
    async fn measure_interleaved(&self, small: &SmallDatabase, row: Scenario) -> Result<Vec<PairedComparison>> {
        let mut all = Vec::new();
        for clients in self.plan.clients.iter().filter(|_| row.is_available(&small.fixtures)) {
            report_progress(&format!("{}, {clients} clients, alternating with the small database", row.name()));
            let mut rounds = Vec::new();
            for _ in 0..ROUNDS {
                let scripts = |fixtures| row.client_scripts(fixtures, *clients);
                let small_load =
                    self.measure_load(&small.server, scripts(&small.fixtures)?, INTERLEAVED_DURATION).await?;
                rounds.push((
                    small_load,
                    self.measure_load(&self.server, scripts(&self.fixtures)?, INTERLEAVED_DURATION).await?,
                ));
            }
            all.push(PairedComparison { scenario: row, clients: *clients, rounds });
        }
        Ok(all)
    }

    /// Measures a scenario with baselines before and after it, so that other load affects scenario and baselines alike.
    ///
    /// Updates statistics first: the benchmark fills tables in seconds, while autovacuum would update them only
    /// within a minute.
    async fn measure_scenario(&self, row: Scenario, clients: usize) -> Result<ScenarioMeasurement> {
        let operations: &[BaselineOperation] = match row.baseline() {
            BaselineOperation::Read => &[BaselineOperation::Read],
            BaselineOperation::Commit | BaselineOperation::CommitInOneStatement => {
                &[BaselineOperation::Commit, BaselineOperation::CommitInOneStatement]
            }
        };
        for database in &self.databases {
            database.batch_execute("ANALYZE").await?;
        }
        let half = self.plan.time() / 2;
        let mut baselines = Vec::new();
        for operation in operations {
            baselines
                .push((*operation, self.measure_load(&self.baseline, operation.client_scripts(clients)?, half).await?));
        }
        let scripts = row.client_scripts(&self.fixtures, clients)?;
        let fairway = self.measure_load(&self.server, scripts, self.plan.time()).await?;
        for operation in operations.iter().rev() {
            baselines
                .push((*operation, self.measure_load(&self.baseline, operation.client_scripts(clients)?, half).await?));
        }
        Ok(ScenarioMeasurement { scenario: row, clients, fairway, baselines })
    }

    /// Measures under load. Starts with a checkpoint, so that every measurement has a comparable share of
    /// full-page images.
    async fn measure_load(
        &self,
        target: &ChildProcess,
        scripts: Vec<ClientScript>,
        time: Duration,
    ) -> Result<Measurement> {
        self.meter.admin_client().batch_execute("CHECKPOINT").await?;
        let span = LoadDuration { warm_up: WARM_UP, measured: time };
        let load = closed_loop_clients::run(target.address, scripts, span, &self.meter, target.id()).await?;
        let (before, after) = load.readings;
        let cost = self.meter.cost(before, after).await?;
        Ok(Measurement { load, cost })
    }

    async fn count_statements(&self, row: Scenario) -> Result<Option<StatementCounts>> {
        let admin = self.meter.admin_client();
        if !self.accounting.start(admin).await? {
            return Ok(None);
        }
        let span = LoadDuration { warm_up: Duration::ZERO, measured: COUNTING_DURATION };
        let scripts = row.client_scripts(&self.fixtures, COUNTING_CLIENTS)?;
        let load = closed_loop_clients::run(self.server.address, scripts, span, &self.meter, self.server.id()).await?;
        Ok(Some(self.accounting.stop(admin, load.total).await?))
    }
}

/// The cost of the server and PostgreSQL while idle.
async fn idle_cost(meter: &CostMeter, server: &ChildProcess) -> Result<Cost> {
    let before = meter.read(server.id()).await?;
    sleep(IDLE_DURATION).await;
    let after = meter.read(server.id()).await?;
    meter.cost(before, after).await
}

/// Prints progress on standard error; standard output contains only the report.
pub(crate) fn report_progress(step: &str) {
    eprintln!("bench: {step}");
}
