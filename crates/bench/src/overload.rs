//! Benchmark of the behaviour at five times the server's capacity.
//!
//! First, the usual number of closed-loop clients measures the server's capacity. Then many clients send requests on
//! a fixed schedule, at five times that rate in total, regardless of the responses. Another caller sends a few
//! requests at the same time.
//!
//! The judged p99 covers every accepted request of every client. The clients are spread over threads, because a
//! response waiting in a busy client thread would count as slow.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hdrhistogram::Histogram;
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, LocalSet, spawn_blocking, spawn_local};
use tokio::time::{sleep, sleep_until};

use crate::closed_loop_clients::histogram;
use crate::connection::{BenchRequest, Connection, get, post_bytes, with_header};
use crate::cost_meter::peak_resident_memory;
use crate::fixtures::{DEFAULT_TENANT_ADMIN, Fixtures};
use crate::scenario::ticket_request;
use crate::thresholds::{CLIENTS, TargetResult, TargetVerdict, mebibytes};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "overload";
/// The offered request rate as a multiple of the capacity.
const OVERLOAD_FACTOR: f64 = 5.0;
/// The measured numbers of clients. With 400 clients, each receives its response before its next scheduled request.
/// With 2,000 clients, the connections cost more than the requests.
const CLIENT_COUNTS: [usize; 2] = [400, 2_000];
/// Number of client threads.
const THREADS: usize = 8;
/// Duration of the capacity measurement and of the overload, respectively.
const CAPACITY_DURATION: Duration = Duration::from_secs(5);
const OVERLOAD_DURATION: Duration = Duration::from_secs(15);
/// Pause between two numbers of clients.
const MEASUREMENT_PAUSE: Duration = Duration::from_secs(3);
/// Pause between two requests of the caller that does not take part in the overload.
const OTHER_CALLER_PAUSE: Duration = Duration::from_millis(20);
/// Number of consecutive successful and fast responses after which the server counts as recovered.
const RECOVERED_STREAK: u32 = 20;
/// Maximum time to wait for the recovery before the benchmark fails.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum p99 latency of accepted requests, relative to the latency at usual load.
const MAX_SLOWDOWN: f64 = 2.0;
/// Maximum peak memory of the server under overload, in bytes.
const MAX_MEMORY: u64 = 512 << 20;
/// Maximum time from the end of the overload until the server responds as fast as usual.
const MAX_RECOVERY: Duration = Duration::from_secs(10);
/// Minimum share of the other caller's requests that succeed.
const MIN_OTHER_CALLER_SHARE: f64 = 0.8;

/// The result of the overload with one number of clients.
pub(crate) struct OverloadResult {
    /// Number of clients, each with one connection.
    pub(crate) clients: usize,
    /// Capacity in the closed loop: responses per second, and their p99 in microseconds.
    pub(crate) capacity: (f64, u64),
    /// Requests per second that were sent.
    pub(crate) offered: f64,
    /// Successful responses per second of all clients, and their p99 in microseconds.
    pub(crate) accepted: (f64, u64),
    /// Responses with 429 or 503 and `Retry-After`.
    pub(crate) refused: u64,
    /// Responses that are neither successful nor refused with `Retry-After`.
    pub(crate) unexpected: u64,
    /// Requests that failed because their connection was closed.
    pub(crate) closed: u64,
    /// Numbers of requests of the other caller, who causes no overload: all requests, and the successful ones.
    pub(crate) other_caller: (u64, u64),
    /// The server's peak memory in bytes.
    pub(crate) memory: u64,
    /// Time from the end of the overload until all responses are successful and as fast as usual.
    pub(crate) recovery: Duration,
}

/// The execute request. All requests have identical bytes, to minimize the clients' work.
#[derive(Clone)]
struct RunRequest {
    path: String,
    body: Bytes,
}

impl RunRequest {
    fn new(fixtures: &Fixtures) -> Result<RunRequest> {
        let workload = fixtures.workloads.first().context("no workload was created")?;
        let path = format!("/v1/workloads/by-slug/{}/execute", workload.slug);
        Ok(RunRequest { path, body: Bytes::from(ticket_request(0).to_string()) })
    }

    fn build(&self) -> BenchRequest {
        post_bytes(&self.path, self.body.clone())
    }
}

/// A fixed schedule for a group of clients.
#[derive(Clone)]
struct Schedule {
    /// The indexes of the clients of this group.
    clients: Range<usize>,
    /// Number of clients of all groups.
    total: usize,
    pause: Duration,
    until: Instant,
}

#[derive(Default)]
struct Counts {
    sent: Cell<u64>,
    refused: Cell<u64>,
    unexpected: Cell<u64>,
    closed: Cell<u64>,
}

/// The results of a group of clients.
struct OverloadTally {
    sent: u64,
    refused: u64,
    unexpected: u64,
    closed: u64,
    accepted: Histogram<u64>,
}

