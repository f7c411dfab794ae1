//! Benchmark of inclusion proofs in a log of ten million facts, evidence bundles, and their offline verification.
//!
//! SQL stores the facts and their order, as the sequencer would. The server builds the Merkle tree and its tiles.
//! One client measures all times.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::benchmark_run::report_progress;
use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, get, post};
use crate::environment::RunDirectory;
use crate::fixtures::{ENVIRONMENT, Fixtures};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "proofs";
/// Number of stored facts.
const FACTS: u64 = 10_000_000;
/// Number of requests for inclusion proofs, spread over the whole log.
const PROOFS: u64 = 2_000;
/// Number of requests for the evidence bundle of a run, and of verifications of the bundle.
const BUNDLES: u64 = 40;
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Timeout until the Merkle tree covers all facts.
const TIMEOUT: Duration = Duration::from_secs(1_200);

const MAX_PROOF_P99: Duration = Duration::from_millis(20);
const MAX_BUNDLE: Duration = Duration::from_millis(100);
const MAX_VERIFICATION: Duration = Duration::from_millis(300);

/// SQL that appends facts to the largest log. `FACTS` is replaced by their number.
const STORE: &str = include_str!("proofs.sql");

/// The measured times of proofs, evidence bundles and verifications.
pub(crate) struct ProofFigures {
    /// Response times of inclusion proofs in microseconds.
    proofs: Histogram<u64>,
    /// Response times of evidence bundles in microseconds.
    bundles: Histogram<u64>,
    /// Durations of `fairway verify`, including the start of the process, in microseconds.
    verifications: Histogram<u64>,
}

/// Stores the facts, waits for their Merkle tree, and measures. The command line `fairway` must be in the folder
/// of the server's executable.
///
/// # Errors
/// When PostgreSQL refuses, the tree does not cover the facts in time, or a response is unexpected.
pub(crate) async fn measure(
    server: &ChildProcess,
    fixtures: &Fixtures,
    database: &Client,
    (run_directory, executable): (&RunDirectory, &Path),
) -> Result<ProofFigures> {
    let command = executable.with_file_name("fairway");
    ensure!(command.exists(), "there is no command line at {}", command.display());
    report_progress(&format!("storing {FACTS} facts"));
    let store =
        format!("BEGIN; {} COMMIT; VACUUM ANALYZE fact, fact_order", STORE.replace("FACTS", &FACTS.to_string()));
    for statement in store.split(';').filter(|statement| !statement.trim().is_empty()) {
        database.batch_execute(statement).await.context("storing facts")?;
    }
    report_progress("waiting for their tree");
    let uncovered_facts_sql = "SELECT coalesce(max(fact_log.size - coalesce(log_tree.size, 0)), 0)
        FROM fact_log LEFT JOIN log_tree USING (tenant_id)";
    let since = Instant::now();
    while database.query_one(uncovered_facts_sql, &[]).await?.try_get::<_, i64>(0)? > 0 {
        ensure!(since.elapsed() < TIMEOUT, "the tree is behind");
        sleep(POLL_INTERVAL).await;
    }
    report_progress("reading proofs");
    let mut connection = Connection::open(server.address).await?;
    let mut proofs = histogram()?;
    for read in 0..PROOFS {
        // The stride has no common divisor with the number of facts, so the reads are spread over the whole log.
        let number = read * 7_368_787 % FACTS + 1;
        let request = get(&format!("/v1/audit/events/019a0000-0000-7000-8000-{number:012x}/inclusion-proof"));
        let since = Instant::now();
        let proof = connection.json(request).await?;
        record(&mut proofs, since);
        let size = proof.get("tree_size").and_then(Value::as_u64).unwrap_or_default();
        ensure!(size >= FACTS, "a proof is for a tree of {size} facts");
    }
    let (bundles, bundle) = measure_bundles(&mut connection, fixtures).await?;
    let keys = connection.json(get("/v1/audit/keys")).await?;
    let key = keys.pointer("/0/verifier_key").and_then(Value::as_str).context("the server lists no key")?;
    let file = run_directory.join("bundle.json");
    std::fs::write(&file, bundle)?;
    let mut verifications = histogram()?;
    for _ in 0..BUNDLES {
        let since = Instant::now();
        let mut verify = Command::new(&command);
        verify.arg("verify").arg(&file).args(["--key", key]).stdout(Stdio::null());
        ensure!(verify.status()?.success(), "the bundle does not verify");
        record(&mut verifications, since);
    }
    Ok(ProofFigures { proofs, bundles, verifications })
}

