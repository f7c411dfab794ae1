//! Releases of the workload that exist on the server.

use super::copy_directory;
use crate::{Terminal, path_text};
use fairway_testkit::TestApp;
use serde_json::json;
use std::fs;

fn approve(app: &TestApp, release: &str) -> Terminal {
    Terminal::connected(app).acting_as("user:ada").run_ok(&["releases", "submit", release]);
    let approver = Terminal::connected(app).acting_as("user:grace");
    approver.run_ok(&["releases", "approve", release]);
    approver
}

#[tokio::test]
async fn running_rollout_satisfies_the_manifest() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let folder = path_text(files.path());
    let first = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &first).run_ok(&["releases", "activate", &first]);
    let prompt = files.path().join("assets/letters-prompt.md");
    let text = fs::read_to_string(&prompt).unwrap();
    fs::write(&prompt, text.replace("sort letters", "sort letters and cards")).unwrap();
    let next = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    assert_ne!(next, first);
    let rollout = ["releases", "activate", &next, "--rollout", "restricted,standard", "--soak", "60"];
    approve(&app, &next).run_ok(&rollout);
    assert_eq!(
        terminal.run_ok(&["sync", "status", folder]),
        "in sync\n",
        "the running rollout counts as the desired release"
    );
    let second_apply = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(
        (&second_apply["releases"][0]["release_id"], &second_apply["releases"][0]["state"]),
        (&json!(next), &json!("active"))
    );
    assert_eq!(terminal.run_json(&["releases", "list", "--workload", "letters"]).as_array().unwrap().len(), 2);
}

/// A release for one lane does not satisfy a manifest that requires all lanes.
#[tokio::test]
async fn one_lane_release_does_not_satisfy_all_lanes() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, path) = (path_text(files.path()), files.path().join("releases/letters.dev.yaml"));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("bindings:", "target_lane: standard\nbindings:")).unwrap();
    let one_lane_release =
        terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &one_lane_release).run_ok(&["releases", "activate", &one_lane_release]);
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
    fs::write(&path, text).unwrap();
    assert_eq!(terminal.run_json(&["sync", "plan", folder])["releases"][0]["action"], "draft");
}

#[tokio::test]
async fn plan_names_the_binding_that_the_release_file_lost() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = copy_directory("examples/sync");
    let (folder, path) = (path_text(files.path()), files.path().join("releases/letters.dev.yaml"));
    let first = terminal.run_json(&["sync", "apply", folder])["releases"][0]["release_id"].as_str().unwrap().to_owned();
    approve(&app, &first).run_ok(&["releases", "activate", &first]);
    let text = fs::read_to_string(&path).unwrap();
    let remaining_lines: Vec<&str> = text.lines().filter(|line| !line.contains("letters-policy")).collect();
    fs::write(&path, remaining_lines.join("\n")).unwrap();
    let plan = terminal.run_ok(&["sync", "plan", folder]);
    let because = format!("the active release {first} binds letters-policy, which the release file does not bind\n");
    assert!(plan.contains(&because) && !plan.contains("outside the directory"), "{plan}");
}
