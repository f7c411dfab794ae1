//! Hostile servers: lost responses, links to foreign hosts, and text that a terminal would interpret.

use crate::{CommandOutput, Terminal, path_text};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::{Value, json};
use std::{
    io::{self, BufRead as _, BufReader, Read as _},
    process::Stdio,
};

pub(crate) const RUN: &str = "019a0000-0000-7000-8000-000000000001";

/// A terminal connected to the endpoint.
pub(crate) fn connected_to(endpoint: &ScriptedEndpoint) -> Terminal {
    Terminal { server: Some(endpoint.url("")), ..Terminal::offline() }
}

pub(crate) fn event(id: u32, name: &str, data: &Value) -> String {
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}

pub(crate) fn delta(id: u32, text: &str) -> String {
    event(id, "output.delta", &json!({ "step_id": "ask", "delta": text }))
}

/// The event stream of an execute response. A header of the response contains the run's identifier.
pub(crate) fn execute_events(events: impl IntoIterator<Item = String>) -> ScriptedResponse {
    ScriptedResponse::events(events).header("Content-Location", &format!("/v1/executions/{RUN}/events"))
}

pub(crate) fn run(status: &str, answer: &Value) -> ScriptedResponse {
    ScriptedResponse::json(&json!({ "execution_id": RUN, "status": status, "queued_result": { "result": answer } }))
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_a_token_only_to_its_server() {
    let (own_server, other_server) = (ScriptedEndpoint::start().await, ScriptedEndpoint::start().await);
    for endpoint in [&own_server, &other_server] {
        endpoint.respond_with(ScriptedResponse::json(&json!([])));
    }
    let terminal = Terminal::offline();
    let login = ["login", "--profile", "far", "--server", &own_server.url(""), "--token", "far-token", "--unchecked"];
    terminal.run_ok(&login);
    terminal.run_ok(&["audit", "list", "--profile", "far"]);
    terminal.run_ok(&["audit", "list", "--profile", "far", "--server", &other_server.url("")]);
    let sent_token = |endpoint: &ScriptedEndpoint| endpoint.requests()[0].header("authorization").map(str::to_owned);
    assert_eq!(sent_token(&own_server).as_deref(), Some("Bearer far-token"));
    assert_eq!((sent_token(&other_server), other_server.request_count()), (None, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_redirects_and_foreign_next_links() {
    let (own_server, other_server) = (ScriptedEndpoint::start().await, ScriptedEndpoint::start().await);
    other_server.respond_with(ScriptedResponse::json(&json!([])));
    let list = ["audit", "list", "--limit", "1000", "--server", &own_server.url(""), "--token", "t"];
    let next = format!("<{}>; rel=\"next\"", other_server.url("/v1/audit/events?cursor=x"));
    for response in [
        ScriptedResponse::redirect(&other_server.url("/v1/audit/events")),
        ScriptedResponse::json(&json!([{ "index": 1 }])).header("Link", &next),
    ] {
        own_server.respond_with(response);
        let output = Terminal::offline().run(&list);
        assert_eq!((output.code, output.out.as_str()), (3, ""), "a partial list is not returned: {}", output.err);
    }
    assert_eq!((own_server.request_count(), other_server.request_count()), (2, 0), "no request goes to another origin");
    // The client follows a link to the same origin.
    let page = |link: &str| ScriptedResponse::json(&json!([{ "index": 1 }])).header("Link", link);
    own_server.respond_in_sequence([
        page("</v1/audit/events?cursor=y>; rel=\"next\""),
        ScriptedResponse::json(&json!([{ "index": 2 }])),
    ]);
    let output = Terminal::offline().run(&list);
    assert_eq!((output.code, own_server.request_count()), (0, 4), "{}", output.err);
    assert_eq!(own_server.requests()[3].path, "/v1/audit/events?cursor=y");
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_endless_lists_and_events() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint
        .respond_with(ScriptedResponse::json(&json!([])).header("Link", "</v1/audit/events?cursor=y>; rel=\"next\""));
    let output = connected_to(&endpoint).run(&["audit", "list", "--limit", "100000"]);
    assert_eq!((output.code, endpoint.request_count()), (3, 5000), "{}", output.err);

    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    let endless = format!("data: {}", "x".repeat(33 << 20));
    endpoint.respond_with(execute_events([started, endless]).hanging_at_end());
    let output = connected_to(&endpoint).run(&["run", "w", "--env", "dev", "--wait", "60s"]);
    assert_eq!(output.code, 1, "{}", output.err);
    assert!(output.err.contains("exceeds the size limit"), "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_once_under_the_same_key_after_a_lost_response() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    let ended = event(2, "execution.completed", &json!({}));
    let accepted = ScriptedResponse::json(&json!({ "execution_id": RUN, "status": "queued" }));
    for (args, scripts) in [
        (vec!["executions", "cancel", RUN], vec![ScriptedResponse::reset(), accepted.clone()]),
        (vec!["run", "w", "--env", "dev", "--no-wait"], vec![ScriptedResponse::reset(), accepted]),
        (
            vec!["run", "w", "--env", "dev"],
            vec![ScriptedResponse::reset(), execute_events([started, ended]), run("completed", &json!("done"))],
        ),
    ] {
        let before = endpoint.request_count();
        endpoint.respond_in_sequence(scripts);
        let output = terminal.run(&args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.err);
        let requests = endpoint.requests().split_off(before);
        let posted: Vec<_> = requests.iter().filter(|request| request.method == "POST").collect();
        let [first, second] = posted.as_slice() else { panic!("{args:?}: {posted:?}") };
        assert!(first.header("idempotency-key").is_some_and(|key| key.len() == 36), "{args:?}");
        assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"), "{args:?}");
        assert_eq!((&first.path, &first.body), (&second.path, &second.body), "{args:?}");
    }
    let before = endpoint.request_count();
    endpoint.respond_with(ScriptedResponse::reset());
    let output = terminal.run(&["executions", "cancel", RUN]);
    assert_eq!((output.code, endpoint.request_count() - before), (3, 2), "exactly one retry: {}", output.err);
}

/// The command reports only the status of a proxy's response, because the body is not from Fairway.
#[tokio::test(flavor = "multi_thread")]
async fn reports_status_of_foreign_responses() {
    let endpoint = ScriptedEndpoint::start().await;
    for (status, expected) in [(502, "502 Bad Gateway"), (504, "504 Gateway Timeout"), (403, "403 Forbidden")] {
        endpoint.respond_with(ScriptedResponse::status(status, "<html>nothing that Fairway says"));
        let output = connected_to(&endpoint).run(&["audit", "list"]);
        assert!(output.code == 3 && output.err.contains(expected), "{}", output.err);
    }
}

fn release(state: &str, rollout: Option<&str>) -> ScriptedResponse {
    let rollout =
        rollout.map(|status| json!({ "status": status, "lane_sequence": ["guided"], "current_lane_index": 0 }));
    ScriptedResponse::json(&json!({ "state": state, "updated_at": "2026-01-01T00:00:00Z", "rollout_state": rollout }))
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_exit_code_reflects_the_release_outcome() {
    let endpoint = ScriptedEndpoint::start().await;
    let watch = ["releases", "watch", RUN, "--wait", "1m"];
    let terminal = connected_to(&endpoint);
    for (state, rollout, code, message) in [
        ("active", None, 0, ""),
        ("active", Some("completed"), 0, ""),
        ("active", Some("rolled_back"), 1, "rolled back"),
        ("superseded", None, 1, "superseded"),
        ("retired", Some("rolled_back"), 1, "retired"),
    ] {
        endpoint.respond_with(release(state, rollout));
        let output = terminal.run(&watch);
        assert_eq!(output.code, code, "{state}: {}", output.err);
        assert!(output.err.contains(message), "{state}: {}", output.err);
    }
    // A failed first poll ends the watch. Later failed polls are retried.
    endpoint.respond_in_sequence([
        release("active", Some("in_progress")),
        ScriptedResponse::reset(),
        release("active", None),
    ]);
    let output = terminal.run(&watch);
    assert!(output.code == 0 && output.err.contains("retrying"), "{}", output.err);
    endpoint.respond_with(ScriptedResponse::reset());
    assert_eq!(terminal.run(&watch).code, 3);
    endpoint.respond_with(release("active", Some("in_progress")));
    assert_eq!(terminal.run(&["releases", "watch", RUN, "--wait", "0s"]).code, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_ends_when_standard_output_closes() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_in_sequence([release("draft", None), release("approved", None), release("draft", None)]);
    let terminal = connected_to(&endpoint);
    let mut child = terminal
        .command(&["releases", "watch", RUN, "--wait", "1m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with("draft\n"), "{line}");
    drop(lines);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5), "the watch reports an unsettled release: {err}");
    assert!(err.contains("standard output was closed"), "{err}");
}

/// Text that a terminal would interpret: colours, 8-bit control sequences and bidirectional controls.
const TERMINAL_CONTROLS: &str = "\u{1b}[31m \u{9b}31m \u{7f} \u{202e}gnp.exe \u{2066} \u{61c}";

fn has_terminal_controls(text: &str) -> bool {
    let is_bidirectional_control = |character| matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().any(|character| (character.is_control() && character != '\n') || is_bidirectional_control(character))
}

#[tokio::test(flavor = "multi_thread")]
async fn output_contains_no_terminal_controls() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let graph = json!({
        "nodes": [{ "id": TERMINAL_CONTROLS, "type": TERMINAL_CONTROLS, "data": { "slug": TERMINAL_CONTROLS } }, { "id": "b", "type": "b", "data": {} }],
        "edges": [{ "source": TERMINAL_CONTROLS, "target": "b", "relationship": TERMINAL_CONTROLS }],
    });
    let item = json!({ "execution_id": TERMINAL_CONTROLS, "status": TERMINAL_CONTROLS, TERMINAL_CONTROLS: [TERMINAL_CONTROLS], "readable": TERMINAL_CONTROLS });
    let started = event(1, "execution.started", &json!({ "execution_id": TERMINAL_CONTROLS }));
    let ended = event(9, "execution.completed", &json!({}));
    let refused = ScriptedResponse::status(
        400,
        &json!({ "detail": { "error": TERMINAL_CONTROLS, "message": TERMINAL_CONTROLS }, "request_id": TERMINAL_CONTROLS }).to_string(),
    );
    let failed = json!({ "execution_id": TERMINAL_CONTROLS, "status": "failed", "error": { "code": TERMINAL_CONTROLS, "message": TERMINAL_CONTROLS } });
    for (args, scripts) in [
        (
            vec!["audit", "list"],
            vec![ScriptedResponse::json(
                &json!([{ "kind": TERMINAL_CONTROLS, "subject": { "id": TERMINAL_CONTROLS } }]),
            )],
        ),
        (vec!["executions", "show", RUN], vec![ScriptedResponse::json(&item)]),
        (vec!["executions", "show", RUN, "-o", "json"], vec![ScriptedResponse::json(&item)]),
        (vec!["executions", "show", RUN, "-o", "yaml"], vec![ScriptedResponse::json(&item)]),
        (vec!["executions", "show", RUN], vec![refused]),
        (vec!["evidence", "graph", RUN, "--format", "html"], vec![ScriptedResponse::json(&graph)]),
        (vec!["evidence", "graph", RUN, "--format", "mermaid"], vec![ScriptedResponse::json(&graph)]),
        (vec!["evidence", "graph", RUN, "--format", "graph"], vec![ScriptedResponse::json(&graph)]),
        (
            vec!["evidence", "graph", RUN],
            vec![ScriptedResponse::json(&json!({ TERMINAL_CONTROLS: [item.clone()], "b": item }))],
        ),
        (
            vec!["releases", "watch", RUN],
            vec![ScriptedResponse::json(&json!({ "state": "retired", "updated_at": TERMINAL_CONTROLS }))],
        ),
        (vec!["run", "w", "--env", "dev", "--no-wait"], vec![ScriptedResponse::json(&item)]),
        (
            vec!["run", "w", "--env", "dev", "--stream"],
            vec![execute_events([started, delta(2, TERMINAL_CONTROLS), ended]), ScriptedResponse::json(&failed)],
        ),
        (vec!["executions", "wait", RUN], vec![run("completed", &json!(TERMINAL_CONTROLS))]),
    ] {
        endpoint.respond_in_sequence(scripts);
        let CommandOutput { out, err, .. } = terminal.run(&args);
        assert!(!has_terminal_controls(&out) && !has_terminal_controls(&err), "{args:?}: {out:?} {err:?}");
        assert!(out.contains("31m") || err.contains("31m"), "the printable text remains: {args:?}: {out:?} {err:?}");
    }
    // Machine-readable output preserves all characters.
    endpoint.respond_with(ScriptedResponse::json(&item));
    assert_eq!(terminal.run_json(&["executions", "show", RUN]), item);
    let yaml = terminal.run_ok(&["executions", "show", RUN, "-o", "yaml"]);
    assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), item);
}

#[tokio::test(flavor = "multi_thread")]
async fn fails_when_output_cannot_be_written() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    let ended = event(9, "execution.completed", &json!({}));
    let list = ScriptedResponse::json(&json!([{ "index": 1 }]));
    let graph = ScriptedResponse::json(&json!({ "nodes": [], "edges": [] }));
    for (args, scripts) in [
        (vec!["--help"], vec![]),
        (vec!["run", "--help"], vec![]),
        (vec!["--version"], vec![]),
        (vec!["completions", "bash"], vec![]),
        (vec!["asset", "check", "demo/assets/ticket-policy.yaml"], vec![]),
        (vec!["asset", "check", "demo/assets/ticket-policy.yaml", "-o", "json"], vec![]),
        (vec!["policy", "test", "examples/policy"], vec![]),
        (vec!["audit", "list"], vec![list.clone()]),
        (vec!["audit", "list", "-o", "yaml"], vec![list]),
        (vec!["evidence", "graph", RUN, "--format", "html"], vec![graph]),
        (
            vec!["run", "w", "--env", "dev", "--stream"],
            vec![execute_events([started, delta(2, "Hello"), ended]), run("completed", &json!("Hello"))],
        ),
    ] {
        endpoint.respond_in_sequence(scripts.clone());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = terminal.command(&args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {err}");
        assert!(err.contains("standard output: "), "{args:?}: {err}");
        // A reader that closes the pipe early is not a failure.
        endpoint.respond_in_sequence(scripts);
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = terminal.command(&args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn closed_reader_does_not_change_the_exit_code() {
    let terminal = Terminal::offline();
    let files = crate::make_directory(&[(
        "b.yaml",
        "rules: [{id: a, condition: always, outcome: allow, reason_code: a}]\ntests: [{name: t, expect: {outcome: deny}}]\n",
    )]);
    for (args, code) in [
        (vec!["policy", "test", path_text(files.path())], 1),
        (vec!["policy", "test", path_text(files.path()), "-o", "json"], 1),
        (vec!["flow", "validate", "examples/flows/refused/unknown-step.yaml", "-o", "json"], 1),
        (vec!["flow", "validate", "demo/flows/ticket-flow.yaml"], 0),
    ] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = terminal.command(&args).stdout(writer).stderr(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_addresses_with_secrets_without_echo() {
    let terminal = Terminal::offline();
    for address in
        ["https://ada:s3cret@example.org", "https://example.org/?token=s3cret", "https://example.org/#s3cret"]
    {
        for args in [["workloads", "list", "--server", address], ["login", "--unchecked", "--server", address]] {
            let output = terminal.run(&args);
            assert_eq!(output.code, 2, "{}", output.err);
            assert!(!output.err.contains("s3cret") && !output.out.contains("s3cret"), "{}", output.err);
        }
    }
    assert!(!terminal.config().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_empty_and_oversized_tokens() {
    let endpoint = ScriptedEndpoint::start().await;
    endpoint.respond_with(ScriptedResponse::json(&json!([])));
    let terminal = Terminal::offline();
    let longest_token = "x".repeat(16 << 10);
    for (token, code) in [(format!("{longest_token}y"), 2), (String::new(), 2), (longest_token, 0)] {
        let mut command = terminal.command(&["login", "--server", &endpoint.url(""), "--token-stdin"]);
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, token.as_bytes()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let mut child = command.stdin(file).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{} bytes: {err}", token.len());
    }
    assert_eq!(endpoint.request_count(), 1);
}
