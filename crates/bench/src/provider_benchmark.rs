//! Benchmark of runs with an HTTP model provider, compared with the built-in provider and with a third-party gateway.
//!
//! The stub provider responds at once with a constant answer, so the measurement covers only Fairway's own work.
//! HTTP provider, built-in provider and gateway are loaded in turn, in several rounds, so that other load on the
//! machine affects all three. A single client then measures the latency of the first streamed part from the
//! provider to the client.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::benchmark_run::Measurement;
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::{ClientScript, histogram};
use crate::connection::{BenchRequest, Connection, post, with_header};
use crate::fixtures::{Fixtures, Workload};
use crate::scenario::ticket_request;
use crate::stub_provider::{CONSTANT_ANSWER, parse_send_time};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The names by which `--only` selects the runs and the latency of the first part.
pub(crate) const NAME: &str = "execute by openai";
pub(crate) const FIRST_PART_NAME: &str = "first streamed byte";
/// The number of rounds, in each of which every compared provider is loaded.
pub(crate) const ROUNDS: usize = 3;
/// Number of worker processes of the gateway.
pub(crate) const GATEWAY_WORKERS: usize = 2;
/// Number of answers that the single client receives. A pause separates them.
const SAMPLES: u32 = 300;
const WARM_UP: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// The gateway's API key; the gateway does not start without one.
pub(crate) const GATEWAY_KEY: &str = "sk-fairway-bench-of-nobody-else";
/// Marks the first part of an answer in the stream.
const DELTA: &str = "event: output.delta\n";

/// Minimum throughput as a share of the throughput with the built-in provider.
const MIN_SHARE: f64 = 0.7;
/// Minimum throughput as a multiple of the gateway's throughput.
const MIN_GATEWAY_MULTIPLE: f64 = 10.0;
/// Maximum p99 latency of the first streamed part.
const MAX_FIRST_PART_LATENCY: Duration = Duration::from_millis(5);

/// The measured rates and latencies of runs with an HTTP model provider.
pub(crate) struct ProviderBenchmark {
    /// The rounds, if `--only` selects them.
    pub(crate) rounds: Vec<ProviderRates>,
    /// p50 and p99 latency of the first streamed part, in microseconds.
    pub(crate) first_part: Option<(u64, u64)>,
}

/// Requests per second in one round: with the built-in provider, with the HTTP provider, and through the gateway.
pub(crate) struct ProviderRates {
    pub(crate) local: f64,
    pub(crate) openai: f64,
    /// `None` when the gateway is not installed.
    pub(crate) gateway: Option<f64>,
}

/// Scripts of clients that execute a workload.
pub(crate) fn workload_client_scripts(fixtures: &Fixtures, workload: &Workload, clients: usize) -> Vec<ClientScript> {
    let path: Rc<str> = execute_path(workload).into();
    let script = |_| {
        let (path, counter) = (Rc::clone(&path), Rc::clone(&fixtures.counter));
        let next = move || post(&path, &ticket_request(counter.replace(counter.get().wrapping_add(1))));
        ClientScript::new(next, "\"status\":\"completed\"")
    };
    (0..clients).map(script).collect()
}

/// Scripts of clients that send the same model request directly to the gateway.
pub(crate) fn gateway_client_scripts(clients: usize) -> Vec<ClientScript> {
    let body = json!({
        "model": "small", "temperature": 0.2, "max_tokens": 200,
        "messages": [{"role": "user", "content": "I was charged twice for one invoice and want a refund."}],
    });
    let script = |_| {
        let body = body.clone();
        let next =
            move || with_header(post("/v1/chat/completions", &body), "authorization", &format!("Bearer {GATEWAY_KEY}"));
        ClientScript::new(next, "\"content\":\"billing\"")
    };
    (0..clients).map(script).collect()
}

/// The gateway's configuration: one model with a mock answer.
pub(crate) fn gateway_settings() -> String {
    let parameters = json!({"model": "openai/small", "api_key": "none", "mock_response": CONSTANT_ANSWER});
    // JSON is valid YAML.
    json!({
        "model_list": [{"model_name": "small", "litellm_params": parameters}],
        "router_settings": {"num_retries": 0},
        "litellm_settings": {"telemetry": false, "num_retries": 0},
    })
    .to_string()
}

fn execute_path(workload: &Workload) -> String {
    format!("/v1/workloads/by-slug/{}/execute", workload.slug)
}

/// Measures p50 and p99 latency of the first streamed part for a single client, in microseconds.
///
/// # Errors
/// When a run does not complete, or streams no part.
pub(crate) async fn measure_first_part_latency(server: &ChildProcess, workload: &Workload) -> Result<(u64, u64)> {
    let mut connection = Connection::open(server.address).await?;
    let path = execute_path(workload);
    let mut latencies = histogram()?;
    for number in 0..WARM_UP + SAMPLES {
        let micros = first_part_latency(
            &mut connection,
            with_header(post(&path, &ticket_request(number.into())), "accept", "text/event-stream"),
        );
        let micros = micros.await?;
        if number >= WARM_UP {
            latencies.record(micros)?;
        }
        sleep(PAUSE).await;
    }
    Ok((latencies.value_at_quantile(0.5), latencies.value_at_quantile(0.99)))
}

