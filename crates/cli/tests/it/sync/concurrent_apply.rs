//! Several clients apply the same directory concurrently. Every item is created once.

use super::copy_directory;
use crate::{CommandOutput, Terminal, path_text};
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{fs, thread};

/// Runs `apply` concurrently, once in each terminal.
fn apply_concurrently(terminals: &[Terminal], folder: &str) -> Vec<CommandOutput> {
    thread::scope(|scope| {
        let handles: Vec<_> =
            terminals.iter().map(|terminal| scope.spawn(|| terminal.run(&["sync", "apply", folder]))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    })
}

/// Asserts that at least one command succeeded, and that each other command succeeded or reported a stale plan.
fn assert_succeeded_or_stale(output: &[CommandOutput]) {
    assert!(
        output.iter().any(|output| output.code == 0),
        "{:?}",
        output.iter().map(|output| &output.err).collect::<Vec<_>>()
    );
    for output in output {
        assert!(output.code == 0 || output.err.contains("stale_plan"), "{} {}", output.code, output.err);
    }
}

fn assert_counts(terminal: &Terminal, folder: &str, versions: usize, releases: usize) {
    for (slug, versions) in
        [("letters-prompt", versions), ("house-style", versions), ("letters-flow", 1), ("letters-policy", 1)]
    {
        let found = terminal.run_json(&["assets", "versions", slug]);
        assert_eq!(found.as_array().unwrap().len(), versions, "{slug}: {found}");
    }
    let found = terminal.run_json(&["releases", "list", "--workload", "letters"]);
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), releases, "{found:?}");
    for release in found {
        let release_json = terminal.run_json(&["releases", "show", release["release_id"].as_str().unwrap()]);
        assert_eq!(release_json["bindings"].as_array().unwrap().len(), 5, "{release_json}");
    }
    assert_eq!(terminal.run_ok(&["sync", "status", folder]), "in sync\n");
}

/// The example directory with an additional binding of a skill. A release may bind several skills.
fn with_a_skill() -> tempfile::TempDir {
    let files = copy_directory("examples/sync");
    let path = files.path().join("releases/letters.dev.yaml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("bindings:\n", "bindings:\n  - {role: skill, asset: house-style}\n")).unwrap();
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_applies_of_one_actor_create_each_item_once() {
    let app = TestApp::start().await;
    let terminals: Vec<Terminal> = (0..4).map(|_| Terminal::connected(&app).acting_as("service:ci")).collect();
    let files = with_a_skill();
    let folder = path_text(files.path());
    assert_succeeded_or_stale(&apply_concurrently(&terminals, folder));
    let terminal = Terminal::connected(&app).acting_as("service:ci");
    terminal.run_ok(&["sync", "apply", folder]);
    assert_counts(&terminal, folder, 1, 1);
    for (round, text) in ["stern", "loud", "quiet"].into_iter().enumerate() {
        for name in ["house-style.yaml", "letters-prompt.md"] {
            let path = files.path().join("assets").join(name);
            let before = fs::read_to_string(&path).unwrap();
            let (expected, changed) = if name.ends_with("md") {
                ("", before + text + "\n")
            } else {
                (
                    "body: ",
                    before
                        .lines()
                        .map(|line| {
                            if line.starts_with("  body:") {
                                format!("  body: Be {text}.\n")
                            } else {
                                format!("{line}\n")
                            }
                        })
                        .collect(),
                )
            };
            assert!(changed.contains(expected));
            fs::write(&path, changed).unwrap();
        }
        assert_succeeded_or_stale(&apply_concurrently(&terminals, folder));
        assert_counts(&terminal, folder, round + 2, round + 2);
    }
}

/// Idempotency keys are separate for each actor, while labels and slugs are shared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_actors_create_each_version_once() {
    let app = TestApp::start().await;
    let actors = ["user:ada", "user:grace", "service:ci"];
    let terminals: Vec<Terminal> = actors.iter().map(|actor| Terminal::connected(&app).acting_as(actor)).collect();
    let files = with_a_skill();
    let folder = path_text(files.path());
    for output in apply_concurrently(&terminals, folder) {
        assert!(output.code == 0 || output.err.contains("stale_plan"), "{} {}", output.code, output.err);
    }
    // Each client may have emptied its own draft in favour of another client's draft.
    terminals[2].run_ok(&["sync", "apply", folder]);
    for slug in ["letters-prompt", "house-style", "letters-flow", "letters-policy"] {
        assert_eq!(terminals[0].run_json(&["assets", "versions", slug]).as_array().unwrap().len(), 1, "{slug}");
    }
    assert_eq!(terminals[1].run_ok(&["sync", "status", folder]), "in sync\n");
    let found = terminals[0].run_json(&["releases", "list", "--workload", "letters"]);
    let show_release =
        |release: &Value| terminals[0].run_json(&["releases", "show", release["release_id"].as_str().unwrap()]);
    let count_bindings = |release: &Value| show_release(release)["bindings"].as_array().unwrap().len();
    let counts: Vec<usize> = found.as_array().unwrap().iter().map(count_bindings).filter(|count| *count > 0).collect();
    assert_eq!(counts, [5], "one release is complete, and the others left at most empty drafts: {found}");
}

/// Two concurrent clients can leave a duplicate binding. A later `apply` removes it.
#[tokio::test]
async fn removes_duplicate_bindings() {
    let app = TestApp::start().await;
    let terminal = Terminal::connected(&app).acting_as("user:ada");
    let files = with_a_skill();
    let folder = path_text(files.path());
    let applied = terminal.run_json(&["sync", "apply", folder]);
    let id = applied["releases"][0]["release_id"].as_str().unwrap();
    let release = terminal.run_json(&["releases", "show", id]);
    let binding_in_role = |role: &str| {
        let bindings = release["bindings"].as_array().unwrap();
        bindings.iter().find(|binding| binding["role"] == role).unwrap().clone()
    };
    let skill = json!({ "asset_version_id": binding_in_role("skill")["asset_version_id"], "role": "skill" });
    app.post(format!("/v1/releases/{id}/bindings"), skill).as_actor("user:ada").await.expect(201);
    // A binding is also removed, so that `apply` has a change to make.
    let flow =
        format!("/v1/releases/{id}/bindings/{}", binding_in_role("orchestration_flow")["binding_id"].as_str().unwrap());
    app.delete(flow).as_actor("user:ada").await.expect(204);
    assert_eq!(terminal.run_json(&["sync", "plan", folder])["releases"][0]["action"], "complete");
    let second_apply = terminal.run_json(&["sync", "apply", folder]);
    assert_eq!(second_apply["releases"][0]["release_id"], id);
    assert_counts(&terminal, folder, 1, 1);
}
