//! Completion of names and identifiers from the server.

use crate::{CommandOutput, Terminal, make_directory, path_text, sample_resources::create_contents};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse, TestApp};
use std::time::{Duration, Instant};

const FLOW: &str = "{name: Sort, trigger: {type: api_request, inputs_schema: {text: string}}, entry_step: done, steps: [{id: done, type: return, output: '{{trigger.text}}'}]}";

/// The completions that the bash script receives for a command line whose last word is incomplete.
fn complete(terminal: &Terminal, args: &[&str]) -> CommandOutput {
    let line: Vec<&str> = ["--", "fairway"].iter().chain(args).copied().collect();
    let mut command = terminal.command(&line);
    command.env("COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", args.len().to_string()).env("_CLAP_IFS", "\n");
    CommandOutput::of(command.output().unwrap())
}

fn values(terminal: &Terminal, args: &[&str]) -> Vec<String> {
    let output = complete(terminal, args);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{args:?}");
    output.out.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn completes_names_and_identifiers_from_the_server() {
    let app = TestApp::start().await;
    let (ada, _) = create_contents(&app);
    let active = app.fixtures().active_workload("sorting").await;
    assert_eq!(values(&ada, &["workloads", "show", "sor"]), ["sorting"]);
    let assets = values(&ada, &["assets", "show", "sort-"]);
    assert_eq!(assets, ["sort-policy", "sort-model", "sort-prompt"]);
    let files = make_directory(&[("flow.yaml", FLOW)]);
    let file = files.path().join("flow.yaml");
    ada.run_ok(&["flows", "create", "sort-flow", "--owner", "team:sorting", path_text(&file)]);
    assert_eq!(values(&ada, &["flows", "show", "sort-"]), ["sort-flow"]);
    assert_eq!(values(&ada, &["run", "sorting", "--env", ""]), ["dev"]);
    let releases = values(&ada, &["releases", "show", ""]);
    for expected in ["latest", "sorting@dev", active.release_id.as_str()] {
        assert!(releases.iter().any(|value| value == expected), "{expected}: {releases:?}");
    }
    // Options in the incomplete command line, such as the server, are respected.
    let unreachable = ["--server", "http://127.0.0.1:9", "workloads", "show", "sor"];
    assert_eq!(values(&ada, &unreachable), [""; 0]);
    assert!(values(&ada, &["work"]).contains(&"workloads".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_server_delays_a_completion_by_a_second() {
    let silent = ScriptedEndpoint::start().await;
    silent.respond_with(ScriptedResponse::hang());
    let mut terminal = Terminal::offline();
    terminal.server = Some(silent.url(""));
    let started = Instant::now();
    assert_eq!(values(&terminal, &["workloads", "show", "x"]), [""; 0]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
