//! Waiting for runs of a real server: queued runs, runs without a worker, and server restarts.

use crate::Terminal;
use fairway_testkit::TestApp;
use std::{
    io::{BufRead as _, BufReader, Lines},
    process::{Child, ChildStderr, Command, Stdio},
};

#[tokio::test]
async fn wait_timeout_and_interrupt_leave_the_run_queued() {
    let app = TestApp::builder().without_worker().start().await;
    let workload = app.active_workload("letters").await;
    let slug = workload.execute_path().split('/').nth(4).unwrap().to_owned();
    let terminal = Terminal::connected(&app);
    // Without a worker the run stays queued.
    let id = terminal.run_ok(&["run", &slug, "--env", "dev", "--no-wait"]);
    let id = id.trim();
    let output = terminal.run(&["executions", "wait", id, "--wait", "1s"]);
    assert_eq!(output.code, 5, "{}", output.err);
    assert!(output.err.contains(id), "{}", output.err);

    let mut child =
        terminal.command(&["executions", "wait", id, "--wait", "60s"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut has_handler = false;
    // The signal is sent only after the child has installed its handler. An earlier signal would kill the child.
    while !has_handler {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught_signals = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        has_handler = u64::from_str_radix(&caught_signals, 16).unwrap() & 0b10 != 0;
    }
    // The handler can print the run's identifier from the start.
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let last_line = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).last().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert!(last_line.contains(id), "{last_line}");
    assert_eq!(terminal.run_json(&["executions", "show", id])["status"], "queued", "Ctrl-C leaves the run alone");
    terminal.run_ok(&["executions", "cancel", id]);
    let ended = terminal.run(&["executions", "wait", id]);
    assert!(ended.code == 1 && ended.err.contains("cancelled"), "{}", ended.err);
}

/// Starts a server with queued dispatch and no worker. Returns it with a workload's slug.
async fn queued_server() -> (TestApp, String) {
    let app = TestApp::builder().setting("FAIRWAY_DISPATCH", "queued").without_worker().start().await;
    let slug = app.fixtures().active_workload("main").await.slug;
    (app, slug)
}

/// Starts a command that waits for a run. Returns the child process, the run's identifier and the remaining messages.
fn start_wait(terminal: &Terminal, slug: &str) -> (Child, String, Lines<BufReader<ChildStderr>>) {
    let mut command = terminal.command(&["run", slug, "--env", "dev", "--input", "ticket=a refund", "--wait", "100s"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = messages.next().unwrap().unwrap();
    let run = first.strip_prefix("run ").and_then(|rest| rest.strip_suffix(" is accepted")).unwrap().to_owned();
    (child, run, messages)
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_id_of_a_queued_run_on_exit() {
    let (app, slug) = queued_server().await;
    let terminal = Terminal::connected(&app);
    let output = terminal.run(&["run", &slug, "--env", "dev", "--input", "ticket=a refund", "--wait", "1s"]);
    assert_eq!(output.code, 5, "{}", output.err);
    let last = output.err.lines().last().unwrap();
    let run = last.strip_prefix("fairway: run ").and_then(|rest| rest.split_once(" is still running; ")).unwrap().0;
    assert_eq!(terminal.run_json(&["executions", "show", run])["status"], "queued");
    assert!(output.err.contains("the run is queued"), "{}", output.err);

    for signal in ["-INT", "-TERM"] {
        let (mut child, run, messages) = start_wait(&terminal, &slug);
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let last = messages.map(Result::unwrap).last().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(5), "{signal}: {last}");
        assert!(last.starts_with(&format!("fairway: run {run} is still running; ")), "{signal}: {last}");
        assert_eq!(terminal.run_json(&["executions", "show", &run])["status"], "queued", "the run continues");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_survives_a_server_restart() {
    let (app, slug) = queued_server().await;
    let terminal = Terminal::connected(&app);
    let (child, run, mut messages) = start_wait(&terminal, &slug);
    // The server restarts at the same address, on the same database, and with a worker.
    let restarted = TestApp::builder().sharing_storage_of(&app).setting("FAIRWAY_BIND", app.address().to_string());
    app.shut_down_gracefully().await;
    let lost = format!("the server does not respond; run {run} may still be running; retrying");
    assert!(messages.any(|line| line.unwrap() == lost), "the wait ended");
    let app = restarted.start().await;
    let later_messages: Vec<String> = messages.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), answer.as_str()), (Some(0), "billing\n"), "{later_messages:?}");
    assert!(later_messages.iter().any(|line| line == "the server responds again"), "{later_messages:?}");
    assert_eq!(app.get(format!("/v1/executions/{run}")).await.expect(200)["status"], "completed");
    let runs = app.get("/v1/executions").await.expect(200);
    assert_eq!(runs.as_array().unwrap().len(), 1, "the run was created once");
}