impl OverloadTally {
    /// Merges the results of all threads.
    fn sum(threads: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut all = Self { sent: 0, refused: 0, unexpected: 0, closed: 0, accepted: histogram()? };
        for thread in threads {
            all.sent += thread.sent;
            all.refused += thread.refused;
            all.unexpected += thread.unexpected;
            all.closed += thread.closed;
            all.accepted.add(&thread.accepted)?;
        }
        Ok(all)
    }
}

/// Executes a future on a new thread that has its own runtime.
async fn run_on_thread<T: Send + 'static>(work: impl AsyncFnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, work())
    })
    .await?
}

/// Measures the overload of the execute route with each number of clients.
///
/// # Errors
/// When a connection fails, or the server does not recover within a minute.
pub(crate) async fn measure(address: SocketAddr, process: u32, fixtures: &Fixtures) -> Result<Vec<OverloadResult>> {
    let mut measured = Vec::new();
    for clients in CLIENT_COUNTS {
        measured.push(measure_with(clients, address, process, fixtures).await?);
        // Load shedding ends a second after its last refusal. The next capacity measurement must start after that.
        sleep(MEASUREMENT_PAUSE).await;
    }
    Ok(measured)
}

async fn measure_with(total: usize, address: SocketAddr, process: u32, fixtures: &Fixtures) -> Result<OverloadResult> {
    let request = RunRequest::new(fixtures)?;
    // The first measurement is a warm-up.
    drop(closed_loop(address, &request).await?);
    let capacity_request = request.clone();
    let capacity = run_on_thread(async move || closed_loop(address, &capacity_request).await).await?;
    let rate = capacity.len() as f64 / CAPACITY_DURATION.as_secs_f64();
    let usual_p99 = capacity.value_at_quantile(0.99);

    let until = Instant::now() + OVERLOAD_DURATION;
    let pause = Duration::from_secs_f64(total as f64 / (OVERLOAD_FACTOR * rate).max(1.0));
    let other_caller_task = spawn_local(other_caller(address, until));
    let threads = (0..THREADS).map(|thread| {
        let clients = total * thread / THREADS..total * (thread + 1) / THREADS;
        let (request, schedule) = (request.clone(), Schedule { clients, total, pause, until });
        spawn_local(run_on_thread(async move || scheduled_clients(address, request, schedule).await))
    });
    let mut thread_tallies = Vec::new();
    for thread in threads.collect::<Vec<_>>() {
        thread_tallies.push(thread.await??);
    }
    let all = OverloadTally::sum(thread_tallies)?;
    let ended = Instant::now();
    let other_caller = other_caller_task.await??;
    let recovery = recovery_time(address, &request, ended, Duration::from_micros(usual_p99)).await?;
    Ok(OverloadResult {
        clients: total,
        capacity: (rate, usual_p99),
        offered: all.sent as f64 / OVERLOAD_DURATION.as_secs_f64(),
        accepted: (all.accepted.len() as f64 / OVERLOAD_DURATION.as_secs_f64(), all.accepted.value_at_quantile(0.99)),
        refused: all.refused,
        unexpected: all.unexpected,
        closed: all.closed,
        other_caller,
        memory: peak_resident_memory(process)?,
        recovery,
    })
}

/// The capacity measurement with closed-loop clients.
async fn closed_loop(address: SocketAddr, request: &RunRequest) -> Result<Histogram<u64>> {
    let until = Instant::now() + CAPACITY_DURATION;
    let mut clients: Vec<JoinHandle<Result<Histogram<u64>>>> = Vec::new();
    for _ in 0..CLIENTS {
        let mut connection = Connection::open(address).await?;
        let request = request.clone();
        clients.push(spawn_local(async move {
            let mut latencies = histogram()?;
            while Instant::now() < until {
                let since = Instant::now();
                let response = connection.send(request.build()).await?;
                if !response.is_success() {
                    bail!("{} responded with {response}", request.path);
                }
                latencies.saturating_record(micros(since.elapsed()));
            }
            Ok(latencies)
        }));
    }
    let mut all = histogram()?;
    for client in clients {
        all.add(&client.await??)?;
    }
    Ok(all)
}

/// The clients of one thread, with staggered start times.
async fn scheduled_clients(address: SocketAddr, request: RunRequest, schedule: Schedule) -> Result<OverloadTally> {
    let counts = Rc::new(Counts::default());
    let accepted = Rc::new(RefCell::new(histogram()?));
    let mut clients: Vec<JoinHandle<Result<()>>> = Vec::new();
    for number in schedule.clients.clone() {
        let connection = Connection::open(address).await.context("connecting a client")?;
        let first = Instant::now() + schedule.pause.mul_f64(number as f64 / schedule.total as f64);
        clients.push(spawn_local(scheduled_client(
            address,
            connection,
            request.clone(),
            first,
            schedule.clone(),
            Rc::clone(&counts),
            Rc::clone(&accepted),
        )));
    }
    for client in clients {
        client.await??;
    }
    let accepted = accepted.borrow().clone();
    Ok(OverloadTally {
        sent: counts.sent.get(),
        refused: counts.refused.get(),
        unexpected: counts.unexpected.get(),
        closed: counts.closed.get(),
        accepted,
    })
}

