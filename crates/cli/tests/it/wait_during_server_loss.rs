//! Waiting for a run while the server restarts, stops responding or drops its streams.

use crate::{
    CommandOutput,
    hostile_server::{RUN, connected_to, delta, event, execute_events, run},
};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::json;
use std::{process::Stdio, time::Instant};

#[tokio::test(flavor = "multi_thread")]
async fn resumes_a_dropped_stream_after_the_last_event() {
    let endpoint = ScriptedEndpoint::start().await;
    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    let answer = json!("Hello, world");
    endpoint.respond_in_sequence([
        execute_events([started.clone(), delta(2, "Hello, ")]).truncated(),
        // When the client asks again, the run has ended. The part of the answer that was printed so far is incomplete.
        run("completed", &answer),
        ScriptedResponse::events([delta(3, "world"), event(4, "execution.completed", &json!({}))]),
        run("completed", &answer),
    ]);
    let args = ["run", "w", "--env", "dev", "--stream"];
    let output = connected_to(&endpoint).run(&args);
    assert_eq!((output.code, output.out.as_str()), (0, "Hello, world\n"), "{}", output.err);
    let requests = endpoint.requests();
    assert_eq!((requests[2].header("last-event-id"), requests.len()), (Some("2"), 4));

    // The connection drops after the whole text has arrived.
    endpoint.respond_in_sequence([
        execute_events([started.clone(), delta(2, "Hello, world")]).truncated(),
        run("completed", &answer),
        ScriptedResponse::status(204, ""),
        run("completed", &answer),
    ]);
    let output = connected_to(&endpoint).run(&args);
    assert_eq!((output.code, output.out.as_str()), (0, "Hello, world\n"), "{}", output.err);

    // If no stream can be resumed, the command prints the whole answer.
    let mut scripts = vec![execute_events([started, delta(2, "Hello, ")]).truncated()];
    scripts.extend([run("completed", &answer), ScriptedResponse::reset()].iter().cycle().take(10).cloned());
    scripts.push(run("completed", &answer));
    endpoint.respond_in_sequence(scripts);
    let output = connected_to(&endpoint).run(&args);
    assert_eq!((output.code, output.out.as_str()), (0, "Hello, world\n"), "{}", output.err);
    assert!(output.err.contains("the stream was interrupted"), "{}", output.err);
}

/// If the rate limit allows only few requests, the client must not use all of them for event streams.
#[tokio::test(flavor = "multi_thread")]
async fn rate_limited_caller_gets_its_answer() {
    let endpoint = ScriptedEndpoint::start().await;
    let refusal = json!({ "detail": { "error": "rate_limited", "message": "Later." }, "request_id": "r" });
    let limited = ScriptedResponse::status(429, &refusal.to_string());
    endpoint.respond_in_sequence([
        execute_events([event(1, "execution.started", &json!({ "execution_id": RUN }))]).truncated(),
        limited.clone(),
        run("completed", &json!("done")),
        limited.clone(),
        limited,
    ]);
    let output = connected_to(&endpoint).run(&["run", "w", "--env", "dev"]);
    assert_eq!((output.code, output.out.as_str(), endpoint.request_count()), (0, "done\n", 5), "{}", output.err);
    let event_requests: Vec<bool> =
        endpoint.requests().iter().map(|request| request.path.contains("/events")).collect();
    assert_eq!(event_requests, [false, false, false, true, false], "after a refused poll, the run is polled again");
}

