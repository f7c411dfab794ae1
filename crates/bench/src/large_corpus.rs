//! Benchmark of document retrieval from a million chunks, with runs whose flow only retrieves documents.
//!
//! `million.sql` stores the chunks with known word frequencies. A single client searches for rare, medium and
//! frequent words and combinations of them, in a fixed mix. The measured time is that of the whole run.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::child_process::ChildProcess;
use crate::closed_loop_clients::histogram;
use crate::connection::{Connection, get, post};
use crate::fixtures::{ENVIRONMENT, Fixtures, WORKSPACE, Workload};
use crate::thresholds::{TargetResult, TargetVerdict};

/// The name by which `--only` selects this benchmark.
pub(crate) const NAME: &str = "search a million pieces";
/// Number of chunks for which the target holds.
pub(crate) const CHUNKS: u64 = 1_000_000;
/// Number of timed runs for each kind of query. A smaller number of warm-up runs precedes them.
const RUNS: u64 = 60;
const WARM_UP: u64 = 10;
/// Number of chunks that a query requests.
const TOP: usize = 5;
/// Maximum p95 of a run.
const MAX_P95: Duration = Duration::from_millis(50);

/// A kind of query, by the frequency of its words in the corpus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueryKind {
    /// A word that occurs in ten chunks.
    Rare,
    /// A word that occurs in 1 % of all chunks.
    Medium,
    /// A word that occurs in 10 % of all chunks.
    Frequent,
    /// A rare word and the frequent one.
    RareAndFrequent,
    /// A medium word and the frequent one.
    MediumAndFrequent,
    /// A question of eight words, some of which occur in nearly every chunk.
    Question,
}

impl QueryKind {
    const ALL: [QueryKind; 6] = [
        QueryKind::Rare,
        QueryKind::Medium,
        QueryKind::Frequent,
        QueryKind::RareAndFrequent,
        QueryKind::MediumAndFrequent,
        QueryKind::Question,
    ];

    fn name(self) -> &'static str {
        match self {
            QueryKind::Rare => "a rare word",
            QueryKind::Medium => "a medium word",
            QueryKind::Frequent => "a frequent word",
            QueryKind::RareAndFrequent => "a rare and a frequent word",
            QueryKind::MediumAndFrequent => "a medium and a frequent word",
            QueryKind::Question => "a question",
        }
    }

    /// The query text for the run with this number. `rare` is the number of distinct rare words in the corpus.
    fn query_text(self, number: u64, rare: u64) -> String {
        let (rare, medium) = (number * 7_919 % rare.max(1), number % 100);
        match self {
            QueryKind::Rare => format!("rarely{rare}"),
            QueryKind::Medium => format!("sometimes{medium}"),
            QueryKind::Frequent => "often".to_owned(),
            QueryKind::RareAndFrequent => format!("rarely{rare} often"),
            QueryKind::MediumAndFrequent => format!("sometimes{medium} often"),
            QueryKind::Question => {
                format!(
                    "word0 word{} sometimes{medium} word{} word2 often word{} word1?",
                    number % 40,
                    40 + number % 900,
                    900 + number % 7_000
                )
            }
        }
    }

    /// Whether a search in the large corpus is capped, because more chunks match than retrieval ranks.
    fn is_capped(self) -> bool {
        match self {
            QueryKind::Rare => false,
            QueryKind::Medium
            | QueryKind::Frequent
            | QueryKind::RareAndFrequent
            | QueryKind::MediumAndFrequent
            | QueryKind::Question => true,
        }
    }
}

/// Latencies of retrieval from the large corpus.
pub(crate) struct RetrievalLatency {
    pub(crate) chunks: u64,
    /// Run times in microseconds by kind of query.
    pub(crate) latencies: Vec<(QueryKind, Histogram<u64>)>,
    /// The number of query kinds whose evidence correctly reports whether the search was capped.
    pub(crate) correct_evidence: usize,
}

