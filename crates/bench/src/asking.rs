//! Benchmark of runs with an HTTP model provider, against the built-in provider and against a third-party gateway.
//!
//! The stub provider responds at once with a constant answer, so the measurement covers only Fairway's own work. The
//! three are loaded in turn, in several rounds, so that other load on the machine affects all of them. A single
//! client then measures the latency of the first streamed part from the provider to the client.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bar::{Judged, Verdict};
use crate::child::Running;
use crate::connection::{Connection, Ready, post, with_header};
use crate::furniture::{Fixtures, Workload};
use crate::load::{Script, histogram};
use crate::provider::{SAID, said_at};
use crate::row::ticket;
use crate::run::Measurement;

/// Names for `--only`: the runs, and the first part of an answer.
pub(crate) const NAME: &str = "execute by openai";
pub(crate) const FIRST_PART_NAME: &str = "first streamed byte";
/// The number of rounds.
pub(crate) const ROUNDS: usize = 3;
/// Worker processes of the gateway.
pub(crate) const GATEWAY_WORKERS: usize = 2;
/// Answers that the single client receives, with this pause between them.
const SAMPLES: u32 = 300;
const WARM_UP: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);
/// The gateway's API key; the gateway does not start without one.
pub(crate) const GATEWAY_KEY: &str = "sk-fairway-bench-of-nobody-else";
/// Marks the first part of an answer in the stream.
const DELTA: &str = "event: output.delta\n";

/// Minimum throughput as a share of the built-in provider's.
const MIN_SHARE: f64 = 0.7;
/// Minimum throughput as a multiple of the gateway's.
const MIN_GATEWAY_MULTIPLE: f64 = 10.0;
/// Maximum p99 latency of a first part.
const MAX_FIRST_PART_LATENCY: Duration = Duration::from_millis(5);

/// The result.
pub(crate) struct Asking {
    /// The rounds, if `--only` selects them.
    pub(crate) rounds: Vec<ProviderRates>,
    /// p50 and p99 latency of a first part, in microseconds.
    pub(crate) first_part: Option<(u64, u64)>,
}

/// Requests per second of each, in one round.
pub(crate) struct ProviderRates {
    pub(crate) local: f64,
    pub(crate) openai: f64,
    /// `None` when the gateway is not installed.
    pub(crate) gateway: Option<f64>,
}

/// Clients that run a workload.
pub(crate) fn running(furniture: &Fixtures, workload: &Workload, clients: usize) -> Vec<Script> {
    let path: Rc<str> = execute_path(workload).into();
    let script = |_| {
        let (path, counter) = (Rc::clone(&path), Rc::clone(&furniture.counter));
        let next = move || post(&path, &ticket(counter.replace(counter.get().wrapping_add(1))));
        Script { next: Box::new(next), expects: "\"status\":\"completed\"" }
    };
    (0..clients).map(script).collect()
}

/// Clients that send the same question to the gateway.
pub(crate) fn gateway_scripts(clients: usize) -> Vec<Script> {
    let body = json!({
        "model": "small", "temperature": 0.2, "max_tokens": 200,
        "messages": [{"role": "user", "content": "I was charged twice for one invoice and want a refund."}],
    });
    let script = |_| {
        let body = body.clone();
        let next =
            move || with_header(post("/v1/chat/completions", &body), "authorization", &format!("Bearer {GATEWAY_KEY}"));
        Script { next: Box::new(next), expects: "\"content\":\"billing\"" }
    };
    (0..clients).map(script).collect()
}

