//! Closed-loop clients: each sends its next request after the response to the previous one.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use crate::connection::{BenchRequest, BenchResponse, Connection, with_header};
use crate::cost_meter::{CostMeter, Reading};

/// Maximum recorded latency in microseconds.
const MAX_LATENCY_MICROS: u64 = 60_000_000;

/// The requests of one client, and the expected content of responses.
pub(crate) struct ClientScript {
    pub(crate) next: Box<dyn FnMut() -> BenchRequest>,
    /// A text that the body of every successful response contains. The status is not sufficient, because a failed
    /// run also has status 200.
    expected_text: &'static str,
    /// Called with each response, if the next request depends on the response.
    on_response: Option<ResponseReceiver>,
}

type ResponseReceiver = Box<dyn FnMut(&BenchResponse)>;

impl ClientScript {
    pub(crate) fn new(next: impl FnMut() -> BenchRequest + 'static, expected_text: &'static str) -> ClientScript {
        ClientScript { next: Box::new(next), expected_text, on_response: None }
    }

    /// Adds a header to every request.
    pub(crate) fn with_header(self, name: &'static str, value: &str) -> ClientScript {
        let (mut next, value) = (self.next, value.to_owned());
        ClientScript { next: Box::new(move || with_header(next(), name, &value)), ..self }
    }

    pub(crate) fn on_response(self, receive: impl FnMut(&BenchResponse) + 'static) -> ClientScript {
        ClientScript { on_response: Some(Box::new(receive)), ..self }
    }
}

/// Duration of the warm-up and of the measurement.
#[derive(Clone, Copy)]
pub(crate) struct LoadDuration {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The results of all clients in the measured time.
pub(crate) struct LoadResult {
    /// Responses within the measured time.
    pub(crate) requests: u64,
    /// All responses, including those of the warm-up and those after the measured time.
    pub(crate) total: u64,
    /// The measured time.
    pub(crate) elapsed: Duration,
    /// Microseconds from sending to the last byte of the response.
    pub(crate) latency: Histogram<u64>,
    /// Cost counters at the start and at the end of the measured time.
    pub(crate) readings: (Reading, Reading),
}

#[derive(Clone, Copy, PartialEq)]
enum LoadPhase {
    WarmUp,
    Measured,
    Over,
}

#[derive(Default)]
struct Failures {
    count: u64,
    first: Option<String>,
}

struct ClientTally {
    total: u64,
    latency: Histogram<u64>,
}

/// Loads the server at `target` with one client for each script. `program` is the server's process.
///
/// # Errors
/// When a response is not 2xx or lacks the expected content, or a connection fails.
pub(crate) async fn run(
    target: SocketAddr,
    scripts: Vec<ClientScript>,
    span: LoadDuration,
    meter: &CostMeter,
    program: u32,
) -> Result<LoadResult> {
    let phase = Rc::new(Cell::new(LoadPhase::WarmUp));
    let failures = Rc::new(RefCell::new(Failures::default()));
    let mut clients: Vec<JoinHandle<Result<ClientTally>>> = Vec::new();
    for script in scripts {
        let connection = Connection::open(target).await.context("connecting a client")?;
        clients.push(spawn_local(client(connection, script, Rc::clone(&phase), Rc::clone(&failures))));
    }
    sleep(span.warm_up).await;
    let before = meter.read(program).await?;
    phase.set(LoadPhase::Measured);
    let since = Instant::now();
    sleep(span.measured).await;
    phase.set(LoadPhase::Over);
    let elapsed = since.elapsed();
    let after = meter.read(program).await?;

    let mut sum = ClientTally { total: 0, latency: histogram()? };
    for client in clients {
        let tally = client.await??;
        sum.total = sum.total.saturating_add(tally.total);
        sum.latency.add(&tally.latency)?;
    }
    let failures = failures.take();
    if let Some(first) = failures.first {
        bail!("{} of {} requests failed; the first response: {first}", failures.count, sum.total);
    }
    if sum.latency.is_empty() {
        bail!("no response within {} s", elapsed.as_secs_f64());
    }
    Ok(LoadResult {
        requests: sum.latency.len(),
        total: sum.total,
        elapsed,
        latency: sum.latency,
        readings: (before, after),
    })
}

async fn client(
    mut connection: Connection,
    mut script: ClientScript,
    phase: Rc<Cell<LoadPhase>>,
    failures: Rc<RefCell<Failures>>,
) -> Result<ClientTally> {
    let mut tally = ClientTally { total: 0, latency: histogram()? };
    while phase.get() != LoadPhase::Over {
        let request = (script.next)();
        let since = Instant::now();
        let response = connection.send(request).await?;
        let elapsed = since.elapsed();
        tally.total = tally.total.saturating_add(1);
        if let Some(receive) = &mut script.on_response {
            receive(&response);
        }
        if !is_expected_response(&response, script.expected_text) {
            let mut failures = failures.borrow_mut();
            failures.count = failures.count.saturating_add(1);
            failures.first.get_or_insert_with(|| response.to_string());
        }
        if phase.get() == LoadPhase::Measured {
            tally.latency.saturating_record(u64::try_from(elapsed.as_micros()).unwrap_or(MAX_LATENCY_MICROS));
        }
    }
    Ok(tally)
}

fn is_expected_response(response: &BenchResponse, expected_text: &str) -> bool {
    let expected_bytes = expected_text.as_bytes();
    response.is_success()
        && (expected_bytes.is_empty()
            || response.body.windows(expected_bytes.len()).any(|window| window == expected_bytes))
}

/// A histogram with three significant digits.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_LATENCY_MICROS, 3)?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates a result for unit tests: this many requests of 2 ms each within one second.
    pub(crate) fn load_result(requests: u64) -> LoadResult {
        let mut latency = histogram().unwrap();
        latency.saturating_record_n(2_000, requests);
        let readings = (Reading::zero(), Reading::zero());
        LoadResult { requests, total: requests, elapsed: Duration::from_secs(1), latency, readings }
    }

    #[test]
    fn good_responses_are_2xx_with_the_expected_content() {
        let response = |status, body: &'static str| BenchResponse {
            status,
            body: body.into(),
            link: None,
            has_retry_after: false,
        };
        assert!(is_expected_response(&response(200, r#"{"status":"completed"}"#), r#""status":"completed""#));
        assert!(is_expected_response(&response(201, ""), ""));
        assert!(!is_expected_response(&response(200, r#"{"status":"failed"}"#), r#""status":"completed""#));
        assert!(!is_expected_response(&response(409, "completed"), "completed"));
        assert!(!is_expected_response(&response(200, ""), "completed"));
    }

    #[test]
    fn merged_histogram_covers_all_clients() {
        let (mut merged, mut slow_client) = (histogram().unwrap(), histogram().unwrap());
        (1..=90).for_each(|_| merged.saturating_record(1_000));
        (1..=10).for_each(|_| slow_client.saturating_record(50_000));
        merged.add(&slow_client).unwrap();
        assert_eq!(merged.len(), 100);
        assert_eq!(merged.value_at_quantile(0.5) / 1_000, 1);
        assert!((50_000..50_100).contains(&merged.value_at_quantile(0.95)));
        merged.saturating_record(u64::MAX);
        assert!(merged.max() >= MAX_LATENCY_MICROS);
    }
}
