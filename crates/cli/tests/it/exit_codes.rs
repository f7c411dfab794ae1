//! The exit code of a command says whether the server refused it, the command line is wrong, or no server responds.
//! With `--output json`, the failure is a JSON object with the exit code.

use crate::{Terminal, sample_resources::create_workload};
use fairway_testkit::TestApp;
use serde_json::{Value, json};

#[tokio::test]
async fn exit_codes_distinguish_failures() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app);
    let missing = terminal.run(&["executions", "show", "01890000-0000-7000-8000-000000000000"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.starts_with("fairway: not_found: ") && missing.err.contains("(request "), "{}", missing.err);
    assert_eq!(terminal.run(&["executions", "shew"]).code, 2);
    assert_eq!(terminal.run(&["run", "x", "--env", "dev", "--wait", "soon"]).code, 2);
    let unreachable = Terminal::offline().run(&["workloads", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(unreachable.code, 3, "{}", unreachable.err);
    let unencrypted = Terminal::offline().run(&[
        "workloads",
        "list",
        "--server",
        "http://fairway.example.org",
        "--token",
        "secret-token",
    ]);
    assert_eq!(unencrypted.code, 2);
    assert!(!unencrypted.err.contains("secret-token"), "{}", unencrypted.err);
    assert_eq!(terminal.run(&["assets", "show", "nothing"]).code, 1);
}

#[tokio::test]
async fn failures_are_json_for_programs() {
    let app = TestApp::start().await;
    create_workload(&app).await;
    let ada = Terminal::connected(&app).acting_as("user:ada");
    let failure = |args: &[&str]| {
        let output = ada.run(args);
        let error: Value = serde_json::from_str(&output.err).unwrap_or_else(|_| panic!("{args:?}: {}", output.err));
        assert_eq!(error["exit_code"], output.code, "{error}");
        assert_eq!(output.out, "", "{args:?}");
        error
    };
    let refused = failure(&["executions", "show", "01890000-0000-7000-8000-000000000000", "-o", "json"]);
    assert_eq!(
        (&refused["detail"]["error"], refused["request_id"].is_string()),
        (&json!("not_found"), true),
        "{refused}"
    );
    let unknown = failure(&["workloads", "show", "sortr", "--output", "json"]);
    assert_eq!(unknown["detail"]["candidates"][0]["name"], "sorter", "{unknown}");
    let misuse = failure(&["releases", "list", "--state", "x", "--output=json"]);
    assert_eq!(misuse["detail"]["error"], "usage", "{misuse}");
    let unreachable = failure(&["workloads", "list", "-ojson", "--server", "http://127.0.0.1:9"]);
    assert_eq!(
        (&unreachable["detail"]["error"], &unreachable["exit_code"]),
        (&json!("unreachable"), &json!(3)),
        "{unreachable}"
    );
    let message = unreachable["detail"]["message"].as_str().unwrap();
    assert!(message.contains("the address is from `--server`"), "{message}");
    // The output format of the profile also applies to failures, and progress is JSON too.
    ada.run_ok(&["login", "-o", "json"]);
    assert_eq!(failure(&["workloads", "show", "sortr"])["detail"]["error"], "not_found");
    let run = ada.run(&["run", "sorter", "--env", "dev", "--input", "text=x"]);
    assert!(run.code == 1 && run.err.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", run.err);
}