/// Executes a run, and reads its evidence bundle as soon as a checkpoint covers the run.
async fn measure_bundles(connection: &mut Connection, fixtures: &Fixtures) -> Result<(Histogram<u64>, Vec<u8>)> {
    let workload = fixtures.workloads.first().context("no workload was created")?;
    let path = format!("/v1/workloads/by-slug/{}/execute", workload.slug);
    let run = connection.json(post(&path, &json!({"environment": ENVIRONMENT, "inputs": {"text": "x"}}))).await?;
    let run = run.get("execution_id").and_then(Value::as_str).context("the run has no id")?;
    let path = format!("/v1/executions/{run}/evidence-bundle");
    let since = Instant::now();
    let bundle = loop {
        let response = connection.send(get(&path)).await?;
        if response.is_success() {
            break response.body.to_vec();
        }
        if response.status != 503 || since.elapsed() > TIMEOUT {
            bail!("the bundle responded with {response}");
        }
        sleep(POLL_INTERVAL).await;
    };
    let mut bundles = histogram()?;
    for _ in 0..BUNDLES {
        let since = Instant::now();
        let response = connection.send(get(&path)).await?;
        record(&mut bundles, since);
        ensure!(response.is_success(), "the bundle responded with {response}");
    }
    Ok((bundles, bundle))
}

fn record(times: &mut Histogram<u64>, since: Instant) {
    times.saturating_record(u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
}

fn quantile(times: &Histogram<u64>, quantile: f64) -> Duration {
    Duration::from_micros(times.value_at_quantile(quantile))
}

impl ProofFigures {
    pub(crate) fn to_json(&self) -> Value {
        let to_json = |times: &Histogram<u64>| {
            json!({
                "p50_us": times.value_at_quantile(0.5), "p99_us": times.value_at_quantile(0.99), "max_us": times.max(),
            })
        };
        json!({
            "facts": FACTS, "proofs": to_json(&self.proofs), "bundles": to_json(&self.bundles),
            "verifications": to_json(&self.verifications),
        })
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(figures: Option<&ProofFigures>) -> Vec<TargetResult> {
    let result = |name: &str, limit: Duration, measured: Option<Duration>| TargetResult {
        name: format!("{NAME}: {name}"),
        target: format!("under {} ms", limit.as_millis()),
        measured: measured.map_or_else(|| "n/a".to_owned(), |time| format!("{:.1} ms", time.as_secs_f64() * 1e3)),
        verdict: measured.map_or(TargetVerdict::NotMeasured, |time| TargetVerdict::of(time < limit)),
    };
    let proof = figures.map(|figures| quantile(&figures.proofs, 0.99));
    vec![
        result("p99 of an inclusion proof in a log of ten million facts", MAX_PROOF_P99, proof),
        result("median of an evidence bundle", MAX_BUNDLE, figures.map(|figures| quantile(&figures.bundles, 0.5))),
        result(
            "median of `fairway verify`",
            MAX_VERIFICATION,
            figures.map(|figures| quantile(&figures.verifications, 0.5)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_each_target() {
        let times = |micros: u64| {
            let mut times = histogram().unwrap();
            times.record(micros).unwrap();
            times
        };
        let figures = |factor: u64| ProofFigures {
            proofs: times(19 * factor),
            bundles: times(95 * factor),
            verifications: times(290 * factor),
        };
        let verdicts =
            |figures: &ProofFigures| judge(Some(figures)).into_iter().map(|one| one.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&figures(1_000)), [TargetVerdict::Met; 3]);
        assert_eq!(verdicts(&figures(1_100)), [TargetVerdict::Missed; 3]);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
    }
}