/// The gateway's configuration: one model with a mock answer.
pub(crate) fn gateway_settings() -> String {
    let parameters = json!({"model": "openai/small", "api_key": "none", "mock_response": SAID});
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

/// p50 and p99 latency of a first part for a single client, in microseconds.
///
/// # Errors
/// When a run does not complete, or streams no part.
pub(crate) async fn measure_first_parts(server: &Running, workload: &Workload) -> Result<(u64, u64)> {
    let mut connection = Connection::open(server.address).await?;
    let path = execute_path(workload);
    let mut on_the_way = histogram()?;
    for number in 0..WARM_UP + SAMPLES {
        let micros = first_part(
            &mut connection,
            with_header(post(&path, &ticket(number.into())), "accept", "text/event-stream"),
        );
        let micros = micros.await?;
        if number >= WARM_UP {
            on_the_way.record(micros)?;
        }
        sleep(PAUSE).await;
    }
    Ok((on_the_way.value_at_quantile(0.5), on_the_way.value_at_quantile(0.99)))
}

async fn first_part(connection: &mut Connection, question: Ready) -> Result<u64> {
    let (answer, arrived) = connection.send_until_seen(question, DELTA).await?;
    let arrived = arrived.with_context(|| format!("no part was streamed: {answer}"))?;
    let text = std::str::from_utf8(&answer.body)?;
    anyhow::ensure!(text.contains("event: execution.completed\n"), "a run did not complete: {text}");
    let data = text.split_once(DELTA).and_then(|(_, rest)| rest.lines().find_map(|line| line.strip_prefix("data: ")));
    let data: Value = serde_json::from_str(data.context("a part without data")?)?;
    let part = data.get("delta").and_then(Value::as_str).context("a part without a delta")?;
    Ok(u64::try_from((arrived - said_at(part)?).whole_microseconds().max(1))?)
}

impl ProviderRates {
    /// Creates a round from a measurement of each.
    pub(crate) fn of(local: &Measurement, openai: &Measurement, gateway: Option<&Measurement>) -> ProviderRates {
        ProviderRates { local: local.rate(), openai: openai.rate(), gateway: gateway.map(Measurement::rate) }
    }

    fn share(&self) -> f64 {
        self.openai / self.local.max(f64::MIN_POSITIVE)
    }

    fn times(&self) -> Option<f64> {
        self.gateway.map(|gateway| self.openai / gateway.max(f64::MIN_POSITIVE))
    }
}

/// The median.
fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

impl Asking {
    fn middle(&self, of: impl Fn(&ProviderRates) -> Option<f64>) -> Option<f64> {
        middle(self.rounds.iter().filter_map(of))
    }

    /// The results for the report.
    pub(crate) fn told(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let rate = |value: Option<f64>| value.map_or_else(|| "n/a".to_owned(), |rate| format!("{rate:.0}"));
        if !self.rounds.is_empty() {
            rows.push(("execute by the built-in provider: runs per second", rate(self.middle(|one| Some(one.local)))));
            rows.push(("execute by openai: runs per second", rate(self.middle(|one| Some(one.openai)))));
            let gateway = self.middle(|one| one.gateway).map(|rate| format!("{rate:.0}"));
            let gateway = gateway.unwrap_or_else(|| "not installed, so not measured".to_owned());
            rows.push(("LiteLLM gateway (two workers, mock answers): responses per second", gateway));
        }
        if let Some((middle, _)) = self.first_part {
            rows.push(("first streamed byte: p50 from the provider to the client", millis(middle)));
        }
        rows
    }

    /// The results as JSON.
    pub(crate) fn value(&self) -> Value {
        let rounds = self.rounds.iter().map(|one| {
            json!({"local_per_second": one.local, "openai_per_second": one.openai, "gateway_per_second": one.gateway})
        });
        json!({
            "rounds": rounds.collect::<Vec<_>>(), "share": self.middle(|one| Some(one.share())),
            "times_the_gateway": self.middle(ProviderRates::times),
            "first_part_p50_us": self.first_part.map(|part| part.0), "first_part_p99_us": self.first_part.map(|part| part.1),
        })
    }
}

fn millis(micros: u64) -> String {
    format!("{:.1} ms", Duration::from_micros(micros).as_secs_f64() * 1e3)
}

/// The targets, measured or not.
pub(crate) fn judge(seen: Option<&Asking>) -> Vec<Judged> {
    let judged = |what: String, bar: String, measured: Option<String>, met: Option<bool>| Judged {
        what,
        bar,
        measured: measured.unwrap_or_else(|| "n/a".to_owned()),
        verdict: met.map_or(Verdict::NotMeasured, Verdict::of),
    };
    let share = seen.and_then(|seen| seen.middle(|one| Some(one.share())));
    let times = seen.and_then(|seen| seen.middle(ProviderRates::times));
    let first_part = seen.and_then(|seen| seen.first_part);
    vec![
        judged(
            format!("{NAME}: share of the same runs by the built-in provider"),
            format!("at least {MIN_SHARE}"),
            share.map(|share| format!("{share:.2}")),
            share.map(|share| share >= MIN_SHARE),
        ),
        judged(
            format!("{NAME}: times the gateway with two workers"),
            format!("at least {MIN_GATEWAY_MULTIPLE}"),
            times.map(|times| format!("{times:.1}")),
            times.map(|times| times >= MIN_GATEWAY_MULTIPLE),
        ),
        judged(
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
        let seen = |openai: f64, gateway: Option<f64>, p99: u64| Asking {
            rounds: vec![ProviderRates { local: 1_000.0, openai, gateway }],
            first_part: Some((2_000, p99)),
        };
        let verdicts = |seen: &Asking| judge(Some(seen)).into_iter().map(|one| one.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&seen(700.0, Some(70.0), 4_999)), [Verdict::Met; 3]);
        assert_eq!(verdicts(&seen(699.0, Some(69.0), 5_000)), [Verdict::Missed, Verdict::Met, Verdict::Missed]);
        assert_eq!(verdicts(&seen(700.0, Some(71.0), 4_999))[1], Verdict::Missed);
        assert_eq!(verdicts(&seen(700.0, None, 4_999))[1], Verdict::NotMeasured);
        assert!(judge(None).iter().all(|one| one.verdict == Verdict::NotMeasured));
        assert!(seen(700.0, None, 1).told().iter().any(|(_, value)| value == "not installed, so not measured"));
    }

    #[test]
    fn median_selects_the_middle_value() {
        assert_eq!(middle([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(middle([].into_iter()), None);
    }
}