/// A client of the overload: sends at its scheduled times, or after its previous response if that is later.
async fn scheduled_client(
    address: SocketAddr,
    mut connection: Connection,
    request: RunRequest,
    first: Instant,
    schedule: Schedule,
    counts: Rc<Counts>,
    accepted: Rc<RefCell<Histogram<u64>>>,
) -> Result<()> {
    let mut next = first;
    loop {
        sleep_until(next.into()).await;
        let since = Instant::now();
        if since >= schedule.until {
            return Ok(());
        }
        counts.sent.set(counts.sent.get() + 1);
        // The server may close the connection of a request that it refuses before reading the body.
        let Ok(response) = connection.send(request.build()).await else {
            counts.closed.set(counts.closed.get() + 1);
            connection = Connection::open(address).await.context("connecting a client again")?;
            continue;
        };
        match response.status {
            200 => accepted.borrow_mut().saturating_record(micros(since.elapsed())),
            429 | 503 if response.has_retry_after => counts.refused.set(counts.refused.get() + 1),
            _ => counts.unexpected.set(counts.unexpected.get() + 1),
        }
        next = (next + schedule.pause).max(Instant::now());
    }
}

/// Reads occasionally as another caller. Returns the number of requests, and of those that succeeded.
async fn other_caller(address: SocketAddr, until: Instant) -> Result<(u64, u64)> {
    let mut connection = Connection::open(address).await?;
    let (mut sent, mut succeeded) = (0_u64, 0_u64);
    while Instant::now() < until {
        let response = connection.send(with_header(get("/v1/workspaces"), "x-actor-ref", DEFAULT_TENANT_ADMIN)).await?;
        sent += 1;
        succeeded += u64::from(response.status == 200);
        sleep(OTHER_CALLER_PAUSE).await;
    }
    Ok((sent, succeeded))
}