/// Creates a knowledge base with this number of chunks, and a workload that searches it.
///
/// # Errors
/// When the server or PostgreSQL refuses.
pub(crate) async fn store_corpus(
    server: &ChildProcess,
    fixtures: &Fixtures,
    database: &Client,
    chunks: u64,
) -> Result<Workload> {
    let base = json!({"source_type": "inline", "access_contract": {
        "contract_id": "bench", "version": "1", "default_decision": "deny", "allowed_principals": ["user:local"],
        "allowed_workspaces": [WORKSPACE], "allowed_access_modes": ["retrieve"],
    }});
    let document = json!({"document_id": "first", "text": "unmistakable"});
    let (workload, asset) =
        fixtures.create_retrieval_workload(server.address, "bench-million", base, &document).await?;
    // The index stores words with an internal prefix, which is read from the first chunk.
    let sql = format!(
        "SELECT split_part((tsvector_to_array(words))[1], '/', 1) FROM knowledge_chunk WHERE asset_id = '{asset}'"
    );
    let prefix: String = database.query_one(&sql, &[]).await.context("reading the first chunk")?.try_get(0)?;
    let set = format!(
        "SET maintenance_work_mem = '1GB'; SET fairway_fill.base = '{asset}'; SET fairway_fill.prefix = '{prefix}';
         SET fairway_fill.pieces = '{chunks}'"
    );
    database.batch_execute(&set).await?;
    database.batch_execute(include_str!("million.sql")).await.context("storing the chunks")?;
    database.batch_execute("RESET maintenance_work_mem; DISCARD TEMP").await?;
    database.batch_execute("VACUUM ANALYZE").await.context("updating statistics")?;
    Ok(workload)
}

