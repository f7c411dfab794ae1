//! Webhooks as their receivers process them, with the Standard Webhooks and CloudEvents packages in Python and
//! JavaScript.

use crate::{
    delivery::{KEY, NEXT_KEY, await_status, opt_in_to_incidents, server, suspend, webhook},
    support::workspace_fixture::WorkspaceFixture,
};
use fairway_testkit::{RecordedRequest, ScriptedEndpoint, ScriptedResponse};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env,
    io::Write as _,
    process::{Command, Stdio},
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// A valid key that was not used for any signature.
const OTHER_KEY: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// The path of a tool that `cargo xtask test` installed, from an environment variable.
fn installed_path(variable: &str) -> std::ffi::OsString {
    env::var_os(variable).unwrap()
}

/// The commands of the verifiers, by language.
fn verifiers() -> [(&'static str, Command); 2] {
    let mut python = Command::new(installed_path("FAIRWAY_TEST_RECEIVERS_PYTHON"));
    python.arg(format!("{ROOT}/tools/receivers/verify.py"));
    let mut javascript = Command::new(installed_path("FAIRWAY_TEST_NODE"));
    javascript.arg(format!("{ROOT}/tools/receivers/verify.mjs")).arg(installed_path("FAIRWAY_TEST_RECEIVERS_MODULES"));
    [("Python", python), ("JavaScript", javascript)]
}

/// Runs a verifier on a received request. Returns the verdict for each key, and the parsed event.
fn read_by(mut verifier: Command, request: &RecordedRequest, keys: &[&str]) -> (Vec<String>, Value) {
    let headers: BTreeMap<_, _> = request.headers.iter().cloned().collect();
    let body = std::str::from_utf8(&request.body).unwrap();
    let input = json!({ "headers": headers, "body": body, "keys": keys }).to_string();
    let mut child = verifier.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let mut lines: Vec<String> = stdout.lines().map(str::to_owned).collect();
    let event = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    (lines, event)
}

#[tokio::test]
async fn webhook_verifies_with_the_packages_of_its_standards() {
    let (app, _secrets) = server(&format!("{KEY} {NEXT_KEY}")).await;
    let fixture = WorkspaceFixture::create(&app).await;
    let receiver = ScriptedEndpoint::start().await;
    receiver.respond_with(ScriptedResponse::status(204, ""));
    webhook(&app, "hook", &receiver.url("/in"), Some("file:hook")).await;
    opt_in_to_incidents(&app, "webhook").await;
    suspend(&fixture).await;
    receiver.wait_for_requests(1).await;
    let sent_delivery = await_status(&app, "sent").await;
    let request = receiver.requests().swap_remove(0);
    let mut changed_request = request.clone();
    changed_request.body =
        String::from_utf8(changed_request.body).unwrap().replace("workload.changed", "workload.removed").into_bytes();
    for (language, verifier) in verifiers() {
        let (verdicts, event) = read_by(verifier, &request, &[KEY, NEXT_KEY, OTHER_KEY]);
        assert_eq!(verdicts, ["verified", "verified", "refused"], "{language}");
        assert_eq!(
            (&event["specversion"], &event["id"]),
            (&json!("1.0"), &sent_delivery["source_event"]["id"]),
            "{language}"
        );
        assert_eq!(event["type"], "fairway.workload.changed", "{language}");
        assert_eq!(event["data"]["workload_id"], fixture.workload.workload_id.as_str(), "{language}");
        assert!(event["source"].is_string() && event["time"].is_string(), "{language}: {event}");
    }
    for (language, verifier) in verifiers() {
        assert_eq!(read_by(verifier, &changed_request, &[KEY]).0, ["refused"], "{language}");
    }
}