async fn first_part_latency(connection: &mut Connection, request: BenchRequest) -> Result<u64> {
    let (response, received_at) = connection.send_and_time_text(request, DELTA).await?;
    let received_at = received_at.with_context(|| format!("no part was streamed: {response}"))?;
    let text = std::str::from_utf8(&response.body)?;
    anyhow::ensure!(text.contains("event: execution.completed\n"), "a run did not complete: {text}");
    let data = text.split_once(DELTA).and_then(|(_, rest)| rest.lines().find_map(|line| line.strip_prefix("data: ")));
    let data: Value = serde_json::from_str(data.context("a part without data")?)?;
    let part = data.get("delta").and_then(Value::as_str).context("a part without a delta")?;
    Ok(u64::try_from((received_at - parse_send_time(part)?).whole_microseconds().max(1))?)
}

impl ProviderRates {
    /// Creates the rates of a round from its measurements.
    pub(crate) fn new(local: &Measurement, openai: &Measurement, gateway: Option<&Measurement>) -> ProviderRates {
        ProviderRates { local: local.rate(), openai: openai.rate(), gateway: gateway.map(Measurement::rate) }
    }

    fn share(&self) -> f64 {
        self.openai / self.local.max(f64::MIN_POSITIVE)
    }

    fn gateway_multiple(&self) -> Option<f64> {
        self.gateway.map(|gateway| self.openai / gateway.max(f64::MIN_POSITIVE))
    }
}

/// The median; `None` without values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl ProviderBenchmark {
    fn median(&self, value: impl Fn(&ProviderRates) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(value))
    }

    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let rate = |value: Option<f64>| value.map_or_else(|| "n/a".to_owned(), |rate| format!("{rate:.0}"));
        if !self.rounds.is_empty() {
            rows.push((
                "execute by the built-in provider: runs per second",
                rate(self.median(|rates| Some(rates.local))),
            ));
            rows.push(("execute by openai: runs per second", rate(self.median(|rates| Some(rates.openai)))));
            let gateway = self.median(|rates| rates.gateway).map(|rate| format!("{rate:.0}"));
            let gateway = gateway.unwrap_or_else(|| "not installed, so not measured".to_owned());
            rows.push(("LiteLLM gateway (two workers, mock answers): responses per second", gateway));
        }
        if let Some((median, _)) = self.first_part {
            rows.push(("first streamed byte: p50 from the provider to the client", millis(median)));
        }
        rows
    }

    pub(crate) fn to_json(&self) -> Value {
        let rounds = self.rounds.iter().map(|rates| {
            json!({
                "local_per_second": rates.local, "openai_per_second": rates.openai, "gateway_per_second": rates.gateway,
            })
        });
        json!({
            "rounds": rounds.collect::<Vec<_>>(), "share": self.median(|rates| Some(rates.share())),
            "times_the_gateway": self.median(ProviderRates::gateway_multiple),
            "first_part_p50_us": self.first_part.map(|part| part.0), "first_part_p99_us": self.first_part.map(|part| part.1),
        })
    }
}

fn millis(micros: u64) -> String {
    format!("{:.1} ms", Duration::from_micros(micros).as_secs_f64() * 1e3)
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: Option<&ProviderBenchmark>) -> Vec<TargetResult> {
    let result = |name: String, target: String, measured: Option<String>, met: Option<bool>| TargetResult {
        name,
        target,
        measured: measured.unwrap_or_else(|| "n/a".to_owned()),
        verdict: met.map_or(TargetVerdict::NotMeasured, TargetVerdict::of),
    };
    let share = measured.and_then(|measured| measured.median(|rates| Some(rates.share())));
    let times = measured.and_then(|measured| measured.median(ProviderRates::gateway_multiple));
    let first_part = measured.and_then(|measured| measured.first_part);
    vec![
        result(
            format!("{NAME}: share of the same runs by the built-in provider"),
            format!("at least {MIN_SHARE}"),
            share.map(|share| format!("{share:.2}")),
            share.map(|share| share >= MIN_SHARE),
        ),
        result(
            format!("{NAME}: times the gateway with two workers"),
            format!("at least {MIN_GATEWAY_MULTIPLE}"),
            times.map(|times| format!("{times:.1}")),
            times.map(|times| times >= MIN_GATEWAY_MULTIPLE),
        ),
        result(
            format!("{FIRST_PART_NAME}: p99 from the provider to the client, including persistence"),
            format!("under {} ms", MAX_FIRST_PART_LATENCY.as_millis()),
            first_part.map(|(_, p99)| millis(p99)),
            first_part.map(|(_, p99)| Duration::from_micros(p99) < MAX_FIRST_PART_LATENCY),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_each_target_and_skips_a_missing_gateway() {
        let benchmark = |openai: f64, gateway: Option<f64>, p99: u64| ProviderBenchmark {
            rounds: vec![ProviderRates { local: 1_000.0, openai, gateway }],
            first_part: Some((2_000, p99)),
        };
        let verdicts =
            |measured: &ProviderBenchmark| judge(Some(measured)).into_iter().map(|one| one.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&benchmark(700.0, Some(70.0), 4_999)), [TargetVerdict::Met; 3]);
        assert_eq!(
            verdicts(&benchmark(699.0, Some(69.0), 5_000)),
            [TargetVerdict::Missed, TargetVerdict::Met, TargetVerdict::Missed]
        );
        assert_eq!(verdicts(&benchmark(700.0, Some(71.0), 4_999))[1], TargetVerdict::Missed);
        assert_eq!(verdicts(&benchmark(700.0, None, 4_999))[1], TargetVerdict::NotMeasured);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
        assert!(
            benchmark(700.0, None, 1).table_rows().iter().any(|(_, value)| value == "not installed, so not measured")
        );
    }

    #[test]
    fn median_selects_the_middle_value() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([].into_iter()), None);
    }
}