/// Runs the queries with a single client.
///
/// # Errors
/// When a run does not complete, or returns too few chunks.
pub(crate) async fn measure(server: &ChildProcess, workload: &Workload, chunks: u64) -> Result<RetrievalLatency> {
    let mut connection = Connection::open(server.address).await?;
    let path = format!("/v1/workloads/by-slug/{}/execute", workload.slug);
    let mut latencies: Vec<(QueryKind, Histogram<u64>)> = Vec::new();
    for kind in QueryKind::ALL {
        latencies.push((kind, histogram()?));
    }
    let mut last_runs: Vec<(QueryKind, String)> = Vec::new();
    for number in 0..WARM_UP + RUNS {
        last_runs.clear();
        for (kind, times) in &mut latencies {
            let words = kind.query_text(number, chunks / 10);
            let request = post(&path, &json!({"environment": ENVIRONMENT, "inputs": {"text": words}}));
            let since = Instant::now();
            let response = connection.json(request).await?;
            let elapsed = since.elapsed();
            let found = response.pointer("/output/found").and_then(Value::as_array).map_or(0, Vec::len);
            anyhow::ensure!(found == TOP, "`{words}` returned {found} chunks: {response}");
            if number >= WARM_UP {
                times.saturating_record(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
            }
            let run = response.get("execution_id").and_then(Value::as_str).context("the run has no id")?;
            last_runs.push((*kind, run.to_owned()));
        }
    }
    let mut correct_evidence = 0;
    for (kind, run) in last_runs {
        correct_evidence += usize::from(is_reported_capped(&mut connection, &run).await? == kind.is_capped());
    }
    Ok(RetrievalLatency { chunks, latencies, correct_evidence })
}

/// Whether the evidence of a run reports a capped search.
async fn is_reported_capped(connection: &mut Connection, run: &str) -> Result<bool> {
    let graph = connection.json(get(&format!("/v1/executions/{run}/evidence-graph"))).await?;
    let artifacts =
        graph.get("evidence_artifacts").and_then(Value::as_array).context("the evidence has no artifacts")?;
    let event = artifacts
        .iter()
        .find(|artifact| artifact.get("artifact_kind").and_then(Value::as_str) == Some("retrieval_event"));
    let event = event.and_then(|artifact| artifact.get("artifact_id")).and_then(Value::as_str);
    let path = format!("/v1/executions/{run}/evidence-artifacts/{}", event.context("the run has no retrieval event")?);
    let event = connection.json(get(&path)).await?;
    event
        .pointer("/content/candidates_capped")
        .and_then(Value::as_bool)
        .context("the retrieval event does not report capping")
}

impl RetrievalLatency {
    fn all(&self) -> Option<Histogram<u64>> {
        let mut all = histogram().ok()?;
        for (_, times) in &self.latencies {
            all.add(times).ok()?;
        }
        (!all.is_empty()).then_some(all)
    }

    fn p95(&self) -> Option<Duration> {
        self.all().map(|all| Duration::from_micros(all.value_at_quantile(0.95)))
    }

    /// The rows of this benchmark in the report.
    pub(crate) fn table_rows(&self) -> Vec<(String, String)> {
        let p50_and_p95 = |times: &Histogram<u64>| {
            let millis = |quantile| Duration::from_micros(times.value_at_quantile(quantile)).as_secs_f64() * 1e3;
            format!("{:.1}, {:.1} ms", millis(0.5), millis(0.95))
        };
        let latencies = self.latencies.iter().map(|(kind, times)| (*kind, p50_and_p95(times)));
        latencies
            .map(|(kind, times)| (format!("search {} chunks for {}: p50, p95", self.chunks, kind.name()), times))
            .collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let latencies = self.latencies.iter().map(|(kind, times)| {
            json!({
                "looked_for": kind.name(), "runs": times.len(), "p50_us": times.value_at_quantile(0.5),
                "p95_us": times.value_at_quantile(0.95), "p99_us": times.value_at_quantile(0.99), "max_us": times.max(),
            })
        });
        json!({
            "pieces": self.chunks, "looks": latencies.collect::<Vec<_>>(),
            "p95_us": self.all().map(|all| all.value_at_quantile(0.95)), "evidence_says_it_of_kinds": self.correct_evidence,
        })
    }
}

/// Evaluates the targets. Without a measurement they count as not measured.
pub(crate) fn judge(measured: Option<&RetrievalLatency>) -> Vec<TargetResult> {
    let measured = measured.filter(|measured| measured.chunks >= CHUNKS);
    let p95 = measured.and_then(RetrievalLatency::p95);
    vec![
        TargetResult {
            name: format!("{NAME}: p95 of a run that looks up the best {TOP}"),
            target: format!("under {} ms", MAX_P95.as_millis()),
            measured: p95.map_or_else(|| "n/a".to_owned(), |p95| format!("{:.1} ms", p95.as_secs_f64() * 1e3)),
            verdict: p95.map_or(TargetVerdict::NotMeasured, |p95| TargetVerdict::of(p95 < MAX_P95)),
        },
        TargetResult {
            name: format!("{NAME}: evidence says whether candidates were capped"),
            target: "always".to_owned(),
            measured: measured.map_or_else(
                || "n/a".to_owned(),
                |measured| {
                    format!("for {} of {} kinds of question", measured.correct_evidence, measured.latencies.len())
                },
            ),
            verdict: measured.map_or(TargetVerdict::NotMeasured, |measured| {
                TargetVerdict::of(measured.correct_evidence == measured.latencies.len())
            }),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retrieval_latency(chunks: u64, micros: u64, correct_evidence: usize) -> RetrievalLatency {
        let latencies = QueryKind::ALL.into_iter().map(|kind| {
            let mut times = histogram().unwrap();
            times.record_n(micros, 100).unwrap();
            (kind, times)
        });
        RetrievalLatency { chunks, latencies: latencies.collect(), correct_evidence }
    }

    #[test]
    fn judges_each_target_and_skips_small_corpora() {
        let verdicts = |retrieval_latency: &RetrievalLatency| {
            judge(Some(retrieval_latency)).into_iter().map(|one| one.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&retrieval_latency(CHUNKS, 49_000, 6)), [TargetVerdict::Met; 2]);
        assert_eq!(verdicts(&retrieval_latency(CHUNKS, 51_000, 5)), [TargetVerdict::Missed; 2]);
        assert_eq!(verdicts(&retrieval_latency(CHUNKS - 1, 1_000, 6)), [TargetVerdict::NotMeasured; 2]);
        assert!(judge(None).iter().all(|one| one.verdict == TargetVerdict::NotMeasured));
        assert_eq!(retrieval_latency(CHUNKS, 49_000, 6).table_rows().len(), QueryKind::ALL.len());
    }

    #[test]
    fn query_mix_is_fixed() {
        assert_eq!(QueryKind::RareAndFrequent.query_text(3, 100_000), "rarely23757 often");
        assert_eq!(QueryKind::MediumAndFrequent.query_text(103, 100_000), "sometimes3 often");
        assert_eq!(QueryKind::ALL.iter().filter(|kind| !kind.is_capped()).count(), 1);
    }
}