#[tokio::test(flavor = "multi_thread")]
async fn detects_review_and_end_while_the_stream_is_silent() {
    let endpoint = ScriptedEndpoint::start().await;
    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    let silent = || execute_events([started.clone()]).hanging_at_end();
    let args = ["run", "w", "--env", "dev", "--wait", "150s"];
    let review = run("awaiting_review", &json!(null));
    endpoint.respond_in_sequence([silent(), run("running", &json!(null)), review.clone(), review]);
    let output = connected_to(&endpoint).run(&args);
    assert_eq!((output.code, endpoint.request_count()), (5, 4), "{}", output.err);
    assert!(output.err.contains("the answer awaits review"), "{}", output.err);

    let ended = run("completed", &json!("done"));
    endpoint.respond_in_sequence([silent(), ended.clone(), ended.clone(), ScriptedResponse::status(204, ""), ended]);
    let output = connected_to(&endpoint).run(&args);
    assert_eq!((output.code, output.out.as_str(), endpoint.request_count()), (0, "done\n", 9), "{}", output.err);
    assert_eq!(endpoint.requests()[7].header("last-event-id"), Some("1"), "the stream is resumed after the last event");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_run_id_before_any_event() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let args = ["run", "w", "--env", "dev", "--wait", "2s"];
    let queued = || run("queued", &json!(null));
    let busy = json!({ "detail": { "error": "unavailable", "message": "Come back." }, "request_id": "r" }).to_string();
    let refused = json!({ "detail": { "error": "unauthenticated", "message": "Who?" }, "request_id": "r" }).to_string();
    for (responses, code, message) in [
        (vec![queued()], 5, "is still running; `fairway executions wait"),
        // The server is unreachable, or a proxy responds in its place.
        (vec![ScriptedResponse::reset()], 3, "resumes waiting"),
        (vec![ScriptedResponse::status(503, &busy)], 3, "unavailable: Come back."),
        (vec![ScriptedResponse::status(502, "<html>Bad gateway")], 3, "502 Bad Gateway"),
        (vec![ScriptedResponse::status(401, &refused)], 1, "resumes waiting"),
        // A proxy refuses all requests permanently.
        (vec![ScriptedResponse::status(401, "<html>Who?")], 1, "401 Unauthorized"),
        (vec![ScriptedResponse::status(403, "<html>No")], 1, "403 Forbidden"),
        (vec![ScriptedResponse::status(404, "<html>Where?")], 1, "resumes waiting"),
        (vec![ScriptedResponse::redirect("https://login.example.org/")], 1, "resumes waiting"),
        // After two failures, the server responds again.
        (
            vec![ScriptedResponse::reset(), ScriptedResponse::status(502, "<html>"), run("completed", &json!("done"))],
            0,
            "responds again",
        ),
    ] {
        let before = endpoint.request_count();
        let scripts = [execute_events([]).truncated()].into_iter().chain(responses);
        endpoint.respond_in_sequence(scripts);
        let output = terminal.run(&args);
        assert_eq!(output.code, code, "{message}: {}", output.err);
        assert!(output.err.starts_with(&format!("run {RUN} is accepted\n")), "{}", output.err);
        assert!(output.err.contains(message), "{message}: {}", output.err);
        let mentions = output.err.lines().filter(|line| line.contains(RUN)).count();
        assert!(mentions >= 2 || code == 0, "the final message names the run: {}", output.err);
        let requests = endpoint.requests().split_off(before);
        assert_eq!(requests.iter().filter(|request| request.method == "POST").count(), 1, "{message}");
    }
    // A response without the header that names the run is not from Fairway.
    endpoint.respond_with(
        ScriptedResponse::events([event(1, "execution.started", &json!({ "execution_id": RUN }))]).hanging_at_end(),
    );
    let output = terminal.run(&args);
    assert!(output.code == 1 && output.err.contains("does not name the run"), "{}", output.err);
}

