//! Submitting a run while responses are lost: the client retries with one idempotency key until the server responds
//! or the wait time ends.

use crate::Terminal;
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::json;
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

const RUN: &str = "019a0000-0000-7000-8000-000000000001";

/// An endpoint with scripted responses, the last of which repeats, and a terminal that is connected to it.
async fn scripted_server(scripts: Vec<ScriptedResponse>) -> (ScriptedEndpoint, Terminal) {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_in_sequence(scripts);
    let terminal = Terminal { server: Some(endpoint.url("")), ..Terminal::offline() };
    (endpoint, terminal)
}

/// The number of submissions, and their distinct idempotency keys.
fn submission_keys(endpoint: &ScriptedEndpoint) -> (usize, BTreeSet<String>) {
    let posted: Vec<_> = endpoint.requests().into_iter().filter(|request| request.method == "POST").collect();
    (posted.len(), posted.iter().map(|request| request.header("idempotency-key").unwrap().to_owned()).collect())
}

fn reports_key(err: &str, keys: &BTreeSet<String>) -> bool {
    keys.len() == 1 && keys.iter().all(|key| err.contains(&format!("`--idempotency-key {key}`")))
}

fn unavailable() -> ScriptedResponse {
    let body = json!({ "detail": { "error": "unavailable", "message": "Come back." }, "request_id": "r" });
    ScriptedResponse::status(503, &body.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_retries_submission_until_the_server_responds() {
    let busy = json!({ "detail": { "error": "rate_limited", "message": "Later." }, "request_id": "r" });
    let accepted =
        ScriptedResponse::events([""; 0]).header("Content-Location", &format!("/v1/executions/{RUN}/events"));
    let ended = ScriptedResponse::json(
        &json!({ "execution_id": RUN, "status": "completed", "queued_result": { "result": "done" } }),
    );
    let failures = vec![
        ScriptedResponse::reset(),
        ScriptedResponse::reset(),
        ScriptedResponse::reset(),
        ScriptedResponse::status(502, "<html>"),
        unavailable(),
    ];
    let scripts = [failures, vec![ScriptedResponse::status(429, &busy.to_string()), accepted, ended]].concat();
    let (endpoint, terminal) = scripted_server(scripts).await;
    let output = terminal.run(&["run", "w", "--env", "dev", "--wait", "60s"]);
    assert_eq!((output.code, output.out.as_str()), (0, "done\n"), "{}", output.err);
    let (submission_count, keys) = submission_keys(&endpoint);
    assert_eq!((submission_count, keys.len()), (7, 1), "{keys:?}");
    assert_eq!(output.err.matches("retrying with the same idempotency key").count(), 1, "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_idempotency_key_after_a_lost_response() {
    for (args, scripts, code, max_submissions) in [
        (vec!["--wait", "1s"], vec![ScriptedResponse::reset()], 3, usize::MAX),
        (vec!["--wait", "1s"], vec![unavailable()], 3, usize::MAX),
        // Without `--wait`, the client retries once.
        (vec![], vec![ScriptedResponse::reset()], 3, 2),
        (vec!["--no-wait"], vec![ScriptedResponse::reset()], 3, 2),
        // A permanent refusal of the retry does not show whether the first attempt was accepted.
        (vec!["--wait", "60s"], vec![ScriptedResponse::reset(), ScriptedResponse::status(403, "<html>")], 1, 2),
    ] {
        let (endpoint, terminal) = scripted_server(scripts).await;
        let output = terminal.run(&[&["run", "w", "--env", "dev"], args.as_slice()].concat());
        assert_eq!(output.code, code, "{args:?}: {}", output.err);
        let (submission_count, keys) = submission_keys(&endpoint);
        assert!(submission_count >= 2 && submission_count <= max_submissions, "{args:?}: {submission_count}");
        assert!(reports_key(&output.err, &keys), "{args:?}: {keys:?} {}", output.err);
    }
    // The suggested command uses the same key, so it submits the same run again.
    let queued = ScriptedResponse::json(&json!({ "execution_id": RUN, "status": "queued" }));
    let (endpoint, terminal) = scripted_server(vec![queued]).await;
    terminal.run_ok(&["run", "w", "--env", "dev", "--no-wait", "--idempotency-key", "once"]);
    assert_eq!(submission_keys(&endpoint), (1, BTreeSet::from(["once".to_owned()])));
    // The first attempt is refused, so no run can have been accepted.
    let (_endpoint, terminal) = scripted_server(vec![ScriptedResponse::status(403, "<html>")]).await;
    let output = terminal.run(&["run", "w", "--env", "dev", "--wait", "60s"]);
    assert!(output.code == 1 && !output.err.contains("--idempotency-key"), "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_retries_the_requests_before_the_submission() {
    let form = json!({ "slug": "w", "interface_config": { "input_fields": [{ "name": "count", "type": "number" }] } });
    let accepted =
        ScriptedResponse::events([""; 0]).header("Content-Location", &format!("/v1/executions/{RUN}/events"));
    let ended = ScriptedResponse::json(
        &json!({ "execution_id": RUN, "status": "completed", "queued_result": { "result": "done" } }),
    );
    let scripts = vec![ScriptedResponse::reset(), unavailable(), ScriptedResponse::json(&form), accepted, ended];
    let (endpoint, terminal) = scripted_server(scripts).await;
    let output = terminal.run(&["run", "w", "--env", "dev", "--input", "count=3", "--wait", "60s"]);
    assert_eq!((output.code, output.out.as_str()), (0, "done\n"), "{}", output.err);
    assert_eq!(output.err.matches("retrying until the wait is over").count(), 1, "{}", output.err);
    let posted = endpoint.requests().into_iter().find(|request| request.method == "POST").unwrap();
    assert_eq!(posted.json()["inputs"], json!({ "count": 3 }));

    // A refused connection is retried until the wait is over; without `--wait` the command ends at once.
    let unreachable = Terminal { server: Some("http://127.0.0.1:9".to_owned()), ..Terminal::offline() };
    let run = ["run", "w", "--env", "dev", "--input", "count=3"];
    for key in [vec![], vec!["--idempotency-key", "once"]] {
        let started = Instant::now();
        let output = unreachable.run(&[&run[..], &["--wait", "1s"], key.as_slice()].concat());
        assert!(output.code == 3 && started.elapsed() >= Duration::from_secs(1), "{key:?}: {}", output.err);
        assert!(output.err.contains("retrying until the wait is over"), "{key:?}: {}", output.err);
        assert!(!output.err.contains("the run may have started"), "{key:?}: {}", output.err);
    }
    let output = unreachable.run(&run);
    assert!(output.code == 3 && !output.err.contains("retrying"), "{}", output.err);
}