async fn recovery_time(
    address: SocketAddr,
    request: &RunRequest,
    ended: Instant,
    usual_p99: Duration,
) -> Result<Duration> {
    let mut connection = Connection::open(address).await?;
    let (mut streak, mut since) = (0, ended);
    while streak < RECOVERED_STREAK {
        if ended.elapsed() > RECOVERY_TIMEOUT {
            bail!("the server has not recovered {} s after the overload", RECOVERY_TIMEOUT.as_secs());
        }
        let sent = Instant::now();
        let response = connection.send(request.build()).await?;
        if response.is_success() && sent.elapsed() <= usual_p99 {
            streak += 1;
        } else {
            (streak, since) = (0, Instant::now());
        }
    }
    Ok(since.saturating_duration_since(ended))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl OverloadResult {
    /// The p99 latency of accepted requests, relative to the p99 in the closed loop.
    pub(crate) fn slowdown(&self) -> f64 {
        self.accepted.1 as f64 / (self.capacity.1 as f64).max(1.0)
    }

    fn other_caller_share(&self) -> f64 {
        self.other_caller.1 as f64 / (self.other_caller.0 as f64).max(1.0)
    }

    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(String, String)> {
        let millis = |micros: u64| micros as f64 / 1e3;
        let name = benchmark_name(self.clients);
        vec![
            (
                format!("{name}: usual responses per second, p99"),
                format!("{:.0}, {:.1} ms", self.capacity.0, millis(self.capacity.1)),
            ),
            (format!("{name}: requests per second"), format!("{:.0}", self.offered)),
            (
                format!("{name}: accepted per second, p99"),
                format!("{:.0}, {:.1} ms", self.accepted.0, millis(self.accepted.1)),
            ),
            (
                format!("{name}: refused with 429 or 503 and `Retry-After`, other responses"),
                format!("{}, {}", self.refused, self.unexpected),
            ),
            (format!("{name}: connections closed between requests"), self.closed.to_string()),
            (format!("{name}: peak memory"), format!("{:.1} MiB", mebibytes(self.memory))),
        ]
    }
}

fn benchmark_name(clients: usize) -> String {
    format!("{NAME} by {clients} clients")
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: &[OverloadResult]) -> Vec<TargetResult> {
    let judge_clients = |clients| judge_count(clients, measured.iter().find(|one| one.clients == clients));
    CLIENT_COUNTS.into_iter().flat_map(judge_clients).collect()
}

fn judge_count(clients: usize, measured: Option<&OverloadResult>) -> Vec<TargetResult> {
    let result = |name: &str, target: String, measured: Option<String>, met: Option<bool>| TargetResult {
        name: format!("{}: {name}", benchmark_name(clients)),
        target,
        measured: measured.unwrap_or_else(|| "n/a".to_owned()),
        verdict: met.map_or(TargetVerdict::NotMeasured, TargetVerdict::of),
    };
    vec![
        result(
            "p99 of accepted requests of all clients against the usual one",
            format!("at most {MAX_SLOWDOWN} times"),
            measured.map(|measured| format!("{:.2}", measured.slowdown())),
            measured.map(|measured| measured.slowdown() <= MAX_SLOWDOWN),
        ),
        result(
            "all other requests are refused with 429 or 503 and `Retry-After`",
            "always".to_owned(),
            measured.map(|measured| {
                format!("{} other responses, {} connections closed", measured.unexpected, measured.closed)
            }),
            measured.map(|measured| measured.unexpected == 0 && measured.closed == 0),
        ),
        result(
            "memory",
            format!("under {} MiB", MAX_MEMORY >> 20),
            measured.map(|measured| format!("{:.1} MiB", mebibytes(measured.memory))),
            measured.map(|measured| measured.memory < MAX_MEMORY),
        ),
        result(
            "recovery",
            format!("within {} s", MAX_RECOVERY.as_secs()),
            measured.map(|measured| format!("{:.2} s", measured.recovery.as_secs_f64())),
            measured.map(|measured| measured.recovery <= MAX_RECOVERY),
        ),
        result(
            "share of another caller's requests that succeed",
            format!("at least {MIN_OTHER_CALLER_SHARE}"),
            measured.map(|measured| format!("{:.2} of {}", measured.other_caller_share(), measured.other_caller.0)),
            measured.map(|measured| measured.other_caller_share() >= MIN_OTHER_CALLER_SHARE),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> OverloadResult {
        OverloadResult {
            clients: 400,
            capacity: (2_000.0, 30_000),
            offered: 9_900.0,
            accepted: (1_800.0, 55_000),
            refused: 100_000,
            unexpected: 0,
            closed: 0,
            other_caller: (500, 450),
            memory: 100 << 20,
            recovery: Duration::from_secs(1),
        }
    }

    fn verdicts(measured: &OverloadResult) -> Vec<TargetVerdict> {
        judge_count(400, Some(measured)).into_iter().map(|one| one.verdict).collect()
    }

    #[test]
    fn judges_each_target() {
        assert_eq!(verdicts(&good()), [TargetVerdict::Met; 5]);
        assert_eq!(verdicts(&OverloadResult { accepted: (1_800.0, 61_000), ..good() })[0], TargetVerdict::Missed);
        assert_eq!(verdicts(&OverloadResult { unexpected: 1, ..good() })[1], TargetVerdict::Missed);
        assert_eq!(verdicts(&OverloadResult { closed: 1, ..good() })[1], TargetVerdict::Missed);
        assert_eq!(verdicts(&OverloadResult { memory: 600 << 20, ..good() })[2], TargetVerdict::Missed);
        assert_eq!(verdicts(&OverloadResult { recovery: Duration::from_secs(11), ..good() })[3], TargetVerdict::Missed);
        assert_eq!(verdicts(&OverloadResult { other_caller: (500, 350), ..good() })[4], TargetVerdict::Missed);
        assert!(judge(&[]).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
        let results = judge(&[good(), OverloadResult { clients: 2_000, refused: 0, unexpected: 1, ..good() }]);
        let missed: Vec<_> = results.iter().filter(|one| one.verdict == TargetVerdict::Missed).collect();
        assert_eq!((results.len(), missed.len(), missed[0].name.contains("by 2000 clients")), (10, 1, true));
    }

    /// The p99 is taken over all clients, so that 32 fast clients do not hide 368 slow ones.
    #[test]
    fn p99_covers_every_client() {
        let clients = |times: &[(u64, u64)]| {
            let mut accepted = histogram().unwrap();
            for (micros, count) in times {
                accepted.record_n(*micros, *count).unwrap();
            }
            OverloadTally { sent: 2 * accepted.len(), refused: accepted.len(), unexpected: 0, closed: 0, accepted }
        };
        let fast_clients = clients(&[(40_000, 3_200)]);
        let mixed_clients = clients(&[(40_000, 36_000), (90_000, 800)]);
        let all = OverloadTally::sum([fast_clients, mixed_clients]).unwrap();
        let p99 = all.accepted.value_at_quantile(0.99);
        assert!((89_000..=91_000).contains(&p99), "{p99}");
        assert_eq!((all.sent, all.refused), (80_000, 40_000));
        assert_eq!(verdicts(&OverloadResult { accepted: (1_800.0, p99), ..good() })[0], TargetVerdict::Missed);
    }
}
