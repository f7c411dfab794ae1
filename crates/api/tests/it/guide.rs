//! The guide's commands, run as a reader would run them.

use fairway_testkit::TestApp;
use std::process::{Command, Output};

/// All commands of a document in one shell, in order.
fn run(document: &str, server: &str) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let text = std::fs::read_to_string(format!("{root}/{document}")).unwrap();
    let mut script = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, command) => {
                script.push_str(command);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    assert!(!script.is_empty(), "{document} has commands");
    Command::new("bash").args(["-euc", &script]).env("FAIRWAY", server).current_dir(root).output().unwrap()
}

#[tokio::test]
async fn the_first_answer_comes_out_with_its_evidence() {
    let app = TestApp::start().await;
    let url = format!("http://{}", app.address());
    let output = tokio::task::spawn_blocking(move || run("docs/guide/first-answer.md", &url)).await.unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    for section in ["policy_decision", "approvals", "bindings", "evidence_artifacts"] {
        assert!(said.contains(section), "the evidence shows {section}: {said}");
    }
}