/// The client polls the run while it reads the last events. Either response may arrive first.
#[tokio::test(flavor = "multi_thread")]
async fn output_is_independent_of_poll_and_event_order() {
    let endpoint = ScriptedEndpoint::start().await;
    let step = |id, name| event(id, name, &json!({ "step_id": "ask" }));
    let failed = event(5, "step.completed", &json!({ "step_id": "check", "error_code": "too_slow" }));
    let remaining_events =
        [delta(3, "Hello"), step(4, "step.completed"), failed, event(6, "execution.completed", &json!({}))].concat();
    let first_events =
        [event(1, "execution.started", &json!({ "execution_id": RUN })), step(2, "step.started")].concat();
    let ended = run("completed", &json!({ "message": "Hello" }));
    let args = ["run", "w", "--env", "dev", "--stream", "--wait", "60s"];
    let paused_stream = execute_events([first_events.clone(), remaining_events.clone()]).with_pauses();
    let step_lines = |output: &CommandOutput| {
        output.err.lines().filter(|line| line.starts_with("step ")).map(str::to_owned).collect::<Vec<_>>()
    };

    // The remaining events arrive after the poll.
    endpoint.respond_in_sequence([paused_stream, ended.clone()]);
    let terminal = connected_to(&endpoint);
    let child = terminal.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The client polls the run after a silence. Only after the poll does the endpoint continue the stream.
    endpoint.wait_for_requests(2).await;
    endpoint.release_pauses(1);
    let after_poll = CommandOutput::of(child.wait_with_output().unwrap());
    // Standard output contains the answer, as without `--stream`. The streamed parts are on standard error.
    let answer = "{\n  \"message\": \"Hello\"\n}\n";
    assert_eq!((after_poll.code, after_poll.out.as_str()), (0, answer), "{}", after_poll.err);
    assert!(after_poll.err.contains("\nHello\n"), "{}", after_poll.err);
    assert_eq!(
        step_lines(&after_poll),
        ["step ask ...", "step ask done", "step check failed: too_slow"],
        "{}",
        after_poll.err
    );

    // The stream delivers nothing more, so the client requests the remaining events again.
    let resumed = ScriptedResponse::events([remaining_events.clone()]);
    endpoint.respond_in_sequence([
        execute_events([first_events.clone()]).hanging_at_end(),
        ended.clone(),
        ended.clone(),
        resumed,
        ended.clone(),
    ]);
    let after_stall = terminal.run(&args);
    assert_eq!(
        (after_stall.code, after_stall.out.as_str(), step_lines(&after_stall)),
        (0, answer, step_lines(&after_poll)),
        "{}",
        after_stall.err
    );

    // A client that connects after the end of the run prints the same output.
    endpoint.respond_in_sequence([ended.clone(), ScriptedResponse::events([first_events, remaining_events]), ended]);
    let after_end = terminal.run(&["executions", "wait", RUN, "--stream"]);
    assert_eq!(
        (after_end.code, after_end.out.as_str(), step_lines(&after_end)),
        (0, answer, step_lines(&after_poll)),
        "{}",
        after_end.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_an_existing_run_survives_an_outage() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let busy = ScriptedResponse::status(503, "<html>nobody is there");
    let wait = |time: &str| terminal.run(&["executions", "wait", RUN, "--wait", time]);
    let bad_gateway = ScriptedResponse::status(502, "<html>");
    endpoint.respond_in_sequence([
        ScriptedResponse::reset(),
        busy.clone(),
        bad_gateway.clone(),
        run("completed", &json!("done")),
    ]);
    let output = wait("60s");
    assert_eq!((output.code, output.out.as_str()), (0, "done\n"), "{}", output.err);
    assert!(output.err.contains("retrying") && output.err.contains("responds again"), "{}", output.err);
    for failure in [ScriptedResponse::reset(), busy, bad_gateway] {
        let before = endpoint.request_count();
        endpoint.respond_with(failure);
        let output = wait("2s");
        assert_eq!(output.code, 3, "{}", output.err);
        assert!(
            endpoint.request_count() > before + 2 && output.err.contains(RUN),
            "the run was polled again: {}",
            output.err
        );
    }
    // The client does not wait for a run that does not exist.
    let missing = json!({ "detail": { "error": "not_found", "message": "Nothing." }, "request_id": "r" }).to_string();
    let before = endpoint.request_count();
    endpoint.respond_with(ScriptedResponse::status(404, &missing));
    let output = wait("60s");
    assert_eq!((output.code, endpoint.request_count() - before), (1, 1), "{}", output.err);
    assert!(!output.err.contains("may still be running"), "{}", output.err);
}

/// A server that does not respond, or that freezes within a stream, must not block the client much longer than its wait
/// time. The bounds allow for a busy machine.
#[tokio::test(flavor = "multi_thread")]
async fn silent_server_does_not_extend_the_wait() {
    let endpoint = ScriptedEndpoint::start().await;
    let terminal = connected_to(&endpoint);
    let timed = |args: &[&str]| {
        let started = Instant::now();
        (terminal.run(args), started.elapsed().as_secs())
    };
    endpoint.respond_with(ScriptedResponse::hang());
    let (output, seconds) = timed(&["run", "w", "--env", "dev", "--input", "text=x", "--wait", "2s"]);
    assert!(output.code == 3 && seconds < 20, "{seconds} s: {}", output.err);
    assert_eq!(endpoint.requests()[0].path, "/v1/workloads/by-slug/w");

    // The stream freezes after the first event. The client polls after 3 s, and the poll ends soon after the wait time.
    let started = event(1, "execution.started", &json!({ "execution_id": RUN }));
    endpoint.respond_in_sequence([execute_events([started]).hanging_at_end(), ScriptedResponse::hang()]);
    let before = endpoint.request_count();
    let (output, seconds) = timed(&["run", "w", "--env", "dev", "--wait", "4s"]);
    assert!(output.code == 3 && seconds < 12, "{seconds} s: {}", output.err);
    assert_eq!(endpoint.request_count() - before, 2, "one poll is enough");
    let (output, seconds) = timed(&["executions", "wait", RUN, "--wait", "1s"]);
    assert!(output.code == 3 && seconds < 6, "{seconds} s: {}", output.err);
}

/// A live connection carries a keep-alive every 3 s. The client treats a connection as dead after 10 s without data,
/// even if it is open.
#[tokio::test(flavor = "multi_thread")]
async fn abandons_a_dead_connection_and_resumes_the_stream() {
    let endpoint = ScriptedEndpoint::start().await;
    let started = event(7, "execution.started", &json!({ "execution_id": RUN }));
    endpoint.respond_in_sequence([execute_events([started]).hanging_at_end(), run("running", &json!(null))]);
    let terminal = connected_to(&endpoint);
    let mut command = terminal.command(&["run", "w", "--env", "dev", "--wait", "10m"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let resumed = loop {
        let request_count = endpoint.request_count();
        if let Some(request) = endpoint.requests().into_iter().find(|request| request.path.ends_with("/events")) {
            break request;
        }
        endpoint.wait_for_requests(request_count + 1).await;
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((resumed.method.as_str(), resumed.header("last-event-id")), ("GET", Some("7")));
}
